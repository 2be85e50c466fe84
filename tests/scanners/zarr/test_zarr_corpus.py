"""Every array of a store is what zarr-python reads there, in icevirt and in the official client."""

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from scanners.zarr.zarr_stores import REFUSED, arrays_in, write_store

# leaves the values of all arrays in a file
OFFICIAL = """
import sys, pickle
import icechunk, numpy as np, zarr
from icechunk.credentials import LocalFileSystemAccess
storage = icechunk.local_filesystem_storage(sys.argv[1])
prefixes = icechunk.Repository.open(storage).config.virtual_chunk_containers
access = dict.fromkeys(prefixes, LocalFileSystemAccess)
repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
root = zarr.open_group(repo.readonly_session("main").store, mode="r")
found = {
    name: (np.asarray(node[...]), dict(node.attrs), str(node.fill_value))
    for name, node in root.members(max_depth=None) if isinstance(node, zarr.Array)
}
pickle.dump(found, open(sys.argv[2], "wb"))
"""


@pytest.fixture(scope="module", params=[(2, False), (2, True), (3, False), (3, True)], ids=str)
def build(request, tmp_path_factory):
    """A store, and the repository made of it."""
    folder = tmp_path_factory.mktemp("zarr")
    zarr_format, consolidated = request.param
    write_store(folder / "s.zarr", zarr_format, consolidated=consolidated)
    report = icevirt.build(folder / "s.zarr", folder / "repo", executor="in-process")
    return folder / "s.zarr", folder / "repo", report


def assert_same(mine, theirs, name):
    mine = np.asarray(mine)
    assert mine.shape == theirs.shape, name
    if theirs.dtype.kind in "OTU":
        assert mine.tolist() == theirs.tolist(), name
    else:
        assert mine.dtype == theirs.dtype.newbyteorder("="), name
        assert mine.tobytes() == theirs.astype(theirs.dtype.newbyteorder("=")).tobytes(), name


@pytest.mark.ci
def test_both_clients_read_what_zarr_reads(build, tmp_path):
    store, repo, _ = build
    subprocess.run([sys.executable, "-c", OFFICIAL, repo, tmp_path / "found"], check=True)
    official = np.load(tmp_path / "found", allow_pickle=True)
    session = icevirt.Repository.open(
        repo, authorize_virtual_chunk_access=[store]
    ).readonly_session("main")
    mine = zarr.open_group(session.store, mode="r")
    names = arrays_in(store)
    assert set(names) == set(official) == set(arrays_in(session.store))
    for name in names:
        source = zarr.open_array(store, path=name, mode="r")
        values = np.asarray(source[...])
        assert_same(mine[name][...], values, name)
        assert_same(official[name][0], values, name)
        for attributes in (dict(mine[name].attrs), official[name][1]):
            attributes.pop("_FillValue", None)  # of v2, as xarray reads it
            assert attributes == dict(source.attrs), name
        if source.fill_value is not None:
            assert official[name][2] == str(source.fill_value), name
    assert dict(mine.attrs) == dict(zarr.open_group(store, mode="r").attrs)
    assert mine["group/inner"].attrs["depth"] == 2


def test_missing_chunks_stay_missing_and_no_value_is_copied(build):
    store, _, _ = build
    scanned = scan_file(store)
    assert scanned.counts()["inline"] == 0
    chunks = [
        path for path in store.rglob("*") if path.is_file() and not path.name.startswith(".z")
    ]
    assert scanned.counts()["virtual"] == sum(path.name != "zarr.json" for path in chunks)
    assert len(scanned.array("/fill0").references) == 1
    assert len(scanned.array("/missing").references) == 0


@pytest.mark.ci
def test_verify_compares_with_zarr(build):
    store, repo, _ = build
    access = {"authorize_virtual_chunk_access": [store], "executor": "in-process"}
    checked = icevirt.verify(repo, values=40, seed=1, **access)
    assert checked.ok
    assert not checked.checked.not_compared
    assert checked.checked.values


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_the_official_client_cannot_read_is_refused_by_name(zarr_format, tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=zarr_format)
    root.create_array("good", shape=(2,), dtype="f4")
    root.create_array("struct", shape=(2,), dtype=REFUSED["struct"])
    path = tmp_path / "s.zarr/good" / (".zarray" if zarr_format == 2 else "zarr.json")
    with pytest.raises(UnsupportedError, match="compound data type") as error:
        scan_file(tmp_path / "s.zarr")
    assert error.value.facts["variable"] == "/struct"
    known = {"scan_options": {"drop_variables": ["struct"]}}
    assert [array.path for array in scan_file(tmp_path / "s.zarr", **known).arrays] == ["/good"]
    document = json.loads(path.read_text())
    unknown = {"id": "nobodys", "name": "nobodys", "configuration": {}}
    document |= {"compressor": unknown} if zarr_format == 2 else {"codecs": [unknown]}
    path.write_text(json.dumps(document))
    with pytest.raises(UnsupportedError, match="nobodys") as error:
        scan_file(tmp_path / "s.zarr", **known)
    assert error.value.facts["variable"] == "/good"
