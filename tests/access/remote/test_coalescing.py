"""How many requests access patterns take over the network, and that every value is right."""

import asyncio
import re
import threading
import time

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icevirt
from access.remote.objects import CHUNK, document, refer, values
from icevirt.model.config.containers import ObjectStoreConfig
from servers.faults import Rules, refused, slow
from servers.ranges import Files
from servers.serving import served

pytestmark = pytest.mark.servers
COUNT = 300
VALUES = values(COUNT)


class Setting:
    """A repository of ``COUNT`` adjacent chunks in one file of a server."""

    def __init__(self, url, files, rules, remote):
        self.url, self.files, self.rules, self.remote = url, files, rules, remote

    @property
    def ranges(self):
        asked = [request.headers["range"] for request in self.rules.requests]
        return [tuple(map(int, re.findall(r"\d+", text))) for text in asked]

    @property
    def bytes(self):
        end = len(self.files.objects["data/a.bin"]) - 1
        return sum(max(0, min(last, end) - first + 1) for first, last in self.ranges)

    def array(self):
        seen = -1
        while seen != len(self.rules.requests):  # of an earlier test's reading ahead
            seen = len(self.rules.requests)
            time.sleep(0.03)
        self.rules.clear()
        return self.remote.array()


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    yield from made(tmp_path_factory.mktemp("adjacent"))


def made(root, **options):
    files, rules = Files(), Rules()
    files.put("data/a.bin", VALUES.tobytes())
    with served(files.answer, rules) as url:
        checksum = {"etag": files.etags["data/a.bin"]}
        prefix = url + "/data/"
        remote = refer(
            root / "repo",
            prefix,
            store=ObjectStoreConfig("http", {}),
            checksum=checksum,
            chunks=COUNT,
            **options,
        )
        yield Setting(url, files, rules, remote)


def test_a_whole_array_takes_less_than_a_tenth_of_the_requests(setting):
    array = setting.array()
    np.testing.assert_array_equal(array[:], VALUES)
    assert len(setting.ranges) < COUNT / 10
    assert setting.bytes < 1.5 * VALUES.nbytes


def test_without_looking_ahead_ten_chunks_share_a_request(setting):
    array = setting.array()
    np.testing.assert_array_equal(array[50:80], VALUES[50:80])
    assert setting.ranges[0] == (50 * CHUNK, 60 * CHUNK - 1)


@pytest.mark.parametrize("concurrency", [1, 4, 64])
def test_the_concurrency_of_zarr_says_how_many_chunks_share_the_first_request(setting, concurrency):
    array = setting.array()
    with zarr.config.set({"async.concurrency": concurrency}):
        np.testing.assert_array_equal(array[:100], VALUES[:100])
    assert setting.ranges[0] == (0, concurrency * CHUNK - 1)


def test_chunks_asked_for_at_once_take_one_request(setting):
    store = setting.array().store

    async def ask():
        return await asyncio.gather(*(store.get(f"v/c/{n}/0") for n in range(COUNT)))

    found = [body.to_bytes() for body in asyncio.run(ask())]
    assert found == [row.tobytes() for row in VALUES]
    assert setting.ranges == [(0, VALUES.nbytes - 1)]


def test_single_chunks_far_apart_take_a_request_each_and_no_byte_more(setting):
    array = setting.array()
    chosen = [200, 3, 150, 40, 290, 90]
    for number in chosen:
        np.testing.assert_array_equal(array[number], VALUES[number])
    assert setting.ranges == [(n * CHUNK, (n + 1) * CHUNK - 1) for n in chosen]


def test_partial_values_take_one_request(setting):
    store = setting.array().store
    wanted = [(f"v/c/{n}/0", zarr.abc.store.RangeByteRequest(10, 20)) for n in range(5)]
    prototype = zarr.core.buffer.default_buffer_prototype()
    found = asyncio.run(store.get_partial_values(prototype, wanted))
    assert [body.to_bytes() for body in found] == [row[10:20].tobytes() for row in VALUES[:5]]
    assert setting.ranges == [(10, 4 * CHUNK + 19)]


def test_a_lone_reader_is_never_held(setting):
    array = setting.array()
    setting.rules.add(slow(0.05), times=1e9)
    store = array.store

    async def one(number):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await store.get(f"v/c/{number}/0")
        return loop.time() - began

    async def in_turn():
        return [await one(number) for number in (0, 100, 200, 50, 250)]

    assert sorted(asyncio.run(in_turn()))[2] < 0.1


