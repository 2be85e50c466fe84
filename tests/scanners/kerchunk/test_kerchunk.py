"""kerchunk's references scan to what the files hold that they lead to, or are refused."""

import base64
import json
import os
import pickle

import fsspec
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from kerchunk.hdf import SingleHdf5ToZarr

from icevirt.archive.scanned import Severity
from icevirt.connect.urls import file_url
from icevirt.errors import ScanError, UnsupportedError
from icevirt.objects.opening import open_source
from icevirt.objects.source_lists.listing import list_sources
from icevirt.scan.contract import ScannerOptions
from icevirt_scanners.kerchunk.scanner import KerchunkScanner
from scanners.kerchunk.kerchunk_files import parquet, references, scan, target_in, write, zarray
from scanners.materialise import Materialised, materialise

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
    values = Materialised()
    for options in ({}, {"concat_dim": concat_dim}):
        scanned = scan(refs, allow_references_to=(str(target.parent),), **options)
        with xr.open_dataset(target, decode_cf=False, engine="netcdf4") as wanted:
            assert {array.path for array in scanned.arrays} >= {f"/{n}" for n in wanted.variables}
            for array in scanned.arrays:
                if array.path[1:] in wanted.variables:
                    held = wanted[array.path[1:]]
                    if held.dtype.kind in "OSU":
                        continue  # text is distinguished in ways of their own
                    assert array.dimension_names == held.dims
                    np.testing.assert_array_equal(values(array), held.values)
                    coordinate = array.dimension_names == (concat_dim,) == (array.path[1:],)
                    assert bool(array.labels) == bool(options and coordinate)
                    follows = concat_dim in array.dimension_names
                    assert bool(array.digest) == bool(options and not follows)
        assert all(finding.code != "unverifiable" for finding in scanned.findings)


# -- every part of the format ----------------------------------------------------------------------


@pytest.fixture
def target(tmp_path):
    """A file of 24 little-endian i4, in its own directory."""
    return target_in(tmp_path)


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


def test_a_remote_target_is_unverifiable_and_reported(tmp_path):
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


@pytest.mark.parametrize("dtype", TYPES)
def test_a_data_type_of_version_2_is_that_of_zarr(dtype, tmp_path):
    values = np.frombuffer(bytes(range(1, 1 + 7 * np.dtype(dtype).itemsize)), "u1") % 2
    if np.dtype(dtype).kind == "U":
        values = np.array(["a", "bc", "", "déf", "gh", "i", "jklm"])
    else:
        values = values.view(dtype)
    held, wanted = zarr_v2(tmp_path, values)
    held["v/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["v"]}'
    path = write(tmp_path, held)
    for concat_dim in (None, "x", "v"):
        (array,) = scan(path, concat_dim=concat_dim).arrays
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


# -- parquet ---------------------------------------------------------------------------------------


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


def test_a_record_that_is_missing_is_reported(target, tmp_path):
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
        KerchunkScanner().scan(source, ScannerOptions())


def test_compounds_are_refused_by_name(target, tmp_path):
    held = {"c/.zarray": zarray(dtype=[["a", "<i4"], ["b", "<f8"]])}
    with pytest.raises(UnsupportedError, match="compound") as caught:
        scan(write(tmp_path, held))
    assert caught.value.facts["variable"] == "/c"
