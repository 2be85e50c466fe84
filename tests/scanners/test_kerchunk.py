"""kerchunk's references scan to what the files hold that they lead to, or are refused."""

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import fsspec
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from kerchunk.hdf import SingleHdf5ToZarr

import icevirt
from icevirt.archive.scanned import Severity
from icevirt.connect.urls import file_url
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.objects.listing import list_sources
from icevirt.objects.source import open_source
from icevirt.scan.contract import ScanOptions
from icevirt_scanners.kerchunk.scanner import KerchunkScanner
from scanners.materialise import materialise


def scan(path, **options):
    with open_source(path) as source:
        assert KerchunkScanner().accepts(source.read(0, 4096))
        return KerchunkScanner().scan(source, ScanOptions(**options))


def write(folder, document, name="refs.json"):
    path = folder / name
    path.write_text(json.dumps(document))
    return path


# -- what kerchunk itself writes -----------------------------------------------------------------

REAL = [
    ("NEMO/nemo_1m_20150101-20150201_grid-T.nc", "x"),
    ("E1_north_america.nc", "time"),
    ("toa_brightness_stereographic.nc", "x"),
    ("A1B_north_america.nc", "time"),
    ("hybrid_height.nc", "x"),
]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("inline", [0, 500])
@pytest.mark.parametrize(("name", "concat_dim"), REAL)
def test_a_real_file_by_way_of_kerchunk_is_the_file(
    name, concat_dim, inline, sample_data, tmp_path
):
    target = sample_data / name
    refs = write(tmp_path, SingleHdf5ToZarr(str(target), inline_threshold=inline).translate())
    for options in ({}, {"concat_dim": concat_dim}):
        scanned = scan(refs, allow_references_to=(str(target.parent),), **options)
        with xr.open_dataset(target, decode_cf=False, engine="netcdf4") as wanted:
            assert {array.path for array in scanned.arrays} >= {f"/{n}" for n in wanted.variables}
            for array in scanned.arrays:
                if array.path[1:] in wanted.variables:
                    held = wanted[array.path[1:]]
                    if held.dtype.kind in "OSU":
                        continue  # text is told apart in ways of their own
                    assert array.dimension_names == held.dims
                    np.testing.assert_array_equal(materialise(array), held.values)
                    coordinate = array.dimension_names == (concat_dim,) == (array.path[1:],)
                    assert bool(array.labels) == bool(options and coordinate)
                    follows = concat_dim in array.dimension_names
                    assert bool(array.digest) == bool(options and not follows)
        assert all(finding.code != "unverifiable" for finding in scanned.findings)


# -- every part of the format ----------------------------------------------------------------------


@pytest.fixture
def target(tmp_path):
    """A file of 24 little-endian i4, in its own directory."""
    path = tmp_path / "data.bin"
    np.arange(24, dtype="<i4").tofile(path)
    return str(path)


def zarray(**changes):
    return json.dumps(
        {
            "zarr_format": 2,
            "shape": [4, 6],
            "chunks": [2, 6],
            "dtype": "<i4",
            "order": "C",
            "filters": None,
            "compressor": None,
            "fill_value": None,
        }
        | changes
    )


def references(target, **changes):
    return {
        ".zgroup": '{"zarr_format": 2}',
        "v/.zarray": zarray(**changes),
        "v/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"}),
        "v/0.0": [target, 0, 48],
        "v/1.0": [target, 48, 48],
    }


