"""The envelope of metadata files."""

import os
import tomllib
from pathlib import Path

import pytest
import zstandard

from icevirt.errors import FormatError
from icevirt.version import __version__
from icevirt.wire import header
from icevirt.wire.header import FileKind, pack, unpack

ROOT = Path(__file__).parents[3]
BODY = b"payload " * 20


def test_the_version_constant_is_that_of_the_package():
    output = tomllib.loads((ROOT / "pyproject.toml").read_text())
    source = output["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{__version__}"' in (ROOT / source).read_text()


@pytest.mark.parametrize("kind", FileKind)
def test_what_was_packed_unpacks_to_itself(kind):
    assert unpack(pack(kind, BODY), kind) == (2, BODY)


def test_the_header_is_the_39_bytes_of_the_spec():
    raw = pack(FileKind.manifest, BODY)
    assert raw[:12] == bytes.fromhex("494345F09FA78A4348554E4B")
    assert raw[12:36] == f"icevirt-{__version__}".ljust(24).encode()
    assert raw[36:39] == bytes([2, 2, 1])


def test_the_fields_cover_the_header_without_gaps():
    end = 0
    for at, size in header.FIELDS.values():
        assert at == end
        end += size
    assert end == header.SIZE


def test_the_frame_is_one_and_says_its_size():
    """The official reader decompresses exactly the declared size in one call."""
    frame = pack(FileKind.snapshot, BODY)[header.SIZE :]
    assert zstandard.frame_content_size(frame) == len(BODY)


@pytest.mark.parametrize("at", [45, -20, -1], ids=["in the block", "near its end", "checksum"])
def test_a_flipped_bit_of_the_frame_is_noticed(at):
    body = os.urandom(500)  # stored as it is: without a checksum it would decode
    raw = bytearray(pack(FileKind.snapshot, body))
    raw[at] ^= 1
    with pytest.raises(FormatError):
        unpack(bytes(raw), FileKind.snapshot)


def frame_of(body, **options):
    return zstandard.ZstdCompressor(**options).compress(body)


def test_a_frame_without_its_size_is_read():
    """Clients before 2.2 wrote none."""
    raw = header.head(FileKind.snapshot) + frame_of(BODY, write_content_size=False)
    assert unpack(raw, FileKind.snapshot) == (2, BODY)


GOOD = pack(FileKind.snapshot, BODY)


def patched(at, value):
    return GOOD[:at] + bytes([value]) + GOOD[at + 1 :]


@pytest.mark.parametrize(
    "raw",
    {
        "nothing": b"",
        "an XML answer of an object store": b"<?xml version='1.0'?><Error>" * 3,
        "magic cut short": GOOD[:20],
        "spec version 0": patched(36, 0),
        "spec version 3": patched(36, 3),
        "another kind": patched(37, 2),
        "no compression, which the official reader refuses": patched(38, 0),
        "no frame": GOOD[:39],
        "bytes behind the frame": GOOD + b"x",
        "two frames although the first says its size": GOOD + GOOD[39:],
        "a frame that claims 2 GiB": header.head(FileKind.snapshot)
        + bytes.fromhex("28B52FFDE0FFFFFF7F0000000001000000"),
        "a frame that claims 2^63 bytes": header.head(FileKind.snapshot)
        + bytes.fromhex("28B52FFDE0FFFFFFFFFFFFFF7F010000"),
    }.items(),
    ids=lambda case: case[0] if isinstance(case, tuple) else None,
)
def test_what_is_not_such_a_file_is_refused(raw):
    with pytest.raises(FormatError):
        unpack(raw[1], FileKind.snapshot)


def test_a_bomb_without_a_declared_size_stops_at_the_limit():
    bomb = frame_of(bytes(40 << 20), write_content_size=False)
    with pytest.raises(FormatError, match="decompresses to an impossible"):
        unpack(header.head(FileKind.snapshot) + bomb, FileKind.snapshot)


@pytest.mark.parametrize("size", range(len(GOOD)))
def test_a_file_cut_anywhere_is_refused(size):
    with pytest.raises(FormatError):
        unpack(GOOD[:size], FileKind.snapshot)
