"""What kerchunk's references cannot mean, or must not lead to, is an error that names it."""

import base64
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

import icevirt
from icevirt.connect.urls import file_url
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.objects.opening import open_source
from icevirt.scan.contract import ScannerOptions
from icevirt_scanners.kerchunk.scanner import KerchunkScanner
from scanners.kerchunk.kerchunk_files import parquet, references, scan, target_in, write, zarray
from scanners.materialise import materialise


@pytest.fixture
def target(tmp_path):
    """A file of 24 little-endian i4, in its own directory."""
    return target_in(tmp_path)


EVALUATED = {
    "gen": lambda refs: {"version": 1, "gen": [{"key": "v/{{i}}"}], "refs": refs},
    "a template with jinja": lambda refs: {
        "version": 1,
        "templates": {"t": "{{ 7 * 7 }}"},
        "refs": refs,
    },
    "a template that is called": lambda refs: {
        "version": 1,
        "templates": {"t": "x"},
        "refs": {**refs, "v/0.0": ["{{ t(c='a') }}", 0, 48]},
    },
    "a statement": lambda refs: {
        "version": 1,
        "refs": {**refs, "v/0.0": ["{% for x in y %}", 0, 48]},
    },
    "version 2": lambda refs: {"version": 2, "refs": refs},
    "a pickle": lambda refs: {**refs, "v/.zarray": zarray(dtype="|O", filters=[{"id": "pickle"}])},
    "a pickle behind others": lambda refs: {
        **refs,
        "v/.zarray": zarray(filters=[{"id": "zlib"}, {"id": "pickle"}]),
    },
    "an unknown codec": lambda refs: {**refs, "v/.zarray": zarray(compressor={"id": "grib"})},
    "JSON objects": lambda refs: {
        **refs,
        "v/.zarray": zarray(dtype="|O", filters=[{"id": "json2"}]),
    },
    "a relative path": lambda refs: {**refs, "v/0.0": ["data.bin", 0, 48]},
    "a chain of file systems": lambda refs: {**refs, "v/0.0": ["zip://a::file:///b", 0, 48]},
    "another directory": lambda refs: {**refs, "v/0.0": ["/etc/passwd", 0, 4]},
    "another directory by dots": lambda refs: {
        **refs,
        "v/0.0": [refs["v/0.0"][0] + "/../../../etc/passwd", 0, 4],
    },
    "another host": lambda refs: {**refs, "v/0.0": ["https://example.org/x", 0, 4]},
    "a host that begins alike": lambda refs: {**refs, "v/0.0": ["s3://bucket-2/x", 0, 4]},
    "encoded dots in a URL": lambda refs: {**refs, "v/0.0": ["s3://bucket/a/%2e%2E/x", 0, 4]},
    "dots in a URL": lambda refs: {**refs, "v/0.0": ["s3://bucket/a/../../x", 0, 4]},
}


@pytest.mark.parametrize("form", EVALUATED.values(), ids=EVALUATED)
def test_what_would_be_evaluated_or_leads_elsewhere_is_refused(form, target, tmp_path):
    path = write(tmp_path, form(references(target)))
    with pytest.raises(UnsupportedError) as caught:
        scan(path, allow_references_to=("s3://bucket",))
    assert caught.value.facts["file"] == file_url(path)
    assert pickle.loads(pickle.dumps(caught.value)).facts == caught.value.facts