FORMS = {
    "version 0": lambda refs: refs,
    "version 1": lambda refs: {"version": 1, "refs": refs},
    "version 1 with a template": lambda refs: {
        "version": 1,
        "templates": {"t": refs["v/0.0"][0]},
        "refs": {**refs, "v/0.0": ["{{t}}", 0, 48], "v/1.0": ["{{ t }}", 48, 48]},
    },
    "an empty gen": lambda refs: {"version": 1, "gen": [], "templates": {}, "refs": refs},
    "metadata as objects": lambda refs: {
        key: json.loads(value) if isinstance(value, str) else value for key, value in refs.items()
    },
    "metadata in base64": lambda refs: {
        **refs,
        "v/.zarray": "base64:" + base64.b64encode(refs["v/.zarray"].encode()).decode(),
    },
    "consolidated only": lambda refs: {
        ".zmetadata": json.dumps(
            {"metadata": {k: json.loads(v) for k, v in refs.items() if isinstance(v, str)}}
        ),
        **{key: value for key, value in refs.items() if not isinstance(value, str)},
    },
    "slashes in chunk keys": lambda refs: {
        key.replace("0.0", "0/0").replace("1.0", "1/0"): value for key, value in refs.items()
    },
    "file URLs": lambda refs: {
        key: [f"file://{value[0]}", *value[1:]] if isinstance(value, list) else value
        for key, value in refs.items()
    },
    "an inline chunk in base64": lambda refs: {
        **refs,
        "v/0.0": "base64:" + base64.b64encode(np.arange(12, dtype="<i4").tobytes()).decode(),
    },
    "inline chunks as text": lambda refs: {
        **refs,
        "v/0.0": np.arange(12, dtype="<i4").tobytes().decode(),
    },
    "version 3 of zarr": lambda refs: {
        "zarr.json": '{"zarr_format": 3, "node_type": "group"}',
        "v/zarr.json": json.dumps(
            {
                "zarr_format": 3,
                "node_type": "array",
                "shape": [4, 6],
                "data_type": "int32",
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 6]}},
                "chunk_key_encoding": {"name": "default"},
                "fill_value": 0,
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                "attributes": {"units": "K"},
                "dimension_names": ["y", "x"],
            }
        ),
        "v/c/0/0": refs["v/0.0"],
        "v/c/1/0": refs["v/1.0"],
    },
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_the_references_means_the_same(form, target, tmp_path):
    scanned = scan(write(tmp_path, form(references(target))))
    (array,) = scanned.arrays
    np.testing.assert_array_equal(materialise(array), np.arange(24).reshape(4, 6))
    assert array.dimension_names == ("y", "x")
    assert dict(array.attributes.values) == {"units": "K"}
    assert [group.path for group in scanned.groups] == ["/"]
    assert scanned.findings == ()
    assert pickle.loads(pickle.dumps(scanned)) == scanned


def test_references_carry_the_time_of_their_target(target, tmp_path):
    os.utime(target, ns=(0, 1_500_000_000_000_000_001))
    (array,) = scan(write(tmp_path, references(target))).arrays
    assert list(array.references.locations.url) == [file_url(target)]
    assert array.references.locations.last_modified.tolist() == [1_500_000_001]


def test_a_remote_target_is_unverifiable_and_told_of(tmp_path):
    refs = write(tmp_path, references("s3://bucket/data.bin"))
    scanned = scan(refs, allow_references_to=("s3://bucket/",))
    assert list(scanned.arrays[0].references.locations.url) == ["s3://bucket/data.bin"]
    (finding,) = scanned.findings
    assert (finding.code, finding.severity) == ("unverifiable", Severity.warning)


def test_groups_and_missing_chunks(target, tmp_path):
    held = references(target, fill_value=-9)
    inner = {f"deep/in/{key}": value for key, value in held.items() if key != ".zgroup"}
    del inner["deep/in/v/1.0"]
    refs = write(tmp_path, {".zgroup": "{}", "deep/.zattrs": '{"who": "me"}', **held, **inner})
    scanned = scan(refs)
    assert [group.path for group in scanned.groups] == ["/", "/deep", "/deep/in"]
    assert scanned.groups[1].attributes.values == {"who": "me"}
    below = scan(refs, group="deep/in")
    assert [array.path for array in below.arrays] == ["/v"]
    found = materialise(below.array("/v"))
    np.testing.assert_array_equal(found[:2], np.arange(12).reshape(2, 6))
    assert (found[2:] == -9).all()
    with pytest.raises(ScanError, match="no such group") as caught:
        scan(refs, group="/deeper")
    assert caught.value.facts["there"] == ["/", "/deep", "/deep/in"]


