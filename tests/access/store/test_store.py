"""The store beyond zarr's contract: identity, threads, failures one by one, fewest looks."""

import asyncio
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype

import icevirt
from access.virtual import VALUES, make
from icevirt.access.store import locating, request_batcher
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import ReadOnlyError, StorageError
from icevirt.repo.repository import Repository

PROTOTYPE = default_buffer_prototype()


@pytest.fixture
def virtual(tmp_path):
    return make(tmp_path)


# -- identity --------------------------------------------------------------------------------


def test_a_read_only_store_pickles_with_its_authorisation(virtual):
    store = pickle.loads(pickle.dumps(virtual.store()))
    assert store == virtual.store()
    np.testing.assert_array_equal(zarr.open_array(store, path="v", mode="r")[:], VALUES)


def test_stores_of_one_version_are_equal_and_others_are_not(virtual, tmp_path):
    repo = virtual.open()
    first = repo.readonly_session("main")
    assert IcevirtStore(first) == IcevirtStore(repo.readonly_session("main"))
    writable = repo.writable_session("main")
    assert IcevirtStore(writable) == IcevirtStore(writable)
    assert IcevirtStore(writable) != IcevirtStore(repo.writable_session("main"))
    assert IcevirtStore(writable) != IcevirtStore(writable, read_only=True)
    assert IcevirtStore(first) != IcevirtStore(writable)
    assert IcevirtStore(first) != 3


def test_a_store_turns_read_only_with_the_commit_and_shows_it(virtual):
    session = virtual.open().writable_session("main")
    store = session.store
    zarr.create_array(store, name="new", data=np.arange(3))
    assert not store.read_only
    session.commit("new")
    assert store.read_only
    np.testing.assert_array_equal(zarr.open_array(store, path="new", mode="r")[:], [0, 1, 2])
    with pytest.raises(ValueError, match="read-only"):
        store.delete_sync("new/zarr.json")
    with pytest.raises(ReadOnlyError, match="writable_session"):
        store.with_read_only(read_only=False)


def test_a_session_sees_its_own_changes_and_nobody_else_does(virtual):
    mine, other = (virtual.open().writable_session("main").store for _ in range(2))
    zarr.open_array(mine, path="inline", mode="a")[:2] = 5
    assert zarr.open_array(mine, path="inline", mode="r")[0, 0] == 5
    assert zarr.open_array(other, path="inline", mode="r")[0, 0] == 7


def test_discarded_changes_are_gone(virtual):
    session = virtual.open().writable_session("main")
    zarr.open_array(session.store, path="v", mode="a")[:] = 0
    session.discard_changes()
    np.testing.assert_array_equal(zarr.open_array(session.store, path="v")[:], VALUES)


def test_part_of_a_virtual_chunk_can_be_overwritten(virtual):
    session = virtual.open().writable_session("main")
    array = zarr.open_array(session.store, path="v", mode="a")
    array[0, 0] = 99
    session.commit("one value")
    expected = VALUES.copy()
    expected[0, 0] = 99
    np.testing.assert_array_equal(zarr.open_array(virtual.store(), path="v", mode="r")[:], expected)


def test_a_resized_array_shows_what_is_left_and_what_is_new(virtual):
    session = virtual.open().writable_session("main")
    array = zarr.open_array(session.store, path="v", mode="a")
    array.resize((4, 5))
    np.testing.assert_array_equal(array[:], VALUES[:4])
    array.resize((6, 5))
    expected = np.vstack([VALUES[:4], np.full((2, 5), 7)])
    np.testing.assert_array_equal(array[:], expected)
    session.commit("resized")
    np.testing.assert_array_equal(zarr.open_array(virtual.store(), path="v", mode="r")[:], expected)


def test_an_array_can_be_replaced_by_one_of_another_shape_or_by_a_group(virtual):
    session = virtual.open().writable_session("main")
    zarr.create_array(session.store, name="v", data=np.arange(3.0), overwrite=True)
    zarr.create_group(session.store, path="inline", overwrite=True)
    session.commit("replaced")
    group = zarr.open_group(virtual.store(), mode="r")
    np.testing.assert_array_equal(group["v"][:], [0, 1, 2])
    assert isinstance(group["inline"], zarr.Group)


