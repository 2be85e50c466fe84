"""Variables that `materialize` stored go on growing, in their own chunks and codecs."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import icevirt
from builds.kept import Kept
from builds.support import assert_same_dataset, expected_dataset, official, opened, write_day
from icevirt.api.upkeep.fold import fold
from icevirt.errors import FormatError, IcevirtError, PlanChangedError
from icevirt.ids import ObjectId12
from icevirt.storage.local import LocalStorage
from long_forms import IS_LONG, crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

FORMS = {
    "as it is": {},
    "encoded": {"codec": "zstd"},
    "longer chunks": {"chunks": {"time": 6}},
    "a chunk for all": {"chunks": {"time": -1}},
    "cut along all": {"chunks": {"time": 5, "x": 4, "y": 2}, "codec": "zstd"},
    "shorter chunks": {"chunks": {"x": 2}},
}


class Archive:
    """A dataset of three days of four steps, one chunk for each step."""

    def __init__(self, place, **shape):
        self.shape = shape
        self.folder, self.repo = place / "archive", str(place / "repo")
        self.folder.mkdir()
        self.day = 0
        for _ in range(3):
            self.write()
        icevirt.build(self.folder, self.repo, concat_dim="time")

    def write(self, **how):
        """Write the next day."""
        self.day += 1
        return write_day(self.folder / f"day{self.day:02}.nc", self.day, **self.shape, **how)

    def store(self, variable="packed", **how):
        how = {"authorize_virtual_chunk_access": [str(self.folder)]} | how
        return icevirt.materialize(self.repo, variable, **how)

    def node(self, variable="/packed"):
        return icevirt.Repository.open(self.repo).readonly_session("main").array(variable)

    def kinds(self, variable="/packed"):
        session = icevirt.Repository.open(self.repo).readonly_session("main")
        return set(session.array_table(variable).kind.tolist())

    def layout(self):
        """Return what the metadata says of chunks and codecs."""
        session = icevirt.Repository.open(self.repo).readonly_session("main")
        metadata = zarr.open_group(session.store, mode="r")["packed"].metadata.to_dict()
        return metadata["chunk_grid"], metadata["codecs"]

    @property
    def tip(self):
        return icevirt.Repository.open(self.repo).lookup_branch("main")

    def files(self):
        return sorted(map(str, self.folder.glob("*.nc")))

    def assert_as_files(self, files=None):
        """Compare with xarray, with the official client, and all stored chunks with their names."""
        files = files or self.files()
        with expected_dataset(files, "time") as expected, opened(self.repo) as found:
            assert_same_dataset(found, expected)
        raw = []
        for each in files:
            with h5py.File(each) as file:
                raw.append(file["packed"][...])
        group = zarr.open_group(official(self.repo).readonly_session("main").store, mode="r")
        np.testing.assert_array_equal(group["packed"][...], np.concatenate(raw))
        assert icevirt.check(self.repo, chunks=True).ok


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), Archive)


@pytest.fixture
def archive(kept):
    return kept.lay_down()


def append(archive):
    report = icevirt.append(archive.write(), archive.repo)
    assert report.flat, report.findings


def append_many(archive):
    report = icevirt.append([archive.write() for _ in range(3)], archive.repo)
    assert report.flat, report.findings


def update(archive):
    archive.write()
    assert icevirt.update(archive.repo).files_added == 1


def correct(archive):
    """Write other values into a file of the past."""
    with netCDF4.Dataset(archive.folder / "day02.nc", "a") as file:
        packed = file["packed"]
        packed.set_auto_maskandscale(False)
        packed[1:3] = packed[1:3] + archive.day
    assert icevirt.update(archive.repo).files_corrected == 1


def touch(archive):
    os.utime(archive.folder / "day01.nc", (1_700_000_000, 1_700_000_000))
    icevirt.update(archive.repo)


def vanish(archive):
    (archive.folder / "day01.nc").unlink()
    icevirt.update(archive.repo, vanished="remove")


def window(archive):
    assert icevirt.maintain(archive.repo, window="1D", authorize=archive.folder).window.files
    for path in archive.files()[:-2]:
        os.unlink(path)


def variables(archive):
    icevirt.update(archive.repo, variables=["packed"])


def build(archive):
    archive.write()
    icevirt.build(archive.folder, archive.repo, concat_dim="time", mode="w")


def expire(archive):
    repo, now = icevirt.Repository.open(archive.repo), datetime.now(UTC)
    repo.expire_snapshots(older_than=now)
    repo.garbage_collect(now)


def others(archive):
    """Commit to another group, with the official client."""
    session = official(archive.repo).writable_session("main")
    zarr.open_group(session.store).require_group("mine").attrs["n"] = archive.tip
    session.commit("other")


def amend(archive):
    session = icevirt.Repository.open(archive.repo).writable_session("main")
    zarr.open_group(session.store).require_group("mine").attrs["n"] = archive.tip
    session.amend("amended")


def join(archive):
    """Join the manifests of appends, as `maintain` does."""
    for _ in range(3):
        append(archive)
    assert fold(LocalStorage(archive.repo), fewest=2).joined


def undo(archive):
    """Go back a commit and forward again."""
    tip = archive.tip
    icevirt.undo(archive.repo)
    icevirt.redo(archive.repo)
    assert archive.tip == tip


def relocate(archive):
    moved = archive.folder.with_name(archive.folder.name + "m")
    archive.folder.rename(moved)
    places = [str(archive.folder), str(moved)]
    icevirt.relocate(archive.repo, *places, authorize_virtual_chunk_access=places)
    archive.folder = moved


def name_step(given):
    return getattr(given, "__name__", given)


def goes_on(archive, form, steps):
    archive.store(**form)
    chunks, codecs = archive.layout()
    for number, step in enumerate(steps, 1):
        step(archive)
        assert 2 not in archive.kinds(), step.__name__
        assert archive.layout() == (chunks, codecs), step.__name__
        if IS_LONG or number == len(steps):  # it holds what the steps before wrote
            archive.assert_as_files()


def test_a_stored_variable_grows_and_is_corrected_in_its_form(archive):
    goes_on(archive, FORMS["as it is"], (append, correct, append))


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "virtual"])
def test_joined_manifests_of_an_expired_build_are_the_datasets_own(archive, stored):
    if stored:
        archive.store()
    join(archive)
    expire(archive)
    append(archive)
    correct(archive)
    archive.assert_as_files()


@pytest.mark.parametrize(
    ("stored", "then"), crossed(["mask", "packed", None], [append, build]), ids=name_step
)
def test_groups_of_others_stay_where_the_build_expired(archive, stored, then):
    """The log of the commit that made them is that of the tip, and of no build."""
    others(archive)
    expire(archive)
    if stored:
        archive.store(stored)
    then(archive)
    build(archive)
    session = icevirt.Repository.open(archive.repo).readonly_session("main")
    assert zarr.open_group(session.store, mode="r")["mine"].attrs["n"]
    archive.assert_as_files()


@pytest.mark.parametrize("stored", ["mask", "packed"])
def test_chunks_of_others_are_not_undone_where_the_build_expired(archive, stored):
    session = official(archive.repo).writable_session("main")
    zarr.open_group(session.store)["time_bnds"][0, 0] = -7.0
    session.commit("theirs")
    expire(archive)
    archive.store(stored)
    icevirt.append(archive.write(), archive.repo)
    with pytest.raises(PlanChangedError, match="time_bnds"):
        correct(archive)
    with opened(archive.repo, mask_and_scale=False) as found:
        assert found["time_bnds"][0, 0] == -7.0


GROWTHS = [
    (append, append),
    (append_many, update, append),
    (update, correct, append),
    (touch, append),
    (vanish, update),
    (window, append),
    (variables, append),
    (build, append),
    (expire, append, expire, update),
    (others, expire, append, append),
    (append, others, expire, update, append),
    (amend, append, amend, expire, append),
    (undo, append, undo, update),
    (join, expire, append, correct),
    (relocate, append, correct),
]


def name_growth(given):
    return given if isinstance(given, str) else " ".join(step.__name__ for step in given)


@pytest.mark.ci
@pytest.mark.parametrize(("steps", "form"), crossed(GROWTHS, FORMS), ids=name_growth)
def test_a_stored_variable_goes_on_in_its_form(archive, steps, form):
    goes_on(archive, FORMS[form], steps)


def test_a_plan_says_nothing_of_chunks_that_stay(archive):
    archive.store(chunks={"time": 6}, codec="zstd")
    archive.write()
    plan = icevirt.plan(archive.folder, concat_dim="time", repo=archive.repo)
    assert not [each.what for each in plan.difference.changes if "packed: " in each.what]


def test_a_variable_without_references_keeps_its_chunks(archive):
    """A build stores values of small variables by itself, in chunks that it cuts anew."""
    archive.store("time", chunks={"time": 5})
    for step in (append, correct, append):
        step(archive)
        metadata = archive.node("/time").user_data
        assert json.loads(metadata)["chunk_grid"]["configuration"]["chunk_shape"] == [5]
    archive.assert_as_files()


def test_variables_of_groups_and_several_forms_go_on_together(tmp_path):
    archive = Archive(tmp_path)
    icevirt.build(archive.folder, archive.repo, concat_dim="time", group="/days")
    archive.store("/days/packed", chunks={"time": 6})
    archive.store("/days/packed", codec="zstd")
    archive.store("packed", chunks={"x": 3})
    report = icevirt.append(archive.write(), archive.repo, group="/days")
    assert report.flat, report.findings
    append_once = icevirt.append(archive.files()[-1], archive.repo)
    assert append_once.flat, append_once.findings
    session = icevirt.Repository.open(archive.repo).readonly_session("main")
    root = zarr.open_group(session.store, mode="r")
    assert (root["days/packed"].chunks[0], root["packed"].chunks[2]) == (6, 3)
    np.testing.assert_array_equal(root["days/packed"][...], root["packed"][...])
    assert {2} & {*session.array_table("/days/packed").kind} == set()
    archive.assert_as_files()


def test_a_chunk_that_an_append_writes_again_is_compared(tmp_path):
    archive = Archive(tmp_path, nx=300)
    with netCDF4.Dataset(archive.write(), "a") as file:
        file["packed"][:] = 300 + np.random.default_rng(0).random(file["packed"].shape)
    icevirt.append(archive.files()[-1], archive.repo)
    archive.store(chunks={"time": 5})
    key = archive.tip
    session = icevirt.Repository.open(archive.repo).readonly_session("main")
    table = session.array_table("/packed")
    (last,) = np.flatnonzero((table.index == table.index.max(axis=0)).all(axis=1))
    name = ObjectId12(table.chunk_ids[table.source[last]].tobytes())
    path = Path(archive.repo, "chunks", str(name))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(FormatError, match="a stored chunk is damaged") as caught:
        icevirt.append(archive.write(), archive.repo)
    assert caught.value.facts["variable"] == "/packed"
    assert archive.tip == key
    icevirt.update(archive.repo, variables=["packed"])
    icevirt.append(archive.files()[-1], archive.repo)
    archive.assert_as_files()


@pytest.mark.parametrize(
    "forged",
    [
        {"chunk_shape": [0, 5, 6], "codec": None},
        {"chunk_shape": [1 << 40, 1 << 40, 6], "codec": None},
        {"chunk_shape": [5], "codec": None},
        {"chunk_shape": None, "codec": "blosc"},
        {"chunk_shape": "555", "codec": None},
        ["zstd"],
    ],
    ids=repr,
)
def test_a_forged_form_is_refused_or_left(archive, forged):
    """Anybody who can write the repository can write the record."""
    archive.store(chunks={"time": 5})
    repo = icevirt.Repository.open(archive.repo)
    record = next(repo.ancestry(branch="main")).metadata["icevirt_build"]
    session = repo.writable_session("main")
    changed = {**record, "stored": {"/packed": forged}}
    session.commit("forged", metadata={"icevirt_build": changed}, allow_empty=True)
    try:
        report = icevirt.append(archive.write(), archive.repo)
    except IcevirtError:
        return
    assert any("no longer stored" in each for each in report.findings), report.findings
    archive.assert_as_files()


def test_a_stored_region_stays_beside_appends_and_stops_what_would_lose_it(archive):
    archive.store(where={"y": slice(0, 0)})
    append(archive)
    archive.assert_as_files()
    tip = archive.tip
    with pytest.raises(PlanChangedError, match="a region of it is stored"):
        correct(archive)
    assert archive.tip == tip
    icevirt.update(archive.repo, drop_others=True)
    archive.assert_as_files()


def test_a_variable_whose_region_was_stored_first_goes_on_as_a_whole(archive):
    archive.store(where={"time": slice("2001-01-02", "2001-01-02")})
    append(archive)
    archive.store()
    for step in (append, correct, append):
        step(archive)
        assert 2 not in archive.kinds()
    archive.assert_as_files()


def test_reports_say_what_is_stored(archive):
    archive.store(chunks={"time": 6})
    archive.write()
    flat = icevirt.append(archive.files()[-1], archive.repo)
    archive.write()
    whole = icevirt.build(archive.folder, archive.repo, concat_dim="time", mode="w")
    assert "stored in the repository again: /packed" in whole.findings
    for report, chunks in ((flat, 1), (whole, 4)):  # of 16 steps, the chunk of the last four is new
        (packed,) = (each for each in report.arrays if each.path == "/packed")
        assert packed.chunk_shape[0] == 6
        assert packed.references.virtual == 0
        assert packed.references.native + packed.references.inline == chunks
        assert packed.references.bytes_stored > 0