def test_a_scalar_has_one_chunk(target, tmp_path):
    held = {"s/.zarray": zarray(shape=[], chunks=[]), "s/0": [target, 8, 4]}
    (array,) = scan(write(tmp_path, held)).arrays
    assert materialise(array) == 2


# -- metadata of version 2: zarr's own reading of it is the oracle ---------------------------------

FLOATS = np.linspace(-3, 3, 24).reshape(4, 6)
CODECS = {
    "nothing": {},
    "order F": {"order": "F"},
    "zlib": {"compressor": numcodecs.Zlib(3)},
    "gzip": {"compressor": numcodecs.GZip(1)},
    "bz2": {"compressor": numcodecs.BZ2(2)},
    "lzma": {"compressor": numcodecs.LZMA()},
    "lz4": {"compressor": numcodecs.LZ4()},
    "zstd": {"compressor": numcodecs.Zstd(2)},
    "blosc": {"compressor": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE)},
    "blosc, shuffle as it likes": {"compressor": numcodecs.Blosc(shuffle=-1)},
    "shuffle and zlib": {"filters": [numcodecs.Shuffle(8)], "compressor": numcodecs.Zlib()},
    "fletcher32 behind zlib": {"filters": [numcodecs.Zlib(), numcodecs.Fletcher32()]},
    "crc32": {"filters": [numcodecs.CRC32()]},
    "adler32": {"filters": [numcodecs.Adler32()]},
    "delta": {"filters": [numcodecs.Delta("<i8")], "dtype": "<i8"},
    "delta in order F": {"filters": [numcodecs.Delta("<i8")], "dtype": "<i8", "order": "F"},
    "scale and offset": {
        "filters": [numcodecs.FixedScaleOffset(1, 100, "<f8", "<i4")],
        "compressor": numcodecs.Zlib(),
    },
    "quantised": {"filters": [numcodecs.Quantize(2, "<f8")]},
    "rounded bits": {"filters": [numcodecs.BitRound(10)]},
    "cast": {"filters": [numcodecs.AsType("<f4", "<f8")]},
    "packed bits": {"filters": [numcodecs.PackBits()], "dtype": "|b1"},
    "big-endian": {"dtype": ">f4", "compressor": numcodecs.Zlib()},
    "big-endian, order F": {"dtype": ">i2", "order": "F"},
}
TYPES = ["|b1", "|i1", "<u2", ">i4", "<u8", "<f2", ">f8", "<c8", ">c16", "|S3", "<U4", "|V2"]
TYPES += ["<M8[ns]", ">m8[10us]"]


def zarr_v2(folder, values, **settings):
    """Write an array as zarr v2, with its chunks referenced as whole files, and read it back."""
    root = zarr.open_group(str(folder / "zarr"), mode="w", zarr_format=2)
    settings = {"compressor": None, "filters": None, "order": "C"} | settings
    compressor, order = settings.pop("compressor"), settings.pop("order")
    with zarr.config.set({"array.write_empty_chunks": True}):
        array = root.create_array(
            "v",
            shape=values.shape,
            chunks=(3,) * values.ndim,
            dtype=settings.pop("dtype", values.dtype),
            compressors=compressor,
            order=order,
            **settings,
        )
        array[...] = values
    mapper = fsspec.get_mapper(str(folder / "zarr"))
    held = {key: mapper[key].decode() for key in mapper if "/.z" in f"/{key}"}
    held |= {k: [str(folder / "zarr" / k)] for k in mapper if k not in held}
    return held, array[...]


