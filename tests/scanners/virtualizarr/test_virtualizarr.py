"""Parsers of VirtualiZarr as scanners: their references, checked and bound to times."""

import pickle
import sys

import h5py
import netCDF4
import numpy as np
import pytest
from virtualizarr.parsers import HDFParser

import icevirt
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.objects.opening import open_source
from icevirt.scan import registry
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import combine
from icevirt_scanners.virtualizarr import scanner
from icevirt_scanners.virtualizarr.scanner import VirtualizarrScanner
from scanners.materialise import materialise


def scan(path, parser="HDFParser", **options):
    with open_source(path) as source:
        how = ScannerOptions(strict=True, **options)
        return combine(VirtualizarrScanner(parser).scan(source, how), how)


@pytest.fixture
def path(tmp_path):
    with netCDF4.Dataset(tmp_path / "a b.nc", "w") as file:
        file.title = "made for tests"
        file.createDimension("time", 4)
        file.createDimension("x", 3)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(4)
        file["time"].units = "days since 2000-01-01"
        packed = file.createVariable("t", "i2", ("time", "x"), zlib=True, chunksizes=(2, 3))
        packed.set_auto_maskandscale(False)
        packed.scale_factor = np.float32(0.1)
        packed[:] = np.arange(12).reshape(4, 3)
        file.createGroup("in").createVariable("s", "i4", ("x",))[:] = np.arange(3)
    return str(tmp_path / "a b.nc")


@pytest.mark.parametrize("concat_dim", [None, "time", "x"])
def test_a_parsers_references_are_the_files_values(path, concat_dim):
    scanned = scan(path, concat_dim=concat_dim)
    assert [group.path for group in scanned.groups] == ["/", "/in"]
    assert scanned.groups[0].attributes.values["title"] == "made for tests"
    with h5py.File(path) as file:
        for array in scanned.arrays:
            np.testing.assert_array_equal(materialise(array), file[array.path][...])
            assert bool(array.labels) == (array.path == f"/{concat_dim}")
            follows = concat_dim in array.dimension_names
            assert bool(array.digest) == bool(concat_dim and not follows)
    assert {array.path for array in scanned.arrays} == {"/time", "/t", "/in/s"}
    assert scanned.array("/t").dimension_names == ("time", "x")
    if not scanned.array("/t").whole:
        found = scanned.array("/t").references.locations
        assert list(found.url) == [scanned.source.url]
        assert found.last_modified.tolist() == [scanned.source.last_modified_seconds]
    assert pickle.loads(pickle.dumps(scanned)) == scanned


def test_the_scan_says_whose_word_it_is(path):
    assert [finding.code for finding in scan(path).findings] == ["by-virtualizarr"]


def test_a_parser_may_be_an_instance(path):
    found = scan(path, HDFParser(drop_variables=["time"]))
    assert {array.path for array in found.arrays} == {"/t", "/in/s"}


def test_groups_and_variables_are_chosen(path):
    assert {array.path for array in scan(path, group="in").arrays} == {"/s"}
    assert scan(path, drop_variables=("t",)).left_out == ("/t",)
    with pytest.raises(ScanError, match="no such group"):
        scan(path, group="/out")


NAMED = "icevirt_scanners.virtualizarr.scanner:VirtualizarrScanner"


def test_it_is_only_used_where_it_is_named(path):
    assert not VirtualizarrScanner().accepts(b"\x89HDF\r\n\x1a\n")
    assert icevirt.scan_file(path).scanner == "hdf5"
    with pytest.raises(InvalidInputError, match="parser is missing"):
        icevirt.scan_file(path, scan_options={"scanner": NAMED})


def test_a_parser_of_another_module(path, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from virtualizarr.parsers import HDFParser\nparser = HDFParser(group='/in')\nlost = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {array.path for array in scan(path, "mine.parser").arrays} == {"/s"}
    with pytest.raises(InvalidInputError, match="not a parser"):
        VirtualizarrScanner("mine.lost")


def test_a_parser_that_is_not_there_is_an_error_that_lists_what_is():
    with pytest.raises(InvalidInputError, match="no such parser") as caught:
        VirtualizarrScanner("NoParser")
    assert "HDFParser" in caught.value.facts["there"]
    with pytest.raises(ScanError, match="cannot be loaded"):
        VirtualizarrScanner("no.such.module.Parser")


def test_without_virtualizarr_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(scanner.metadata, "version", _missing)
    with pytest.raises(ScanError, match="pip install virtualizarr"):
        VirtualizarrScanner("HDFParser")
    VirtualizarrScanner()  # the registry makes one of every scanner


def _missing(name):
    raise scanner.metadata.PackageNotFoundError(name)


def test_virtualizarr_is_not_imported_before_it_is_asked_for():
    import subprocess

    code = f"import sys, icevirt_scanners.virtualizarr.scanner as s; s.{NAMED.rpartition(':')[2]}()"
    code += "; print('virtualizarr' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_whatever_a_parser_raises_is_a_scan_error(tmp_path):
    (tmp_path / "a.nc").write_bytes(b"nothing")
    with pytest.raises(ScanError, match="VirtualiZarr cannot read") as caught:
        scan(tmp_path / "a.nc")
    assert pickle.loads(pickle.dumps(caught.value)).facts == caught.value.facts


class Leads:
    """A parser that refers to other bytes than it should."""

    def __init__(self, **entry):
        self.entry = entry

    def __call__(self, url, registry):
        from virtualizarr.manifests import (
            ChunkManifest,
            ManifestArray,
            ManifestGroup,
            ManifestStore,
        )
        from virtualizarr.manifests.utils import create_v3_array_metadata

        manifest = ChunkManifest({"0": {"path": url, "offset": 0, "length": 8} | self.entry})
        metadata = create_v3_array_metadata(
            shape=(1,), data_type=np.dtype("f8"), chunk_shape=(1,), dimension_names=["x"]
        )
        array = ManifestArray(metadata, manifest)
        return ManifestStore(ManifestGroup(arrays={"v": array}), registry=registry)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"offset": 1 << 40}, ScanError),
        ({"path": "file:///etc/passwd"}, UnsupportedError),
        ({"path": "s3://bucket/x"}, UnsupportedError),
        ({"path": "file:///no/such/file"}, UnsupportedError),
    ],
    ids=str,
)
def test_references_that_lead_astray_are_refused(entry, error, path):
    assert scan(path, Leads()).arrays
    with pytest.raises(error):
        scan(path, Leads(**entry))


def test_inline_chunks_stay_inline(path):
    body = np.float64(3).tobytes()
    (array,) = scan(path, Leads(path="", offset=0, length=8, data=body)).arrays
    assert materialise(array).tolist() == [3.0]


def test_the_registry_hands_the_parser_on(path, tmp_path, monkeypatch):
    info = tmp_path / "named-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[icevirt.scanners]\nvirtualizarr = {NAMED}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found = icevirt.scan_file(path, scan_options={"scanner": "virtualizarr:HDFParser"})
        assert {array.path for array in found.arrays} == {"/time", "/t", "/in/s"}
        assert "HDFParser" in registry.find_named("virtualizarr:HDFParser").version
    finally:
        registry.find_named.cache_clear()
