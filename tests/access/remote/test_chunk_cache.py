"""A cache of chunks never changes what is read: whatever happens to it, to files and to readers."""

import os
import pickle
import random
import resource
import signal
import stat
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import xarray as xr
import zarr

from access.remote.objects import CHUNK, document, refer, values
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import (
    InvalidInputError,
    StaleReferenceError,
    StorageError,
    UnauthorizedError,
)
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.objects.chunk_cache import STRETCH, ChunkCache, ChunkCacheWarning

CHUNKS = 8
VALUES = values(CHUNKS)
BYTES = VALUES.tobytes()
ETAG = '"one"'


@pytest.fixture
def made(trusted, tmp_path):
    """A repository of a file on a server, with its etag; its chunks share an entry."""
    trusted.files.put("data/a.bin", BYTES, ETAG)
    return refer_to(tmp_path / "repo", trusted)


@pytest.fixture
def far(trusted, tmp_path):
    """The same with chunks so far apart that each has an entry of its own."""
    body = b"".join(each.tobytes().ljust(STRETCH) for each in VALUES)
    trusted.files.put("data/a.bin", body, ETAG)
    return refer_to(tmp_path / "far", trusted, step=STRETCH)


def refer_to(root, server, *, step=CHUNK, **checksum):
    return refer(
        root,
        server.url + "/data/",
        store=ObjectStoreConfig("http", {}),
        checksum=checksum or {"etag": ETAG},
        document=document(CHUNKS, dimension_names=["step", "at"]),
        step=step,
    )


def dataset(made, folder, **options):
    granted = {"authorize_virtual_chunk_access": made.authorize}
    return xr.open_dataset(
        made.root, engine="icevirt", cache=False, chunk_cache=folder, **{**granted, **options}
    )


def entries(folder):
    return sorted(Path(folder).glob("*.chunk"))


def requests_of(server, read):
    before = len(server.rules.requests)
    return read(), len(server.rules.requests) - before


def test_what_one_reader_fetched_others_find_by_chunk(made, trusted, tmp_path):
    folder = tmp_path / "cache"
    first = dataset(made, folder)
    np.testing.assert_array_equal(first["v"][2:6], VALUES[2:6])
    assert first.icevirt.chunk_cache == (0, 4, 0, 4 * CHUNK, 0)
    other = dataset(made, folder)
    read, asked = requests_of(trusted, lambda: other["v"][3:7].values)
    np.testing.assert_array_equal(read, VALUES[3:7])
    assert asked == 1
    assert other.icevirt.chunk_cache[:4] == (3, 1, 3 * CHUNK, CHUNK)
    read, asked = requests_of(trusted, lambda: other["v"][[6, 2, 4]].values)
    np.testing.assert_array_equal(read, VALUES[[6, 2, 4]])
    assert asked == 0
    assert dataset(made, None).icevirt.chunk_cache is None


def test_zarrs_pipeline_uses_the_same_entries(made, trusted, tmp_path):
    folder = tmp_path / "cache"
    array = zarr.open_array(IcevirtStore(made.session(), cache=ChunkCache(folder)), path="v")
    np.testing.assert_array_equal(array[:], VALUES)
    assert len(entries(folder)) == 1
    opened = dataset(made, folder)
    read, asked = requests_of(trusted, lambda: opened["v"].values)
    np.testing.assert_array_equal(read, VALUES)
    assert asked == 0
    again = zarr.open_array(IcevirtStore(made.session(), cache=ChunkCache(folder)), path="v")
    read, asked = requests_of(trusted, lambda: again[:])
    np.testing.assert_array_equal(read, VALUES)
    assert asked == 0


def test_native_chunks_of_a_bucket_are_kept_by_their_ids(strict_s3, tmp_path):
    import icevirt

    storage, folder = strict_s3.place.icevirt(), tmp_path / "cache"
    session = icevirt.Repository.create(storage).writable_session("main")
    stored = np.arange(4096, dtype="f8").reshape(4, 1024)
    ds = xr.Dataset({"v": (("step", "at"), stored)}, {"at": np.arange(1024)})
    from icevirt.xarray import to_icechunk

    to_icechunk(ds, session, encoding={"v": {"chunks": (1, 1024), "compressors": None}})
    session.commit("values")
    for hits in (0, 4):
        opened = xr.open_dataset(storage, engine="icevirt", cache=False, chunk_cache=folder)
        before = opened.icevirt.chunk_cache.hits
        np.testing.assert_array_equal(opened["v"].values, stored)
        assert opened.icevirt.chunk_cache.hits - before == hits