@pytest.mark.parametrize("settings", CODECS.values(), ids=CODECS)
def test_a_codec_of_version_2_decodes_as_zarr_decodes_it(settings, tmp_path):
    values = FLOATS * 10 if "dtype" in settings else FLOATS
    held, wanted = zarr_v2(tmp_path, values.astype(settings.get("dtype", "<f8")), **settings)
    (array,) = scan(write(tmp_path, held)).arrays
    found = materialise(array)
    assert found.dtype == wanted.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("concat_dim", [None, "x", "v"])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_data_type_of_version_2_is_that_of_zarr(dtype, concat_dim, tmp_path):
    values = np.frombuffer(bytes(range(1, 1 + 7 * np.dtype(dtype).itemsize)), "u1") % 2
    if np.dtype(dtype).kind == "U":
        values = np.array(["a", "bc", "", "déf", "gh", "i", "jklm"])
    else:
        values = values.view(dtype)
    held, wanted = zarr_v2(tmp_path, values)
    held["v/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["v"]}'
    (array,) = scan(write(tmp_path, held), concat_dim=concat_dim).arrays
    found = materialise(array)
    assert found.dtype == wanted.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, wanted)
    assert array.whole == (concat_dim is not None)
    assert bool(array.labels) == (concat_dim == "v")
    assert bool(array.digest) == (concat_dim == "x")


def test_text_of_any_length(tmp_path):
    held, wanted = zarr_v2(
        tmp_path,
        np.array(["a", "", "déf", "x" * 99], object),
        dtype=str,
        filters=[numcodecs.VLenUTF8()],
    )
    held["v/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["v"]}'
    for options in ({}, {"concat_dim": "v"}):
        (array,) = scan(write(tmp_path, held), **options).arrays
        assert materialise(array).tolist() == wanted.tolist()
    assert np.frombuffer(array.labels, array.labels_dtype).tolist() == wanted.tolist()


FILLS = [
    ("<f4", "NaN", np.float32("nan")),
    ("<f8", "-Infinity", -np.inf),
    ("<f4", 1e20, np.float32(1e20)),
    ("<i2", -999, np.int16(-999)),
    ("<i4", None, 0),
    ("<i4", -5.0, -5),
    ("<f4", float("nan"), np.float32("nan")),
    ("<f8", float("inf"), np.inf),
    ("|b1", 1, True),
    ("<f8", None, 0.0),
    ("|b1", True, True),
    ("<c8", [1.0, "NaN"], complex(1, np.nan)),
]


@pytest.mark.parametrize(("dtype", "given", "wanted"), FILLS, ids=str)
def test_a_fill_value_fills_and_is_missing_as_xarray_reads_it(dtype, given, wanted, tmp_path):
    held = {
        ".zgroup": '{"zarr_format": 2}',
        "v/.zarray": zarray(dtype=dtype, fill_value=given),
        "v/.zattrs": '{"_ARRAY_DIMENSIONS": ["y", "x"]}',
    }
    (array,) = scan(write(tmp_path, held)).arrays
    np.testing.assert_array_equal(materialise(array), np.full((4, 6), wanted, dtype))
    shown = xr.open_dataset(
        fsspec.get_mapper("reference://", fo=held),
        engine="zarr",
        consolidated=False,
        mask_and_scale=False,
    )["v"].attrs.get("_FillValue")
    if np.dtype(dtype).kind in "iuf":
        assert ("_FillValue" in array.attributes.values) == (shown is not None)


# -- what is refused -------------------------------------------------------------------------------

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
        KerchunkScanner().scan(source, ScanOptions())


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


def test_an_entry_point_makes_it_chosen_by_content(target, tmp_path):
    info = tmp_path / "plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    name = "icevirt_scanners.kerchunk.scanner:KerchunkScanner"
    (info / "entry_points.txt").write_text(f"[icevirt.scanners]\nkerchunk = {name}\n")
    write(tmp_path, references(target))
    write(tmp_path, {"type": "FeatureCollection"}, "other.json")
    code = "import icevirt; print(icevirt.scan_file('refs.json'))\n"
    code += "try: icevirt.scan_file('other.json')\n"
    code += "except icevirt.errors.ScanError as error: print(error)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.stderr == ""
    found, refused = ran.stdout.splitlines()
    assert found.endswith("1 arrays, 2 references>")
    assert "JSON" in refused


def test_names_of_variables_are_taken_or_left_out(target, tmp_path):
    held = {**references(target), "w/.zarray": zarray(compressor={"id": "grib"})}
    path, scanner = write(tmp_path, held), "icevirt_scanners.kerchunk.scanner:KerchunkScanner"
    assert len(icevirt.scan_file(path, drop_variables="w", scanner=scanner).arrays) == 1
    assert icevirt.scan_file(path, variables="v", scanner=scanner).left_out == ("/w",)
    with pytest.raises(InvalidInputError, match="no such variable"):
        icevirt.scan_file(path, variables=["v", "u"], drop_variables="w", scanner=scanner)


# -- parquet ---------------------------------------------------------------------------------------


def parquet(folder, held, size):
    """Write a directory as fsspec and kerchunk do; return its metadata file."""
    import pandas as pd
    from fsspec.implementations.reference import LazyReferenceMapper

    class Arrow(LazyReferenceMapper):
        """Writes by pyarrow; fastparquet is not installed."""

        def flush(self, *args, **kwargs):
            old = pd.DataFrame.to_parquet

            def to_parquet(self, path=None, **options):
                known = {k: v for k, v in options.items() if k == "compression"}
                return old(self, path, engine="pyarrow", index=False, **known)

            pd.DataFrame.to_parquet = to_parquet
            try:
                super().flush(*args, **kwargs)
            finally:
                pd.DataFrame.to_parquet = old

    mapper = Arrow.create(str(folder / "refs"), record_size=size, engine="pyarrow")
    for key, value in held.items():
        mapper[key] = value.encode() if isinstance(value, str) else value
    mapper.flush()
    return Path(folder / "refs" / ".zmetadata")


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_parquet_directory_is_scanned_by_its_metadata(size, target, tmp_path):
    held = {
        ".zgroup": '{"zarr_format": 2}',
        "g/v/.zarray": zarray(chunks=[2, 2]),
        "g/v/.zattrs": '{"_ARRAY_DIMENSIONS": ["y", "x"]}',
    }
    wanted = np.zeros((4, 6), "i4")
    for number, (y, x) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)]):
        held[f"g/v/{y}.{x}"] = [target, 16 * number, 16]
        wanted[2 * y : 2 * y + 2, 2 * x : 2 * x + 2] = np.arange(4).reshape(2, 2) + 4 * number
    path = parquet(tmp_path, held, size)
    scanned = scan(path, allow_references_to=(str(tmp_path),))
    np.testing.assert_array_equal(materialise(scanned.array("/g/v")), wanted)
    below = scan(path, group="g", allow_references_to=(str(tmp_path),))
    np.testing.assert_array_equal(materialise(below.array("/v")), wanted)
    assert scan(path.parent, allow_references_to=(str(tmp_path),)) == scanned
    assert [file.url for file in list_sources(path.parent)] == [scanned.source.url]