def test_dask_tasks_in_several_threads_share_requests(setting):
    array = setting.array()
    setting.rules.add(slow(0.02), times=1e9)
    found = np.zeros_like(VALUES)

    def read(low):
        found[low : low + 50] = array[low : low + 50]

    threads = [threading.Thread(target=read, args=(low,)) for low in range(0, COUNT, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(found, VALUES)
    assert len(setting.ranges) < COUNT / 4


def test_reading_from_front_to_back_one_by_one_is_read_ahead(setting):
    array = setting.array()
    for number in range(100):
        np.testing.assert_array_equal(array[number], VALUES[number])
    assert len(setting.ranges) < 25
    assert setting.bytes < 3.1 * 100 * CHUNK


def test_reading_ends_with_the_object(setting):
    array = setting.array()
    for number in range(COUNT - 20, COUNT):
        np.testing.assert_array_equal(array[number], VALUES[number])
    assert sum(first >= VALUES.nbytes for first, _ in setting.ranges) <= 1


@pytest.mark.ci
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, COUNT - 1), st.integers(1, 30), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_whatever_the_order_every_value_is_right(setting, turns):
    array = setting.array()
    at = 0
    for start, length, goes_on in turns:
        at = at if goes_on else start
        np.testing.assert_array_equal(array[at : at + length], VALUES[at : at + length])
        at = (at + length) % COUNT


def test_what_was_read_ahead_in_vain_is_fetched_again_when_it_failed(setting):
    array = setting.array()
    for number in range(3):
        array[number]
    setting.rules.add(refused(404), times=2)
    failed = 0
    for number in range(3, 20):
        try:
            np.testing.assert_array_equal(array[number], VALUES[number])
        except icevirt.errors.ObjectNotFoundError:
            failed += 1
    assert failed <= 1


def test_an_object_that_changes_while_it_is_read_ahead_is_stale(tmp_path):
    for setting in made(tmp_path):
        array = setting.array()
        for number in range(4):
            array[number]
        setting.files.put("data/a.bin", VALUES[::-1].tobytes())
        with pytest.raises(icevirt.errors.StaleReferenceError):
            read_on(array)


def read_on(array):
    for number in range(4, COUNT):
        np.testing.assert_array_equal(array[number], VALUES[number])


def test_nobody_waits_for_ever_when_requests_cannot_be_made(setting, monkeypatch):
    array = setting.array()
    array[0]

    def broken(self, wanted):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("icevirt.access.store.network_batcher.NetworkBatcher.fetch", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        array[:]


def test_gaps_between_chunks_are_bridged(tmp_path):
    files, rules = Files(), Rules()
    padded = np.zeros((COUNT, 3 * CHUNK), np.uint8)
    padded[:, :CHUNK] = VALUES
    files.put("data/a.bin", padded.tobytes())
    with served(files.answer, rules) as url:
        remote = refer(
            tmp_path / "repo",
            url + "/data/",
            store=ObjectStoreConfig("http", {}),
            chunks=COUNT,
            step=3 * CHUNK,
        )
        np.testing.assert_array_equal(remote.array()[:], VALUES)
        assert len(rules.requests) == COUNT / 10


def test_compressed_chunks_are_decoded_in_threads_and_still_share_requests(tmp_path):
    from zarr.codecs import ZstdCodec

    plain = zarr.create_array(
        zarr.storage.MemoryStore(),
        data=np.repeat(VALUES, 4, axis=0),
        chunks=(4, CHUNK),
        compressors=[ZstdCodec(level=1)],
    )
    bodies = [plain.store._store_dict[f"c/{n}/0"].to_bytes() for n in range(COUNT)]
    files, rules = Files(), Rules()
    files.put("data/a.bin", b"".join(bodies))
    rules.add(slow(0.005), times=1e9)
    with served(files.answer, rules) as url:
        remote = refer(
            tmp_path / "repo",
            url + "/data/",
            store=ObjectStoreConfig("http", {}),
            chunks=COUNT,
            document=document(
                COUNT,
                shape=[4 * COUNT, CHUNK],
                chunk_grid={"name": "regular", "configuration": {"chunk_shape": [4, CHUNK]}},
                codecs=[
                    {"name": "bytes"},
                    {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
                ],
            ),
            lengths=[len(body) for body in bodies],
        )
        np.testing.assert_array_equal(remote.array()[:], np.repeat(VALUES, 4, axis=0))
        assert len(rules.requests) < COUNT / 10
