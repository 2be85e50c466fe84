"""Damaged files are errors of ours, or hold what GDAL reads in them; memory stays bounded."""

import random
import resource
import struct

import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import ScanError, UnsupportedError
from long_forms import IS_LONG
from scanners.materialise import materialise
from scanners.tiff.tiff_files import by_gdal, read_gdal, values

TILES = {"TILED": "YES", "BLOCKXSIZE": 32, "BLOCKYSIZE": 32}
BASES = {
    "tiles": {"compress": "deflate", "PREDICTOR": 2, "nodata": 7} | TILES,
    "BigTIFF": {"compress": "lzw", "BLOCKYSIZE": 16, "BIGTIFF": "YES", "ENDIANNESS": "BIG"},
    "one run": {},
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    for name, how in BASES.items():
        by_gdal(folder / name, values("uint16", (2, 70, 90)), **how)
    return {name: (folder / name).read_bytes() for name in BASES}


def turn(raw, draw):
    """Cut a file, or change bytes of what describes it."""
    raw = bytearray(raw)
    if draw.random() < 0.2:
        return raw[: draw.randrange(8, len(raw))]
    places = [*range(4, 1200), *range(len(raw) - 600, len(raw))]
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at = draw.choice(places)
        size = draw.choice((1, 2, 4))
        raw[at : at + size] = draw.choice((b"\0" * size, b"\xff" * size, draw.randbytes(size)))
    return raw


def test_what_is_changed_in_a_file_is_an_error_or_is_what_gdal_reads(bases, tmp_path):
    draw, path = random.Random(7), tmp_path / "a.tif"
    found = dict.fromkeys(("damaged", "unread", "equal"), 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(4000 if IS_LONG else 60):
        path.write_bytes(turn(bases[[*BASES][number % len(BASES)]], draw))
        try:
            array = scan_file(path).array("/band_data")
        except (ScanError, UnsupportedError):
            found["damaged"] += 1
            continue
        try:
            mine, theirs = materialise(array), read_gdal(path)[0]
        except Exception:  # noqa: BLE001 - of zarr's codecs, or GDAL's
            found["unread"] += 1
            continue
        assert mine.tobytes() == theirs.tobytes()
        found["equal"] += 1
    assert found["damaged"]
    assert found["equal"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def entry(tag, kind, count, value):
    return struct.pack("<HHII", tag, kind, count, value)


def directory(*entries, behind=0):
    raw = struct.pack("<H", len(entries)) + b"".join(entries) + struct.pack("<I", behind)
    return b"II*\0" + struct.pack("<I", 8) + raw


LENGTHS = (entry(256, 4, 1, 16), entry(257, 4, 1, 16), entry(258, 3, 1, 8))
STRIP = (entry(273, 4, 1, 8), entry(278, 4, 1, 16), entry(279, 4, 1, 256))
HUGE = 4_000_000_000
WRONG = {
    "no directory": (b"II*\0" + struct.pack("<I", 0), "it has no image"),
    "a directory behind the end": (b"II*\0" + struct.pack("<I", 999), "outside of the file"),
    "a chain that meets itself": (directory(*LENGTHS, *STRIP, behind=8), "is met again"),
    "sub-directories that meet themselves": (
        directory(*LENGTHS, *STRIP, entry(330, 4, 1, 8)),
        "is met again",
    ),
    "a huge count of values": (
        directory(*LENGTHS, entry(273, 4, HUGE, 8), *STRIP[1:]),
        "outside of the file",
    ),
    "an image without columns": (directory(entry(256, 4, 1, 0), *LENGTHS[1:], *STRIP), "0 × 16"),
    "a strip behind the end": (directory(*LENGTHS, *STRIP), "outside the file"),
    "a strip at the begin": (
        directory(*LENGTHS, entry(273, 4, 1, 0), *STRIP[1:]),
        "at the begin of the file",
    ),
    "fewer strips than rows": (
        directory(*LENGTHS, STRIP[0], entry(278, 4, 1, 4), STRIP[2]),
        "1 pieces for an image of 4",
    ),
    "a type of values that is not known": (
        directory(*LENGTHS, entry(273, 99, 1, 8), *STRIP[1:]),
        "unknown type 99",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_named(name, tmp_path):
    raw, cause = WRONG[name]
    (tmp_path / "a.tif").write_bytes(raw)
    with pytest.raises(ScanError, match=cause) as caught:
        scan_file(tmp_path / "a.tif")
    assert caught.value.facts["file"].endswith("a.tif")


def test_lengths_that_no_file_has_take_no_memory(tmp_path):
    """One strip of four thousand million rows, on coordinates as long."""
    place = (entry(33550, 12, 3, 200), entry(33922, 12, 6, 230))
    lengths = (entry(256, 4, 1, 16), entry(257, 4, 1, HUGE), LENGTHS[2], entry(259, 3, 1, 8))
    raw = directory(*lengths, STRIP[0], entry(278, 4, 1, HUGE), STRIP[2], *place)
    raw = raw.ljust(200, b"\0") + np.array([1.0, 1, 0, 0, 0, 0, 5, 5, 0]).tobytes() + bytes(400)
    (tmp_path / "a.tif").write_bytes(raw)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for dropped in ([], ["band_data"]):
        with pytest.raises(UnsupportedError):
            scan_file(tmp_path / "a.tif", scan_options={"drop_variables": dropped})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
