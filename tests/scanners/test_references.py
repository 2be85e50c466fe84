"""Grids of contiguous blocks, and what concatenation asks of a scan."""

from math import prod
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.api.scan import scan_file
from icevirt.archive.joining import LONGEST_RUN, cut_along
from icevirt.model.chunks import ChunkType
from icevirt.scan.contract import ScannerOptions
from icevirt_scanners.blocks import block_chunks, grid_of_block
from icevirt_scanners.hdf5 import libhdf5_values, representation
from icevirt_scanners.hdf5.chunked import read_index
from scanners.materialise import materialise

MIB = 1024 * 1024
SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=4).map(tuple)

GRIDS = {
    "small": ((6, 12), 4, None, (6, 12)),
    "a scalar": ((), 8, None, ()),
    "nothing": ((0, 3), 4, None, (1, 3)),
    "split along the leading axis": ((12, 1024, 1024), 4, None, (4, 1024, 1024)),
    "a prime length": ((13, 1024, 1024), 4, None, (1, 1024, 1024)),
    "one step is too large": ((2, 3, 4096, 1024), 4, None, (1, 1, 4096, 1024)),
    "steps of the concatenated axis": ((31, 180, 360), 4, 0, (1, 180, 360)),
    "tiny steps of the concatenated axis": ((8760, 10), 4, 0, (8760, 10)),
    "another axis is concatenated": ((31, 180, 360), 4, 1, (31, 180, 360)),
}


@pytest.mark.parametrize(("shape", "itemsize", "axis", "grid"), GRIDS.values(), ids=GRIDS)
def test_a_block_is_split_into_readable_chunks(shape, itemsize, axis, grid):
    axes = () if axis is None else (axis,)
    assert cut_along(grid_of_block(shape, itemsize), axes, itemsize) == grid


@given(SHAPES, st.integers(1, 500), st.sampled_from([None, 0]), st.sampled_from([0, 7, 100]))
def test_chunks_of_a_block_tile_it_in_order(shape, limit, axis, most):
    whole = grid_of_block(shape, 2, limit=limit)
    grid = cut_along(whole, () if axis is None or not shape else (axis,), 2, most)
    index, offset, length = block_chunks(shape, grid, 2, 100)
    assert all(n % edge == 0 for n, edge in zip(shape, grid, strict=True))
    assert length.sum() == 2 * prod(shape)
    assert len(np.unique(index, axis=0)) == len(index)
    data = np.arange(prod(shape), dtype="<i2").reshape(shape)
    raw = bytes(100) + data.tobytes()
    for row, at, size in zip(index, offset, length, strict=True):
        box = tuple(slice(n * e, n * e + e) for n, e in zip(row, grid, strict=True))
        assert raw[at : at + size] == data[box].tobytes()
    assert length.max() <= max(limit, 2)


def test_no_block_is_larger_than_16_mib():
    assert LONGEST_RUN == 16 * MIB
    assert prod(grid_of_block((7, 5000, 5000), 4)) * 4 <= LONGEST_RUN


def monthly(path, days, *, chunks=None):
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(float(days))
        file["time"].make_scale("time")
        shapes = {"bnds": (days, 2), "field": (days, 20, 30), "station": (days,)}
        for name, shape in shapes.items():
            options = {"chunks": (chunks, *shape[1:]), "maxshape": (None, *shape[1:])}
            dataset = file.create_dataset(name, data=np.ones(shape), **(options if chunks else {}))
            dataset.dims[0].attach_scale(file["time"])
        file["static"] = np.arange(6.0)
    return path


def test_contiguous_files_of_unequal_length_get_one_chunk_shape(tmp_path):
    january = scan_file(monthly(tmp_path / "1.nc", 31), concat_dim="time")
    february = scan_file(monthly(tmp_path / "2.nc", 28), concat_dim="time")
    for scanned in (january, february):
        assert scanned.array("field").chunk_shape == (1, 20, 30)
        assert scanned.array("field").references.count(ChunkType.virtual) in (28, 31)
        assert scanned.array("bnds").whole
        assert scanned.array("station").whole
        assert not scanned.array("static").whole
        assert scanned.array("time").labels is not None
        assert scanned.array("field").labels is None
    assert january.array("static").digest == february.array("static").digest != ""


def test_arrays_that_fill_their_chunks_are_referenced_others_are_stored_when_small(tmp_path):
    full = scan_file(monthly(tmp_path / "1.nc", 32, chunks=16), concat_dim="time")
    assert {a.path for a in full.arrays if a.whole} == {"/time", "/bnds", "/station"}
    partial = scan_file(monthly(tmp_path / "2.nc", 31, chunks=16), concat_dim="time")
    assert {a.path for a in partial.arrays if a.whole} == {"/time", "/bnds", "/station", "/field"}
    alone = scan_file(monthly(tmp_path / "3.nc", 31, chunks=16))
    assert {a.path for a in alone.arrays if a.whole} == {"/time"}
    for scanned in (full, partial, alone):
        assert (materialise(scanned.array("field")) == 1).all()


