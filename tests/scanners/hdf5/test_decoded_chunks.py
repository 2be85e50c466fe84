"""Values of chunked coordinates that are read from their bytes are those that libhdf5 reads."""

import random
import zlib

import h5py
import numpy as np
import pytest

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError, ScanError
from icevirt_scanners.hdf5 import scanner
from icevirt_scanners.hdf5.whole import _inflate

LENGTH = 21
READ = {
    "one chunk": {"chunks": (32,), "maxshape": (None,)},
    "no filter": {"chunks": (4,)},
    "deflate": {"chunks": (4,), "compression": "gzip"},
    "shuffle": {"chunks": (7,), "shuffle": True},
    "shuffle and deflate": {"chunks": (4,), "shuffle": True, "compression": "gzip"},
}
LEFT = {
    "fletcher32": {"chunks": (4,), "fletcher32": True},
    "lzf": {"chunks": (4,), "compression": "lzf"},
    "scale-offset": {"chunks": (4,), "scaleoffset": 3},
}
TYPES = ["<f8", ">f4", "<i2", ">i8", "u1"]


def write(path, kind, how, libver="earliest", written=LENGTH):
    values = np.random.default_rng(3).integers(0, 99, LENGTH).astype(kind)
    with h5py.File(path, "w", libver=libver) as file:
        made = file.create_dataset("time", (LENGTH,), kind, **how)
        made[:written] = values[:written]
        made.make_scale("time")
        grid = file.create_dataset("grid", data=values.reshape(3, 7), chunks=(2, 7))
        assert grid.chunks


def by_libhdf5(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(scanner.RawFile, "of", lambda *_, **__: None)
        return scanned(path)


def scanned(path):
    try:
        return scan_file(path, concat_dim="time")
    except IcevirtError as error:
        return type(error), str(error)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("how", READ)
def test_a_chunked_coordinate_is_read_without_libhdf5(
    how, kind, libver, tmp_path, monkeypatch, opened
):
    path = tmp_path / "file.h5"
    write(path, kind, READ[how], libver)
    found = scan_file(path, concat_dim="time", scan_options={"variables": "time"})
    assert not opened
    with h5py.File(path) as file:
        assert (
            found.arrays[0].labels
            == file["time"][...].astype(np.dtype(kind).newbyteorder("<")).tobytes()
        )
    assert scanned(path) == by_libhdf5(path, monkeypatch)


@pytest.mark.parametrize("how", LEFT)
def test_other_filters_are_left_to_libhdf5(how, tmp_path, monkeypatch, opened):
    path = tmp_path / "file.h5"
    write(path, "<i4", LEFT[how])
    found = scanned(path)
    assert opened
    assert found == by_libhdf5(path, monkeypatch)


@pytest.mark.parametrize("how", READ)
def test_what_was_never_written_is_left_to_libhdf5(how, tmp_path, monkeypatch):
    path = tmp_path / "file.h5"
    for written in (0, 3, LENGTH - 4):
        write(path, "<f8", {**READ[how], "fillvalue": 7.5}, written=written)
        assert scanned(path) == by_libhdf5(path, monkeypatch)


def test_a_chunk_that_skips_a_filter_is_left_to_libhdf5(tmp_path, monkeypatch):
    path = tmp_path / "file.h5"
    write(path, "<f8", READ["deflate"])
    with h5py.File(path, "r+") as file:
        file["time"].id.write_direct_chunk((4,), np.arange(4.0).tobytes(), filter_mask=1)
    assert scanned(path) == by_libhdf5(path, monkeypatch)


def test_large_chunks_are_left_to_libhdf5(tmp_path, monkeypatch, opened):
    path = tmp_path / "file.h5"
    write(path, "<f8", {"chunks": (1 << 20,), "maxshape": (None,), "compression": "gzip"})
    assert scanned(path) == by_libhdf5(path, monkeypatch)
    assert opened


@pytest.mark.parametrize("how", READ)
def test_damaged_chunks_read_as_libhdf5_reads_them(how, tmp_path, monkeypatch):
    """Values or an error, the same: a flipped bit, or bytes of other places, in the chunks."""
    path = tmp_path / "file.h5"
    write(path, "<f8", READ[how])
    data = path.read_bytes()
    with h5py.File(path) as file:
        places = [
            file["time"].id.get_chunk_info(at) for at in range(-(-LENGTH // READ[how]["chunks"][0]))
        ]
    dice = random.Random(5)
    for _ in range(30):
        flipped = bytearray(data)
        place = dice.choice(places)
        for _ in range(dice.choice([1, 5])):
            at = place.byte_offset + dice.randrange(place.size)
            flipped[at] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        assert scanned(path) == by_libhdf5(path, monkeypatch)


def test_what_inflates_to_more_or_less_than_a_chunk_is_not_taken():
    whole = zlib.compress(bytes(100))
    assert _inflate(whole, 100) == bytes(100)
    assert _inflate(whole, 50) is None
    assert _inflate(whole[:-1], 100) is None
    assert _inflate(b"no zlib", 100) is None
    assert len(_inflate(whole, 101)) == 100  # whoever asked compares


@pytest.mark.parametrize(
    ("mask", "chunk"),
    [(1, np.arange(3.0).tobytes()), (0, zlib.compress(np.arange(3.0).tobytes()))],
    ids=["the filter is skipped", "deflated"],
)
@pytest.mark.parametrize("name", ["time", "v"])
def test_a_chunk_that_is_shorter_than_its_values_is_refused(name, mask, chunk, tmp_path):
    """libhdf5 reads what memory holds behind it, which is different each time."""
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        for each in ("time", "v"):
            file.create_dataset(each, data=np.arange(8.0), chunks=(4,), compression="gzip")
        file["time"].make_scale()
        file["v"].dims[0].attach_scale(file["time"])
        file[name].id.write_direct_chunk((4,), chunk, filter_mask=mask)
    if name == "time" or mask:
        with pytest.raises(ScanError, match="shorter than its values") as caught:
            scan_file(str(path))
        facts = caught.value.facts
        assert (facts["variable"], facts["chunk"], facts["nbytes"]) == (f"/{name}", [1], 24)
        return
    report = icevirt.build([str(path)], tmp_path / "repo", executor="in-process")
    with report.open() as dataset, pytest.raises(IcevirtError, match="cannot be decoded"):
        dataset["v"].load()
