"""What is remembered of one file is taken for another only where their bytes say the same."""

import random

import h5py
import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError
from icevirt_scanners.hdf5 import scanner, variable
from icevirt_scanners.hdf5.raw import attributes, header

USUAL = {
    "kind": "<f4",
    "shape": (6, 8),
    "chunks": (1, 8),
    "filters": {"compression": "gzip", "shuffle": True},
    "fill": None,
    "attributes": {"units": "K", "scale_factor": np.float32(0.5), "flags": np.array([1, 2], "i1")},
    "scales": ("time", "lat"),
    "times": np.arange(6.0),
    "name": "v",
}
OTHER = {
    "type": {"kind": "<f8"},
    "byte order": {"kind": ">f4"},
    "shape": {"shape": (6, 9)},
    "chunks": {"chunks": (2, 8)},
    "no chunks": {"chunks": None, "filters": {}},
    "level": {"filters": {"compression": "gzip", "compression_opts": 1, "shuffle": True}},
    "no shuffle": {"filters": {"compression": "gzip"}},
    "fill value": {"fill": 7},
    "other fill value": {"fill": -0.0},
    "text": {"attributes": {**USUAL["attributes"], "units": "C"}},
    "text of fixed length": {"attributes": {**USUAL["attributes"], "units": np.bytes_("K")}},
    "number of another type": {
        "attributes": {**USUAL["attributes"], "scale_factor": np.float64(0.5)}
    },
    "negative zero": {"attributes": {**USUAL["attributes"], "scale_factor": np.float32(-0.0)}},
    "zero": {"attributes": {**USUAL["attributes"], "scale_factor": np.float32(0)}},
    "integer": {"attributes": {**USUAL["attributes"], "scale_factor": np.int32(0)}},
    "one of an array": {"attributes": {**USUAL["attributes"], "flags": np.array([1, 3], "i1")}},
    "unsigned": {"attributes": {**USUAL["attributes"], "flags": np.array([1, 2], "u1")}},
    "no attributes": {"attributes": {}},
    "order of attributes": {"attributes": dict(reversed(USUAL["attributes"].items()))},
    "a fill value attribute": {"attributes": {"_FillValue": np.float32(7)}},
    "a fill value attribute to cast": {"attributes": {"_FillValue": np.float64(7)}},
    "a fill value attribute that does not fit": {"attributes": {"_FillValue": "seven"}},
    "scales": {"scales": ("lat", "time"), "shape": (8, 6), "chunks": (1, 6)},
    "times": {"times": np.arange(6.0) + 1},
    "names": {"name": "w"},
}


def write(path, libver, **how):
    with h5py.File(path, "w", libver=libver, track_order=True) as file:
        file.create_dataset("time", data=how["times"], chunks=(6,), maxshape=(None,))
        file["lat"] = np.arange(8.0)
        made = file.create_dataset(
            how["name"],
            how["shape"],
            how["kind"],
            chunks=how["chunks"],
            fillvalue=how["fill"],
            track_order=True,
            **how["filters"],
        )
        made[...] = np.arange(made.size).reshape(made.shape)
        for axis, scale in enumerate(how["scales"]):
            file[scale].make_scale(scale)
            if len(file[scale]) == made.shape[axis]:
                made.dims[axis].attach_scale(file[scale])
        for name, value in how["attributes"].items():
            made.attrs[name] = value


def scanned(path):
    try:
        return scan_file(path, concat_dim="time")
    except IcevirtError as error:
        return type(error), str(error)


def by_libhdf5(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(scanner.RawFile, "of", lambda *_, **__: None)
        return scanned(path)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("odd", OTHER)
def test_files_that_differ_a_little_are_distinguished(odd, libver, tmp_path, monkeypatch):
    """Each is scanned when the other was, twice; findings tell, as repr does, 0 from -0 and 0.0."""
    usual, other = tmp_path / "usual.h5", tmp_path / "other.h5"
    write(usual, libver, **USUAL)
    write(other, libver, **{**USUAL, **OTHER[odd]})
    wanted = {path: repr(by_libhdf5(path, monkeypatch)) for path in (usual, other)}
    for path in (usual, other, usual, other):
        assert repr(scanned(path)) == wanted[path]


def test_what_is_remembered_does_not_outlive_a_change_of_the_bytes(tmp_path, monkeypatch):
    """Every version of a file, a bit flipped here and there, reads as by libhdf5 or is an error."""
    path = tmp_path / "file.h5"
    write(path, "latest", **USUAL)
    data = path.read_bytes()
    dice = random.Random(7)
    headers = [at for at in range(len(data)) if data.startswith((b"OHDR", b"OCHK", b"GCOL"), at)]
    scanned(path)
    for _ in range(100):
        flipped = bytearray(data)
        flipped[dice.choice(headers) + dice.randrange(200)] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        ours, theirs = scanned(path), by_libhdf5(path, monkeypatch)
        assert isinstance(ours, tuple) or repr(ours) == repr(theirs)


def test_large_blocks_and_messages_are_not_remembered(tmp_path):
    path = tmp_path / "file.h5"
    how = {"history": np.bytes_(b"x" * (attributes._REMEMBERED + 1))}
    write(path, "latest", **{**USUAL, "attributes": {f"h{n}": how["history"] for n in range(5)}})
    for known in (attributes._understood, header._split_new):
        known.cache_clear()
    scanned(path)
    misses = attributes._understood.cache_info().currsize
    scanned(path)
    assert attributes._understood.cache_info().currsize == misses


def test_a_file_that_ends_before_its_values_is_not_taken_for_the_whole_one(tmp_path, monkeypatch):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["v"] = np.arange(1000.0)
    assert not isinstance(scanned(path), tuple)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)
    assert isinstance(scanned(path), tuple)
    assert scanned(path) == by_libhdf5(path, monkeypatch)


def test_no_more_is_remembered_than_may_be(tmp_path, monkeypatch):
    path = tmp_path / "file.h5"
    monkeypatch.setattr(variable, "_REMEMBERED", 3)
    variable._known.clear()
    with h5py.File(path, "w") as file:
        for length in range(1, 9):
            file[f"v{length}"] = np.arange(length)
    for _ in range(2):
        assert scanned(path) == by_libhdf5(path, monkeypatch)
        assert len(variable._known) <= 3