def test_another_version_of_a_file_has_other_entries(made, trusted, tmp_path):
    folder = tmp_path / "cache"
    np.testing.assert_array_equal(dataset(made, folder)["v"][:4], VALUES[:4])
    trusted.files.put("data/a.bin", BYTES[::-1], '"two"')
    stale = dataset(made, folder)
    np.testing.assert_array_equal(stale["v"][:4], VALUES[:4])  # as they were scanned
    with pytest.raises(StaleReferenceError):
        stale["v"][4:].load()
    after = refer_to(tmp_path / "after", trusted, etag='"two"')
    new = dataset(after, folder)
    np.testing.assert_array_equal(new["v"].values.ravel(), VALUES.ravel()[::-1])
    assert new.icevirt.chunk_cache.hits == 0


def test_who_reads_changed_files_as_they_are_uses_no_cache(made, trusted, tmp_path):
    np.testing.assert_array_equal(dataset(made, tmp_path / "cache")["v"], VALUES)
    trusted.files.put("data/a.bin", BYTES[::-1], '"two"')
    lenient = dataset(made, tmp_path / "cache", on_stale="ignore")
    np.testing.assert_array_equal(lenient["v"].values.ravel(), VALUES.ravel()[::-1])
    assert lenient.icevirt.chunk_cache is None
    np.testing.assert_array_equal(dataset(made, tmp_path / "cache")["v"], VALUES)


# -- decoded -------------------------------------------------------------------------------------

CHECKED = [
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "crc32c"},
]


def encode(chunks):
    """Return chunks with a checksum behind each, which is a codec as others are."""
    bodies = [each.tobytes() for each in chunks]
    return b"".join(raw + google_crc32c.value(raw).to_bytes(4, "little") for raw in bodies)


def refer_to_encoded(root, server, chunks=VALUES, **checksum):
    count, length = chunks.shape
    server.files.put("data/a.bin", encode(chunks), ETAG)
    changes = {
        "shape": [count, length],
        "dimension_names": ["step", "at"],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, length]}},
    }
    return refer(
        root,
        server.url + "/data/",
        store=ObjectStoreConfig("http", {}),
        checksum=checksum or {"etag": ETAG},
        document=document(count, codecs=CHECKED, **changes),
        chunks=count,
        lengths=[length + 4] * count,
    )


@pytest.mark.parametrize("chunks", [VALUES, np.tile(VALUES, 40)], ids=["small", "large"])
def test_values_are_kept_where_that_is_chosen(trusted, tmp_path, chunks):
    made, folder = refer_to_encoded(tmp_path / "repo", trusted, chunks), tmp_path / "cache"
    first = dataset(made, folder, chunk_cache_form="decoded")
    np.testing.assert_array_equal(first["v"][2:6], chunks[2:6])
    assert first.icevirt.chunk_cache == (0, 4, 0, 4 * chunks[0].nbytes, 0)
    assert chunks[2].tobytes() in b"".join(each.read_bytes() for each in entries(folder))
    other = dataset(made, folder, chunk_cache_form="decoded")
    read, asked = requests_of(trusted, lambda: other["v"][2:6].values)
    np.testing.assert_array_equal(read, chunks[2:6])
    assert (asked, other.icevirt.chunk_cache.hits) == (0, 4)
    encoded = dataset(made, folder)  # it has entries of its own
    np.testing.assert_array_equal(encoded["v"][2:6], chunks[2:6])
    assert encoded.icevirt.chunk_cache.misses == 4


def test_a_damaged_entry_of_values_is_read_from_its_server(trusted, tmp_path):
    made, folder = refer_to_encoded(tmp_path / "repo", trusted), tmp_path / "cache"
    dataset(made, folder, chunk_cache_form="decoded")["v"].load()
    for each in entries(folder):
        damage(lambda raw: raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:])(each, [])
    opened = dataset(made, folder, chunk_cache_form="decoded")
    np.testing.assert_array_equal(opened["v"], VALUES)
    assert opened.icevirt.chunk_cache[:2] == (CHUNKS - 1, 1)


@pytest.mark.parametrize("form", ["encoded", "decoded"])
def test_a_chunk_that_cannot_be_decoded_is_an_error_each_time(trusted, tmp_path, form):
    made, folder = refer_to_encoded(tmp_path / "repo", trusted), tmp_path / "cache"
    raw = encode(VALUES)
    trusted.files.put("data/a.bin", raw[:5] + bytes([raw[5] ^ 1]) + raw[6:], ETAG)
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot be decoded"):
            dataset(made, folder, chunk_cache_form=form)["v"].load()


