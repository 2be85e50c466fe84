"""`store_dask`: many workers write arrays in one commit, each value once, or the call is refused."""

import os
import random
import threading

import dask
import dask.array as da
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
import icevirt.dask
import icevirt.icechunk.dask
from icevirt.access.store import naming_pipeline
from icevirt.errors import ConflictError, InvalidInputError, ReadOnlyError

BLOCKS = int(os.environ.get("ICEVIRT_FORKS", "60")) // 20
VALUES = np.arange(60.0).reshape(10, 6)


@pytest.fixture
def repo(tmp_path):
    return icevirt.Repository.create(tmp_path / "repo")


@pytest.fixture
def session(repo):
    session = repo.writable_session("main")
    root = zarr.open_group(session.store)
    for name in ("a", "b"):
        root.create_array(name, shape=(10, 6), chunks=(2, 3), dtype="f8", fill_value=-1)
    root.create_array("sharded", shape=(10, 6), chunks=(1, 3), shards=(4, 6), dtype="f4")
    root.create_array("point", shape=(), dtype="f8")
    root.create_array("nothing", shape=(0, 6), chunks=(2, 3), dtype="f8")
    session.commit("arrays")
    return repo.writable_session("main")


def arrays(session):
    return dict(zarr.open_group(session.store, mode="r+").arrays())


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_what_the_official_client_reads_is_what_was_stored(repo, session, scheduler, tmp_path):
    targets = arrays(session)
    lazy = da.from_array(VALUES, chunks=(2, 3))
    sources = {
        "a": lazy.rechunk((4, 6)),
        "b": lazy[3:7, :3],
        "sharded": lazy.rechunk((3, 5)).astype("f4"),
        "point": lazy.sum(),
        "nothing": lazy[:0],
    }
    regions = [None, (slice(2, 6), slice(3, None)), None, None, None]
    icevirt.dask.store_dask(
        list(sources.values()),
        [targets[name] for name in sources],
        regions=regions,
        align_chunks=True,
        scheduler=scheduler,
    )
    session.commit("stored", metadata={"by": scheduler})
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repo"))
    theirs = icechunk.Repository.open(storage).readonly_session("main").store
    found = {name: array[...] for name, array in zarr.open_group(theirs, mode="r").arrays()}
    expected = np.full((10, 6), -1.0)
    expected[2:6, 3:] = VALUES[3:7, :3]
    np.testing.assert_array_equal(found["a"], VALUES)
    np.testing.assert_array_equal(found["b"], expected)
    np.testing.assert_array_equal(found["sharded"], VALUES.astype("f4"))
    assert found["point"] == VALUES.sum()
    assert len(repo.lookup_snapshot(repo.lookup_branch("main")).metadata) == 1


def test_one_block_may_end_within_a_chunk_at_the_edges_of_its_region(session):
    target = arrays(session)["a"]
    source = da.from_array(VALUES[1:5, :4], chunks=((1, 2, 1), (3, 1)))
    icevirt.dask.store_dask(source, target, regions=(slice(1, 5), slice(0, 4)))
    expected = np.full((10, 6), -1.0)
    expected[1:5, :4] = VALUES[1:5, :4]
    np.testing.assert_array_equal(target[...], expected)


def test_what_two_arrays_need_is_computed_once(session):
    lock, count = threading.Lock(), [0]

    def load():
        with lock:
            count[0] += 1
        return np.ones((2, 6))

    base = da.map_blocks(load, meta=np.empty((0, 0)), chunks=((2,) * 5, (6,)))
    targets = arrays(session)
    icevirt.dask.store_dask([base + 1, base * 3], [targets["a"], targets["b"]])
    assert (count[0], targets["a"][...].min(), targets["b"][...].min()) == (5, 2, 3)
    icevirt.dask.to_icechunk(
        xr.Dataset({"c": (("t", "x"), base), "d": (("t", "x"), base - 1)}), session, mode="a"
    )
    assert count[0] == 10


