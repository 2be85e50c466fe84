"""What a refusal says of files that encode a variable differently, and which ways out it offers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.planning.combine.cf_packing import LostValues, decode, packing_of, repack
from icevirt.planning.normal_form import differences
from icevirt.planning.partial.mismatch import holds, in_words, other_missing
from unit.planning.scanned_facts import BYTES, ZLIB, data, plan, step

SHUFFLE = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
BIG = ({"name": "bytes", "configuration": {"endian": "big"}},)
FIELD = np.arange(600, dtype="f4").reshape(2, 300)


def v(values=FIELD, chunks=(1, 300), **more):
    return data(("time", "x"), values, chunks=chunks, **more)


def refused(*variables, **options):
    """Return the error for files with a variable each, two steps apart."""
    files = [
        step(f"f{n}", 2.0 * n, 2.0 * n + 1, t=None, v=each) for n, each in enumerate(variables)
    ]
    with pytest.raises(CombineError) as caught:
        plan(files, **options)
    return caught.value


def offered(error):
    return [" ".join(each.flags) for each in error.fixes]


WORDS = {
    "shuffle": (v(), v(codecs=(BYTES[0], SHUFFLE, ZLIB[1])), "zlib(4)", "shuffle, zlib(4)"),
    "codec": (v(), v(codecs=(*BYTES, ZSTD)), "zlib(4)", "zstd(3)"),
    "none": (v(), v(codecs=BYTES), "zlib(4)", "not compressed"),
    "byte order": (
        v(), v(codecs=(*BIG, ZLIB[1])), "little-endian, zlib(4)", "big-endian, zlib(4)",
    ),
    "classic files": (v(), v(codecs=BIG), "little-endian, zlib(4)", "big-endian, not compressed"),
    "chunks": (v(), v(chunks=(2, 150)), "chunks of 1×300", "chunks of 2×150"),
    "a fill value": (
        v(attrs={"_FillValue": np.float32(1e20)}, fill=1e20), v(attrs={"_FillValue": np.float32(-9)}),
        "_FillValue 1e+20", "_FillValue -9.0",
    ),
    "no scale": (
        v(FIELD.astype("i2"), attrs={"scale_factor": 0.1}), v(FIELD.astype("i2")),
        "scale_factor 0.1", "no scale_factor",
    ),
    "a scale of another type": (
        v(attrs={"scale_factor": np.float32(0.5)}),
        v(attrs={"scale_factor": np.float64(0.5)}),
        "scale_factor 0.5 (float32)",
        "scale_factor 0.5 (float64)",
    ),
    "a scale that is a text": (
        v(FIELD.astype("i2"), attrs={"scale_factor": np.float64(0.5)}),
        v(FIELD.astype("i2"), attrs={"scale_factor": "0.5"}),
        "scale_factor 0.5 (float64)",
        "scale_factor 0.5 (text)",
    ),
    "texts of other lengths": (
        v(np.full(FIELD.shape, b"a", "S4")),
        v(np.full(FIELD.shape, b"a", "S5")),
        "null_terminated_bytes (length_bytes 4)",
        "null_terminated_bytes (length_bytes 5)",
    ),
    "units that are a number": (
        v(attrs={"units": "1"}),
        v(attrs={"units": np.int32(1)}),
        "units 1 (text)",
        "units 1 (int32)",
    ),
    "units": (v(attrs={"units": "K"}), v(attrs={"units": "degC"}), "units K", "units degC"),
    "a type": (v(), v(FIELD.astype("f8")), "float32", "float64"),
    "never written": (v(), v(fill=3), "fill value 0", "fill value 3"),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "first", "second"), WORDS.values(), ids=WORDS.keys())
def test_both_encodings_are_reported_as_users_call_them(one, other, first, second):
    error = refused(one, one, other)
    assert error.what.startswith("/v is encoded differently in 1 of 3 files: ")
    assert (error.facts["first"], error.facts["other"]) == ("file:///data/f0", "file:///data/f2")
    assert (error.facts["first_encoding"], error.facts["other_encoding"]) == (first, second)


def test_files_that_differ_are_counted_from_the_encoding_that_most_have():
    odd = v(chunks=(2, 300))
    assert "in 1 of 4 files" in refused(odd, v(), v(), v()).what
    assert "in 2 of 4 files" in refused(odd, v(), v(chunks=(1, 100)), v()).what


def test_a_level_alone_is_no_difference():
    level = {"name": "numcodecs.zlib", "configuration": {"level": 9}}
    plan(
        [
            step("a", 0.0, 1.0, t=None, v=v()),
            step("b", 2.0, 3.0, t=None, v=v(codecs=(*BYTES, level))),
        ]
    )


OFFERED = {
    "a filter": (v(codecs=BYTES), ["--on-mismatch eras", "--on-mismatch native"]),
    "lengths of chunks": (
        v(chunks=(2, 300)),
        ["--chunk-grid rectilinear", "--on-mismatch native", "--on-mismatch eras"],
    ),
    "a missing value": (
        v(attrs={"_FillValue": np.float32(-9)}),
        ["--on-mismatch eras", "--on-mismatch native", "--float-variable /v"],
    ),
    "a scale": (
        v(FIELD.astype("i2"), attrs={"scale_factor": 0.1}),
        ["--on-mismatch eras", "--float-variable /v"],
    ),
    "a meaning": (v(attrs={"units": "degC"}), ["--attr /v:units=degC", "--on-mismatch eras"]),
}


@pytest.mark.parametrize(("other", "wanted"), OFFERED.values(), ids=OFFERED.keys())
def test_what_is_offered_works_for_these_files(other, wanted):
    error = refused(v(), v(), other)
    assert offered(error) == wanted
    # attributes are set before files are planned: archive 78 of the random ones is built with them
    options = [each.python for each in error.fixes if "--attr" not in each.flags]
    for python in options:
        files = [
            step(f"f{n}", 2.0 * n, 2.0 * n + 1, t=None, v=each)
            for n, each in enumerate((v(), v(), other))
        ]
        plan(files, **eval(python.partition("=")[2]))


def test_many_groups_are_offered_last():
    error = refused(*(v(FIELD.astype("i2"), attrs={"scale_factor": 0.1 * n}) for n in range(1, 8)))
    assert offered(error) == ["--float-variable /v", "--on-mismatch eras"]


def test_a_fix_allows_as_many_bytes_as_it_stores():
    error = refused(v(), v(codecs=BYTES), max_native_bytes=100)
    assert offered(error)[1] == "--on-mismatch native --max-native-bytes 2400"
    assert error.fixes[1].cost == "stores 2.3 KiB of values; one array for all files"


def test_too_many_bytes_are_refused_with_what_spares_them_and_what_allows_them():
    whole = v(np.arange(900, dtype="f4").reshape(3, 300), chunks=(2, 300))
    files = [step(f"f{n}", *(3.0 * n + np.arange(3)), t=None, v=whole) for n in range(3)]
    with pytest.raises(CombineError, match="more than max_native_bytes=10") as caught:
        plan(files, max_native_bytes=10)
    assert offered(caught.value) == [
        "--chunk-grid rectilinear --max-native-bytes 3600",
        "--max-native-bytes 4800",
    ]
    assert "array.rectilinear_chunks" in caught.value.fixes[0].price


def test_a_fixed_field_may_be_encoded_in_any_way():
    """It is stored once: the first file's chunks, and all others have equal values."""
    fields = [
        data(("y", "x"), FIELD, chunks=chunks, codecs=codecs, digest="same")
        for chunks, codecs in (((2, 300), BYTES), ((1, 100), ZLIB), ((2, 100), BIG))
    ]
    files = [step(f"f{n}", float(n), orog=each) for n, each in enumerate(fields)]
    made = plan(files)
    assert made.eras is None
    (array,) = (each for each in made.arrays if each.path == "/orog")
    assert array.chunk_shape == (2, 300)
    assert plan(files, on_mismatch="eras").eras is None