MODIFIED = 1_600_000_000  # of files on the server
KEPT_BY = {
    "a strong etag": ({"etag": ETAG}, True),
    "a weak etag": ({"etag": 'W/"one"'}, False),
    "its very time": ({"last_modified": MODIFIED}, True),
    "a later time, which older files have too": ({"last_modified": MODIFIED + 1}, False),
}


@pytest.mark.parametrize(("checksum", "is_kept"), KEPT_BY.values(), ids=KEPT_BY.keys())
def test_only_what_a_checksum_tells_apart_is_kept(trusted, tmp_path, checksum, is_kept):
    trusted.files.put("data/a.bin", BYTES, checksum.get("etag", ETAG))
    made = refer_to(tmp_path / "repo", trusted, **checksum)
    np.testing.assert_array_equal(dataset(made, tmp_path / "cache")["v"], VALUES)
    assert len(entries(tmp_path / "cache")) == is_kept
    made = refer_to_encoded(tmp_path / "encoded", trusted, **checksum)
    trusted.files.put("data/a.bin", encode(VALUES), checksum.get("etag", ETAG))
    found = dataset(made, tmp_path / "values", chunk_cache_form="decoded")["v"]
    np.testing.assert_array_equal(found, VALUES)
    assert len(entries(tmp_path / "values")) == is_kept


def test_a_file_without_checksum_is_not_kept(trusted, tmp_path):
    trusted.files.put("data/a.bin", BYTES)
    made = refer(tmp_path / "repo", trusted.url + "/data/", store=ObjectStoreConfig("http", {}))
    store = IcevirtStore(made.session(), cache=ChunkCache(tmp_path / "cache"))
    np.testing.assert_array_equal(zarr.open_array(store, path="v")[:], VALUES)
    assert entries(tmp_path / "cache") == []


def test_a_kept_chunk_is_for_those_who_may_read_its_location(made, tmp_path):
    np.testing.assert_array_equal(dataset(made, tmp_path / "cache")["v"], VALUES)
    with pytest.raises(UnauthorizedError):
        dataset(made, tmp_path / "cache", authorize_virtual_chunk_access=None)["v"].load()


def test_an_object_of_the_same_name_on_another_server_is_another_one(tmp_path):
    cache = ChunkCache(tmp_path / "cache")
    cache.of("https://evil.example", "s3://bucket/a", ETAG).put({(0, 6): b"forged"})
    cache.of("https://s3.example", "s3://bucket/a", ETAG, "").put({(0, 6): b"forged"})
    assert cache.of("https://s3.example", "s3://bucket/a", ETAG).get(0, 6) is None
    assert bytes(cache.of("https://evil.example", "s3://bucket/a", ETAG).get(0, 6)) == b"forged"


def damage(change):
    def apply(path, _others):
        path.write_bytes(change(path.read_bytes()))

    return apply


DAMAGE = {
    "cut in its body": damage(lambda raw: raw[:-1]),
    "cut in its head": damage(lambda raw: raw[:20]),
    "empty": damage(lambda _raw: b""),
    "longer": damage(lambda raw: raw + b"x"),
    "a bit of its body": damage(lambda raw: raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:]),
    "a bit of its name": damage(lambda raw: raw[:10] + bytes([raw[10] ^ 1]) + raw[11:]),
    "its place": lambda path, others: path.write_bytes(others[0].read_bytes()),
    "zeros, as after a loss of power": damage(lambda raw: bytes(len(raw))),
}


@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_entry_is_deleted_and_read_from_its_server(far, tmp_path, harm):
    folder = tmp_path / "cache"
    dataset(far, folder)["v"].load()
    found = entries(folder)
    harm(found[0], found[1:])
    opened = dataset(far, folder)
    np.testing.assert_array_equal(opened["v"], VALUES)
    assert opened.icevirt.chunk_cache == (7, 1, 7 * CHUNK, CHUNK, 1)
    assert entries(folder) == found
    assert dataset(far, folder)["v"].load().identical(opened["v"])


# -- whose it is ---------------------------------------------------------------------------------


