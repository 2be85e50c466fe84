"""One file with an array for each encoding that HDF5 has and a build can meet.

It is written by a process of its own, since plugins change HDF5: ``python tests/readers/encodings.py FILE VALUES``.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

CHUNKS = (3, 4)
VALUES = (np.random.default_rng(3).integers(0, 50, (6, 8)) / 4).astype("f4")
NOISE = np.random.default_rng(4).random((64, 64), "f4")  # too large to be stored inline
DTYPES = "i1 u1 i2 u2 i4 u4 i8 u8 f2 f8".split()


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an array is called in the table, and how it is written."""

    title: str
    make: Callable[[h5py.File, str], Any]


def _put(values: Any, **options: Any) -> Callable[[h5py.File, str], Any]:
    return lambda file, name: file.create_dataset(name, data=values, **options)


def _chunked(values: Any = VALUES, **options: Any) -> Callable[[h5py.File, str], Any]:
    return _put(values, chunks=CHUNKS, **options)


def _plugged(plugin: str, **options: Any) -> Callable[[h5py.File, str], Any]:
    def make(file: h5py.File, name: str) -> None:
        import hdf5plugin

        # large enough that no chunk skips its filter
        values = np.tile(VALUES, (4, 8))
        file.create_dataset(
            name, data=values, chunks=(12, 32), **getattr(hdf5plugin, plugin)(**options)
        )

    return make


def _packed(file: h5py.File, name: str) -> None:
    made = _chunked((VALUES * 4).astype("i2"), compression="gzip")(file, name)
    made.attrs["scale_factor"], made.attrs["add_offset"] = 0.25, 1.0


def _native(values: Any, **options: Any) -> Callable[[Any, str], Any]:
    return lambda group, name: group.create_array(
        name, data=values, dimension_names=[f"{name}_{n}" for n in values.shape], **options
    )


def _unwritten(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (2, 3), "f4", chunks=(1, 3), fillvalue=7.0)


def _partly(fill: Any, dtype: str) -> Callable[[h5py.File, str], Any]:
    def make(file: h5py.File, name: str) -> None:
        made = file.create_dataset(name, (6, 8), dtype, chunks=CHUNKS, fillvalue=fill)
        made[:3, :4] = 1
        made.attrs["_FillValue"] = np.dtype(dtype).type(fill)

    return make


ENCODINGS = {
    "contiguous": Encoding("contiguous", _put(VALUES)),
    "chunked": Encoding("chunks, no filter", _chunked()),
    "deflate": Encoding("deflate", _chunked(compression="gzip")),
    "shuffled": Encoding("shuffle, deflate", _chunked(compression="gzip", shuffle=True)),
    "fletcher32": Encoding("deflate, fletcher32", _chunked(compression="gzip", fletcher32=True)),
    "scaleoffset": Encoding("scale-offset", _chunked((VALUES * 4).astype("i4"), scaleoffset=0)),
    "szip": Encoding("szip", _chunked(compression="szip")),
    "lzf": Encoding("lzf", _chunked(compression="lzf")),
    "zstd": Encoding("zstd", _plugged("Zstd")),
    "bzip2": Encoding("bzip2", _plugged("BZip2")),
    "blosc": Encoding("blosc", _plugged("Blosc", cname="lz4")),
    "big_endian": Encoding("big-endian, chunks", _chunked(VALUES.astype(">f4"))),
    "big_endian_shuffled": Encoding(
        "big-endian, shuffle, deflate",
        _chunked(VALUES.astype(">f4"), compression="gzip", shuffle=True),
    ),
    **{f"of_{d}": Encoding(str(np.dtype(d)), _chunked(VALUES.astype(d))) for d in DTYPES},
    "large": Encoding("int64 beyond 2^53", _put(np.array([2**62 + 1, -5], "i8"))),
    "flags": Encoding("bool", _chunked(VALUES > 5)),
    "complex": Encoding("complex64", _chunked((VALUES + 1j).astype("c8"))),
    "enumeration": Encoding(
        "enumeration", _put(np.array([0, 1], "i1"), dtype=h5py.enum_dtype({"a": 0, "b": 1}, "i1"))
    ),
    "fixed": Encoding("strings of 4 bytes", _put(np.array([b"ab", b"c"], "S4"))),
    "text": Encoding("strings", _put(np.array(["ab", "é"], object), dtype=h5py.string_dtype())),
    "compound": Encoding("compound", _put(np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]))),
    "opaque": Encoding("opaque", _put(np.array([b"\1\2"], "V2"))),
    "packed": Encoding("int16 with scale_factor, add_offset", _packed),
    "fill": Encoding("fill value -9, chunks never written", _partly(-9.0, "f4")),
    "nan_fill": Encoding("fill value NaN, chunks never written", _partly(np.nan, "f8")),
    "unwritten": Encoding("fill value 7, no chunk at all", _unwritten),
    "edges": Encoding(
        "chunks that reach past the end", _chunked(VALUES[:5, :7], compression="gzip")
    ),
    "none": Encoding("no elements", _put(np.zeros((0, 4), "f4"), maxshape=(None, 4))),
    "outer/inner/deep": Encoding("in a group of a group", _chunked(compression="gzip")),
    "scalar": Encoding("scalar", _put(np.float64(2.5))),
    "inlined": Encoding("contiguous, policy `inline`", _put(VALUES)),
    "stored": Encoding(
        "deflate, policy `native`", _put(NOISE, chunks=(32, 64), compression="gzip")
    ),
}
NATIVE = {
    "shards": Encoding("written with zarr: shards", _native(VALUES, chunks=CHUNKS, shards=(6, 8))),
    "instants": Encoding(
        "written with zarr: datetime64", _native(np.array(["2001-02-03", "NaT"], "M8[s]"))
    ),
    "wide": Encoding("written with zarr: UTF-32 text", _native(np.array(["ab", "é"], "U2"))),
}
"""Arrays that are added to the repository of a build."""

POLICY = {"inlined": "inline", "stored": "native"}


def written(path: str) -> dict[str, np.ndarray]:
    """Write the file in another process, and return what h5py reads of it."""
    command = [sys.executable, __file__, path, f"{path}.values"]
    # netCDF4 sets it to plugins for a libhdf5 of its own
    environment = {k: v for k, v in os.environ.items() if k != "HDF5_PLUGIN_PATH"}
    subprocess.run(command, check=True, env=environment)
    with open(f"{path}.values", "rb") as file:
        return pickle.load(file)


def _write(path: str, values: str) -> None:
    with h5py.File(path, "w", libver="v110") as file:
        for name, encoding in ENCODINGS.items():
            encoding.make(file, name)
    with h5py.File(path) as file, open(values, "wb") as out:
        pickle.dump({name: _values(file[name]) for name in ENCODINGS}, out)


def _values(dataset: h5py.Dataset) -> np.ndarray:
    text = h5py.check_string_dtype(dataset.dtype)
    is_text = text is not None and text.length is None
    return np.asarray(dataset.asstr()[...] if is_text else dataset[...])


if __name__ == "__main__":
    _write(*sys.argv[1:])
