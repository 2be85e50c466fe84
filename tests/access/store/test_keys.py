"""Which zarr keys name something, and how chunk keys are spelt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.access.store.keys import (
    ChunkKey,
    MetadataKey,
    chunk_keys,
    may_name_chunk,
    metadata_key,
    parse,
    parse_writable,
)
from icevirt.errors import InvalidInputError

NAMES = {
    "zarr.json": MetadataKey("/"),
    "a/zarr.json": MetadataKey("/a"),
    "a/b/zarr.json": MetadataKey("/a/b"),
    "c/zarr.json": MetadataKey("/c"),
    "c/0/zarr.json": MetadataKey("/c/0"),
    "c": ChunkKey("/", ()),
    "c/0/1": ChunkKey("/", (0, 1)),
    "a/c": ChunkKey("/a", ()),
    "a/c/0": ChunkKey("/a", (0,)),
    "a/c/4294967295": ChunkKey("/a", (4294967295,)),
    "c/c/0": ChunkKey("/c", (0,)),
    "a/c/0/c/1": ChunkKey("/a/c/0", (1,)),
    "a b/ß/c/10/0": ChunkKey("/a b/ß", (10, 0)),
}


@pytest.mark.parametrize("key", NAMES)
def test_a_key_names_a_node_or_a_chunk(key):
    assert parse(key) == parse_writable(key) == NAMES[key]
    assert may_name_chunk(key) is isinstance(NAMES[key], ChunkKey)


FOREIGN = [
    "", "/", "a", "0", "a/0", "a/0.0", "a/c/0.0", ".zattrs", "a/.zarray", ".zmetadata", "zarr.jso",
    "a//zarr.json", "/zarr.json", "/c/0", "a//c/0", "../zarr.json", "a/../c/0", "a/./c/0",
    "a/c/-1", "a/c/01", "a/c/4294967296", "a/c/1e3", "a/c/ 1", "a/c/\u0661", "a/c/0/", "a/c/0/x",
]  # fmt: skip


@pytest.mark.parametrize("key", FOREIGN)
def test_foreign_keys_name_nothing_and_cannot_be_written(key):
    assert parse(key) is None
    with pytest.raises(InvalidInputError, match="zarr_format=3"):
        parse_writable(key)


SEGMENTS = st.text(min_size=1, max_size=3).filter(
    lambda s: "/" not in s and s not in (".", "..", "zarr.json") and s.isprintable()
)
PATHS = st.lists(SEGMENTS, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(PATHS, st.lists(st.integers(0, 2**32 - 1), max_size=4))
def test_keys_that_are_spelt_are_read_back(path, index):
    assert parse(metadata_key(path)) == MetadataKey(path)
    (key,) = chunk_keys(path, np.array([index], np.uint32).reshape(1, len(index)))
    assert parse(key) == ChunkKey(path, tuple(index))
    assert may_name_chunk(key)
