"""A twin is a variable's second array in other chunks, kept in step with it."""

import pickle
from contextlib import suppress
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from api.test_stored_growth import (
    GROWTHS,
    Archive,
    append,
    correct,
    join,
    name_growth,
    others,
    relocate,
    update,
)
from builds.kept import Kept
from builds.support import official
from executors import at_most
from icevirt.access.store.locating import ReferenceLocator
from icevirt.display.render import as_text
from icevirt.errors import (
    AlreadyExistsError,
    ConflictError,
    IcevirtError,
    InvalidInputError,
    StorageError,
)
from icevirt.model.chunks import ChunkType
from icevirt.objects import fetch
from icevirt.repo.summary import summary
from icevirt.storage.local import LocalStorage
from icevirt.tasks.copy_chunks import encode_chunks
from long_forms import cases, crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


class TwinArchive(Archive):
    """The same dataset, whose variable has a twin with six steps in a chunk."""

    def __init__(self, place, **shape):
        super().__init__(place, **shape)
        self.twin()

    def twin(self, **chunks):
        chunks = chunks or {"time": 5, "x": 4, "y": 2}
        return self.store(chunks=chunks, beside=True)

    def open(self, layout, **options):
        prefixes = {"authorize_virtual_chunk_access": [str(self.folder)]}
        return xr.open_dataset(
            self.repo, engine="icevirt", layout=layout, mask_and_scale=False, **prefixes, **options
        )

    def assert_in_step(self):
        """Compare both layouts, and both arrays as the official client reads them."""
        self.assert_as_files()
        with self.open("own") as own, self.open("twin") as twin, self.open("auto") as auto:
            assert "packed_twin" not in twin.variables
            np.testing.assert_array_equal(own["packed"], twin["packed"])
            np.testing.assert_array_equal(own["packed"], auto["packed"])
        group = zarr.open_group(official(self.repo).readonly_session("main").store, mode="r")
        np.testing.assert_array_equal(group["packed"][...], group["packed_twin"][...])
        assert group["packed_twin"].attrs["icevirt_twin_of"] == "packed"
        assert group["packed_twin"].chunks == (5, 2, 4)
        assert 2 in self.kinds()
        assert 2 not in self.kinds("/packed_twin")

    def assert_behind(self):
        with pytest.raises(InvalidInputError, match="left behind"):
            self.open("twin")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), TwinArchive)


@pytest.fixture
def archive(kept):
    return kept.lay_down()


def overwrite(archive, variable="packed"):
    """Write a value with the official client."""
    session = official(archive.repo).writable_session("main")
    zarr.open_group(session.store)[variable][0, 0, 0] = archive.day
    session.commit("theirs")


def test_a_twin_is_a_second_array_of_the_same_values(archive):
    archive.assert_in_step()


@pytest.mark.parametrize("steps", cases(GROWTHS, *GROWTHS[::4]), ids=name_growth)
def test_a_twin_grows_with_its_variable(archive, steps):
    for step in steps:
        step(archive)
    append(archive)
    archive.assert_in_step()


@pytest.mark.parametrize("variable", ["packed", "packed_twin"])
def test_a_twin_left_behind_by_others_is_not_read(archive, variable):
    overwrite(archive, variable)
    archive.assert_behind()
    append(archive)
    archive.assert_behind()
    with archive.open("own") as own, archive.open("auto") as auto:
        np.testing.assert_array_equal(own["packed"], auto["packed"])
    archive.twin()
    with archive.open("own") as own, archive.open("twin") as twin:
        np.testing.assert_array_equal(own["packed"], twin["packed"])
    append(archive)
    with archive.open("own") as own, archive.open("twin") as twin:
        np.testing.assert_array_equal(own["packed"], twin["packed"])


def remake(archive, variable):
    """Put an array with other values in the place of one, and with its attributes."""
    session = official(archive.repo).writable_session("main")
    group = zarr.open_group(session.store)
    old, values = group[variable], group[variable][...]
    new = group.create_array(
        variable, shape=old.shape, chunks=old.chunks, dtype=old.dtype, fill_value=old.fill_value,
        attributes=dict(old.attrs), dimension_names=old.metadata.dimension_names, overwrite=True,
    )  # fmt: skip
    new[...] = values + 7
    session.commit("theirs")


