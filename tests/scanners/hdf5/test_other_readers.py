"""A valid file that this libhdf5 refuses is not called damaged where another library opens it."""

import struct

import h5py
import netCDF4
import numpy as np
import pytest

import icevirt
from icevirt.errors import ScanError
from icevirt.execution.local_executors import InProcessExecutor
from icevirt_scanners.hdf5 import other_readers

_LAYOUT = 8  # the number of this message in object headers
_WORD = 0xFFFFFFFF


def turn(word, bits):
    return (word << bits | word >> 32 - bits) & _WORD


def checksum(data):
    """Return the checksum of object headers: Jenkins' lookup3, of one word."""
    a = b = c = (0xDEADBEEF + len(data)) & _WORD
    while len(data) > 12:
        a, b, c = (
            (x + y) & _WORD for x, y in zip((a, b, c), struct.unpack("<3I", data[:12]), strict=True)
        )
        for bits in (4, 6, 8, 16, 19, 4):
            a, c = ((a - c) & _WORD) ^ turn(c, bits), (c + b) & _WORD
            a, b, c = b, c, a
        data = data[12:]
    last = struct.unpack("<3I", data.ljust(12, b"\0"))
    a, b, c = ((x + y) & _WORD for x, y in zip((a, b, c), last, strict=True))
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - turn(b, bits)) & _WORD
        a, b, c = b, c, a
    return b


def lengthen_dimensions(path, chunk):
    """Let a file's chunks be of ``chunk`` values, in as many bytes as 300 take: valid, and odd."""
    raw = bytearray(path.read_bytes())
    at = raw.find(b"OHDR")
    while at >= 0:
        flags = raw[at + 5]
        begin = at + 6 + 16 * bool(flags & 32) + 4 * bool(flags & 16)
        width = 1 << (flags & 3)
        end = begin + width + int.from_bytes(raw[begin : begin + width], "little")
        assert checksum(bytes(raw[at:end])) == struct.unpack_from("<I", raw, end)[0]
        message = begin + width
        while message + 4 <= end:
            size = int.from_bytes(raw[message + 1 : message + 3], "little")
            held = message + 4 + 2 * bool(flags & 4)
            if raw[message] == _LAYOUT and raw[held : held + 2] == b"\4\2":
                struct.pack_into("<H", raw, held + 5, chunk)
            message = held + size
        struct.pack_into("<I", raw, end, checksum(bytes(raw[at:end])))
        at = raw.find(b"OHDR", end)
    path.write_bytes(raw)


def odd_file(path, *, values=(1, 2, 3, 4)):
    """Write what libhdf5 2.0.0 refuses: lengths of chunks in more bytes than they need."""
    with h5py.File(path, "w", libver="latest") as file:
        made = file.create_dataset("v", (len(values),), "f4", maxshape=(300,), chunks=(300,))
        made[:] = values
    lengthen_dimensions(path, len(values))


@pytest.fixture
def asked(monkeypatch):
    """Ask about as many files as there are."""
    monkeypatch.setattr(other_readers, "_MOST", 10**6)


@pytest.mark.usefixtures("asked")
@pytest.mark.skipif(
    not h5py.version.hdf5_version.startswith("2.0."), reason="other versions read these files"
)
def test_what_another_libhdf5_opens_is_not_called_damaged(tmp_path):
    odd_file(tmp_path / "a.h5")
    with netCDF4.Dataset(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["v"][:], [1, 2, 3, 4])
    with pytest.raises(ScanError) as caught:
        icevirt.build([tmp_path / "a.h5"], tmp_path / "repo", executor=InProcessExecutor())
    said = str(caught.value)
    assert "so the file is not damaged" in said
    assert f"libhdf5 {h5py.version.hdf5_version} of h5py {h5py.__version__} refuses what" in said
    assert f"libhdf5 {netCDF4.__hdf5libversion__} of netCDF4 {netCDF4.__version__} opens" in said
    assert "/v" in caught.value.fixes[0].flags


@pytest.mark.usefixtures("asked")
def test_what_nobody_opens_is_damaged(tmp_path):
    odd_file(tmp_path / "a.h5")
    raw = (tmp_path / "a.h5").read_bytes()
    at = raw.rfind(b"OHDR")
    (tmp_path / "a.h5").write_bytes(raw[: at + 8] + b"x" * 30 + raw[at + 38 :])
    with pytest.raises(ScanError, match="the file is damaged"):
        icevirt.build([tmp_path / "a.h5"], tmp_path / "repo", executor=InProcessExecutor())


@pytest.mark.usefixtures("asked")
def test_a_file_with_external_links_is_shown_to_no_library_that_follows_them(tmp_path):
    with h5py.File(tmp_path / "target.h5", "w") as file:
        file["secret"] = [1]
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["v"] = [1]
    assert "netCDF4" in other_readers.find_other_reader(str(tmp_path / "plain.h5"), "/v")
    with h5py.File(tmp_path / "plain.h5", "a") as file:
        file["link"] = h5py.ExternalLink(str(tmp_path / "target.h5"), "/secret")
    assert "netCDF4" not in other_readers.find_other_reader(str(tmp_path / "plain.h5"), "/v")


def test_an_archive_of_damaged_files_is_not_asked_about_one_by_one(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(other_readers, "_asked", iter(range(10**6)))
    monkeypatch.setattr(other_readers, "_ask", lambda *given: asked.append(given) or "someone")
    found = [other_readers.find_other_reader("a", "") for _ in range(100)]
    assert found.count("someone") == other_readers._MOST == len(asked)
