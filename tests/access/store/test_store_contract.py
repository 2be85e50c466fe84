"""zarr's own tests of the Store contract, on writable sessions in memory, on local disk and on S3.

A session holds zarr hierarchies, not arbitrary keys and bytes: a chunk needs its array, and a
zarr.json has to be one. So tests that write arbitrary values are run on keys and documents of a
hierarchy here (``KEYS``), or are replaced; each override says why.
"""

import json
import pickle

import pytest
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync
from zarr.storage._utils import _normalize_byte_range_index
from zarr.testing.store import StoreTests
from zarr.testing.utils import assert_bytes_equal

from access.hierarchy import GROUP, HIERARCHY, array, buffer
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import InvalidInputError, NodeNotFoundError, SessionStateError
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage

BODY = b"\x01\x02\x03\x04"
RANGES = [None, RangeByteRequest(1, 4), OffsetByteRequest(1), SuffixByteRequest(1)]


PROTOTYPE = default_buffer_prototype()
KEYS = ["foo/c/0/1", "scalar/c", "foo-bar/deep/c/10"]

REFUSED = {
    "a zarr v2 attribute file": (".zattrs", b"{}"),
    "a zarr v2 array": ("foo/.zarray", b"{}"),
    "a path with two dots": ("../zarr.json", json.dumps(GROUP).encode()),
    "a chunk with another separator": ("foo/c/0.0", BODY),
    "a chunk of no array": ("nowhere/c/0", BODY),
    "a chunk of a group": ("foo-bar/c/0", BODY),
    "a chunk outside the grid": ("foo/c/20/0", BODY),
    "a large chunk outside the grid": ("foo/c/20/0", b"x" * 1000),
    "a chunk with too few coordinates": ("foo/c/1", BODY),
    "a chunk of no bytes": ("foo/c/0/0", b""),
    "a document that is not JSON": ("new/zarr.json", b"bar"),
    "a document with a bare NaN": ("new/zarr.json", b'{"zarr_format":3,"x":NaN}'),
    "a document of zarr v2": ("new/zarr.json", b'{"zarr_format":2}'),
    "an array's document over a group": ("foo-bar/zarr.json", json.dumps(array(2)).encode()),
}


