"""Manifests hold the very bytes that they held before, whatever is done to write them faster.

The digests cover the payloads without the manifests' ids, so that another version of zstd changes
none of them. A change of what is written has to change them knowingly.
"""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from icevirt.access.virtual_refs import table_of_grid
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.wire import header
from icevirt.wire.header import FileKind
from icevirt.wire.manifests import manifest
from icevirt.wire.manifests.encoding import LocationCompression, LocationEncoding
from planning.test_combine import data, file, static, time
from tasks.test_writing import run

PLAIN = LocationCompression(encoding=LocationEncoding.plain)
NODE = ObjectId8(b"12345678")
N = 20_000  # rows; more than two blocks of records


def content(raw: bytes) -> bytes:
    """Return the payload of a manifest without its id."""
    _, payload = header.unpack(raw, FileKind.manifest)
    return payload.replace(bytes(manifest.decode(raw).id), bytes(ObjectId12.SIZE), 1)


def digest(*raw: bytes) -> str:
    return hashlib.sha256(b"".join(map(content, raw))).hexdigest()[:16]


def numbers(low, high):
    """Return numbers that look like random ones, whatever the version of numpy."""
    return np.arange(N, dtype=np.uint64) * 0x9E3779B97F4A7C15 // 977 % (high - low) + low


def urls(n):
    return [f"s3://bucket/{k % 12:02d}/granule_s2020{k * 7919 % 10**10:010d}.nc" for k in range(n)]


def grid(locations, shape=(N,), **how):
    return table_of_grid(shape, locations, numbers(1, 1 << 40), numbers(1, 60_000), **how)


