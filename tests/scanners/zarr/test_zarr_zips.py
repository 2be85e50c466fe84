"""Zipped stores: what zarr's ZipStore reads is what both clients read, or the archive is refused."""

import io
import re
import shutil
import struct
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import obstore
import pytest
import zarr
from zarr.storage import ZipStore

import icevirt
from api.sources.test_object_stores import access_to
from icevirt.api.scan import scan_file
from icevirt.errors import ScanError, SourcesChangedError, UnsupportedError
from scanners.zarr.test_zarr_corpus import OFFICIAL, assert_same
from scanners.zarr.zarr_stores import arrays_in, write_month, write_store

VALUES = np.arange(24, dtype="i4").reshape(4, 6)


class Unseekable(io.RawIOBase):
    """A pipe: sizes and checksums follow the members."""

    def __init__(self, path):
        self._file = path.open("wb")

    def writable(self):
        return True

    def write(self, data):
        return self._file.write(data)

    def close(self):
        self._file.close()
        super().close()


@pytest.fixture
def folder(tmp_path):
    """A small store."""
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", attributes={"title": "small"})
    for name in ("a", "b"):
        how = {"shape": (4, 6), "chunks": (2, 3), "dtype": "i4", "compressors": None}
        root.create_array(name, **how)[...] = VALUES
    return tmp_path / "s.zarr"


