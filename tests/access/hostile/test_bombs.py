"""Chunks that decode to gigabytes, as users meet them: the engine and verify stop, and say where."""

import json
import subprocess
import sys
import zlib

import h5py
import numpy as np
import pytest
import xarray as xr

import icevirt
from access.virtual import document
from icevirt.errors import FormatError, StorageError
from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from icevirt.storage.memory import MemoryStorage

BIG = 512 << 20
ZLIB = {"name": "numcodecs.zlib", "configuration": {"level": 1}}


def bomb():
    packer = zlib.compressobj(1)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(BIG >> 20)), packer.flush()])


CHILD = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
import xarray as xr
import icevirt
from icevirt.errors import IcevirtError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
repo, prefix = sys.argv[1:]
opened = xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=[prefix])
before = peak()
try:
    opened.v.load()
    found = {}
except IcevirtError as error:
    found = {"kind": type(error).__name__, **error.facts}
found["engine"] = peak() - before
report = icevirt.verify(repo, full=True, authorize_virtual_chunk_access=[prefix])
found["differences"] = [each.what for each in report.checked.differences]
found["children"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def exploding(tmp_path_factory):
    """Return what the engine and verify say of a file whose chunk is a bomb, and what they took."""
    folder = tmp_path_factory.mktemp("bomb")
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("v", (1 << 20,), "f8", chunks=(1 << 20,), compression="gzip")
        made.id.write_direct_chunk((0,), bomb())
    report = icevirt.build([str(path)], str(folder / "repo"))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder / "repo"), report.containers[0]],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


@pytest.mark.ci
def test_the_engine_stops_at_the_declared_size(exploding):
    assert exploding["kind"] == "StorageError"
    assert exploding["variable"] == "/v"
    assert "declares" in exploding["reason"]
    assert exploding["engine"] < 64 << 20


@pytest.mark.ci
def test_verify_stops_at_the_declared_size_and_reports_it(exploding):
    assert any("declares" in what for what in exploding["differences"])
    assert exploding["children"] < BIG


def repository_with(length):
    storage = MemoryStorage()
    repo = Repository.create(storage)
    session = repo.writable_session("main")
    index = np.zeros((1, 2), np.uint32)
    native = session.assets.put_chunk(bytes(40))
    table = ChunkTable(
        index=index,
        kind=np.full(1, 1, np.uint8),
        source=np.zeros(1, np.uint32),
        offset=np.zeros(1, np.uint64),
        length=np.full(1, length, np.uint64),
        chunk_ids=np.frombuffer(native, np.uint8).reshape(1, 12).copy(),
    )
    session.add_array("/v", document(), table)
    session.commit("a chunk of impossible length")
    return storage


@pytest.mark.parametrize("length", [41, 1 << 40, 1 << 61, 1 << 62, (1 << 64) - 1])
def test_a_native_chunk_of_impossible_length_is_refused(tmp_path, length):
    storage = repository_with(length)
    for info in storage.list():
        at = tmp_path / info.path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(storage.get(info.path))
    for root in (storage, tmp_path):
        with pytest.raises((StorageError, FormatError)) as caught:
            xr.open_dataset(root, engine="icevirt").load()
        assert isinstance(caught.value, FormatError) == (length >= 1 << 62)