def test_nobody_else_can_read_what_is_kept(made, tmp_path):
    was = os.umask(0)
    try:
        dataset(made, tmp_path / "cache")["v"].load()
    finally:
        os.umask(was)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "cache").iterdir()}
    assert modes == {0o600}


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_directory_that_others_can_write_to_is_refused(made, tmp_path, mode):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(UnauthorizedError, match="others can write") as caught:
        dataset(made, tmp_path / "cache")
    assert "chmod 700" in caught.value.do


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_directory_of_another_user_is_refused(made, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", 12345, -1)
    with pytest.raises(UnauthorizedError, match="another user"):
        dataset(made, tmp_path / "cache")


def test_a_link_in_the_place_of_an_entry_is_not_followed(made, tmp_path):
    folder = tmp_path / "cache"
    dataset(made, folder)["v"].load()
    path = entries(folder)[0]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(ChunkCacheWarning):
        np.testing.assert_array_equal(dataset(made, folder)["v"], VALUES)


NO_PLACES = {
    "a bucket": ("s3://bucket/cache", None),
    "nothing": ("", None),
    "a size of nothing": ("{tmp}/cache", "0"),
    "a size that is none": ("{tmp}/cache", "much"),
    "a file": ("{tmp}/file", None),
    "below a file": ("{tmp}/file/cache", None),
    "a size without a directory": (None, "1GiB"),
}


@pytest.mark.parametrize(("folder", "size"), NO_PLACES.values(), ids=NO_PLACES.keys())
def test_what_is_no_cache_is_refused_when_it_is_named(made, tmp_path, folder, size):
    (tmp_path / "file").touch()
    named = None if folder is None else folder.format(tmp=tmp_path)
    with pytest.raises(InvalidInputError):
        dataset(made, named, chunk_cache_size=size)


# -- how large it is -----------------------------------------------------------------------------


def size_of(folder):
    return sum(-(-each.stat().st_size // 4096) * 4096 for each in Path(folder).iterdir())


def test_it_stays_within_its_size_and_loses_what_was_not_used_for_longest(tmp_path):
    random.seed(7)
    cache = ChunkCache(tmp_path / "cache", "1MiB")
    (tmp_path / "cache" / "of the user.txt").write_text("stays")
    held = cache.of("server", "url", "etag")
    used, body = 0, bytes(8000)
    for number in range(200):
        at = number * STRETCH
        held.put({(at, at + 8000): body})
        ((digest, _),) = held._by_entry([(at, at + 8000)])
        path = Path(cache.directory) / f"{digest.hex()}.chunk"
        os.utime(path, (1e9 + number, 1e9 + number))  # a second for each
        used += held.get(0, 8000) is not None  # which notes the use
        assert size_of(cache.directory) <= 1 << 20
    assert used == 200
    kept = [number for number in range(200) if held.get(number * STRETCH, 8000) is not None]
    assert kept[0] == 0
    assert kept[1:] == list(range(200 - len(kept) + 1, 200))
    assert len(kept) > 60
    assert (tmp_path / "cache" / "of the user.txt").read_text() == "stays"


def test_a_chunk_that_would_crowd_out_the_others_is_not_kept(tmp_path):
    cache = ChunkCache(tmp_path / "cache", "1MiB")
    cache.of("server", "url").put({(0, 1 << 18): bytes(1 << 18)})
    assert entries(tmp_path / "cache") == []


def test_what_killed_writers_left_is_deleted_in_time(tmp_path):
    cache = ChunkCache(tmp_path / "cache", "1MiB")
    old, young = (tmp_path / "cache" / f"{letter * 48}.ab.new" for letter in "ab")
    for path in (old, young):
        path.write_bytes(bytes(100))
    os.utime(old, (1e9, 1e9))
    for number in range(40):
        at = number * STRETCH
        cache.of("server", "url").put({(at, at + 30_000): bytes(30_000)})
    assert (old.exists(), young.exists()) == (False, True)


# -- trouble -------------------------------------------------------------------------------------


@contextmanager
def files_limited(most):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_ends_the_cache_and_no_read(made, tmp_path):
    opened = dataset(made, tmp_path / "cache")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with files_limited(100):  # within an entry
            read = opened["v"].values
    np.testing.assert_array_equal(read, VALUES)
    assert [each.category for each in said] == [ChunkCacheWarning]
    assert entries(tmp_path / "cache") == []
    assert list((tmp_path / "cache").glob("*.new")) == []


def test_a_directory_that_is_gone_ends_the_cache_and_no_read(made, tmp_path):
    opened = dataset(made, tmp_path / "cache")
    (tmp_path / "cache").rmdir()
    with pytest.warns(ChunkCacheWarning):
        np.testing.assert_array_equal(opened["v"], VALUES)
    np.testing.assert_array_equal(opened["v"], VALUES)  # a second warning would be an error


READERS = """
import os, random, signal, sys, time, traceback
import numpy as np, xarray as xr
import icevirt.access.xarray.backend, icevirt.objects.remote, icevirt.objects.chunk_cache

repo, folder, prefix = sys.argv[1:]

def opened():
    return xr.open_dataset(repo, engine="icevirt", cache=False, chunk_cache=folder,
        chunk_cache_size="4MiB", chunk_cache_form=random.choice(["encoded", "decoded"]), authorize_virtual_chunk_access=[prefix])

def read_forever():
    rng = np.random.default_rng()
    while True:
        ds = opened()
        for _ in range(20):
            at = np.sort(rng.integers(0, ds.sizes["step"], 20))
            assert (ds["v"][at].values == (at % 251)[:, None]).all(), "other values"

def start():
    if pid := os.fork():
        return pid
    try:
        read_forever()
    except BaseException:
        traceback.print_exc()
    os._exit(1)

opened()["v"][0].load()  # imports
readers = [start() for _ in range(8)]
while len(os.listdir(folder)) < 50:
    time.sleep(0.01)
for at in range(8):
    time.sleep(random.uniform(0.02, 0.2))
    os.kill(readers[at], signal.SIGKILL)
    os.waitpid(readers[at], 0)
    readers[at] = start()
ended = [pid for pid in readers if os.waitpid(pid, os.WNOHANG) != (0, 0)]
for pid in set(readers) - set(ended):
    os.kill(pid, signal.SIGKILL)
sys.exit(len(ended))
"""


@pytest.mark.ci
def test_readers_that_are_killed_while_they_write_harm_no_other(trusted, tmp_path):
    chunks, length, folder = 200, 1 << 16, tmp_path / "cache"
    numbers = np.repeat((np.arange(chunks) % 251).astype("u1")[:, None], length, axis=1)
    made = refer_to_encoded(tmp_path / "repo", trusted, numbers)
    command = [sys.executable, "-Wignore", "-c", READERS, made.root, folder, trusted.url + "/data/"]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert size_of(folder) <= 1.2 * (4 << 20)
    hits = 0
    for form in ("encoded", "decoded"):  # all that were left may be of one form
        opened = dataset(made, folder, chunk_cache_form=form)
        np.testing.assert_array_equal(opened["v"], numbers)
        assert opened.icevirt.chunk_cache.damaged == 0
        hits += opened.icevirt.chunk_cache.hits
    assert hits > 20


def test_a_child_that_is_forked_inherits_no_lock(tmp_path):
    cache = ChunkCache(tmp_path / "cache", "1MiB")
    with cache._lock, cache._files._alone() as is_alone, warnings.catch_warnings():
        assert is_alone
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that other tests left
        if not (child := os.fork()):
            done = signal.alarm(20)
            try:
                cache.of("server").put({(0, 5): b"12345"})
                done = cache.of("server").get(0, 5) == b"12345"
            finally:
                os._exit(0 if done else 1)
        assert os.waitpid(child, 0)[1] == 0
    with cache._files._alone() as is_alone:
        assert is_alone


def test_threads_that_add_to_one_entry_lose_nothing(tmp_path):
    held = ChunkCache(tmp_path / "cache").of("server")
    spans = [(at, at + 10) for at in range(0, 400, 10)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda span: held.put({span: bytes(10)}), spans))
    assert None not in held.get_all(spans)


def test_xarrays_own_option_is_not_taken_for_it(made, tmp_path):
    import icevirt

    with pytest.raises(InvalidInputError, match="xarray's own") as caught:
        icevirt.open(made.root, cache=tmp_path / "cache")
    assert "chunk_cache=DIR" in caught.value.do


def test_a_dataset_goes_to_other_processes_with_its_cache(made, trusted, tmp_path):
    dataset(made, tmp_path / "cache")["v"].load()
    sent = pickle.loads(pickle.dumps(dataset(made, tmp_path / "cache")))
    read, asked = requests_of(trusted, lambda: sent["v"].values)
    np.testing.assert_array_equal(read, VALUES)
    assert (asked, sent.icevirt.chunk_cache.hits) == (0, CHUNKS)


def test_where_the_directory_is_no_place_for_one_chunks_are_read_without(tmp_path):
    """As on another machine, where a folder of the same name may belong to somebody else."""
    sent = pickle.dumps(ChunkCache(tmp_path / "cache", "2MiB"))
    (tmp_path / "cache").chmod(0o777)
    with pytest.warns(ChunkCacheWarning, match="read without a cache: others can write"):
        assert pickle.loads(sent) is None
