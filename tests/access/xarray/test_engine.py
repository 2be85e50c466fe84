"""The xarray engine on repositories: versions, groups, chunks, and what it can open."""

import pickle
import time
from datetime import UTC, datetime

import dask
import icechunk
import numpy as np
import pytest
import xarray as xr

from icevirt.access.xarray.backend import IcevirtBackendEntrypoint
from icevirt.errors import (
    InvalidInputError,
    NodeNotFoundError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SnapshotNotFoundError,
)
from icevirt.repo.repository import Repository

guess = IcevirtBackendEntrypoint().guess_can_open


def dataset(number):
    return xr.Dataset(
        {"a": (("t", "x"), np.full((4, 3), float(number)))},
        coords={"t": xr.date_range("2000-01-01", periods=4), "x": [1.5, 2.5, 3.5]},
        attrs={"number": number},
    )


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Three commits on main, the first tagged, a branch at the second."""
    root = tmp_path_factory.mktemp("engine") / "repo"
    repo = Repository.create(root)
    ids, times = [], []
    for number in (1, 2, 3):
        session = repo.writable_session("main")
        dataset(number).to_zarr(session.store, mode="w", encoding={"a": {"chunks": (1, 3)}})
        dataset(number * 10).to_zarr(session.store, group="deep/er", mode="w")
        ids.append(session.commit(f"number {number}"))
        time.sleep(0.002)
        times.append(datetime.now(UTC))
    repo.create_tag("first", ids[0])
    repo.create_branch("side", ids[1])
    return root, ids, times


def open_version(versions, **which):
    return xr.open_dataset(versions[0], engine="icevirt", **which)


def test_the_default_is_the_tip_of_main(versions):
    xr.testing.assert_identical(open_version(versions).load(), dataset(3))


def test_a_version_is_chosen_by_branch_tag_id_or_time(versions):
    _, ids, times = versions
    chosen = {
        3: {"branch": "main"},
        2: {"branch": "side"},
        1: {"tag": "first"},
    } | {n + 1: {"snapshot_id": ids[n]} for n in range(3)}
    for number, which in chosen.items():
        assert open_version(versions, **which).number == number
    for number, moment in enumerate(times, 1):
        assert open_version(versions, as_of=moment).number == number
        assert open_version(versions, branch="main", as_of=moment).number == number


WRONG = {
    "no such branch": ({"branch": "trunk"}, RefNotFoundError),
    "no such tag": ({"tag": "last"}, RefNotFoundError),
    "no such snapshot": ({"snapshot_id": "1CECHNKREP0F1RSTCMT1"}, SnapshotNotFoundError),
    "not an id": ({"snapshot_id": "HEAD"}, SnapshotNotFoundError),
    "a time before all": ({"as_of": datetime(1999, 1, 1, tzinfo=UTC)}, SnapshotNotFoundError),
    "a branch and a tag": ({"branch": "main", "tag": "first"}, InvalidInputError),
    "no such group": ({"group": "shallow"}, NodeNotFoundError),
    "an array as group": ({"group": "a"}, InvalidInputError),
    "a group with dots": ({"group": "deep/../a"}, InvalidInputError),
    "a number to authorize": ({"authorize_virtual_chunk_access": 5}, InvalidInputError),
    "no such option": ({"brunch": "main"}, TypeError),
}


@pytest.mark.parametrize(("which", "error"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_choice_is_reported(versions, which, error):
    with pytest.raises(error):
        open_version(versions, **which)


@pytest.mark.parametrize("group", ["deep/er", "/deep/er", "/deep/er/"])
def test_a_group_is_opened_by_its_path(versions, group):
    xr.testing.assert_identical(open_version(versions, group=group).load(), dataset(30))


def test_a_tree_has_every_group(versions):
    tree = xr.open_datatree(versions[0], engine="icevirt")
    assert [node.path for node in tree.subtree] == ["/", "/deep", "/deep/er"]
    xr.testing.assert_identical(tree.to_dataset().load(), dataset(3))
    xr.testing.assert_identical(tree["deep/er"].to_dataset().load(), dataset(30))


def test_a_tree_can_begin_below_the_root(versions):
    tree = xr.open_datatree(versions[0], engine="icevirt", group="deep", tag="first")
    assert [node.path for node in tree.subtree] == ["/", "/er"]
    xr.testing.assert_identical(tree["er"].to_dataset().load(), dataset(10))


def test_groups_are_keyed_by_path(versions):
    groups = xr.open_groups(versions[0], engine="icevirt", drop_variables="a")
    assert list(groups) == ["/", "/deep", "/deep/er"]
    assert "a" not in groups["/deep/er"]


def test_decoding_can_be_turned_off(versions):
    raw = open_version(versions, decode_cf=False)
    assert raw["t"].dtype == np.int64
    assert raw["t"].attrs["units"].startswith("days since")
    assert "x" not in open_version(versions, drop_variables=["x"]).variables


def test_dask_chunks_are_those_of_the_repository(versions):
    ds = open_version(versions, chunks={})
    assert ds["a"].chunks == ((1, 1, 1, 1), (3,))
    assert open_version(versions, chunks={"t": 2}, inline_array=True)["a"].chunks[0] == (2, 2)
    xr.testing.assert_identical(ds.compute(), dataset(3))


@pytest.mark.parametrize("chunks", ["auto", -1, {}, {"t": "auto"}, {"t": -1}, {"t": 3, "x": -1}])
def test_dask_chunks_are_those_of_xarrays_zarr_engine(versions, chunks):
    store = Repository.open(versions[0]).readonly_session("main").store
    with dask.config.set({"array.chunk-size": "48B"}):
        expected = xr.open_zarr(store, chunks=chunks, consolidated=False)
        xr.testing.assert_chunks_equal(open_version(versions, chunks=chunks), expected)


def test_inlined_arrays_are_tasks_of_their_readers(versions):
    """Otherwise the array is a task of its own, which all others wait for."""
    counts = [
        len(dict(open_version(versions, chunks={}, inline_array=inline)["a"].__dask_graph__()))
        for inline in (False, True)
    ]
    assert counts == [5, 4]


@pytest.mark.parametrize("wanted", [True, False])
def test_default_indexes_are_a_choice(versions, wanted):
    assert bool(open_version(versions, create_default_indexes=wanted).xindexes) is wanted


@pytest.mark.ci
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_lazy_arrays_travel_to_other_workers(versions, scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=2):
        xr.testing.assert_identical(open_version(versions, chunks={}).compute(), dataset(3))


def test_a_lazy_dataset_pickles(versions):
    again = pickle.loads(pickle.dumps(open_version(versions)))
    xr.testing.assert_identical(again.load(), dataset(3))


def test_a_path_a_url_and_a_storage_open_the_same(versions):
    root = versions[0]
    storage = Repository.open(root).storage
    for spelt in (root, str(root), f"file://{root}", storage):
        assert xr.open_dataset(spelt, engine="icevirt").number == 3


def test_a_bucket_opens_as_dataset_tree_and_groups(s3):
    repo = Repository.create(s3.icevirt())
    session = repo.writable_session("main")
    for group in ("/", "deep/er"):
        dataset(3).to_zarr(session.store, group=group, mode="a", encoding={"a": {"chunks": (1, 3)}})
    session.commit("both")
    output = {key: value for key, value in s3.options.items() if key not in ("bucket", "prefix")}
    options = {"engine": "icevirt", "storage_options": output}
    xr.testing.assert_identical(xr.open_dataset(s3.url, **options).load(), dataset(3))
    lazy = xr.open_dataset(s3.url, chunks={}, **options)
    with dask.config.set(scheduler="processes", num_workers=2):
        xr.testing.assert_identical(lazy.compute(), dataset(3))
    tree = xr.open_datatree(s3.url, **options)
    xr.testing.assert_identical(tree["deep/er"].to_dataset().load(), dataset(3))
    groups = xr.open_groups(s3.url, **options)
    assert list(groups) == ["/", "/deep", "/deep/er"]
    xr.testing.assert_identical(groups["/"].load(), dataset(3))


def test_several_repositories_open_as_one(versions, tmp_path):
    repo = Repository.create(tmp_path / "later")
    session = repo.writable_session("main")
    later = dataset(4).assign_coords(t=dataset(4).t + np.timedelta64(4, "D"))
    later.to_zarr(session.store)
    session.commit("later")
    both = xr.open_mfdataset(
        [str(versions[0]), str(tmp_path / "later")],
        engine="icevirt",
        combine="nested",
        concat_dim="t",
        combine_attrs="drop",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="outer",
    )
    assert both.sizes["t"] == 8


# -- guessing --------------------------------------------------------------------------------


def test_a_repository_is_recognised(versions, tmp_path):
    root = versions[0]
    assert guess(root)
    assert guess(f"{root}/")
    assert guess(f"file://{root}")
    assert xr.open_dataset(root).number == 3


def test_a_repository_of_the_official_client_is_recognised(tmp_path):
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    assert guess(tmp_path / "repo")


def test_other_things_are_not_recognised(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "repo").write_bytes(b"something else than a repository")
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "repo").write_bytes(b"ICE")
    (tmp_path / "file.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    things = ["empty", "other", "short", "file.nc", "missing"]
    for thing in [tmp_path / name for name in things]:
        assert not guess(thing)
    for thing in ("", "s3://bucket/repo", "https://host/x.nc", "file://host/x", b"CDF", 3, None):
        assert not guess(thing)


def test_what_is_no_repository_is_reported(tmp_path):
    with pytest.raises(RepositoryNotFoundError, match="nowhere"):
        xr.open_dataset(tmp_path / "nowhere", engine="icevirt")


def test_listing_engines_shows_icevirt():
    assert "icevirt" in xr.backends.list_engines()