def test_a_link_out_of_the_directory_is_refused(target, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(target)
    path = write(tmp_path / "in", references(str(tmp_path / "in/link")))
    with pytest.raises(UnsupportedError, match="own directory") as caught:
        scan(path)
    assert str(tmp_path) in str(caught.value)
    assert scan(path, allow_references_to=(str(tmp_path),)).arrays


DAMAGED = {
    "no JSON": b'{".zgroup": ',
    "a list": b'{"refs": []}',
    "nested too deeply": b'{"refs":' + b"[" * 100_000,
    "an array that is text": {"v/.zarray": "hello"},
    "an array without a shape": {"v/.zarray": "{}"},
    "chunks of another rank": {"v/.zarray": zarray(chunks=[2])},
    "a chunk of no array": {"v/.zarray": zarray(), "w/0.0": "x"},
    "a chunk key of another rank": {"v/.zarray": zarray(), "v/0": "x"},
    "a chunk key of words": {"v/.zarray": zarray(), "v/a.b": "x"},
    "a negative chunk key": {"v/.zarray": zarray(), "v/-1.0": "x"},
    "a chunk key with a leading zero": {"v/.zarray": zarray(), "v/0.01": "x"},
    "a chunk key of two zeros": {"v/.zarray": zarray(), "v/00.0": "x"},
    "a chunk key of other digits": {"v/.zarray": zarray(), "v/0.\u0661": "x"},
    "an empty number in a chunk key": {"v/.zarray": zarray(), "v/0..0": "x"},
    "a chunk key of two separators": {
        "v/.zarray": zarray(shape=[2, 2, 2], chunks=[1, 1, 1]),
        "v/0.0/0": "x",
    },
    "a chunk key with a sign": {"v/.zarray": zarray(), "v/+0.0": "x"},
    "a chunk key with a space": {"v/.zarray": zarray(), "v/0. 1": "x"},
    "a chunk key of a hundred digits": {"v/.zarray": zarray(), f"v/{'9' * 100}.0": "x"},
    "a chunk outside of the array": {"v/.zarray": zarray(), "v/2.0": "x"},
    "a chunk twice": {"v/.zarray": zarray(), "v/0.0": "x", "v/0/0": "x"},
    "a reference of two parts": {"v/.zarray": zarray(), "v/0.0": ["a", 1]},
    "a negative offset": {"v/.zarray": zarray(), "v/0.0": ["TARGET", -1, 4]},
    "an offset of text": {"v/.zarray": zarray(), "v/0.0": ["TARGET", "0", 4]},
    "an offset beyond 64 bits": {"v/.zarray": zarray(), "v/0.0": ["TARGET", 1 << 70, 4]},
    "a chunk behind the end": {"v/.zarray": zarray(), "v/0.0": ["TARGET", 50, 48]},
    "a target that is missing": {"v/.zarray": zarray(), "v/0.0": ["TARGETS", 0, 48]},
    "a target that is a directory": {"v/.zarray": zarray(), "v/0.0": ["FOLDER", 0, 48]},
    "broken base64": {"v/.zarray": zarray(), "v/0.0": "base64:???"},
    "a template that is not there": {
        "version": 1,
        "refs": {"v/.zarray": zarray(), "v/0.0": ["{{t}}", 0, 1]},
    },
    "a name with dots": {"../v/.zarray": zarray()},
    "half a character in a name": {"v\ud800/.zarray": zarray()},
    "half a character in metadata": {".zattrs": '{"a": "\\ud800"}'},
    "half a character in a chunk": {"v/.zarray": zarray(), "v/0.0": "\ud800"},
    "a NUL in a path": {"v/.zarray": zarray(), "v/0.0": ["TARGET\0", 0, 48]},
    "lengths that are no integers": {"v/.zarray": zarray(shape=[4.5, 6])},
    "lengths beyond 64 bits": {"v/.zarray": zarray(shape=[1 << 70, 6])},
    "a chunk beyond 32 bits": {"v/.zarray": zarray(shape=[1 << 40, 6]), "v/4294967296.0": "x"},
    "a fill value between integers": {"v/.zarray": zarray(fill_value=0.5)},
    "a fill value of text": {"v/.zarray": zarray(fill_value="none")},
    "an unknown data type": {"v/.zarray": zarray(dtype="<q9")},
    "another zarr format": {"v/.zarray": zarray(zarr_format=9)},
}


@pytest.mark.parametrize("held", DAMAGED.values(), ids=DAMAGED)
def test_damaged_references_are_an_error(held, target, tmp_path):
    path = tmp_path / "refs.json"
    if not isinstance(held, bytes):
        text = json.dumps(held).replace('"TARGET', f'"{target}').replace("FOLDER", str(tmp_path))
        held = text.encode()
    path.write_bytes(held)
    with pytest.raises((ScanError, UnsupportedError)), open_source(path) as source:
        KerchunkScanner().scan(source, ScannerOptions())


CHUNK = np.arange(12, dtype="<i4").tobytes()  # of the array that `zarray` describes
SIZES = {
    "shorter than the chunk": ({}, ["TARGET", 0, 44]),
    "longer than the chunk": ({}, ["TARGET", 0, 52]),
    "a whole file of another length": ({}, ["TARGET"]),
    "of no bytes": ({"compressor": {"id": "zlib", "level": 1}}, ["TARGET", 0, 0]),
    "without its checksum": ({"filters": [{"id": "crc32"}]}, ["TARGET", 0, 48]),
    "shuffled and short": ({"filters": [{"id": "shuffle", "elementsize": 4}]}, ["TARGET", 0, 40]),
    "short, in order F": ({"order": "F"}, ["TARGET", 0, 47]),
    "short bytes in the file itself": ({}, "base64:" + base64.b64encode(CHUNK[:-1]).decode()),
    "no bytes in the file itself": ({}, ""),
    "no bytes in base64": ({"compressor": {"id": "zlib", "level": 1}}, "base64:"),
    "short text": ({"dtype": "|S1"}, "abc"),
}


@pytest.mark.parametrize(("changes", "reference"), SIZES.values(), ids=SIZES)
def test_a_chunk_that_cannot_have_that_length_is_an_error(changes, reference, target, tmp_path):
    """fsspec and zarr find out when somebody reads, or never."""
    if isinstance(reference, list):
        reference = [target, *reference[1:]]
    held = {"v/.zarray": zarray(**changes), "v/0.0": reference}
    with pytest.raises(ScanError, match="damaged references") as caught:
        scan(write(tmp_path, held))
    assert caught.value.facts["variable"] == "/v"
    assert "length" in caught.value.facts


def test_a_short_chunk_in_parquet_is_an_error(target, tmp_path):
    held = {"v/.zarray": zarray(), "v/0.0": [target, 48, 44]}
    with pytest.raises(ScanError, match="another length") as caught:
        scan(parquet(tmp_path, held, 10), allow_references_to=(str(tmp_path),))
    assert (caught.value.facts["length"], caught.value.facts["expected"]) == (44, 48)


def test_base64_may_be_broken_into_lines(target, tmp_path):
    text = "base64:" + base64.encodebytes(CHUNK).decode()
    assert "\n" in text
    (array,) = scan(write(tmp_path, {"v/.zarray": zarray(), "v/0.0": text})).arrays
    np.testing.assert_array_equal(materialise(array)[:2], np.arange(12).reshape(2, 6))


@pytest.mark.parametrize("text", ["base64:AAA", "base64:AA=A", "base64:_-__", "base64:\u00e9AAA"])
def test_base64_that_is_none_is_an_error(text, tmp_path):
    held = {"v/.zarray": zarray(compressor={"id": "zlib", "level": 1}), "v/0.0": text}
    with pytest.raises(ScanError, match="base64"):
        scan(write(tmp_path, held))


def test_text_in_the_file_itself_is_its_utf_8(tmp_path):
    held = {"v/.zarray": zarray(dtype="|S4", shape=[2], chunks=[2]), "v/0": "é{{wxy5"}
    (array,) = scan(write(tmp_path, {"version": 1, "refs": held})).arrays
    assert materialise(array).tolist() == ["é{{".encode(), b"wxy5"]


def test_values_that_do_not_decode_are_an_error(target, tmp_path):
    path = write(tmp_path, references(target, compressor={"id": "zlib", "level": 1}))
    assert scan(path).arrays
    with pytest.raises(ScanError, match="does not decode"):
        scan(path, concat_dim="time")


def test_other_json_is_not_taken_for_references():
    accepts = KerchunkScanner().accepts
    assert not accepts(b'{"type": "FeatureCollection"}')
    assert not accepts(b"[1, 2]")
    assert not accepts(b"")
    assert not accepts(b"\x89HDF\r\n\x1a\n" + b'".zgroup"')


@pytest.mark.ci
def test_an_entry_point_makes_it_chosen_by_content(target, tmp_path):
    info = tmp_path / "plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    name = "icevirt_scanners.kerchunk.scanner:KerchunkScanner"
    (info / "entry_points.txt").write_text(f"[icevirt.scanners]\nkerchunk = {name}\n")
    write(tmp_path, references(target))
    write(tmp_path, {"type": "FeatureCollection"}, "other.json")
    code = "import icevirt; print(repr(icevirt.scan_file('refs.json')))\n"
    code += "try: icevirt.scan_file('other.json')\n"
    code += "except icevirt.errors.ScanError as error: print(error)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.stderr == ""
    found, refused = ran.stdout.splitlines()
    assert found.endswith("1 array, 2 references>")
    assert "JSON" in refused


def test_names_of_variables_are_taken_or_left_out(target, tmp_path):
    held = {**references(target), "w/.zarray": zarray(compressor={"id": "grib"})}
    path, scanner = write(tmp_path, held), "icevirt_scanners.kerchunk.scanner:KerchunkScanner"
    assert (
        len(
            icevirt.scan_file(path, scan_options={"drop_variables": "w", "scanner": scanner}).arrays
        )
        == 1
    )
    assert icevirt.scan_file(
        path, scan_options={"variables": "v", "scanner": scanner}
    ).left_out == ("/w",)
    with pytest.raises(InvalidInputError, match="no such variable"):
        icevirt.scan_file(
            path, scan_options={"variables": ["v", "u"], "drop_variables": "w", "scanner": scanner}
        )