# -- threads and loops -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 1000], ids=["inline", "native"])
def test_threads_write_to_one_session(tmp_path, size):
    repo = Repository.create(tmp_path / "repo")
    session = repo.writable_session("main")
    store = session.store
    grid = {"shape": (64, size), "chunks": (1, size)}
    zarr.create_array(store, name="a", **grid, dtype="u1", compressors=None)

    def write(start):
        for row in range(start, 64, 8):
            body = PROTOTYPE.buffer.from_bytes(bytes([row + 1]) * size)
            IcevirtStore(session).set_sync(f"a/c/{row}/0", body)
            assert store.get_sync(f"a/c/{row}/0").to_bytes() == bytes([row + 1]) * size

    threads = [threading.Thread(target=write, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.commit("rows")
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    np.testing.assert_array_equal(array[:, 0], np.arange(1, 65))


def test_dask_writes_with_threads(virtual):
    session = virtual.open().writable_session("main")
    ds = xr.Dataset({"d": (("r", "s"), np.arange(10000.0).reshape(100, 100))}).chunk(r=7, s=30)
    ds.to_zarr(session.store, group="dask", mode="w")
    session.commit("dask")
    ours = xr.open_dataset(virtual.root, engine="icevirt", group="dask")
    xr.testing.assert_identical(ours.load(), ds.compute())


def test_one_store_serves_several_event_loops(virtual):
    store = virtual.store()

    async def read():
        keys = [f"v/c/{n}/0" for n in range(4)]
        return [
            b.to_bytes() for b in await asyncio.gather(*(store.get(k, PROTOTYPE) for k in keys))
        ]

    bodies = [asyncio.run(read()) for _ in range(3)]
    assert bodies[0] == bodies[1] == bodies[2]
    assert b"".join(bodies[0]) == VALUES.tobytes()


# -- gathering -------------------------------------------------------------------------------


def test_requests_of_one_turn_are_looked_up_together(virtual, monkeypatch):
    store = virtual.store()
    asked = []
    references = type(store.session).references

    def counted(session, path, index):
        asked.append(len(index))
        return references(session, path, index)

    monkeypatch.setattr(type(store.session), "references", counted)

    async def read():
        for _ in range(2):
            await asyncio.gather(*(store.get(f"v/c/{n % 4}/0", PROTOTYPE) for n in range(40)))

    asyncio.run(read())
    assert asked == [40, 40]


@pytest.mark.parametrize("again", [False, True], ids=["first look", "later look"])
def test_one_bad_chunk_fails_one_request(virtual, tmp_path, again):
    """The native chunk's object is gone; the chunks asked for with it are there."""
    store = virtual.store()
    for path in (virtual.root / "chunks").iterdir():
        path.unlink()

    async def read():
        keys = ["v/c/0/0", "native/c/0/0", "inline/c/1/0", "v/c/9/0", "zarr.json", "nonsense"]
        wanted = (store.get(key, PROTOTYPE) for key in keys)
        return await asyncio.gather(*wanted, return_exceptions=True)

    if again:
        asyncio.run(read())
    one, two, three, four, five, six = asyncio.run(read())
    assert one.to_bytes() == VALUES[:2].tobytes()
    assert isinstance(two, StorageError)
    assert three.to_bytes() == VALUES[2:4].tobytes()
    assert four is None
    assert five.to_bytes().startswith(b"{")
    assert six is None


def test_one_forbidden_chunk_fails_one_request(virtual):
    store = virtual.store(None)

    async def read():
        wanted = (store.get(key, PROTOTYPE) for key in ("v/c/0/0", "inline/c/1/0"))
        return await asyncio.gather(*wanted, return_exceptions=True)

    for _ in range(2):
        refused, inline = asyncio.run(read())
        assert isinstance(refused, icevirt.errors.UnauthorizedError)
        assert inline.to_bytes() == VALUES[2:4].tobytes()


def test_a_request_that_was_given_up_disturbs_nobody(virtual):
    store = virtual.store()

    async def read():
        first = asyncio.ensure_future(store.get("v/c/0/0", PROTOTYPE))
        second = asyncio.ensure_future(store.get("v/c/1/0", PROTOTYPE))
        await asyncio.sleep(0)
        first.cancel()
        return (await second).to_bytes()

    assert asyncio.run(read()) == VALUES[2:4].tobytes()


def test_listing_the_members_of_a_group_fetches_no_manifest(virtual, monkeypatch):
    def refuse(*_):
        raise AssertionError

    store = virtual.store()
    monkeypatch.setattr(type(store.session.assets), "read_manifest", refuse)
    monkeypatch.setattr(type(store.session.assets), "manifest", refuse)
    group = zarr.open_group(store, mode="r")
    assert sorted(group.array_keys()) == ["inline", "native", "v"]
    xr.open_dataset(virtual.root, engine="icevirt", authorize_virtual_chunk_access=[])


def test_large_chunks_asked_for_together_are_read_in_threads(virtual, monkeypatch):
    """A lone one is not: nothing else could go on meanwhile."""
    store, waited = virtual.store(), []
    wait = locating.InSource.wait

    def noted(one):
        waited.append(threading.current_thread() is threading.main_thread())
        return wait(one)

    monkeypatch.setattr(locating.InSource, "wait", noted)
    monkeypatch.setattr(request_batcher, "_QUICK", 39)

    async def read(keys):
        return [
            b.to_bytes() for b in await asyncio.gather(*(store.get(k, PROTOTYPE) for k in keys))
        ]

    keys = [f"v/c/{n}/0" for n in range(4)]
    asyncio.run(read(keys[:1]))  # the first look at an array is in a thread
    waited.clear()
    assert b"".join(asyncio.run(read(keys))) == VALUES.tobytes()
    assert waited == [False] * 4


def test_as_many_threads_read_as_reading_takes_time(virtual, monkeypatch):
    """Four threads that open cached files take twice the processor time of one."""
    store, runs, slow, now = virtual.store(), [], [0.0], [0.0]
    wait, one_thread = locating.InSource.wait, request_batcher._one_thread

    def noted(one):
        now[0] += slow[0]
        return wait(one)

    async def counted(pairs):
        runs.append(len(pairs))
        return await one_thread(pairs)

    monkeypatch.setattr(request_batcher, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(locating.InSource, "now", lambda _self: None)
    monkeypatch.setattr(locating.InSource, "wait", noted)
    monkeypatch.setattr(request_batcher, "_one_thread", counted)

    async def read():
        await asyncio.gather(*(store.get(f"v/c/{n}/0", PROTOTYPE) for n in range(4)))
        runs.append(None)

    async def waves():
        await read()
        await read()
        slow[0] = 0.002
        await read()
        await read()
        slow[0] = 0.0
        await read()
        await read()

    asyncio.run(waves())
    first = [None]  # whose thread looks into the manifest, and reads as well
    assert runs == first + [4, None] * 2 + [1, 1, 1, 1, None] * 2 + [4, None]
