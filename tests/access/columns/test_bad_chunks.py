"""What is wrong with a chunk ends a read with an error that names it, also among merged ranges."""

import os
import pickle
import threading
import time

import numcodecs
import numpy as np
import pytest

from access.columns.stored import store
from access.virtual import document
from icevirt.access.columns import workers
from icevirt.access.columns.decoding import ChunkDecoder
from icevirt.access.columns.stored_array import StoredArray, open_array
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import StorageError, UnauthorizedError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository

ROWS, WIDTH, BAD = 8, 100, 3
VALUES = np.arange(ROWS * WIDTH, dtype="<f4").reshape(ROWS, WIDTH)
CODECS = [
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}},
    {"name": "numcodecs.zlib", "configuration": {"level": 1}},
]


def encode(row: np.ndarray) -> bytes:
    return bytes(numcodecs.Zlib(1).encode(numcodecs.Shuffle(4).encode(row)))


class Archive:
    """A file of one chunk for each row, and an array that refers to it."""

    def __init__(self, root, chunks, gap=0):
        self.folder = root / "archive"
        self.folder.mkdir()
        self.file = self.folder / "rows.bin"
        self.file.write_bytes(b"".join(chunk + bytes(gap) for chunk in chunks))
        self.lengths = np.array([len(chunk) for chunk in chunks], np.uint64)
        steps = self.lengths[:-1] + np.uint64(gap)
        self.offsets = np.concatenate([[0], np.cumsum(steps)]).astype(np.uint64)
        self.prefix = f"file://{self.folder}/"
        self.root = root / "repo"

    def open(self, on_stale="raise", authorized=True):
        config = RepositoryConfig()
        store = local_filesystem_store(str(self.folder))
        config.set_virtual_chunk_container(VirtualChunkContainer(self.prefix, store))
        repo = Repository.create(self.root, config)
        session = repo.writable_session("main")
        seconds = -(-self.file.stat().st_mtime_ns // 10**9)
        session.add_array(
            "/v",
            document(
                shape=[ROWS, WIDTH],
                chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1, WIDTH]}},
                data_type="float32",
                fill_value=0.0,
                codecs=CODECS,
            ),
            ChunkTable.virtual(
                index=np.stack([np.arange(ROWS), np.zeros(ROWS, int)], axis=1),
                offset=self.offsets,
                length=self.lengths,
                locations=Locations.one(f"{self.prefix}rows.bin", last_modified=seconds),
            ),
        )
        session.commit("refer")
        access = [self.prefix] if authorized else None
        again = Repository.open(self.root, authorize_virtual_chunk_access=access)
        session = again.readonly_session("main")
        store = IcevirtStore(session, on_stale=on_stale)
        return StoredArray(store, session.array("/v")), store


@pytest.fixture(params=[0, 20_000], ids=["side by side", "apart"])
def archive(request, tmp_path):
    """Return a function that makes an archive whose chunks are read by one call, or by several."""

    def make(bad=None):
        chunks = [encode(row) for row in VALUES]
        if bad is not None:
            chunks[BAD] = bad
        return Archive(tmp_path, chunks, gap=request.param)

    return make


def whole(array):
    return array[(slice(None), slice(None))]


def test_sound_chunks_are_read(archive):
    array, store = archive().open()
    assert array.why_zarr is None
    np.testing.assert_array_equal(whole(array), VALUES)
    assert (store.verification.verifiable, store.verification.stale) == (ROWS, 0)


@pytest.mark.parametrize(
    "bad",
    [
        encode(VALUES[BAD])[:-6],
        encode(VALUES[BAD])[:-1] + b"\xff",
        encode(np.repeat(VALUES[BAD], 2)),
        encode(VALUES[BAD][:-1]),
        b"not deflated at all",
    ],
    ids=["cut short", "another checksum", "too much", "too little", "no deflate"],
)
def test_a_chunk_that_does_not_decode_is_named(archive, bad):
    built = archive(bad)
    array, _ = built.open()
    with pytest.raises(StorageError) as caught:
        whole(array)
    check_named(caught.value, built)
    np.testing.assert_array_equal(array[(slice(0, BAD), slice(None))], VALUES[:BAD])


def test_a_file_that_ends_too_early_names_the_first_chunk_that_is_cut(archive):
    built = archive()
    os.truncate(built.file, int(built.offsets[BAD]) + 5)
    os.utime(built.file, (1e9, 1e9))
    array, _ = built.open()
    with pytest.raises(StorageError, match="ends too early") as caught:
        whole(array)
    check_named(caught.value, built)


def test_an_offset_beyond_every_file_is_an_error_of_its_chunk(archive):
    built = archive()
    built.offsets[BAD] = 2**50
    array, _ = built.open()
    with pytest.raises(StorageError) as caught:
        whole(array)
    check_named(caught.value, built)


def check_named(error, built):
    again = pickle.loads(pickle.dumps(error))
    assert again.facts["variable"] == "/v"
    assert again.facts["chunk"] == [BAD, 0]
    assert again.facts["location"] == f"{built.prefix}rows.bin"


def test_a_file_that_may_not_be_read_names_the_array(archive):
    array, _ = archive().open(authorized=False)
    with pytest.raises(UnauthorizedError) as caught:
        whole(array)
    assert caught.value.facts["variable"] == "/v"


@pytest.mark.parametrize(("on_stale", "stale"), [("raise", 1), ("warn", ROWS), ("ignore", ROWS)])
def test_chunks_of_a_changed_file_are_counted_one_by_one(archive, recwarn, on_stale, stale):
    built = archive()
    array, store = built.open(on_stale)
    os.utime(built.file, (2e9, 2e9))
    if on_stale == "raise":
        with pytest.raises(StorageError, match="changed"):
            whole(array)
    else:
        np.testing.assert_array_equal(whole(array), VALUES)
    assert store.verification.stale == stale
    assert len(recwarn) == (on_stale == "warn")


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_read_that_ends_leaves_no_thread(monkeypatch, error):
    monkeypatch.setattr(workers, "_WORTH", 0)
    monkeypatch.setattr(workers, "_LONG", 0)
    pieces = list(range(100))
    names = set()

    def work(piece):
        names.add(threading.current_thread().name)
        if piece == 50:
            raise error

    with pytest.raises(type(error)):
        workers.work_through(pieces, work, 1)
    assert any(name.startswith("icevirt-read") for name in names)
    patience = 20 if isinstance(error, KeyboardInterrupt) else 0  # which waits for none of them
    deadline = time.monotonic() + patience
    while any(each.name.startswith("icevirt-read") for each in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupt_while_a_chunk_is_decoded_is_passed_on(archive, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    array, _ = archive().open()
    monkeypatch.setattr(ChunkDecoder, "decode_all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        whole(array)


def test_an_array_that_its_session_deleted_is_not_read_as_missing(tmp_path):
    stored = store(tmp_path / "repo", VALUES, commit=False, chunks=(1, WIDTH))
    array = open_array(stored.session, "/v")
    np.testing.assert_array_equal(whole(array), VALUES)
    stored.session.delete("/v")
    with pytest.raises(StorageError, match="Open it again"):
        whole(array)