def mask(archive):
    archive.store("mask")


def region(archive):
    archive.store("packed", where={"y": slice(0, 1)})


def itself(archive):
    archive.store("packed")


def other_variable(archive):
    icevirt.update(archive.repo, variables=["mask"])


_CARRYING = [mask, region, itself, other_variable, relocate, join]


@pytest.mark.parametrize(
    ("steps", "variable"),
    crossed(
        cases([*product(_CARRYING, repeat=2)], *[*product(_CARRYING, repeat=2)][1::5]),
        ["packed", "packed_twin"],
    ),
    ids=name_growth,
)
def test_another_array_in_the_place_of_one_is_never_called_in_step(archive, variable, steps):
    remake(archive, variable)
    for step in steps:
        with suppress(IcevirtError):
            step(archive)
        with archive.open("own") as own, archive.open("auto") as auto:
            point = {"y": 0, "x": 0}
            np.testing.assert_array_equal(own["packed"][point], auto["packed"][point])


@pytest.mark.parametrize(("client", "how"), crossed(["icevirt", "official"], ["commit", "amend"]))
def test_who_repeats_the_metadata_of_a_build_calls_no_twin_in_step(archive, client, how):
    if client == "official":
        repo = official(archive.repo)
    else:
        access = [str(archive.folder)]
        repo = icevirt.Repository.open(archive.repo, authorize_virtual_chunk_access=access)
    metadata = next(iter(repo.ancestry(branch="main"))).metadata
    session = repo.writable_session("main")
    zarr.open_group(session.store)["packed"][0, 0, 0] = 77
    getattr(session, how)("theirs", metadata=metadata)
    for step in (append, append, update):
        with archive.open("own") as own, archive.open("auto") as auto:
            series = own["packed"][:, 0, 0].values
            np.testing.assert_array_equal(series, auto["packed"][:, 0, 0].values)
        step(archive)


def test_a_twin_stays_in_step_where_manifests_are_joined_or_files_move(archive):
    for step in (join, relocate):
        step(archive)
        archive.assert_in_step()


def test_a_twin_that_was_deleted_does_not_come_back(archive):
    session = icevirt.Repository.open(archive.repo).writable_session("main")
    del zarr.open_group(session.store)["packed_twin"]
    session.commit("no twin")
    for step in (update, correct):
        step(archive)
        archive.assert_as_files()
        session = icevirt.Repository.open(archive.repo).readonly_session("main")
        assert session.find("/packed_twin") is None


def test_a_twin_is_made_anew_in_other_chunks(archive):
    report = archive.twin(time=6)
    assert (report.variable, report.chunk_shape) == ("/packed_twin", (6, 5, 6))
    append(archive)
    with archive.open("own") as own, archive.open("all") as both:
        np.testing.assert_array_equal(own["packed"], both["packed_twin"])
    assert archive.twin(time=6).snapshot_id


def test_a_plan_of_a_twin_says_what_it_takes_and_what_appends_write_again(archive):
    tip = archive.tip
    plan = archive.store(chunks={"time": 6}, beside=True, dry_run=True)
    assert plan.bytes_rewritten == 6 * 5 * 6 * 2
    assert "writes up to 360 B of values again" in as_text(plan)
    assert archive.tip == tip


@pytest.mark.parametrize(
    ("variable", "how", "match"),
    [
        ("packed", {}, "in chunks of its own"),
        ("packed", {"chunks": {"depth": 3}}, "not a chunk length"),
        ("packed", {"chunks": {"time": 0}}, "no elements"),
        ("packed", {"chunks": {"time": 3}, "where": {"y": slice(0, 1)}}, "whole variable"),
        ("packed_twin", {"chunks": {"time": 3}}, "is the twin of a variable"),
        ("nowhere", {"chunks": {"time": 3}}, "no such array"),
    ],
)
def test_a_wrong_twin_is_refused_and_nothing_is_made(archive, variable, how, match):
    others(archive)
    tip = archive.tip
    with pytest.raises(IcevirtError, match=match):
        archive.store(variable, beside=True, **how)
    assert archive.tip == tip