def each(per_file):
    return [url for url in urls(N // per_file) for _ in range(per_file)]


def mixed():
    """Virtual, native and inline rows by turns, in three dimensions, with holes."""
    kind = np.resize(np.array([2, 2, 1, 3, 2], np.uint8), N)
    inline = kind == ChunkType.inline
    length = np.where(inline, 7, numbers(1, 60_000)).astype(np.uint64)
    offset = numbers(0, 1 << 40)
    offset[inline] = 7 * np.arange(inline.sum())
    source = (np.arange(N) // 50).astype(np.uint32)
    source[inline] = 0
    places = Locations(
        url=Strings.of(urls(N // 50)),
        etag=Strings.of(["" if k % 3 else f"tag{k}" for k in range(N // 50)]),
        last_modified=np.resize(np.array([0, 5, 1_600_000_000], np.uint32), N // 50),
    )
    shape = (N // 16, 4, 12)
    index = np.stack(np.unravel_index(3 * np.arange(N), shape), axis=1).astype(np.uint32)
    return ChunkTable(
        index=index,
        kind=kind,
        source=source,
        offset=offset,
        length=length,
        locations=places,
        chunk_ids=np.arange(12 * N // 50, dtype=np.uint64).astype(np.uint8).reshape(-1, 12),
        inline=np.resize(np.arange(251, dtype=np.uint8), 7 * int(inline.sum())),
    )


def shuffled():
    """Rows given in no order, whose sources come in no order either."""
    order = np.arange(N) * 7919 % N
    index = np.stack(np.unravel_index(order, (N // 100, 10, 10)), axis=1)
    return ChunkTable.virtual(
        index=index,
        offset=numbers(0, 1 << 40),
        length=numbers(1, 60_000),
        source=numbers(0, 300),
        locations=Locations.join([Locations.one(url) for url in urls(300)]),
    )


def with_empty():
    found = each(100)
    found[150:450] = [""] * 300
    return found


TABLES = {
    "a hundred references a file": lambda: grid(each(100)),
    "a file for each reference": lambda: grid(each(1)),
    "files in turn": lambda: grid(urls(5) * (N // 5)),
    "three dimensions from a corner": lambda: grid(each(10), (20, 50, 20), arr_offset=(3, 0, 9)),
    "empty locations": lambda: grid(with_empty()),
    "codes": lambda: grid(urls(40), codes=np.arange(N) * 7 % 40),
    "an etag for all": lambda: grid(each(100), checksum="abc"),
    "a time for each": lambda: grid(
        each(100), checksum=[datetime(2020, 1, 1 + k % 9, tzinfo=UTC) for k in range(N)]
    ),
    "characters of several bytes": lambda: grid([f"s3://b/größe-{k % 700}.nc" for k in range(N)]),
    "equal ends": lambda: grid([f"s3://bucket/{k:06d}/values-of-that-day.nc" for k in range(N)]),
    "of several lengths": lambda: grid([f"s3://bucket/{k}.nc" for k in range(N)]),
    "all kinds": mixed,
    "no order": shuffled,
}
ENCODED = {
    "a hundred references a file": "d1aaea7495fdec5a",
    "a file for each reference": "c393fa2bd0016583",
    "files in turn": "47407715031056ee",
    "three dimensions from a corner": "8277ba56e1efc104",
    "empty locations": "44987fc80ea8373b",
    "codes": "d8dad87f36768ba9",
    "an etag for all": "42530f0d88ccb6c9",
    "a time for each": "a8b977393b18483f",
    "characters of several bytes": "0f3f8572f9a5aec7",
    "equal ends": "627dc7b6009b63fa",
    "of several lengths": "eceeeb2803b73778",
    "all kinds": "d8b9f3bc8d6ca5ba",
    "no order": "aa1bc51be44fa819",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_encoded_to_the_same_bytes(name):
    encoded = manifest.encode({NODE: TABLES[name]()}, level=1, locations=PLAIN)
    assert digest(encoded.raw) == ENCODED[name]


def boxes(url, steps=2, y=3, x=4, gap=0):
    """A variable (time, y, x) with a chunk of each step and cell."""
    grid = (steps, y, x)
    count = steps * y * x
    return data(
        url,
        steps,
        dimension_names=("time", "y", "x"),
        shape=grid,
        chunk_shape=(1, 1, 1),
        references=ChunkTable.virtual(
            index=np.stack(np.unravel_index(np.arange(count), grid), axis=1),
            offset=np.arange(count) * (100 + gap) + 1000,
            length=np.arange(count) % 90 + 1,
            locations=Locations.one(url),
        ),
    )


def sparse(url, steps=4):
    """A variable of which every third chunk was never written."""
    whole = boxes(url, steps)
    kept = np.flatnonzero(np.arange(len(whole.references)) % 3 != 1)
    return replace(whole, path="/sparse", references=whole.references.take(kept))


def archive(order, *variables, length=2, **how):
    """Files of some steps each, in some order."""
    return [
        file(
            n,
            *(lambda u, v=v: v(u, length) for v in variables),
            time(length * n + np.arange(length)),
        )
        for n in order
    ]


ARCHIVES = {
    "boxes in order": lambda: run(archive(range(9), boxes), per_part=3),
    "boxes in no order": lambda: run(archive([4, 0, 3, 1, 5, 2], boxes), per_part=4),
    "several windows": lambda: run(archive(range(9), boxes, sparse), per_part=3, max_references=60),
    "sparse": lambda: run(archive(range(5), sparse, length=4)),
    "a static variable": lambda: run(
        [file(n, lambda u: data(u, 1), time([n]), static) for n in range(4)]
    ),
    "a new dimension": lambda: run(
        [file(n, boxes, time([1.0, 2.0])) for n in range(3)],
        dim=("member", "time"),
        labels={"member": r"regex:f(\d)\.nc"},
    ),
}
WRITTEN = {
    "boxes in order": "a0997e67f35a8849",
    "boxes in no order": "e925c9aa4f4963d8",
    "several windows": "e215af8ab978afbb",
    "sparse": "e2bcc2688b1db4ad",
    "a static variable": "99edf0dc221d24ea",
    "a new dimension": "759fc8dd52658bf5",
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_builds_write_the_same_manifests(name):
    _, results, repo = ARCHIVES[name]()
    written = [ObjectId12(r.manifest_id) for r in results if r.manifest_id is not None]
    assert digest(*(repo.get(f"manifests/{key}") for key in written)) == WRITTEN[name]
