"""Who decodes an array is said as the readers themselves would have it."""

import pytest
import zarr
from zarr.core.config import config
from zarr.core.dtype import data_type_registry
from zarr.storage import MemoryStore

from icevirt.archive.reports.build import Readers
from icevirt.archive.scanned import ScannedArray, ScannedFile, Severity
from icevirt.archive.sources import SourceFile
from icevirt.model import codec_packages
from icevirt.model.chunks import ChunkTable
from icevirt.planning import reader_support

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
ZLIB = {"name": "numcodecs.zlib", "configuration": {"level": 4}}
SHUFFLE = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
SHARDS = {
    "name": "sharding_indexed",
    "configuration": {
        "chunk_shape": [2],
        "codecs": [LITTLE, ZLIB],
        "index_codecs": [LITTLE, {"name": "crc32c"}],
    },
}

CASES = {
    "plain": ("float32", (LITTLE,), "zarr, GDAL"),
    "zstd": ("int16", (LITTLE, ZSTD), "zarr, GDAL"),
    "deflate of HDF5": ("int16", (LITTLE, SHUFFLE, ZLIB), "zarr"),
    "deflate in shards": ("int16", (SHARDS,), "zarr"),
    "pcodec": ("float32", ({"name": "numcodecs.pcodec"},), "zarr with pcodec"),
    "zfp": ("float32", ({"name": "numcodecs.zfpy"},), "zarr with zfpy"),
    "a codec of nobody": (
        "float32",
        (LITTLE, {"name": "odd_jpeg2k"}),
        "zarr with an extension for the codec odd_jpeg2k",
    ),
    "a codec of imagecodecs": (
        "float32",
        ({"name": "imagecodecs_jpeg2k"},),
        "zarr with imagecodecs-zarr",
    ),
    "a data type of nobody": (
        "bfloat16",
        (LITTLE,),
        "zarr with an extension for the data type bfloat16",
    ),
    "opaque": ({"name": "raw_bytes", "configuration": {"length_bytes": 3}}, ("bytes",), "zarr"),
    "bytes": (
        {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}},
        ("bytes",),
        "zarr, GDAL",
    ),
    "bytes of no length": (
        {"name": "null_terminated_bytes", "configuration": {"length_bytes": 0}},
        ("bytes",),
        "zarr",
    ),
    "text": ("string", ({"name": "vlen-utf8"},), "zarr"),
}


@pytest.mark.parametrize(("data_type", "codecs", "text"), CASES.values(), ids=CASES.keys())
def test_readers_follow_from_data_type_and_codecs(data_type, codecs, text):
    assert reader_support.readers_of(data_type, codecs).text == text


def test_the_tables_are_those_of_the_installed_zarr():
    """Names that zarr has and the tables do not would be told of as unknown, and the reverse."""
    from importlib.metadata import entry_points

    own = {entry.name for entry in entry_points(group="zarr.codecs")}
    known = {*reader_support.CORE, *(f"numcodecs.{name}" for name in reader_support.NUMCODECS)}
    known |= {*codec_packages.PACKAGES} & own
    others = own - {*codec_packages.PACKAGES}  # of packages that only tests have
    assert known == {*config.get("codecs"), *own, "cast_value", "scale_offset"} - others
    assert set(reader_support.DATA_TYPES) == set(data_type_registry.contents)


@pytest.mark.parametrize("name", reader_support.NUMCODECS)
def test_only_what_needs_a_package_fails_without_one(name):
    """The codecs are made as zarr makes them from metadata; neither package is installed here."""
    import zarr.codecs.numcodecs as theirs
    from zarr.errors import UnknownCodecError

    cls = next(
        c for c in vars(theirs).values() if getattr(c, "codec_name", "").endswith(f".{name}")
    )
    given = {
        "astype": {"encode_dtype": "<f4", "decode_dtype": "<f8"},
        "bitround": {"keepbits": 3},
        "delta": {"dtype": "<i4"},
        "fixedscaleoffset": {"offset": 0, "scale": 1, "dtype": "<f8"},
        "quantize": {"digits": 2, "dtype": "<f8"},
    }.get(name, {})
    made = cls(**given)
    if f"numcodecs.{name}" in codec_packages.PACKAGES:
        with pytest.raises(UnknownCodecError):
            made._codec  # noqa: B018
    else:
        assert made._codec


def test_a_grid_of_other_chunks_is_for_readers_that_are_reported():
    found = reader_support.readers_of("int8", ("bytes",), grid="rectilinear")
    assert found.zarr_lacks == ("the setting array.rectilinear_chunks",)
    assert found.gdal_lacks == ("rectilinear chunk grids",)


def test_metadata_as_zarr_writes_it_is_understood():
    store = MemoryStore()
    zarr.create_array(store, shape=(0, 3), chunks=(1, 3), dtype="f4")
    found = reader_support.readers_of_json(store._store_dict["zarr.json"].to_bytes())
    assert found == Readers(gdal_lacks=("arrays without elements",))


def test_lines_join_what_lacks_the_same():
    deflated = Readers(gdal_lacks=("the codec odd",))
    held = {f"/{name}": deflated for name in "abcdef"} | {
        "/x": Readers(),
        "/p": Readers(zarr_lacks=("pcodec",)),
    }
    assert list(reader_support.describe_readers(held)) == [
        "zarr-python reads /p only with pcodec",
        "GDAL 3.14 cannot read 6 of 8 arrays (/a, /b, /c, ...): it lacks the codec odd",
    ]
    assert not list(reader_support.describe_readers({"/x": Readers()}))


def test_files_of_two_kinds_are_read_by_those_who_read_both():
    one, other = Readers(zarr_lacks=("a",)), Readers(zarr_lacks=("b", "a"), gdal_lacks=("c",))
    assert one | other == Readers(zarr_lacks=("a", "b"), gdal_lacks=("c",))


def test_findings_of_a_file_warn_of_packages_and_note_gdal():
    def array(path, codec):
        return ScannedArray(
            path=path,
            dimension_names=(None,),
            shape=(4,),
            chunk_shape=(4,),
            data_type="float32",
            codecs=(LITTLE, {"name": codec}),
            fill_value=0,
            references=ChunkTable.empty(1),
        )

    made = ScannedFile(
        source=SourceFile(url="file:///a", size=1),
        scanner="x",
        scanner_version="1",
        groups=(),
        arrays=(array("/a", "zstd"), array("/b", "odd"), array("/c", "numcodecs.zlib")),
    )
    found = reader_support.findings(made)
    assert [(f.path, f.code, f.severity) for f in found] == [
        ("/b", "needs-package", Severity.warning),
        ("/", "not-for-gdal", Severity.note),
        ("/", "not-for-gdal", Severity.note),
    ]