# -- packings that hold others ---------------------------------------------------------------------


def packing(dtype, **attrs):
    return ArraySchema(
        dimension_names=("x",), chunk_shape=(4,), data_type=dtype, codecs=BYTES, fill_value=0,
        attributes=Attributes.of(attrs),
    )  # fmt: skip


HOLDS = {
    "float64 holds float32": ("float64", {}, "float32", {}, True),
    "float32 does not hold float64": ("float32", {}, "float64", {}, False),
    "float32 holds int16": ("float32", {}, "int16", {}, True),
    "float64 does not hold int64": ("float64", {}, "int64", {}, False),
    "int16 marks no missing value": ("int16", {}, "int16", {"_FillValue": np.int16(-1)}, False),
    "another missing value": (
        "int16", {"_FillValue": np.int16(-2)}, "int16", {"_FillValue": np.int16(-1)}, True,
    ),
    "another scale": (
        "int16", {"scale_factor": 0.1}, "int16", {"scale_factor": 0.2}, False,
    ),
    "scaled floats that a mark makes of another type": (
        "float32", {"scale_factor": 0.1, "missing_value": np.float32("nan")},
        "float32", {"scale_factor": 0.1}, False,
    ),
    "a wider packed type": (
        "int32", {"scale_factor": 0.1}, "int16", {"scale_factor": 0.1}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("into", "mine", "of", "theirs", "said"), HOLDS.values(), ids=HOLDS.keys())
def test_a_packing_holds_another(into, mine, of, theirs, said):
    assert holds(packing(into, **mine), packing(of, **theirs)) is said


KINDS = ("int8", "int16", "int32", "uint8", "uint16", "float32", "float64")


@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.booleans(), st.lists(st.integers(1, 100)))
def test_what_is_said_to_hold_survives_packing(into, of, marked, numbers):
    """Unless a value is the other's missing value."""
    source = packing(of, **({"_FillValue": np.dtype(of).type(101)} if marked else {}))
    target = packing(into, **({"_FillValue": np.dtype(into).type(102)} if marked else {}))
    if not holds(target, source):
        return
    values = decode(
        np.array([*numbers, *([101] if marked else [])], of), packing_of(source.attributes)
    )
    found = repack(values, np.dtype(into), packing_of(target.attributes))
    assert not isinstance(found, LostValues)