def test_a_twin_takes_no_name_of_others(archive):
    session = official(archive.repo).writable_session("main")
    zarr.open_group(session.store).create_array("mask_twin", shape=(2,), dtype="i4")
    session.commit("theirs")
    with pytest.raises(AlreadyExistsError, match="name of another array"):
        archive.store("mask", chunks={"y": 2}, beside=True)


def test_a_twin_takes_no_name_of_the_files_and_their_attributes_hide_nothing(tmp_path):
    """Files have the attribute where somebody copied a dataset with its twins into them."""
    values = {"t": 1.0, "t_twin": 100.0, "u": 2.0, "v": 3.0, "w": 4.0}
    for step in range(2):
        with h5py.File(tmp_path / f"{step}.nc", "w") as file:
            file["time"] = [step]
            file["time"].make_scale("time")
            for (name, value), of in zip(
                values.items(), ("t_twin", "t", "v", "u", ".."), strict=True
            ):
                file[name] = np.full(1, value + step)
                file[name].dims[0].attach_scale(file["time"])
                file[name].attrs["icevirt_twin_of"] = of
    repo, prefixes = str(tmp_path / "repo"), [str(tmp_path)]
    icevirt.build(str(tmp_path / "*.nc"), repo, concat_dim="time")
    with pytest.raises(AlreadyExistsError, match="name of another array"):
        icevirt.materialize(
            repo, "t", chunks={"time": 2}, beside=True, authorize_virtual_chunk_access=prefixes
        )
    icevirt.materialize(
        repo, "u", chunks={"time": 2}, beside=True, authorize_virtual_chunk_access=prefixes
    )
    for layout in ("auto", "own"):
        with xr.open_dataset(
            repo, engine="icevirt", layout=layout, authorize_virtual_chunk_access=prefixes
        ) as found:
            assert {*found.data_vars} == {*values}
            for name, value in values.items():
                np.testing.assert_array_equal(found[name], [value, value + 1])
    assert summary(icevirt.Repository.open(repo)).twins == {"/u_twin": True}


def test_a_full_disk_is_seen_before_anything_is_stored(archive, monkeypatch):
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda _: 10)
    before = sorted(Path(archive.repo).rglob("*"))
    with pytest.raises(StorageError, match="10 B left"):
        archive.twin(time=6)
    assert sorted(Path(archive.repo).rglob("*")) == before


STEPS = 120


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """A dataset of many files with a map each, whose variable has a twin."""
    folder = tmp_path_factory.mktemp("maps")
    values = np.random.default_rng(0).normal(size=(STEPS, 8, 12)).astype("f4")
    for step in range(STEPS):
        with h5py.File(folder / f"{step:03}.nc", "w") as file:
            file.create_dataset("t", data=values[step : step + 1], chunks=(1, 8, 12))
            file["time"], file["y"], file["x"] = [step], np.arange(8), 10.0 * np.arange(12)
            for axis, name in enumerate(("time", "y", "x")):
                file[name].make_scale(name)
                file["t"].dims[axis].attach_scale(file[name])
    repo = str(folder / "repo")
    icevirt.build(str(folder / "*.nc"), repo, concat_dim="time", executor="in-process")
    icevirt.materialize(
        repo, "t", chunks={"time": STEPS, "y": 4, "x": 4}, beside=True, executor="in-process",
        authorize_virtual_chunk_access=[str(folder)],
    )  # fmt: skip
    return repo, folder, values


