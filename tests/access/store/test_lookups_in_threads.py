"""The event loop goes on while manifests are fetched, decompressed, checked or decoded."""

import asyncio
import threading

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import icevirt
from icevirt.access.store import request_batcher
from icevirt.access.store.locating import InSource
from icevirt.repo import manifest_lookup
from icevirt.repo.assets import Assets
from icevirt.wire.manifests import index_search
from icevirt.wire.manifests.open_manifest import OpenManifest

PROTOTYPE = default_buffer_prototype()
MANIFESTS, ROWS = 15, 500  # more manifests than are looked through in the loop at first
SIZE = 8


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """An array of chunks of a file, of which every tenth is missing, in several manifests."""
    root = tmp_path_factory.mktemp("split")
    source = root / "values"
    source.write_bytes(np.arange(MANIFESTS * ROWS, dtype="<i8").tobytes())
    config = icevirt.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icevirt.VirtualChunkContainer(
            f"{root.as_uri()}/", icevirt.local_filesystem_store(str(root))
        )
    )
    rule = {icevirt.ManifestSplitDimCondition.Any(): ROWS}
    config.manifest = icevirt.ManifestConfig(
        splitting=icevirt.ManifestSplittingConfig.from_dict(
            {icevirt.ManifestSplitCondition.AnyArray(): rule}
        )
    )
    session = icevirt.Repository.create(root / "repo", config).writable_session("main")
    count = MANIFESTS * ROWS
    zarr.create_array(
        session.store, name="v", shape=(count,), chunks=(1,), dtype="i8", compressors=None
    )
    session.store.set_virtual_refs_arr(
        "/v",
        chunk_grid_shape=[count],
        locations=["" if n % 10 == 9 else source.as_uri() for n in range(count)],
        offsets=np.arange(count, dtype=np.uint64) * SIZE,
        lengths=np.full(count, SIZE, np.uint64),
    )
    session.commit("all")
    return root


@pytest.fixture
def store(repository, monkeypatch):
    """Its store, where no manifest is so small that it is decoded or checked at once."""
    monkeypatch.setattr(manifest_lookup, "_PER_LOOKUP", 50)
    monkeypatch.setattr(manifest_lookup, "_PER_ROW", 0)
    monkeypatch.setattr(manifest_lookup, "_PER_TABLE", 0)
    monkeypatch.setattr(manifest_lookup, "_QUICK", 0)
    granted = [f"{repository.as_uri()}/"]
    repo = icevirt.Repository.open(repository / "repo", authorize_virtual_chunk_access=granted)
    return repo.readonly_session("main").store


async def value(store, number):
    found = await store.get(f"v/c/{number}", PROTOTYPE)
    return found and int(found.as_numpy_array().view("<i8")[0])


async def values(store, numbers):
    return await asyncio.gather(*(value(store, number) for number in numbers))


@pytest.fixture
def slow_work(monkeypatch):
    """What is done with manifests, and whether in the thread of the event loop."""
    done = []

    def watched(owner, name):
        work = getattr(owner, name)

        def noted(*given):
            done.append((name, threading.current_thread() is threading.main_thread()))
            return work(*given)

        monkeypatch.setattr(owner, name, noted)

    watched(Assets, "manifest_file")
    watched(OpenManifest, "__init__")
    watched(OpenManifest, "decode")
    watched(index_search, "_read_sorted")
    return done


def test_nothing_slow_is_done_with_manifests_in_the_thread_of_the_loop(store, slow_work):
    """Neither for an array that is known, nor for absent chunks, nor when all is decoded."""
    wanted = [ROWS * n + 7 for n in range(MANIFESTS)]

    async def read():
        assert await values(store, wanted) == wanted
        for further in range(20):
            each = [n + further for n in wanted]
            assert await values(store, each) == [None if n % 10 == 9 else n for n in each]
            assert await store.exists(f"v/c/{each[0]}") is (each[0] % 10 != 9)

    asyncio.run(read())
    assert {name for name, _ in slow_work} == {
        "manifest_file",
        "__init__",
        "decode",
        "_read_sorted",
    }
    assert not any(in_loop for _, in_loop in slow_work)