def pack(folder, target, *, top="", method=zipfile.ZIP_STORED, extra=b"", out=None, zip64=False):
    with zipfile.ZipFile(out or target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_dir():
                archive.mkdir(f"{top}{path.relative_to(folder)}")
                continue
            info = zipfile.ZipInfo(f"{top}{path.relative_to(folder)}")
            info.extra, info.compress_type = extra, method
            with archive.open(info, "w", force_zip64=zip64) as member:
                member.write(path.read_bytes())
    return target


def values_in(target, array="a"):
    repo = target.parent / "repo"
    shutil.rmtree(repo, ignore_errors=True)
    icevirt.build(target, repo, executor="in-process")
    access = {"authorize_virtual_chunk_access": [target.parent]}
    return zarr.open_array(
        icevirt.Repository.open(repo, **access).readonly_session("main").store, path=array, mode="r"
    )[...]


@pytest.mark.ci
def test_both_clients_read_what_zip_store_reads(tmp_path):
    """Every array of the corpus."""
    write_store(tmp_path / "s.zarr", 3, consolidated=True)
    target = pack(tmp_path / "s.zarr", tmp_path / "s.zarr.zip")
    icevirt.build(target, tmp_path / "repo", executor="in-process")
    subprocess.run(
        [sys.executable, "-c", OFFICIAL, tmp_path / "repo", tmp_path / "found"], check=True
    )
    official = np.load(tmp_path / "found", allow_pickle=True)
    access = {"authorize_virtual_chunk_access": [tmp_path]}
    mine = zarr.open_group(
        icevirt.Repository.open(tmp_path / "repo", **access).readonly_session("main").store,
        mode="r",
    )
    source = zarr.open_group(ZipStore(target, read_only=True), mode="r")
    names = arrays_in(tmp_path / "s.zarr")
    assert set(names) == set(official)
    for name in names:
        values = np.asarray(source[name][...])
        assert_same(mine[name][...], values, name)
        assert_same(official[name][0], values, name)
    checked = icevirt.verify(tmp_path / "repo", values=4, seed=1, executor="in-process", **access)
    assert checked.ok
    assert not checked.checked.not_compared


PACKINGS = {
    "extra fields in both places": {"extra": struct.pack("<HHI", 0x9999, 4, 7)},
    "an extra field only before the member": {"zip64": True},
    "a folder around the store": {"top": "deep/s.zarr/"},
}


@pytest.mark.parametrize("how", PACKINGS.values(), ids=PACKINGS.keys())
def test_members_are_found_however_they_are_packed(how, folder, tmp_path):
    target = pack(folder, tmp_path / "s.zip", **how)
    np.testing.assert_array_equal(values_in(target), VALUES)


def test_members_whose_sizes_follow_them(folder, tmp_path):
    with Unseekable(tmp_path / "s.zip") as out:
        pack(folder, None, out=out)
    np.testing.assert_array_equal(values_in(tmp_path / "s.zip"), VALUES)


def test_of_members_with_one_name_the_last_counts(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zipfile, about the duplicates
        with ZipStore(tmp_path / "s.zip", mode="w") as store:
            root = zarr.create_group(store)
            array = root.create_array("a", shape=(4, 6), chunks=(2, 3), dtype="i4")
            for number in range(3):
                array[...] = VALUES + number
            array.attrs["written"] = "twice"
        zarr.consolidate_metadata(ZipStore(tmp_path / "s.zip", mode="a"))
    np.testing.assert_array_equal(values_in(tmp_path / "s.zip"), VALUES + 2)
    assert len(scan_file(tmp_path / "s.zip").array("/a").references) == 4


def test_comments_and_what_stands_before_an_archive(folder, tmp_path):
    target = pack(folder, tmp_path / "s.zip")
    with zipfile.ZipFile(target, "a") as archive:
        archive.comment = b"PK\x05\x06 is no end " * 9
    np.testing.assert_array_equal(values_in(target), VALUES)
    moved = tmp_path / "moved.zip"
    moved.write_bytes(b"PK\x03\x04 something else" + target.read_bytes())
    np.testing.assert_array_equal(values_in(moved), VALUES)


def test_names_that_hold_signatures(folder, tmp_path):
    target = pack(folder, tmp_path / "s.zip")
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("PK\x01\x02" * 12, b"PK\x01\x02")
    assert "PK" in str(scan_file(target).findings)
    np.testing.assert_array_equal(values_in(target), VALUES)


def test_zip64_everywhere(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 200)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    target = pack(folder, tmp_path / "s.zip", extra=struct.pack("<HHI", 0x9999, 4, 7), zip64=True)
    assert b"PK\x06\x07" in target.read_bytes()
    np.testing.assert_array_equal(values_in(target), VALUES)


def test_deflated_metadata_are_read_and_deflated_chunks_refused_by_name(folder, tmp_path):
    target = tmp_path / "s.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for path in folder.rglob("*"):
            if path.is_file():
                how = zipfile.ZIP_DEFLATED if path.suffix == ".json" else zipfile.ZIP_STORED
                archive.write(path, path.relative_to(folder), how)
    np.testing.assert_array_equal(values_in(target), VALUES)
    pack(folder, target, method=zipfile.ZIP_DEFLATED)
    with pytest.raises(UnsupportedError, match="compresses its chunks") as error:
        scan_file(target)
    assert error.value.facts["member"].startswith("a/c/")
    assert error.value.facts["method"] == "deflate"
    assert "zip -0" in str(error.value)


def change(raw, at, value, fmt="<H", sign=b"PK\x01\x02"):
    """Change a field of every entry of the directory."""
    raw = bytearray(raw)
    for match in re.finditer(re.escape(sign), bytes(raw)):
        struct.pack_into(fmt, raw, match.start() + at, value)
    return bytes(raw)


DAMAGES = {
    "encrypted": lambda raw: change(raw, 8, 1),
    "of several disks": lambda raw: change(raw, 34, 1),
    "of several disks at its end": lambda raw: change(raw, 4, 1, sign=b"PK\x05\x06"),
    "cut off": lambda raw: raw[:-30],
    "cut off at its end": lambda raw: raw[:-1],
    "without its beginning": lambda raw: raw[:4] + raw[40:],
    "longer than its end says": lambda raw: raw + b"junk",
    "more members than are there": lambda raw: change(raw, 10, 99, sign=b"PK\x05\x06"),
    "members in one place": lambda raw: change(raw, 42, 0, "<I"),
    "members behind the end": lambda raw: change(raw, 42, 1 << 30, "<I"),
    "places that are not said": lambda raw: change(raw, 42, 0xFFFFFFFF, "<I"),
    "headers that are none": lambda raw: raw.replace(b"PK\x03\x04", b"PK\x03\x05")[4:].join(
        [b"PK\x03\x04", b""]
    ),
    "members of two sizes": lambda raw: change(raw, 20, 8, "<I"),
    "other checksums": lambda raw: change(raw, 16, 1, "<I"),
    "names of no encoding": lambda raw: raw.replace(b"a/c/0/0", b"a/c/\xff/0"),
    "names with zeros": lambda raw: raw.replace(b"a/c/0/0", b"a/c/\x00/0"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_archives_that_are_damaged_or_odd_are_refused(damage, folder, tmp_path):
    target = pack(folder, tmp_path / "s.zip")
    target.write_bytes(damage(target.read_bytes()))
    with pytest.raises((ScanError, UnsupportedError), match="ZIP archive") as error:
        scan_file(target)
    assert "scanner failed" not in str(error.value)


@pytest.mark.parametrize(
    "how", [{"concat_dim": "y"}, {"scan_options": {"variable_policy": "native"}}]
)
def test_values_that_a_scan_reads_are_compared_with_their_checksums(how, tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    axis = {"shape": (4,), "chunks": (2,), "dtype": "i8", "compressors": None}
    root.create_array("y", dimension_names=("y",), **axis)[...] = [3, 4, 0x1122334455667788, 6]
    target = pack(tmp_path / "s.zarr", tmp_path / "s.zip")
    raw, value = target.read_bytes(), struct.pack("<q", 0x1122334455667788)
    assert raw.count(value) == 1
    target.write_bytes(raw.replace(value, struct.pack("<q", 77)))
    with pytest.raises(ScanError, match="ZIP archive") as error:
        scan_file(target, **how)
    assert error.value.facts["member"] == "y/c/1"


def test_an_archive_of_anything_else_or_of_several_stores_is_named(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ScanError, match="holds no Zarr store") as error:
        scan_file(tmp_path / "other.zip")
    assert error.value.facts["members"] == ["readme.txt"]
    with zipfile.ZipFile(tmp_path / "none.zip", "w"):
        pass
    with pytest.raises(ScanError, match="holds no Zarr store"):
        scan_file(tmp_path / "none.zip")
    pack(folder, tmp_path / "two.zip", top="one.zarr/")
    with zipfile.ZipFile(tmp_path / "two.zip", "a") as archive:
        archive.writestr("two.zarr/zarr.json", "{}")
    with pytest.raises(UnsupportedError, match="several Zarr stores"):
        scan_file(tmp_path / "two.zip")
    pack(folder, tmp_path / "mac.zip", top="s.zarr/")
    with zipfile.ZipFile(tmp_path / "mac.zip", "a") as archive:
        archive.writestr("__MACOSX/s.zarr/._a", "x")
    assert "__MACOSX/s.zarr/._a" in str(scan_file(tmp_path / "mac.zip").findings)
    np.testing.assert_array_equal(values_in(tmp_path / "mac.zip"), VALUES)


def test_an_archive_that_was_written_again_is_found_out(folder, tmp_path, monkeypatch):
    from icevirt.api.dataset import writing

    target = pack(folder, tmp_path / "s.zip")
    real = writing.write_all

    def write(*given):
        with zipfile.ZipFile(target, "a") as archive:
            archive.writestr("more", "x")
        return real(*given)

    monkeypatch.setattr("icevirt.api.dataset.transaction.write_all", write)
    with pytest.raises(SourcesChangedError):
        icevirt.build(target, tmp_path / "repo", executor="in-process")


@pytest.mark.servers
def test_a_stack_of_archives_in_a_bucket_is_read_as_on_disk(s3, tmp_path):
    for number in (1, 2):
        write_month(tmp_path / f"m{number}.zarr", number)
        out = tmp_path / f"m{number}.zarr.zip"
        with Unseekable(out) if number == 2 else out.open("wb") as file:
            pack(tmp_path / f"m{number}.zarr", None, out=file)
        obstore.put(s3.store(), f"zips/{out.name}", out.read_bytes())
    access, credentials = access_to(s3)
    how = {"access": access, "executor": "in-process"}
    report = icevirt.build(f"{s3.url}/zips/*.zarr.zip", tmp_path / "repo", **how)
    ours = icevirt.open(
        tmp_path / "repo",
        authorize_virtual_chunk_access=dict.fromkeys(report.containers, credentials),
    )
    assert ours.sizes["time"] == 6
    icevirt.build(
        [tmp_path / "m1.zarr.zip", tmp_path / "m2.zarr.zip"], tmp_path / "r2", executor="in-process"
    )
    theirs = icevirt.open(tmp_path / "r2", authorize_virtual_chunk_access=[tmp_path])
    assert ours.load().identical(theirs.load())