class Contract(StoreTests[IcevirtStore, cpu.Buffer]):
    store_cls = IcevirtStore
    buffer_cls = cpu.Buffer

    # -- what the suite needs: bytes put and taken without the store ---------------------------

    async def set(self, store, key, value):
        store._set(key, value.to_bytes())

    async def get(self, store, key):
        return buffer(bytes(store._reader.read_all([(key, None)])[0]))

    @pytest.fixture
    def store_kwargs(self, repo):
        return {"session": repo.writable_session("main")}

    @pytest.fixture
    def store(self, open_kwargs):
        """The suite's fixture is a coroutine, which would need a plugin."""
        return sync(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        """As store."""
        return self.store_cls(**store_kwargs)

    @pytest.fixture
    def filled(self, store):
        for key, document in HIERARCHY.items():
            store.set_sync(key, buffer(document))
        return store

    def test_store_repr(self, store):
        assert repr(store).startswith("<icevirt.IcevirtStore over <icevirt.Session main@")

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    def test_consolidated_metadata_is_not_used(self, store):
        """The snapshot is consolidated already."""
        assert not store.supports_consolidated_metadata

    # -- overrides: the same claims on keys that exist in a hierarchy --------------------------

    async def test_serializable_store(self, store):
        """A writable session does not pickle; a read-only one does, see test_store.py."""
        with pytest.raises(SessionStateError, match="does not pickle"):
            pickle.dumps(store)

    async def test_with_read_only_store(self, open_kwargs):
        """The suite writes the key "foo"."""
        store = await self.store_cls.open(**{**open_kwargs, "read_only": True})
        writer = store.with_read_only(read_only=False)
        assert not writer._is_open
        assert not writer.read_only
        await writer.set("zarr.json", buffer(GROUP))
        await writer.delete("zarr.json")
        for refusing in (store, writer.with_read_only(read_only=True)):
            assert refusing.read_only
            for attempt in (refusing.set("zarr.json", buffer(GROUP)), refusing.delete("zarr.json")):
                with pytest.raises(ValueError, match="opened in read-only mode"):
                    await attempt

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("data", [BODY, b"x" * 1000], ids=["inline", "native"])
    @pytest.mark.parametrize("byte_range", [*RANGES, RangeByteRequest(10**6, 10**6 + 1)])
    async def test_get(self, filled, key, data, byte_range):
        """Chunk keys need their array; a chunk of no bytes cannot be."""
        await self.set(filled, key, buffer(data))
        observed = await filled.get(key, prototype=PROTOTYPE, byte_range=byte_range)
        start, stop = _normalize_byte_range_index(buffer(data), byte_range=byte_range)
        assert_bytes_equal(observed, buffer(data)[start:stop])

    async def test_get_not_open(self, store_not_open):
        """The suite reads a chunk without an array."""
        assert not store_not_open._is_open
        await self.set(store_not_open, "zarr.json", buffer(GROUP))
        observed = await store_not_open.get("zarr.json", prototype=PROTOTYPE)
        assert_bytes_equal(observed, buffer(GROUP))

    async def test_get_raises(self, filled):
        """The suite reads a chunk without an array."""
        await self.set(filled, KEYS[0], buffer(BODY))
        with pytest.raises(TypeError, match=r"Unexpected byte_range, got.*"):
            await filled.get(KEYS[0], prototype=PROTOTYPE, byte_range=(0, 2))

    async def test_get_many(self, filled):
        """The suite's keys are numbers."""
        keys = [f"foo/c/{n}/0" for n in range(10)]
        for key in keys:
            await self.set(filled, key, buffer(key.encode()))
        wanted = [(key, PROTOTYPE, None) for key in keys]
        observed = await _collect_aiterator(filled._get_many(wanted))
        assert {key: value.to_bytes().decode() for key, value in observed} == {k: k for k in keys}

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("data", [BODY, b"x" * 1000], ids=["inline", "native"])
    async def test_getsize(self, filled, key, data):
        """Chunk keys need their array; a chunk of no bytes cannot be."""
        await self.set(filled, key, buffer(data))
        assert await filled.getsize(key) == len(data)

    async def test_getsize_prefix(self, store):
        """Chunk keys need their array: of the root here, beside a group of nearly the same name."""
        await store.set("zarr.json", buffer(GROUP))
        await store.set("c/zarr.json", buffer(array(9, 9)))
        await store.set("cc/zarr.json", buffer(array(9)))
        keys = ["c/c/0/0", "c/c/0/1", "c/c/1/0", "cc/c/0"]
        await store._set_many((key, buffer(BODY)) for key in keys)
        document = len(buffer(array(9, 9)))
        assert await store.getsize_prefix("c") == document + 12
        assert await store.getsize_prefix("c/c/0") == 8
        assert await store.getsize_prefix("c/c/0/") == 8
        assert await store.getsize_prefix("c/c/7") == 0
        assert await store.getsize_prefix("nowhere") == 0
        total = sum([await store.getsize(key) for key in await _collect_aiterator(store.list())])
        assert await store.getsize_prefix("") == total

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("data", [BODY, b"x" * 1000], ids=["inline", "native"])
    async def test_set(self, filled, key, data):
        """Chunk keys need their array; a chunk of no bytes cannot be."""
        assert not filled.read_only
        await filled.set(key, buffer(data))
        assert_bytes_equal(await self.get(filled, key), buffer(data))

    async def test_set_not_open(self, store_not_open):
        """The suite writes a chunk without an array."""
        assert not store_not_open._is_open
        await store_not_open.set("zarr.json", buffer(GROUP))
        assert_bytes_equal(await self.get(store_not_open, "zarr.json"), buffer(GROUP))

    async def test_set_many(self, filled):
        """Chunk keys need their array."""
        await filled._set_many((key, buffer(key.encode())) for key in KEYS)
        for key in KEYS:
            assert (await self.get(filled, key)).to_bytes() == key.encode()

    @pytest.mark.parametrize(
        "key_ranges",
        [
            [],
            [("zarr.json", RangeByteRequest(0, 2))],
            [(KEYS[0], RangeByteRequest(0, 2)), ("zarr.json", None), ("foo/c/1/1", None)],
            list(zip(KEYS, RANGES[1:], strict=True)),
            [(KEYS[1], byte_range) for byte_range in RANGES],
        ],
    )
    async def test_get_partial_values(self, filled, key_ranges):
        """Chunk keys need their array."""
        for key in KEYS:
            await self.set(filled, key, buffer(key.encode()))
        observed = await filled.get_partial_values(PROTOTYPE, iter(key_ranges))
        expected = [await filled.get(key, PROTOTYPE, bounds) for key, bounds in key_ranges]
        assert len(observed) == len(expected)
        for one, other in zip(observed, expected, strict=True):
            assert (one is None) == (other is None)
            assert one is None or one.to_bytes() == other.to_bytes()

    async def test_exists(self, store):
        """The suite's document is no zarr.json."""
        assert not await store.exists("foo")
        assert not await store.exists("foo/zarr.json")
        await store.set("foo/zarr.json", buffer(array(2)))
        assert await store.exists("foo/zarr.json")
        assert not await store.exists("foo/c/0")
        assert not await store.exists("foo/c/0/0")
        await store.set("foo/c/0", buffer(BODY))
        assert await store.exists("foo/c/0")

    async def test_delete(self, store):
        """The suite's document is no zarr.json."""
        await store.set("foo/zarr.json", buffer(array(2)))
        await store.set("foo/c/0", buffer(BODY))
        await store.delete("foo/c/0")
        assert await store.exists("foo/zarr.json")
        assert not await store.exists("foo/c/0")
        await store.delete("foo/c/1")
        await store.delete("foo/c/99")
        await store.delete("foo/zarr.json")
        assert not await store.exists("foo/zarr.json")

    async def test_delete_dir(self, filled):
        """The suite's documents are no zarr.json."""
        for key in ("foo/c/0/0", "foo/c/0/1", "foo/c/1/0"):
            await filled.set(key, buffer(BODY))
        await filled.delete_dir("foo/c/0")
        assert await filled.exists("foo/c/1/0")
        assert not await filled.exists("foo/c/0/0")
        assert not await filled.exists("foo/c/0/1")
        await filled.delete_dir("foo/c/9")
        await filled.delete_dir("foo")
        assert await filled.exists("zarr.json")
        assert await filled.exists("foo-bar/zarr.json")
        assert not await filled.exists("foo/zarr.json")
        assert not await filled.exists("foo/c/1/0")

    async def test_is_empty(self, store):
        """The suite's key names nothing; a parent is added with its child."""
        assert await store.is_empty("")
        await self.set(store, "foo/bar/zarr.json", buffer(GROUP))
        assert not await store.is_empty("")
        assert await store.is_empty("fo")
        assert not await store.is_empty("foo/")
        assert not await store.is_empty("foo")
        assert await store.is_empty("spam/")

    async def test_clear(self, filled):
        """The suite's key names nothing."""
        await filled.clear()
        assert await filled.is_empty("")

    async def test_list(self, filled):
        """The suite's documents are no zarr.json."""
        await filled._set_many((key, buffer(BODY)) for key in KEYS)
        observed = await _collect_aiterator(filled.list())
        assert sorted(observed) == sorted([*HIERARCHY, *KEYS])

    async def test_list_prefix(self, filled):
        """The suite's documents are no zarr.json."""
        await filled._set_many((key, buffer(BODY)) for key in KEYS)
        prefixes = ["", "f", "foo", "foo/", "foo-bar/", "foo/c", "foo/c/", "foo/c/0", "foo/c/1"]
        for prefix in [*prefixes, "scalar/c", "foo-bar/deep/c/1", "x", "foo/c/0/1", "foo/c/0/1/2/"]:
            observed = await _collect_aiterator(filled.list_prefix(prefix))
            everything = [*HIERARCHY, *KEYS]
            assert sorted(observed) == sorted(k for k in everything if k.startswith(prefix))

    async def test_list_empty_path(self, store):
        """As test_list and test_list_prefix."""
        assert await _collect_aiterator(store.list_prefix("")) == ()

    async def test_list_dir(self, filled):
        """The suite's documents are no zarr.json."""
        await filled._set_many((key, buffer(BODY)) for key in [*KEYS, "foo/c/0/7", "foo/c/3/7"])
        expected = {
            "": {"zarr.json", "foo", "scalar", "foo-bar"},
            "foo": {"zarr.json", "c"},
            "foo/c": {"0", "3"},
            "foo/c/0": {"1", "7"},
            "foo/c/0/1": set(),
            "scalar": {"zarr.json", "c"},
            "scalar/c": set(),
            "foo-bar": {"zarr.json", "deep"},
            "nowhere": set(),
            "foo/c/0/1/2": set(),
        }
        for folder, names in expected.items():
            for spelt in (folder, folder + "/"):
                assert sorted(await _collect_aiterator(filled.list_dir(spelt))) == sorted(names)

    async def test_set_if_not_exists(self, filled):
        """The suite's keys name nothing."""
        await filled.set_if_not_exists(KEYS[0], buffer(BODY))
        await filled.set_if_not_exists(KEYS[0], buffer(b"other"))
        assert (await filled.get(KEYS[0], PROTOTYPE)).to_bytes() == BODY

    def test_get_sync(self, filled):
        """The suite's keys name nothing."""
        filled.set_sync(KEYS[0], buffer(BODY))
        assert filled.get_sync(KEYS[0]).to_bytes() == BODY

    def test_set_sync(self, filled):
        """As test_get_sync."""
        filled.set_sync("foo/zarr.json", buffer(HIERARCHY["foo/zarr.json"]))

    def test_delete_sync(self, filled):
        """The suite's keys name nothing."""
        filled.set_sync(KEYS[0], buffer(BODY))
        filled.delete_sync(KEYS[0])
        assert filled.get_sync(KEYS[0]) is None

    @pytest.mark.parametrize("direction", ["set_async_get_sync", "set_sync_get_async"])
    async def test_sync_async_set_get_parity(self, filled, direction):
        """The suite's keys name nothing."""
        if direction == "set_async_get_sync":
            await filled.set(KEYS[0], buffer(BODY))
            result = filled.get_sync(KEYS[0])
        else:
            filled.set_sync(KEYS[0], buffer(BODY))
            result = await filled.get(KEYS[0], PROTOTYPE)
        assert result.to_bytes() == BODY

    async def test_delete_sync_visible_to_async_get(self, filled):
        """The suite's keys name nothing."""
        await filled.set(KEYS[0], buffer(BODY))
        filled.delete_sync(KEYS[0])
        assert await filled.get(KEYS[0], PROTOTYPE) is None

    @pytest.mark.parametrize("byte_range", [*RANGES, RangeByteRequest(10, 20)])
    async def test_get_sync_byte_range_parity(self, filled, byte_range):
        """The suite's keys name nothing."""
        filled.set_sync(KEYS[0], buffer(BODY))
        one = filled.get_sync(KEYS[0], byte_range=byte_range)
        other = await filled.get(KEYS[0], PROTOTYPE, byte_range)
        assert_bytes_equal(one, other)

    # -- beyond the suite ----------------------------------------------------------------------

    @pytest.mark.parametrize(("key", "value"), REFUSED.values(), ids=REFUSED.keys())
    async def test_what_no_reader_could_read_is_refused(self, filled, key, value):
        before = sorted(await _collect_aiterator(filled.list()))
        with pytest.raises((InvalidInputError, NodeNotFoundError)):
            await filled.set(key, buffer(value))
        with pytest.raises((InvalidInputError, NodeNotFoundError)):
            filled.set_sync(key, buffer(value))
        assert sorted(await _collect_aiterator(filled.list())) == before

    async def test_a_refused_chunk_leaves_no_object_behind(self, filled, repo):
        with pytest.raises(InvalidInputError):
            await filled.set("foo/c/20/0", buffer(b"x" * 1000))
        assert not list(repo.storage.list("chunks"))

    async def test_only_a_buffer_is_stored(self, store):
        with pytest.raises(TypeError, match="must be a Buffer instance"):
            await store.set("zarr.json", b"{}")


class TestInMemory(Contract):
    @pytest.fixture
    def repo(self):
        return Repository.create(MemoryStorage())


class TestOnLocalDisk(Contract):
    @pytest.fixture
    def repo(self, tmp_path):
        return Repository.create(LocalStorage(tmp_path / "repo"))


class TestOnS3(Contract):
    @pytest.fixture
    def repo(self, s3):
        return Repository.create(s3.icevirt())