def test_a_digest_is_the_same_however_the_values_lie(tmp_path, monkeypatch):
    data = np.random.default_rng(1).random((50, 40))
    layouts = {
        "contiguous": {},
        "chunked": {"chunks": (7, 9)},
        "filtered": {"chunks": (50, 5), "compression": "gzip", "shuffle": True},
        "big": {"dtype": ">f8"},
    }
    digests = set()
    for piece in (libhdf5_values.PIECE, 3000):
        monkeypatch.setattr(libhdf5_values, "PIECE", piece)
        for name, options in layouts.items():
            path = tmp_path / f"{name}{piece}.h5"
            with h5py.File(path, "w") as file:
                file.create_dataset("d", data=data, **options)
            digests.add(scan_file(path, concat_dim="time").array("d").digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "other",
    [np.arange(6.0) + 1, np.arange(6.0, dtype="f4"), np.arange(6.0).reshape(2, 3)],
    ids=["other values", "another type", "another shape"],
)
def test_digests_differ_where_values_types_or_shapes_do(other, tmp_path):
    found = set()
    for number, data in enumerate((np.arange(6.0), other)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["d"] = data
        found.add(scan_file(tmp_path / f"{number}.h5", concat_dim="time").array("d").digest)
    assert len(found) == 2


def test_variables_are_left_out_by_name_path_or_group(tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        for name in ("a", "g/a", "g/b", "h/c"):
            file[name] = np.arange(3)

    def left(*drop):
        return [
            array.path for array in scan_file(path, scan_options={"drop_variables": drop}).arrays
        ]

    assert left("a") == ["/g/b", "/h/c"]
    assert left("/a") == ["/g/a", "/g/b", "/h/c"]
    assert left("/g") == ["/a", "/h/c"]
    assert left("/g/") == ["/a", "/h/c"]


def test_the_same_file_is_described_the_same_way_every_time(tmp_path):
    path = monthly(tmp_path / "1.nc", 31, chunks=16)
    first, second = (scan_file(path, concat_dim="time") for _ in range(2))
    assert first.arrays == second.arrays
    assert first.groups == second.groups
    assert first.findings == second.findings


def static(path, *, data, level=4):
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "d", data=data, chunks=(50, 100), compression="gzip", compression_opts=level
        )
    return scan_file(path, concat_dim="time").array("d").digest


def test_a_grid_that_lies_the_same_way_in_many_files_is_decoded_once(tmp_path, monkeypatch):
    representation._known.clear()
    decoded = []
    decode = representation._hash_decoded
    monkeypatch.setattr(
        representation, "_hash_decoded", lambda v: decoded.append(v.path) or decode(v)
    )
    data = np.random.default_rng(3).random((100, 100))
    first = {static(tmp_path / f"{n}.h5", data=data) for n in range(3)}
    assert len(decoded) == 1
    first.add(static(tmp_path / "3.h5", data=data, level=9))  # encoded otherwise, equal values
    assert len(first) == 1
    data[70, 70] += 1
    assert static(tmp_path / "4.h5", data=data) not in first
    assert len(decoded) == 3
    assert len(representation._known) == 3


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 99))), st.integers(1, 50))
def test_ranges_are_read_in_their_order_however_they_lie(ranges, piece):
    raw = np.random.default_rng(0).bytes(1000)
    offset, length = np.array(ranges, np.int64).reshape(-1, 2).T
    for near in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(representation, "PIECE", piece)
            patch.setattr(representation, "_NEAR", near)
            pieces = representation._pieces(lambda at, n: raw[at : at + n], offset, length)
            assert b"".join(pieces) == b"".join(raw[at : at + n] for at, n in ranges)


def test_few_digests_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(representation, "_REMEMBERED", 2)
    representation._known.clear()
    for n in range(4):
        static(tmp_path / f"{n}.h5", data=np.random.default_rng(n).random((100, 100)))
    assert len(representation._known) == 2


class Dataset:
    """A dataset whose chunk index says what the test wants."""

    path = "/v"
    own_shape = (4, 4)
    own_chunk = (2, 2)
    limits = (4, 4)
    address = 0
    unfilled = False
    known = None

    def __init__(self, *corners):
        self.corners = corners
        self.dsid = self

    def chunk_iter(self, callback):
        for number, corner in enumerate(self.corners):
            callback((corner, 0, 100 * number, 16))


def test_a_chunk_off_the_grid_is_damage_and_one_outside_the_shape_is_not_read():
    by_libhdf5 = SimpleNamespace(raw=None, header=lambda _: None, options=ScannerOptions())
    stored = read_index(Dataset((0, 0), (4, 0), (2, 2)), by_libhdf5)
    assert stored.index.tolist() == [[0, 0], [1, 1]]
    assert stored.offset.tolist() == [0, 200]
    with pytest.raises(ValueError, match="chunk grid"):
        read_index(Dataset((0, 0), (2, 1)), by_libhdf5)


@given(length=st.integers(1, 5000), limit=st.integers(1, 6000))
def test_a_block_is_cut_into_the_largest_divisor_that_is_not_too_large(length, limit):
    """A prime length would be cut into single values: it is left whole, if that is not as bad."""
    divisors = [n for n in range(1, length + 1) if length % n == 0]
    wanted = max(n for n in divisors if n <= limit)
    if length > limit and 64 * wanted < limit:
        above = min(n for n in divisors if n > limit)
        wanted = wanted if limit / wanted <= above / limit else above
    assert grid_of_block((length,), 1, limit=limit) == (wanted,)


@pytest.mark.parametrize("length", [5_000_011, 2 * 5_000_011, 3 * 7_000_003])
def test_a_block_of_an_awkward_length_does_not_become_a_crowd_of_chunks(length):
    (edge,) = grid_of_block((length,), 4)
    assert length % edge == 0
    assert length // edge < 10


def test_a_length_that_no_file_can_have_takes_no_time():
    assert grid_of_block((2**61 - 1,), 8, limit=2**20) == (1,)  # a prime