def test_a_record_that_is_missing_is_told_of(target, tmp_path):
    held = {"v/.zarray": zarray(chunks=[1, 6])}
    held |= {f"v/{y}.0": [target, 24 * y, 24] for y in range(4)}
    path = parquet(tmp_path, held, 2)
    (path.parent / "v/refs.1.parq").unlink()
    scanned = scan(path, allow_references_to=(str(tmp_path),))
    assert [finding.code for finding in scanned.findings] == ["records-missing"]
    assert materialise(scanned.array("v"))[2:].tolist() == [[0] * 6] * 2
    (path.parent / "v/refs.0.parq").write_bytes(b"PAR1")
    with pytest.raises(ScanError, match="damaged"):
        scan(path, allow_references_to=(str(tmp_path),))


def test_the_metadata_of_a_zarr_store_is_no_kerchunk(tmp_path):
    path = write(tmp_path, {"metadata": {}, "zarr_consolidated_format": 1}, ".zmetadata")
    with pytest.raises(ScanError, match="damaged"), open_source(path) as source:
        KerchunkScanner().scan(source, ScanOptions())


def test_compounds_are_refused_by_name(target, tmp_path):
    held = {"c/.zarray": zarray(dtype=[["a", "<i4"], ["b", "<f8"]])}
    with pytest.raises(UnsupportedError, match="compound") as caught:
        scan(write(tmp_path, held))
    assert caught.value.facts["variable"] == "/c"