def test_a_missing_value_that_is_a_number_elsewhere_is_a_risk():
    nan, low = (
        packing("float32", _FillValue=np.float32("nan")),
        packing("float32", _FillValue=np.float32(-9)),
    )
    assert other_missing(low, nan)
    assert not other_missing(nan, low)
    assert not other_missing(low, low)


def test_nothing_that_differs_goes_without_a_word():
    one, other = packing("float32"), packing({"name": "fixed_length_utf32"})
    unlike = differences(one.decode_signature(), other.decode_signature())
    assert in_words(one, other, unlike) == ("float32", "fixed_length_utf32")


def test_fields_of_other_types_are_named():
    kinds = (
        {"name": "struct", "configuration": {"fields": [{"name": "group", "data_type": each}]}}
        for each in ("float32", "float64")
    )
    one, other = map(packing, kinds)
    unlike = differences(one.decode_signature(), other.decode_signature())
    assert in_words(one, other, unlike) == ("struct (group: float32)", "struct (group: float64)")


def test_floats_are_offered_where_each_file_has_its_own_scale():
    """However many files there are, as after a year of packing each day."""
    scales = (v(FIELD.astype("i2"), attrs={"scale_factor": 0.1 + n / 1000}) for n in range(120))
    assert offered(refused(*scales)) == ["--float-variable /v", "--on-mismatch eras"]
