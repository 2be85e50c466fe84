"""What is written again under a new name is compared with the old name first."""

import itertools
import os
import pickle
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import official
from icevirt.api.upkeep.fold import fold
from icevirt.errors import FormatError, IcevirtError
from icevirt.repo import kept_objects
from icevirt.repo.assets import Assets
from icevirt.storage.local import LocalStorage

pytestmark = pytest.mark.usefixtures("in_process")

STEPS = 300


def write(folder, number, steps=STEPS):
    """Write a file whose `quality` is stored by a build and whose `v` is referenced."""
    folder.mkdir(exist_ok=True)
    with netCDF4.Dataset(folder / f"f{number}.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 40)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = number * STEPS + np.arange(steps)
        quality = file.createVariable("quality", "f4", ("time",))
        quality[:] = np.random.default_rng(number).random(steps)
        file.createVariable("v", "f4", ("time", "x"), chunksizes=(50, 40))[:] = number
    return str(folder / f"f{number}.nc")


class Archive:
    def __init__(self, place):
        self.folder, self.repo = place / "archive", str(place / "repo")
        self.files = [write(self.folder, number) for number in range(3)]
        icevirt.build(self.folder, self.repo, concat_dim="time")

    def chunk_of(self, variable):
        """Return the file of the first stored chunk of a variable."""
        session = icevirt.Repository.open(self.repo).readonly_session("main")
        table = session.array_table(variable)
        (row,) = np.flatnonzero(table.kind == 1)[:1]
        assert table.kind[row] == 1
        key = table.chunk_ids[table.source[row]].tobytes()
        return next(
            path
            for path in Path(self.repo, "chunks").iterdir()
            if path.name == str(icevirt.ids.ObjectId12(key))
        )

    def read(self):
        with xr.open_dataset(
            self.repo,
            engine="icevirt",
            decode_times=False,
            authorize_virtual_chunk_access=[str(self.folder)],
        ) as found:
            return {name: found[name].values for name in found.variables}

    @property
    def tip(self):
        return icevirt.Repository.open(self.repo).lookup_branch("main")


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path)


def damaged(path, is_bad):
    """Change a byte so that what is read differs and is not refused; return the bytes before."""
    raw = path.read_bytes()
    for at in range(len(raw) // 3, len(raw), max(1, len(raw) // 200)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        if is_bad():
            return raw
    raise AssertionError("no byte shows")


def reads_otherwise(archive, good):
    def look():
        try:
            return any(not np.array_equal(archive.read()[name], good[name]) for name in good)
        except IcevirtError:
            return False

    return look


def append(archive):
    icevirt.append([write(archive.folder, 6, 3)], archive.repo)


def encode(archive):
    icevirt.materialize(archive.repo, "quality", chunks={"time": 100})


def update(archive):
    write(archive.folder, 3, 3)
    icevirt.update(archive.repo)


@pytest.mark.parametrize("again", [append, encode, update])
def test_a_damaged_chunk_is_not_written_again_under_another_name(archive, again):
    good, tip = archive.read(), archive.tip
    path = archive.chunk_of("/quality")
    before = damaged(path, reads_otherwise(archive, good))
    with pytest.raises(FormatError, match="a stored chunk is damaged") as caught:
        again(archive)
    assert caught.value.facts["variable"] == "/quality"
    assert caught.value.facts["path"] == f"chunks/{path.name}"
    assert "--variables /quality" in str(pickle.loads(pickle.dumps(caught.value)))
    assert archive.tip == tip
    assert [each.code for each in icevirt.check(archive.repo, chunks=True).problems]
    path.write_bytes(before)
    again(archive)
    np.testing.assert_array_equal(archive.read()["quality"][: 3 * STEPS], good["quality"])
    assert icevirt.check(archive.repo, chunks=True).ok


def test_the_command_of_the_error_writes_the_chunk_again(archive):
    good = archive.read()
    path = archive.chunk_of("/quality")
    damaged(path, reads_otherwise(archive, good))
    icevirt.update(archive.repo, variables=["/quality"])
    assert icevirt.check(archive.repo, chunks=True).ok
    np.testing.assert_array_equal(archive.read()["quality"], good["quality"])
    append(archive)


def test_a_chunk_that_is_cut_short_is_damaged(archive):
    path = archive.chunk_of("/quality")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="a stored chunk is damaged"):
        append(archive)


def test_a_chunk_with_a_random_name_is_taken_as_it_is(archive):
    """The official client names chunks so; their bytes say nothing about damage."""
    session = official(archive.repo).writable_session("main")
    values = np.arange(3 * STEPS, dtype="f4")
    zarr.open_group(session.store)["quality"][:] = values
    session.commit("mended")
    icevirt.materialize(archive.repo, "quality", chunks={"time": 100})
    np.testing.assert_array_equal(archive.read()["quality"], values)


def test_a_chunk_is_refused_where_the_list_of_names_cannot_be_read(archive):
    path = archive.chunk_of("/quality")
    damaged(path, reads_otherwise(archive, archive.read()))
    (listed,) = Path(archive.repo, "icevirt/content-names").iterdir()
    listed.write_bytes(listed.read_bytes()[:-1])
    with pytest.raises(FormatError, match="may be damaged"):
        append(archive)


def join(archive):
    fold(LocalStorage(archive.repo), fewest=2)


def copy(archive):
    icevirt.materialize(archive.repo, "v", authorize_virtual_chunk_access=[str(archive.folder)])


def move(archive):
    moved = archive.folder.with_name("moved")
    os.rename(archive.folder, moved)
    places = [str(archive.folder), str(moved)]
    icevirt.relocate(archive.repo, *places, authorize_virtual_chunk_access=places)


def edit(archive):
    session = icevirt.Repository.open(archive.repo).writable_session("main")
    zarr.open_group(session.store)["v"][:50] = np.zeros((50, 40), "f4")
    session.commit("edited")


def last_manifest(archive):
    folder = Path(archive.repo, "manifests")
    return max(folder.iterdir(), key=os.path.getmtime)


@pytest.mark.parametrize("again", [append, join, copy, move, edit])
def test_a_damaged_manifest_is_not_written_again_under_another_name(archive, again):
    """Values of small arrays, offsets and lengths lie in manifests."""
    for number in (3, 4, 5):
        icevirt.append([write(archive.folder, number)], archive.repo)
    repo = icevirt.Repository.open(archive.repo)
    node = repo.readonly_session("main").array("/v")
    path = Path(archive.repo, "manifests", str(node.manifests[-1].object_id))
    raw, tip = path.read_bytes(), archive.tip
    if again is edit:  # reads the first manifest
        path = Path(archive.repo, "manifests", str(node.manifests[0].object_id))
        raw = path.read_bytes()
    refused = set()
    for at in itertools.islice(range(60, len(raw), max(1, len(raw) // 60)), 60):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        with pytest.raises(FormatError) as caught:
            Assets(LocalStorage(archive.repo), compares=True).read_manifest(
                node.manifests[0 if again is edit else -1].object_id
            )
        refused.add(caught.value.what)
        if "do not agree with its name" in caught.value.what:
            break
    kept_objects._cache.cache_clear()  # this process wrote the manifest, and would not read it
    with pytest.raises(FormatError, match="do not agree with its name"):
        again(archive)
    assert archive.tip == tip