@pytest.fixture
def requests(monkeypatch):
    """The requests for chunks; a function empties the list and returns how many there were."""
    made = []
    range_of, read_all = ReferenceLocator.range_of, fetch.read_all

    def one(self, table, kind, *args, **options):
        made.append(kind == ChunkType.native)
        return range_of(self, table, kind, *args, **options)

    def several(grant, spans, **options):
        made.append(len(spans))
        return read_all(grant, spans, **options)

    monkeypatch.setattr(ReferenceLocator, "range_of", one)
    monkeypatch.setattr(fetch, "read_all", several)

    def count():
        total = sum(made)
        made.clear()
        return total

    return count


def test_a_point_takes_a_hundredth_of_the_requests_and_a_map_as_many(maps, requests):
    repo, folder, values = maps
    prefixes = {"authorize_virtual_chunk_access": [str(folder)]}
    taken = {}
    for layout in ("own", "auto"):
        ds = xr.open_dataset(repo, engine="icevirt", layout=layout, **prefixes)
        requests()
        for name, key in {
            "point": (slice(None), 3, 5),
            "map": (70,),
            "points": (slice(None), [1, 2], [1, 2]),
            "steps": ([3, 9, 40],),
            "region": (slice(0, 90), slice(4, 8), slice(0, 4)),
        }.items():
            found = ds["t"].variable[key].values
            np.testing.assert_array_equal(found, xr.Variable(("time", "y", "x"), values)[key])
            taken[layout, name] = requests()
    assert (taken["own", "point"], taken["auto", "point"]) == (STEPS, 1)
    assert taken["auto", "map"] == taken["own", "map"] == 1
    assert taken["auto", "steps"] == taken["own", "steps"]
    assert taken["auto", "region"] == 1


def test_what_is_chosen_can_be_asked_and_said(maps, requests):
    repo, folder, _ = maps
    prefixes = {"authorize_virtual_chunk_access": [str(folder)]}
    ds = xr.open_dataset(repo, engine="icevirt", **prefixes)
    requests()
    point = ds.icevirt.explain({"y": 3, "x": 50.0})["t"]
    assert (point.layout, point.own.chunks, point.twin.chunks) == ("twin", STEPS, 1)
    assert point.twin.bytes == STEPS * 4 * 4 * 4
    assert "read from twin chunks" in repr(point)
    assert ds.icevirt.explain(time=70)["t"].layout == "own"
    assert ds.icevirt.explain(time=slice(0, 89), y=slice(4, 7))["t"].layout == "twin"
    assert requests() == 0
    with pytest.raises(InvalidInputError, match="no such selection"):
        ds.icevirt.explain(time=9000)
    own = xr.open_dataset(repo, engine="icevirt", layout="own", **prefixes)
    assert own.icevirt.explain(y=3, x=50.0)["t"].layout == "own"
    assert "t_twin" in xr.open_dataset(repo, engine="icevirt", layout="all", **prefixes)
    with pytest.raises(InvalidInputError, match="layout"):
        xr.open_dataset(repo, engine="icevirt", layout="rows", **prefixes)