REFUSED = {
    "would write into one chunk": lambda t: ([da.ones((10, 6), chunks=(3, 6))], [t["a"]], {}),
    "two dask arrays would write": lambda t: (
        [da.ones((3, 6), chunks=3)] * 2,
        [t["a"]] * 2,
        {"regions": [(slice(0, 3), slice(0, 6)), (slice(3, 6), slice(0, 6))]},
    ),
    "does not have the shape": lambda t: ([da.ones((9, 6), chunks=(2, 6))], [t["a"]], {}),
    "slice of step 1": lambda t: (
        [da.ones((5, 6), chunks=(2, 6))],
        [t["a"]],
        {"regions": [(slice(None, None, 2), slice(None))]},
    ),
    "do not fit into the dtype": lambda t: ([da.ones((10, 6), dtype="c8")], [t["a"]], {}),
    "not one target": lambda t: ([da.ones(3)], [t["a"], t["b"]], {}),
    "not a dask array": lambda t: ([np.ones((10, 6))], [t["a"]], {}),
    "not an array of an icevirt session": lambda t: (
        [da.ones(3)],
        [zarr.create_array({}, shape=(3,), dtype="f8")],
        {},
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_writes_that_would_lose_values_are_refused_before_anything_is_written(session, words):
    sources, targets, options = REFUSED[words](arrays(session))
    with pytest.raises(InvalidInputError, match=words):
        icevirt.dask.store_dask(sources, targets, **options)
    assert not session.has_uncommitted_changes


def write_by_xarray(session, source, path):
    icevirt.dask.to_icechunk(
        xr.Dataset({path: ("x", source)}), session, mode="r+", region="auto", safe_chunks=False
    )


def write_by_icechunks_name(session, source, path):
    fork = session.fork()
    target = zarr.open_array(fork.store, path=path)
    session.merge(icevirt.icechunk.dask.store_dask(sources=[source], targets=[target]))


def write_here(session, source, path):
    target = zarr.open_array(session.store, path=path)
    icevirt.dask.store_dask(source, target, safe_chunks=False)


WAYS = {"xarray": write_by_xarray, "icechunk": write_by_icechunks_name, "here": write_here}
GRIDS = [{"chunks": (20,)}, {"chunks": (7,)}, {"chunks": (5,), "shards": (20,)}]


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("way", WAYS)
def test_no_block_is_lost_in_one_process(way, scheduler):
    draw = random.Random(f"{way} {scheduler}")
    for _ in range(BLOCKS):
        grid, size = draw.choice(GRIDS), draw.choice([1, 5, 7, 10, 20, 40, 80])
        repo = icevirt.icechunk.Repository.create(icevirt.icechunk.in_memory_storage())
        session = repo.writable_session("main")
        names = ("x",)
        zarr.create_array(
            session.store, name="v", shape=(80,), dtype="f8", dimension_names=names, **grid
        )
        values = np.arange(1.0, 81)
        source = da.from_array(values, chunks=size)
        with dask.config.set(scheduler=scheduler):
            WAYS[way](session, source, "v")
        np.testing.assert_array_equal(zarr.open_array(session.store, path="v")[:], values)


def write_directly(session, source, path):
    target = zarr.open_array(session.store, path=path, mode="r+")
    da.store([source], [target], lock=False)


def write_a_dataset(session, source, path):
    ds = xr.Dataset({path: ("x", source)})
    ds.to_zarr(session.store, mode="r+", region="auto", consolidated=False, safe_chunks=False)


@pytest.mark.parametrize("write", [write_directly, write_a_dataset])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_threads_of_one_session_take_turns_at_a_chunk(write, grid):
    repo = icevirt.Repository.create(icevirt.in_memory_storage())
    for size in (1, 3):
        session = repo.writable_session("main")
        options = {"name": "v", "shape": (80,), "dtype": "f8", "dimension_names": ("x",)}
        zarr.create_array(session.store, **options, **grid)
        values = np.arange(1.0, 81)
        with dask.config.set(scheduler="threads", num_workers=8):
            write(session, da.from_array(values, chunks=size), "v")
        np.testing.assert_array_equal(zarr.open_array(session.store, path="v")[:], values)
    assert not naming_pipeline._turns


def test_another_pipeline_that_is_configured_loses_nothing_either(session):
    fused = "zarr.core.codec_pipeline.FusedCodecPipeline"
    source, target = da.from_array(VALUES, chunks=(1, 1)), arrays(session)["a"]
    with zarr.config.set({"codec_pipeline.path": fused}):
        icevirt.dask.store_dask(source, target, safe_chunks=False, scheduler="threads")
    np.testing.assert_array_equal(target[...], VALUES)


@pytest.mark.ci
def test_processes_that_meet_in_a_chunk_are_refused(session):
    with dask.config.set(scheduler="processes"), pytest.raises(ConflictError, match="same chunk"):
        write_here(session, da.from_array(VALUES, chunks=(3, 6)), "a")
    assert not session.has_uncommitted_changes


def test_two_arrays_that_meet_in_a_chunk_are_written_in_turn(session):
    halves = [(slice(0, 3), slice(None)), (slice(3, 10), slice(0, 6))]
    sources = [da.from_array(VALUES[rows]) for rows in halves]
    targets = [arrays(session)["a"]] * 2
    icevirt.dask.store_dask(sources, targets, regions=halves, safe_chunks=False)
    np.testing.assert_array_equal(targets[0][...], VALUES)


HALF = VALUES[:5]
TAKEN = {
    "lists": lambda t: ([da.from_array(VALUES, chunks=(2, 6))], [t], None),
    "one of each": lambda t: (da.from_array(VALUES, chunks=(2, 6)), t, None),
    "one region for all": lambda t: ([da.from_array(VALUES)], [t], (slice(0, 10), slice(0, 6))),
    "a region that leaves dimensions out": lambda t: (da.from_array(HALF), t, (slice(0, 5),)),
    "a region from the end": lambda t: (da.from_array(HALF), t, (slice(-5, None),)),
    "a step": lambda t: (da.from_array(HALF, chunks=2), t, (slice(0, 10, 2),)),
    "a number": lambda t: (da.from_array(VALUES[3]), t, [(3,)]),
    "no region for one": lambda t: (
        [da.from_array(HALF), da.from_array(VALUES[9])],
        [t, t],
        [None, (-1,)],
    ),
    "less than its region has": lambda t: (da.from_array(HALF, chunks=(2, 3)), t, None),
    "nothing": lambda t: (da.ones((0, 6)), t, (slice(0, 0),)),
}


@pytest.mark.parametrize("case", TAKEN)
def test_icechunks_name_takes_what_dasks_store_takes(session, case):
    fork = session.fork()
    sources, _, regions = TAKEN[case](None)
    expected = np.full((10, 6), -1.0)
    many = [sources] if isinstance(sources, da.Array) else sources
    boxes = regions if isinstance(regions, list) else [regions] * len(many)
    for source, box in zip(many, boxes, strict=True):
        shape = tuple(slice(0, length) for length in source.shape)
        expected[box if box is not None else shape] = source.compute()
    sources, targets, regions = TAKEN[case](arrays(fork)["a"])
    merged = icevirt.icechunk.dask.store_dask(sources=sources, targets=targets, regions=regions)
    session.merge(merged)
    np.testing.assert_array_equal(arrays(session)["a"][...], expected)


LOST = {
    "longer than the target": (da.ones((11, 6), chunks=(5, 6)), None),
    "longer than the region": (da.ones((10, 6), chunks=(5, 6)), (slice(0, 5),)),
    "a region beyond the end": (da.ones((4, 6)), (slice(8, 12),)),
    "a number outside": (da.ones(6), (10,)),
    "too many slices": (da.ones((10, 6)), (slice(None),) * 3),
    "too few dimensions": (da.ones(6), None),
    "backwards": (da.ones((10, 6)), (slice(None, None, -1),)),
    "points": (da.ones((2, 6)), ([0, 5],)),
    "unknown sizes": (da.ones(10)[da.ones(10) > 0], (slice(None), 0)),
    "a dtype that has more": (da.ones((10, 6), dtype="c8"), None),
    "no array": (np.ones((10, 6)), None),
}


@pytest.mark.parametrize(("source", "region"), LOST.values(), ids=LOST)
def test_what_icechunks_name_would_lose_is_refused(session, source, region):
    target = arrays(session.fork())["a"]
    regions = None if region is None else [region]
    with pytest.raises(InvalidInputError, match="dask array"):
        icevirt.icechunk.dask.store_dask(sources=[source], targets=[target], regions=regions)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [(str, ["a", "bcd"]), ("<U2", ["a", "bc"]), ("S2", [b"a", b"bc"]), ("M8[ns]", [1, 2])],
)
def test_texts_and_times_are_written_whole(session, dtype, values):
    zarr.create_array(session.store, name="t", shape=(2,), dtype=dtype, fill_value=None)
    target = zarr.open_array(session.store, path="t")
    values = np.array(values, object if dtype is str else dtype)
    icevirt.dask.store_dask(da.from_array(values, chunks=2), target)
    assert target[...].tolist() == values.tolist()
    longer = {"U": "<U3", "S": "S3", "M": "M8[fs]"}.get(values.dtype.kind)
    if longer:
        with pytest.raises(InvalidInputError, match="do not fit into the dtype"):
            icevirt.dask.store_dask(da.zeros(2, dtype=longer), target)


TEXTS = np.dtypes.StringDType()
CHANGED = {
    "a text that is cut": (np.array(["abcdef", "x"], object), "<U3"),
    "bytes that are cut": (np.array([b"abcdef", b"x"], object), "S3"),
    "nothing among texts": (np.array([None, "x"], object), TEXTS),
    "numbers as texts": (np.array([1, "x"], object), TEXTS),
    "a missing text": (np.array([np.nan, "x"], object), TEXTS),
    "a large integer": (np.array([300, 2]), "i1"),
    "one above the sign": (np.array([200, 2], "u1"), "i1"),
    "one above the sign of as many bytes": (np.array([2**63, 2], "u8"), "i8"),
    "an integer between floats": (np.array([2**24 + 1, 2]), "f4"),
    "the largest integer as a float": (np.array([2**63 - 1, 2]), "f4"),
    "a large float": (np.array([1e300, 2]), "f4"),
    "a large complex number": (np.array([1e300j, 2]), "c8"),
    "a late day": (np.array(["3000-01-01", "2000-01-01"], "M8[D]"), "M8[ns]"),
}


@pytest.mark.parametrize(("values", "dtype"), CHANGED.values(), ids=CHANGED)
def test_a_value_that_would_become_another_one_is_refused(session, values, dtype):
    zarr.create_array(session.store, name="t", shape=(2,), dtype=dtype, fill_value=None)
    source = da.from_array(values, chunks=2)
    with pytest.raises(InvalidInputError, match=r"not fit into the dtype of its target.*astype"):
        icevirt.dask.store_dask(source, zarr.open_array(session.store, path="t"))
    fork = session.fork()
    target = zarr.open_array(fork.store, path="t")
    with pytest.raises(InvalidInputError, match="not fit into the dtype of its target"):
        icevirt.icechunk.dask.store_dask(sources=[source], targets=[target])


KEPT = {
    "integers that fit": (np.array([-128, 127]), "i1"),
    "without a sign": (np.array([2**63 - 1, 0], "u8"), "i8"),
    "integers as floats": (np.array([2**24, -3]), "f4"),
    "floats with fewer digits": (np.array([0.1, np.inf]), "f4"),
    "no number": (np.array([np.nan, -np.inf]), "f2"),
    "no time": (np.array(["NaT", "2000-01-01"], "M8[D]"), "M8[ns]"),
    "texts": (np.array(["abcdef", np.str_("x")], object), TEXTS),
}


@pytest.mark.parametrize(("values", "dtype"), KEPT.values(), ids=KEPT)
def test_values_that_fit_are_converted(session, values, dtype):
    zarr.create_array(session.store, name="t", shape=(2,), dtype=dtype, fill_value=None)
    target = zarr.open_array(session.store, path="t")
    icevirt.dask.store_dask(da.from_array(values, chunks=2), target)
    np.testing.assert_array_equal(target[...], values.astype(dtype))


def test_icechunks_name_takes_forks_only(session):
    target = arrays(session)["a"]
    with pytest.raises(TypeError, match="takes forks"):
        icevirt.icechunk.dask.store_dask(sources=[da.from_array(VALUES)], targets=[target])
    assert not session.has_uncommitted_changes


def test_a_session_to_read_from_is_refused(repo, session):
    session = repo.readonly_session("main")
    target = zarr.open_array(session.store, path="a", mode="r")
    with pytest.raises(ReadOnlyError, match="writable_session"):
        icevirt.dask.store_dask(da.ones((10, 6), chunks=2), target)


def test_a_worker_that_fails_leaves_the_session_as_it_was(session):
    def fail(block, block_info=None):
        if block_info[0]["chunk-location"] == (3, 0):
            raise RuntimeError("this block")
        return block

    source = da.ones((10, 6), chunks=(2, 6)).map_blocks(fail, dtype="f8")
    target = arrays(session)["a"]
    with dask.config.set(scheduler="sync"), pytest.raises(RuntimeError, match="this block"):
        icevirt.dask.store_dask(source, target)
    assert not session.has_uncommitted_changes
    icevirt.dask.store_dask(da.ones((10, 6), chunks=(2, 6)), target)
    assert target[...].min() == 1


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")  # of distributed's servers, when they end
def test_a_cluster_of_processes_writes_in_one_commit(repo, session):
    from distributed import Client, LocalCluster

    lazy = da.from_array(VALUES, chunks=(2, 3))
    appended = xr.Dataset({"d": (("t", "x"), lazy)}, {"t": np.arange(10)})
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        targets = arrays(session)
        icevirt.dask.store_dask([lazy, lazy * 2], [targets["a"], targets["b"]])
        icevirt.dask.to_icechunk(appended.isel(t=slice(0, 4)), session, group="g")
        icevirt.dask.to_icechunk(appended.isel(t=slice(4, 8)), session, group="g", append_dim="t")
        icevirt.dask.to_icechunk(
            appended.isel(t=slice(8, 10)), session, group="g", append_dim="t", split_every=2
        )
        assert len(client.scheduler_info()["workers"]) == 2
        session.commit("stored by two processes")
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(root["a"][...], VALUES)
    np.testing.assert_array_equal(root["b"][...], VALUES * 2)
    np.testing.assert_array_equal(root["g/d"][...], VALUES)
