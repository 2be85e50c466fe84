"""What the official client's page of common operations does has the same results here."""

import asyncio
from datetime import UTC, datetime
from functools import partial
from importlib import import_module

import icechunk as official
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt.icechunk as ours
from icechunk_names.storages import storages


def dataset(begin):
    values = np.arange(begin, begin + 8.0).reshape(2, 4)
    return xr.Dataset({"v": (("time", "x"), values)}, {"time": [begin, begin + 1]})


def values_of(repo, path, **version):
    store = repo.readonly_session(**version).store
    return zarr.open_array(store, path=path, mode="r")[:].tolist()


def repositories(ice, storage):
    """Create, open, configure and describe."""
    ice.Repository.create(storage())
    config = ice.RepositoryConfig.default()
    config.caching = ice.CachingConfig(num_bytes_chunks=100_000_000)
    repo = ice.Repository.open(storage(), config=config)
    repo.set_metadata({"test": True, "team": "science"})
    repo.update_metadata({"number_of_bugs": 42})
    repo.save_config()
    yield repo.get_metadata(), ice.Repository.fetch_config(storage()).caching.num_bytes_chunks
    yield ice.Repository.exists(storage()), repo.list_branches(), repo.list_tags()


def arrays(ice, storage):
    """Create, write, resize, describe and delete with zarr."""
    repo = ice.Repository.create(storage())
    with repo.transaction(branch="main", message="wrote some data") as store:
        group = zarr.create_group(store, path="my-group", zarr_format=3)
        array = group.create_array("my_array", shape=(10, 20), chunks=(5, 5), dtype="int32")
        array[2:5, :10] = 1
        group.create_group("subgroup")
        group.create_array("array", shape=(1,), dtype="int32")
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, path="my-group")
    array = group["my_array"]
    array.resize((20, 30))
    array.attrs["standard_name"] = "time"
    yield array[:5, :10].tolist(), array.shape, dict(array.attrs)
    del group["subgroup"]
    del group["array"]
    yield sorted(group), session.status().deleted_arrays, session.status().deleted_groups
    session.shift_array("/my-group/my_array", (-1, 0))
    yield array[:].tolist()
    session.reindex_array(
        "/my-group/my_array",
        forward=lambda at: [at[0] + 1, at[1]] if at[0] < 3 else None,
        backward=lambda at: [at[0] - 1, at[1]] if at[0] else None,
    )
    yield array[:].tolist()
    session.commit("changed")
    session = repo.rearrange_session("main")
    session.move("/my-group/my_array", "/moved")
    session.commit("renamed")
    yield values_of(repo, "moved", branch="main")


def datasets(ice, storage):
    """Write and append with xarray."""
    write = import_module(f"{ice.__name__}.xarray").to_icechunk
    repo = ice.Repository.create(storage())
    session = repo.writable_session("main")
    dataset(0.0).to_zarr(session.store, group="my-group", zarr_format=3, consolidated=False)
    session.commit("first")
    session = repo.writable_session("main")
    write(dataset(2.0), session, group="my-group", append_dim="time")
    session.commit("second")
    store = repo.readonly_session("main").store
    found = xr.open_zarr(store, group="my-group", zarr_format=3, consolidated=False, chunks=None)
    yield found["v"].values.tolist(), found["time"].values.tolist(), dict(found.sizes)


def versions(ice, storage):
    """Commit, rebase, amend, branch, tag, compare, expire and collect."""
    repo = ice.Repository.create(storage())
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(1,), dtype="i4")
    array[:] = 1
    first = session.commit("first", metadata={"author": "me"})
    for solver, at in (
        (ice.ConflictDetector(), (0, 1)),
        (ice.BasicConflictSolver(on_chunk_conflict=ice.VersionSelection.UseOurs), (2, 2)),
    ):
        mine, other = repo.writable_session("main"), repo.writable_session("main")
        zarr.open_array(other.store, path="a")[at[0]] = 5
        other.commit("other")
        zarr.open_array(mine.store, path="a")[at[1]] = 6
        with pytest.raises(ice.ConflictError):
            mine.commit("mine")
        mine.rebase(solver)
        mine.commit("mine, after a rebase")
    again = repo.writable_session("main")
    zarr.open_array(again.store, path="a")[3] = 8
    again.commit("again", rebase_with=ice.ConflictDetector())
    yield [each.message for each in repo.ancestry(branch="main")]
    yield values_of(repo, "a", branch="main"), values_of(repo, "a", snapshot_id=first)
    repo.create_branch("dev", snapshot_id=first)
    session = repo.writable_session("dev")
    zarr.open_array(session.store, path="a")[:] = 9
    session.amend(message="amended")
    repo.writable_session("dev").commit("empty", metadata={"foo": "bar"}, allow_empty=True)
    yield [(each.message, each.metadata) for each in repo.ancestry(branch="dev")]
    repo.create_tag("v1.0.0", snapshot_id=first)
    difference = repo.diff(from_tag="v1.0.0", to_branch="main")
    yield repo.list_branches(), repo.list_tags(), sorted(difference.updated_chunks["/a"])
    repo.reset_branch("dev", snapshot_id=first)
    yield values_of(repo, "a", branch="dev"), values_of(repo, "a", tag="v1.0.0")
    repo.delete_tag("v1.0.0")
    repo.delete_branch("dev")
    now = datetime.now(UTC)
    yield len(repo.expire_snapshots(older_than=now)), values_of(repo, "a", branch="main")
    # the official client leaves more garbage: files of commits that came second
    yield [asyncio.run(repo.garbage_collect_async(now)).snapshots_deleted > 0 for _ in range(2)]
    yield [type(each.kind).__name__ for each in repo.ops_log()]


PROGRAMS = (repositories, arrays, datasets, versions)


@pytest.mark.parametrize("kind", ["disk", "memory", pytest.param("s3", marks=pytest.mark.ci)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_a_common_operation_has_the_result_of_the_official_client(kind, program, tmp_path, request):
    official.set_logs_filter("off")
    make = storages(kind, tmp_path, request.getfixturevalue("strict_s3") if kind == "s3" else None)
    expected, found = (list(program(ice, partial(make(ice), "repo"))) for ice in (official, ours))
    assert found == expected