def test_what_is_at_hand_needs_no_thread(store, monkeypatch):
    async def read(number):
        return await value(store, number)

    for _ in range(20):
        asyncio.run(read(7))
    in_threads = []
    monkeypatch.setattr(InSource, "now", InSource.wait)  # whether the kernel has them or not
    monkeypatch.setattr(asyncio, "to_thread", lambda *_: in_threads.append(1))
    assert asyncio.run(read(8)) == 8
    assert not in_threads


@pytest.fixture
def gate(monkeypatch):
    """Let manifests be opened only after this was set; say which were."""
    gate, opened = threading.Event(), []
    fetch = Assets.manifest_file

    def waits(assets, key):
        opened.append(key)
        assert gate.wait(60)
        return fetch(assets, key)

    monkeypatch.setattr(Assets, "manifest_file", waits)
    gate.opened = opened
    return gate


def test_the_loop_goes_on_and_what_is_requested_meanwhile_is_looked_up_together(
    store, gate, monkeypatch
):
    batches = []
    locate = request_batcher.RequestBatcher._locate
    monkeypatch.setattr(
        request_batcher.RequestBatcher,
        "_locate",
        lambda batcher, wanted: batches.append(len(wanted.requests)) or locate(batcher, wanted),
    )

    async def read():
        tasks = []
        for number in range(6):
            tasks.append(asyncio.ensure_future(value(store, number)))
            await asyncio.sleep(0.001)
        assert await store.get("v/zarr.json", PROTOTYPE)
        assert not any(task.done() for task in tasks)
        gate.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(read()) == list(range(6))
    assert batches == [1, 5]  # metadata is read without looking chunks up
    assert len(gate.opened) == 1


def test_a_request_given_up_while_its_manifest_is_opened_disturbs_no_other(store, gate):
    async def read():
        tasks = [asyncio.ensure_future(value(store, number)) for number in range(3)]
        await asyncio.sleep(0.001)
        later = [asyncio.ensure_future(value(store, number)) for number in range(3, 6)]
        await asyncio.sleep(0.001)
        tasks[1].cancel()
        later[0].cancel()
        gate.set()
        return await asyncio.gather(*tasks, *later, return_exceptions=True)

    found = asyncio.run(read())
    assert [found[n] for n in (0, 2, 4, 5)] == [0, 2, 4, 5]
    assert all(isinstance(found[n], asyncio.CancelledError) for n in (1, 3))


def test_a_loop_may_end_while_a_manifest_is_opened_and_another_goes_on(store, gate):
    async def give_up():
        first = asyncio.ensure_future(value(store, 1))
        await asyncio.sleep(0.001)
        second = asyncio.ensure_future(value(store, 2))
        await asyncio.sleep(0.001)
        return first, second

    tasks = asyncio.run(give_up())  # does not wait for the thread
    gate.set()
    assert all(task.cancelled() for task in tasks)
    assert asyncio.run(value(store, 3)) == 3


@pytest.mark.parametrize("turns", range(5), ids=lambda turns: f"after {turns} turns of the loop")
def test_a_loop_whose_tasks_are_all_cancelled_reads_on(store, turns):
    """Also where the task that looks into an array had not begun."""

    async def read():
        given_up = [asyncio.ensure_future(value(store, number)) for number in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        return await asyncio.wait_for(value(store, 3), 20)

    assert asyncio.run(read()) == 3


def test_an_error_while_a_manifest_is_opened_is_raised_for_each_request(store, monkeypatch):
    def refuse(_assets, _key):
        raise icevirt.errors.StorageError("away")

    monkeypatch.setattr(Assets, "manifest_file", refuse)

    async def read():
        wanted = [store.get(f"v/c/{n}", PROTOTYPE) for n in range(4)]
        return await asyncio.gather(*wanted, return_exceptions=True)

    for _ in range(2):
        assert [type(each) for each in asyncio.run(read())] == [icevirt.errors.StorageError] * 4


def test_a_defect_behind_the_lookup_is_raised_for_each_request(store, monkeypatch):
    """Nobody waits for an answer that does not come."""

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(request_batcher.RequestBatcher, "_send_away", fail)
    monkeypatch.setattr(request_batcher.ReadingThreads, "read_here", lambda _self, found: found)

    async def read():
        wanted = [store.get(f"v/c/{n}", PROTOTYPE) for n in range(4)]
        return await asyncio.wait_for(asyncio.gather(*wanted, return_exceptions=True), 60)

    assert [type(each) for each in asyncio.run(read())] == [ZeroDivisionError] * 4