def test_what_a_twin_takes_of_a_size_that_is_named_is_said_before_and_after_a_build(maps):
    repo, folder, values = maps
    chunks = {"time": 60, "y": 4, "x": -1}
    plan = icevirt.plan(str(folder / "*.nc"), twin_chunks=chunks, executor="in-process")
    for found in (plan.priced, icevirt.info(repo, twin_chunks=chunks).priced):
        (priced,) = found
        assert (priced.path, priced.twin.chunk_shape) == ("/t", (60, 4, 12))
        assert (priced.own.map.chunks, priced.own.series.chunks) == (1, STEPS)
        assert (priced.twin.map.chunks, priced.twin.series.chunks) == (2, STEPS // 60)
        assert priced.twin.map.bytes == values.nbytes // (STEPS // 60)
        assert priced.twin.series.bytes == priced.twin.bytes // 2 == values.nbytes // 2
        assert priced.own.series.seconds > priced.twin.series.seconds
    for shown in (plan, icevirt.info(repo, twin_chunks=chunks)):
        said = " ".join(as_text(shown, width=300).split())
        assert "/t a twin in chunks of 60 × 4 × 12 stores about 45.0 KiB" in said
        assert "/t a series own chunks: 121 requests" in said
    for wrong in ({"depth": 2}, {"time": 0}):
        with pytest.raises(InvalidInputError):
            icevirt.info(repo, twin_chunks=wrong)


def test_what_reading_takes_is_said_for_the_chunks_at_hand_and_for_a_twin(maps):
    repo, folder, _ = maps
    source = str(folder / "*.nc")
    said = " ".join(as_text(icevirt.plan(source, executor="in-process"), width=300).split())
    chunks = "time=120,y=8,x=12"
    assert f"icevirt materialize REPO /t --beside --chunks {chunks}" in said
    assert "2 requests, 45.0 KiB, 0.03 s; in its own chunks 121 requests, 45.0 KiB, 0.24 s" in said
    report = icevirt.materialize(
        repo, "t", chunks={"time": 60, "y": 4, "x": 4}, beside=True, dry_run=True,
        executor="in-process",
    )  # fmt: skip
    assert (report.own.map.requests, report.twin.map.requests) == (2, 7)
    assert (report.own.series.requests, report.twin.series.requests) == (121, 3)
    assert report.twin.bytes == report.own.bytes == STEPS * 8 * 12 * 4
    assert report.bytes_rewritten == 60 * 8 * 12 * 4
    assert "twin: 3 requests, 7.5 KiB, 0.03 s" in as_text(report)
    with_twin = icevirt.plan(source, repo=repo, executor="in-process")
    assert [each for each in with_twin.notes if "/t_twin is the twin of /t" in each]
    assert "--beside" not in as_text(with_twin)


def test_a_rewrite_of_others_leaves_a_twin_behind_until_the_next_commit(archive):
    official(archive.repo).rewrite_manifests("theirs", branch="main")
    archive.assert_behind()
    append(archive)
    archive.assert_in_step()


def test_a_writer_between_is_a_conflict_and_no_twin_is_made(archive, in_process):
    tip = archive.tip
    in_process.before[encode_chunks] = at_most(1, lambda _: append(archive))
    with pytest.raises(ConflictError, match="Run the command again"):
        archive.twin(time=6)
    assert archive.node("/packed_twin").shape == archive.node().shape
    assert archive.tip != tip
    archive.assert_in_step()


@pytest.mark.parametrize(
    "row",
    [
        {"/packed_twin": {"chunk_shape": [5, 5, 6], "codec": None, "of": "/packed_twin"}},
        {"/packed": {"chunk_shape": [5, 5, 6], "codec": None, "of": "/packed"}},
        {"/mask": {"chunk_shape": [5, 6], "codec": None, "of": "/packed"}},
        {"/packed_twin": {"chunk_shape": [5, 5, 6], "codec": None, "of": "/nowhere"}},
        {"/packed_twin": {"chunk_shape": [5, 5, 6], "codec": None, "of": 5}},
    ],
    ids=repr,
)
def test_a_forged_row_of_a_twin_is_refused_or_left(archive, row):
    """Anybody who can write the repository can write the record."""
    repo = icevirt.Repository.open(archive.repo)
    record = next(repo.ancestry(branch="main")).metadata["icevirt_build"]
    session = repo.writable_session("main")
    session.commit(
        "forged", metadata={"icevirt_build": {**record, "stored": row}}, allow_empty=True
    )
    for step in (append, correct):
        try:
            step(archive)
        except (IcevirtError, AssertionError):
            continue
        archive.assert_as_files()


def test_info_says_whether_a_twin_is_in_step_and_a_dataset_pickles_with_it(archive):
    with archive.open("twin") as twin, archive.open("own") as own:
        again = pickle.loads(pickle.dumps(twin))
        np.testing.assert_array_equal(again["packed"], own["packed"])
    said = summary(icevirt.Repository.open(archive.repo))
    assert said.twins == {"/packed_twin": True}
    assert "/packed_twin is in step" in as_text(said)
    overwrite(archive)
    said = summary(icevirt.Repository.open(archive.repo))
    assert "/packed_twin was left behind, and is not read" in as_text(said)
