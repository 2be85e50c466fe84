"""Scans of files on a server: how many requests, how many bytes, and none of them twice."""

import re
from itertools import pairwise

import h5py
import numpy as np
import pytest

from icevirt.objects.opening import open_source
from icevirt.objects.source import RemoteSource
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import scan
from icevirt_scanners.hdf5.raw.space import Pages

PAGES = {"fs_strategy": "page", "fs_page_size": 4 << 20}


def small(path):
    """Ten variables with attributes and scales."""
    with h5py.File(path, "w", track_order=True) as file:
        file["time"] = np.arange(10.0)
        file["time"].make_scale("time")
        for number in range(10):
            data = np.random.default_rng(number).random((10, 20, 40), "f4")
            made = file.create_dataset(f"v{number}", data=data, chunks=(1, 20, 40))
            made.dims[0].attach_scale(file["time"])
            made.attrs["long_name"] = "a name " * number


def large(path, **how):
    """Values between what describes them."""
    with h5py.File(path, "w", **how) as file:
        file["time"] = np.arange(12.0)
        file["time"].make_scale("time")
        for number in range(10):
            made = file.create_dataset(f"v{number}", (12, 256, 512), "f4", chunks=(1, 256, 512))
            made[...] = number
            made.dims[0].attach_scale(file["time"])
            made.attrs["units"] = "K"


def dense(path, **how):
    """One variable of 5,000 chunks."""
    with h5py.File(path, "w", **how) as file:
        file.create_dataset("d", data=np.ones((500, 100), "f4"), chunks=(1, 10))


FILES = {
    "small": (small, 1),
    "of 5,000 chunks": (dense, 1),
    "of 5,000 chunks, latest": (lambda path: dense(path, libver="latest"), 1),
    "of 5,000 chunks, paged": (lambda path: dense(path, **PAGES), 2),
    "large, paged": (lambda path: large(path, **PAGES), 3),
    "large, small pages": (lambda path: large(path, **{**PAGES, "fs_page_size": 1 << 16}), 2),
    "large": (large, 15),
}


def ranges(server):
    """Return the ranges that were asked for, in the order of the file."""
    asked = (request.headers["range"] for request in server.rules.requests)
    found = (re.fullmatch(r"bytes=(\d+)-(\d+)", one).groups() for one in asked)
    return sorted((int(first), int(last) + 1) for first, last in found)


@pytest.mark.parametrize("name", FILES)
def test_a_scan_takes_few_requests_and_no_byte_twice(name, http_server, tmp_path):
    write, most = FILES[name]
    path = tmp_path / "file.h5"
    write(path)
    http_server.files.put("data/file.h5", path.read_bytes())
    with open_source(http_server.url + "/data/file.h5") as source:
        far = scan(source, ScannerOptions())
    asked = ranges(http_server)
    assert len(asked) == source.requests <= most
    assert all(end <= begin for (_, end), (begin, _) in pairwise(asked))
    if "large" in name:
        assert source.bytes_fetched < path.stat().st_size / 10
    with open_source(path) as source:
        near = scan(source, ScannerOptions())
    for one, other in zip(far.arrays, near.arrays, strict=True):
        assert one.zarr_json() == other.zarr_json()
        for column in ("index", "kind", "offset", "length", "inline"):
            found, wanted = (getattr(each.references, column) for each in (one, other))
            np.testing.assert_array_equal(found, wanted)


def test_what_describes_a_large_file_is_fetched_in_four_waits(http_server, tmp_path, monkeypatch):
    """The beginning; names and nodes of the root group; headers; indices. Each is side by side."""
    path = tmp_path / "file.h5"
    large(path)
    http_server.files.put("data/file.h5", path.read_bytes())
    waits = []
    fetch = RemoteSource._bodies
    monkeypatch.setattr(
        RemoteSource, "_bodies", lambda self, ranges: waits.append(ranges) or fetch(self, ranges)
    )
    with open_source(http_server.url + "/data/file.h5") as source:
        scan(source, ScannerOptions())
    assert 1 + len(waits) <= 4  # the first opens it
    assert source.requests == 1 + sum(map(len, waits))
    assert source.bytes_fetched < 2 << 20
    assert source.requests <= fewest_requests(path, monkeypatch, more=2 << 20)


def fewest_requests(path, monkeypatch, more):
    """Return how many ranges hold all that a scan reads, with at most ``more`` bytes between."""
    read = []
    look = Pages.__call__

    def noted(self, offset, length):
        read.append((offset, offset + length))
        return look(self, offset, length)

    monkeypatch.setattr(Pages, "__call__", noted)
    with open_source(path) as source:
        scan(source, ScannerOptions())
    end, between = 0, []
    for begin, stop in sorted(read):
        between.append(max(0, begin - end))
        end = max(end, stop)
    joined = np.cumsum(sorted(between)) <= more
    return 1 + int(np.count_nonzero(~joined))


@pytest.mark.parametrize("megabytes", [2, 20])
def test_the_values_of_what_must_be_equal_in_all_files_are_fetched_once(
    megabytes, http_server, tmp_path
):
    """Kept while they are hashed and decoded, or only decoded where they are many."""
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["before"] = np.zeros(6_000_000, "u1")
        data = np.random.default_rng(megabytes).integers(0, 256, megabytes << 20, np.uint8)
        file.create_dataset("fixed", data=data, chunks=(1 << 18,), compression="gzip")
        file["behind"] = np.zeros(30_000_000, "u1")
    http_server.files.put("data/file.h5", path.read_bytes())
    how = ScannerOptions(concat_dim="time", variables=("fixed",))
    with open_source(http_server.url + "/data/file.h5") as source:
        far = scan(source, how)
    with open_source(path) as near:
        assert far.array("fixed").digest == scan(near, how).array("fixed").digest
    assert source.bytes_fetched < (megabytes << 20) * 1.2 + 3_000_000


def test_what_is_announced_may_lie_anywhere(http_server):
    body = np.random.default_rng(1).integers(0, 256, 40_000_000, np.uint8).tobytes()
    http_server.files.put("data/a.bin", body)
    with open_source(http_server.url + "/data/a.bin") as source:
        source.prefetch([])
        source.prefetch([(0, 10), (50_000_000, 50_000_010)])
        assert source.requests == 1
        source.prefetch([(5_000_000, 5_000_100), (39_999_990, 40_000_100), (9_000_000, 9_000_001)])
        assert source.requests == 4
        for offset in (5_000_000, 39_999_990, 9_000_000):
            assert source.read(offset, 100) == body[offset : offset + 100]
        source.prefetch([(9_000_000, 9_000_100)], page=1 << 20)
        assert source.requests == 4
        source.prefetch([(20_000_000, 20_000_100)], page=1 << 20)
        assert source.read(20_300_000, 100) == body[20_300_000:][:100]
        assert source.requests == 5
        source.prefetch([(0, 1 << 60)])  # not more than is kept
        assert source.bytes_fetched < 20_000_000
