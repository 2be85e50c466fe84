"""Files that are no HDF5, damaged, or change while they are read: one clear error each."""

import bz2
import gzip
import lzma
import os
import pickle
import random
from dataclasses import replace

import h5py
import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError, NotFoundError, ScanError, StaleReferenceError
from icevirt.objects.opening import open_source
from icevirt.objects.source import LocalSource
from icevirt.scan import registry
from icevirt.scan.contract import Scanner, ScannerOptions
from icevirt_scanners.blocks import check_inside
from icevirt_scanners.hdf5.raw import header
from icevirt_scanners.hdf5.raw.header import DATATYPE, RawFile, only
from icevirt_scanners.hdf5.raw.links import links_of
from icevirt_scanners.hdf5.scanner import Hdf5Scanner
from open_files import open_below
from scanners.materialise import materialise

LOOKS = {
    "damaged NetCDF-3": (b"CDF\x01" + b"\1" * 100, "damaged NetCDF-3.*Fetch it again"),
    "CDF-3, which there is none of": (
        b"CDF\x03" + bytes(range(100, 200)),
        "binary data of an unkn",
    ),
    "empty": (b"", "the file is empty"),
    "text": (b"no such file\n" * 400, "it looks like text"),
    "text cut inside a character": (b"x" + "é".encode() * 3000, "it looks like text"),
    "a list of URLs": (
        b"https://me:CANARY@host/a.nc\n",
        "looks like a list of URLs.*@list.txt",
    ),
    "an HTML page with a URL": (
        b'<!DOCTYPE html PUBLIC "-//W3C" "http://www.w3.org/TR/html4">',
        "it looks like an HTML page",
    ),
    "an HTML page": (b"<!DOCTYPE html><html>404</html>", "it looks like an HTML page"),
    "XML": (b"<?xml version='1.0'?><Error/>", "it looks like XML"),
    "JSON": (b'{"version": 1}', "it looks like JSON"),
    "zeros": (bytes(10_000), "a file of zeros"),
    "noise": (bytes(range(128, 256)) * 3, "binary data of an unknown kind"),
    "cut in the signature": (b"\x89HDF\r", "cut off in its signature"),
    "gzip": (b"\x1f\x8b\x08" + bytes(9), "gzip-compressed.*Unpack"),
    "gzip of a NetCDF-4 file": (
        gzip.compress(b"\x89HDF\r\n\x1a\n" + bytes(99)),
        r"gzip-compressed \(it holds HDF5 or NetCDF-4\).*Unpack",
    ),
    "bzip2 of a NetCDF-3 file": (
        bz2.compress(b"CDF\x01" + bytes(99)),
        r"bzip2-compressed \(it holds NetCDF-3\).*Unpack",
    ),
    "xz of a web page": (
        lzma.compress(b"<html>404</html>"),
        r"xz-compressed \(it holds an HTML page, .*Unpack",
    ),
    "a Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "a Git LFS pointer in the place of the file.*git lfs pull",
    ),
    "a pointer of git-annex": (
        b"/annex/objects/SHA256E-s12--abc.nc\n",
        "a git-annex pointer in the place of the file.*git annex get",
    ),
    "a login page": (
        b"\n<!-- x --><HTML lang='en'><head><title>Earthdata Login</title></head>",
        "an HTML page that asks for a login.*Log in, and fetch it again",
    ),
    "an error of S3": (
        b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code><Message>CANARY</Message></Error>',
        "an error message of an object store: AccessDenied.*Fetch it again",
    ),
    "an error of Azure": (
        b'\xef\xbb\xbf<?xml version="1.0"?><Error><Code>BlobNotFound</Code></Error>',
        "an error message of an object store: BlobNotFound",
    ),
    "CDL": (b"netcdf foo {\ndimensions:\n x = 3 ;\n}\n", "CDL.*ncgen"),
    "MATLAB 5": (
        b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\1IM",
        "MATLAB.*before 7.3.*-v7.3",
    ),
    "BUFR": (b"BUFR\0\0\0\4" + bytes(99), "BUFR is not supported"),
}


SCANNERS = {
    "space_weather.nc": "netcdf3",
    "mesh_C4_synthetic_float.nc": "netcdf3",
    "A1B_north_america.nc": "hdf5",
}


@pytest.mark.parametrize(("content", "message"), LOOKS.values(), ids=LOOKS)
def test_a_file_that_no_scanner_reads_is_described(content, message, tmp_path):
    path = tmp_path / "file.nc"
    path.write_bytes(content)
    with pytest.raises(ScanError, match=message) as caught:
        scan_file(path)
    assert caught.value.facts["file"] == path.as_uri()
    assert "CANARY" not in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).facts == caught.value.facts


