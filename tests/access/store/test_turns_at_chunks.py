"""Whoever writes parts of one chunk of a session takes turns: threads, event loops, wrapped stores."""

import asyncio
import gc
import os
import threading
import warnings

import numpy as np
import pytest
import zarr
from zarr.api import asynchronous
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LoggingStore, WrapperStore

import icevirt
from icevirt.access.store import naming_pipeline

WRITERS = 12
VALUES = np.repeat(np.arange(1, WRITERS + 1), 2)


@pytest.fixture
def store(tmp_path):
    """A store whose array has one chunk, on disk: reading it takes a moment."""
    config = icevirt.RepositoryConfig(inline_chunk_threshold_bytes=0)
    store = icevirt.Repository.create(tmp_path / "repo", config).writable_session("main").store
    zarr.create_array(store, name="a", shape=(2 * WRITERS,), chunks=(2 * WRITERS,), dtype="i4")
    yield store
    gc.collect()
    assert not naming_pipeline._turns


def write(store, n, begin):
    array = zarr.open_array(store, path="a", mode="r+")
    begin()
    array[2 * n : 2 * n + 2] = n + 1


def write_in_a_loop_of_its_own(store, n, begin):
    async def write_later():
        array = await asynchronous.open_array(store=store, path="a", mode="r+")
        begin()
        await array.setitem(slice(2 * n, 2 * n + 2), n + 1)

    asyncio.run(write_later())


WRITES = {"zarr's loop": write, "a loop each": write_in_a_loop_of_its_own}
STORES = {
    "bare": lambda store: store,
    "wrapped": WrapperStore,
    "wrapped twice": lambda store: WrapperStore(LoggingStore(store, log_level="ERROR")),
}


@pytest.mark.parametrize("wrap", STORES.values(), ids=STORES)
@pytest.mark.parametrize("write_part", WRITES.values(), ids=WRITES)
def test_no_part_of_a_chunk_is_lost(store, write_part, wrap):
    barrier = threading.Barrier(WRITERS)
    threads = [
        threading.Thread(target=write_part, args=(wrap(store), n, barrier.wait))
        for n in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(zarr.open_array(store, path="a")[:], VALUES)


def test_arrays_take_turns_after_zarrs_configuration_was_reset(store):
    zarr.config.reset()
    opened = zarr.open_array(store, path="a", mode="r+")
    zarr.config.reset()
    made = zarr.create_array(store, name="b", shape=(4,), dtype="i4")
    for array in (opened, made):
        assert type(array.async_array.codec_pipeline) is naming_pipeline.NamingPipeline
    other = zarr.create_array({}, shape=(4,), dtype="i4")
    assert type(other.async_array.codec_pipeline) is BatchedCodecPipeline


def test_who_is_cancelled_gives_up_the_turn(store):
    async def write_and_cancel():
        array = await asynchronous.open_array(store=store, path="a", mode="r+")
        tasks = [
            asyncio.create_task(array.setitem(slice(2 * n, 2 * n + 2), n + 1))
            for n in range(WRITERS)
        ]
        await asyncio.sleep(0.002)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [task.cancelled() for task in tasks]

    cancelled = asyncio.run(write_and_cancel())
    written = [n for n in range(WRITERS) if not cancelled[n]]
    assert len(written) >= WRITERS // 2
    found = zarr.open_array(store, path="a")[:].reshape(-1, 2)
    np.testing.assert_array_equal(found[written], VALUES.reshape(-1, 2)[written])


def test_a_child_process_waits_for_no_thread_of_its_parent(store):
    lock = naming_pipeline._turns.setdefault((id(store.session), "a/c/0"), threading.Lock())
    with lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        child = os.fork()
        if not child:
            os._exit(len(naming_pipeline._turns))
    assert os.waitpid(child, 0)[1] == 0
    assert naming_pipeline._turns