def test_the_content_of_a_file_decides_who_reads_it_not_its_name(sample_data):
    scanned = {name: scan_file(sample_data / name).scanner for name in SCANNERS}
    assert scanned == SCANNERS


@pytest.mark.parametrize("size", [0, 512, 2048, 4096, 65536, 524288])
def test_a_file_behind_a_block_of_its_users_is_known(size, tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", userblock_size=size) as file:
        file["d"] = np.arange(9)
    (array,) = scan_file(path).arrays
    assert materialise(array).tolist() == list(range(9))


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("chunks", [None, (20,)])
def test_a_shape_or_type_that_does_not_fit_the_stored_values_is_damage(
    chunks, libver, tmp_path, monkeypatch
):
    """What lies behind the values would be read as more of them."""
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("d", data=np.arange(20, dtype="<i2"), chunks=chunks)
        file["behind"] = np.full(1000, 7, "<i2")
    monkeypatch.setattr(header, "check_sum", lambda block: None)  # as if it had been sealed so
    with open_source(path) as source:
        data = path.read_bytes()
        raw = RawFile.of(source, base=0)
        (link,) = (
            link for link in links_of(raw.header(raw.root).messages, raw.space) if link.name == b"d"
        )
        kind = only(raw.header(link.address).messages, DATATYPE)
    at = data.index(kind, link.address)
    wide = bytearray(data)
    wide[at + 4], wide[at + 10] = 4, 32  # integers of four bytes
    path.write_bytes(wide)
    with pytest.raises(ScanError, match="damaged"):
        scan_file(path)


def test_a_missing_file_a_directory_and_a_pipe_are_distinguished(tmp_path):
    with pytest.raises(NotFoundError, match="no such file"):
        scan_file(tmp_path / "gone.nc")
    with pytest.raises(ScanError, match="not a regular file"):
        scan_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScanError, match="not a regular file"):
        scan_file(tmp_path / "pipe")


def test_a_loop_of_symbolic_links_is_an_error_of_ours(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(IcevirtError):
        scan_file(tmp_path / "a")


def write(path):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10.0)
        file.create_dataset("d", data=np.arange(4000).reshape(40, 100), chunks=(4, 100))
        file["d"].attrs["units"] = "K"
        file.create_dataset("g/e", data=np.arange(1000), chunks=(100,), compression="gzip")


def test_a_file_cut_anywhere_is_an_error(tmp_path):
    whole, cut = tmp_path / "whole.h5", tmp_path / "cut.h5"
    write(whole)
    data = whole.read_bytes()
    for size in range(0, len(data), 512):
        cut.write_bytes(data[:size])
        with pytest.raises(ScanError, match=r"truncated|empty|cut off|damaged"):
            scan_file(cut)


def test_a_file_that_its_writer_never_closed_says_so(tmp_path):
    path, copy = tmp_path / "file.h5", tmp_path / "copy.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["d"] = np.arange(3)
        file.swmr_mode = True
        copy.write_bytes(path.read_bytes())
    with pytest.raises(ScanError, match=r"not closed by its writer.*h5clear -s"):
        scan_file(copy)


def test_a_sparse_array_with_more_chunks_than_u32_is_refused(tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("d", shape=(2**40,), chunks=(2,), dtype="u1")[-1] = 1
    with pytest.raises(ScanError, match="more chunks along an axis"):
        scan_file(path)


def test_a_file_of_zeros_behind_its_head_is_an_error_or_fully_described(tmp_path):
    """An unfinished download has its full size and zeros in it."""
    path = tmp_path / "file.h5"
    write(path)
    data = path.read_bytes()
    path.write_bytes(data[:2048] + bytes(len(data) - 2048))
    with pytest.raises(ScanError):
        scan_file(path)


def test_flipped_bits_raise_nothing_but_our_errors(tmp_path):
    path = tmp_path / "file.h5"
    write(path)
    data = path.read_bytes()
    dice = random.Random(7)
    for _ in range(300):
        flipped = bytearray(data)
        for _ in range(dice.randint(1, 4)):
            flipped[dice.randrange(min(len(data), 6000))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        try:
            scanned = scan_file(path)
        except IcevirtError:
            continue
        for array in scanned.arrays:
            ends = array.references.offset + array.references.length
            assert not len(ends) or ends.max() <= max(len(data), len(array.references.inline))


def test_a_chunk_outside_the_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "file.h5"
    write(path)
    with open_source(path) as source:
        source.file = replace(source.file, size=3000)
        with pytest.raises(ScanError, match="outside the file") as caught:
            Hdf5Scanner().scan(source, ScannerOptions())
    assert caught.value.facts["variable"] == "/d"


def test_references_that_leave_the_file_are_refused():
    ends = {"size": 100, "url": "file:///f", "variable": "/d"}
    check_inside(np.array([0, 90]), np.array([100, 10]), **ends)
    with pytest.raises(ScanError, match=r"outside the file.*offset=91"):
        check_inside(np.array([0, 91]), np.array([100, 10]), **ends)


def test_a_file_rewritten_while_it_is_scanned_is_detected(tmp_path, monkeypatch):
    path = tmp_path / "file.h5"
    write(path)
    scan = Hdf5Scanner.scan

    def slow(self, source, options):
        found = scan(self, source, options)
        write(path)
        return found

    monkeypatch.setattr(Hdf5Scanner, "scan", slow)
    with pytest.raises(StaleReferenceError, match="changed during"):
        scan_file(path)


def test_a_file_replaced_or_deleted_while_it_is_open_is_detected(tmp_path):
    path = tmp_path / "file.h5"
    write(path)
    with open_source(path) as source:
        source.check_unchanged()
        write(tmp_path / "other")
        (tmp_path / "other").replace(path)
        with pytest.raises(StaleReferenceError):
            source.check_unchanged()
    with open_source(path) as source:
        path.unlink()
        with pytest.raises(StaleReferenceError):
            source.check_unchanged()


def test_a_source_reads_ranges_and_knows_what_it_opened(tmp_path):
    path = tmp_path / "a file.bin"
    path.write_bytes(bytes(range(100)))
    link = tmp_path / "link"
    link.symlink_to(path)
    with open_source(link) as source:
        assert source.file.url == path.as_uri()
        assert source.file.size == 100
        assert source.file.last_modified == path.stat().st_mtime_ns
        assert source.read(10, 5) == bytes(range(10, 15))
        assert source.read(95, 50) == bytes(range(95, 100))
        assert source.read(200, 5) == b""
        assert source.local_path == str(path)
    source.close()
    with open_source(path.as_uri()) as source:
        assert source.read(0, 1) == b"\0"


def test_scanning_leaves_no_file_open(tmp_path):
    path = tmp_path / "file.h5"
    write(path)
    for _ in range(50):
        scan_file(path)
        with pytest.raises(ScanError):
            scan_file(path, scan_options={"source_group": "nowhere"})
    assert open_below(tmp_path) == []


def test_the_entry_points_lead_to_the_scanners():
    names = [type(scanner).__name__ for scanner in registry.scanners()]
    kinds = [
        *("Dmrpp", "Grib", "Hdf5", "Icechunk", "Kerchunk", "NetCDF3"),
        *("Tiff", "Virtualizarr", "Zarr"),
    ]
    assert names == [f"{kind}Scanner" for kind in kinds]
    assert all(isinstance(scanner, Scanner) for scanner in registry.scanners())


def test_a_missing_group_is_an_error_and_a_group_becomes_the_root(tmp_path):
    path = tmp_path / "file.h5"
    write(path)
    with pytest.raises(ScanError, match="no such group"):
        scan_file(path, scan_options={"source_group": "nowhere"})
    with pytest.raises(ScanError, match="an array, not a group"):
        scan_file(path, scan_options={"source_group": "d"})
    scanned = scan_file(path, scan_options={"source_group": "g"})
    assert [array.path for array in scanned.arrays] == ["/e"]
    assert [group.path for group in scanned.groups] == ["/"]


@pytest.mark.parametrize("name", ["out", "soft", "out/inner"])
def test_a_group_of_another_file_is_no_group_of_this_one(name, tmp_path):
    """Its offsets would be taken for offsets in the file that was scanned."""
    path = tmp_path / "file.h5"
    write(path)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["inner/d"] = np.arange(9)
    with h5py.File(path, "a") as file:
        file["out"] = h5py.ExternalLink("other.h5", "/")
        file["soft"] = h5py.SoftLink("/out/inner")
        file["inside"] = h5py.SoftLink("/g")
    with pytest.raises(ScanError, match="no such group"):
        scan_file(path, scan_options={"source_group": name})
    assert [
        array.path for array in scan_file(path, scan_options={"source_group": "inside"}).arrays
    ] == ["/e"]


def test_an_open_file_that_is_not_local_is_read_by_ranges(tmp_path):
    path = tmp_path / "file.h5"
    write(path)

    class Remote(LocalSource):
        local_path = None

    source = Remote(str(path))
    by_ranges = registry.scan(source)
    source.close()
    local = scan_file(path)
    assert by_ranges.arrays == local.arrays
    assert by_ranges.groups == local.groups
