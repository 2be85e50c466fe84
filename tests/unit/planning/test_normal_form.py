"""What files say of decoding is one, where xarray decodes one from it, however it is spelled."""

import itertools
import warnings

import numpy as np
import pytest
import xarray as xr
from xarray.conventions import decode_cf_variable

from icevirt.archive.schema import ArraySchema
from icevirt.model.attributes import Attributes
from icevirt.planning.normal_form import differences, file_signature, normalize

f4, f8, i1, i2, i4, u1 = np.float32, np.float64, np.int8, np.int16, np.int32, np.uint8
DAYS = "days since 2000-01-01"


def schema(kind, attrs):
    return ArraySchema(
        dimension_names=("x",), chunk_shape=(4,), data_type=kind, codecs=(), fill_value=0,
        attributes=Attributes.of(attrs),
    )  # fmt: skip


def said(kind, attrs):
    return schema(kind, attrs).decode_signature()


def signature_of(kind, attrs):
    return file_signature((("/v", schema(kind, attrs).dumps()),))


NOLEAP, ALL_LEAP = {"calendar": "noleap"}, {"calendar": "all_leap"}
ALIKE = {
    "noleap is 365_day": ("float64", {"units": DAYS} | NOLEAP, {"units": DAYS, "calendar": "365_day"}),
    "in capitals": ("float64", {"units": DAYS} | NOLEAP, {"units": DAYS, "calendar": "NoLeap"}),
    "all_leap is 366_day": ("int32", {"units": DAYS} | ALL_LEAP, {"units": DAYS, "calendar": "366_day"}),
    "of bounds, which have no units": ("float64", NOLEAP, {"calendar": "365_day"}),
    "standard is gregorian": ("int32", {"units": DAYS, "calendar": "standard"}, {"units": DAYS, "calendar": "gregorian"}),
    "standard is meant where none is named": ("int32", {"units": DAYS, "calendar": "standard"}, {"units": DAYS}),
    "a reference date with its clock": ("float64", {"units": DAYS}, {"units": "days since 2000-1-1 00:00:00"}),
    "another zone's date": ("float64", {"units": "hours since 2000-01-01"}, {"units": "hours since 2000-01-01 02:00:00 +02:00"}),
    "one day, two units": ("float64", {"units": DAYS}, {"units": "Days since 2000-01-01"}),
    "missing_value beside an equal _FillValue": ("float32", {"_FillValue": f4(1e20)}, {"_FillValue": f4(1e20), "missing_value": f4(1e20)}),
    "missing_value in the place of _FillValue": ("int16", {"_FillValue": i2(-9)}, {"missing_value": i2(-9)}),
    "an equal missing_value of another type": ("int16", {"_FillValue": i2(-9)}, {"_FillValue": i2(-9), "missing_value": f8(-9)}),
    "a list of one": ("int16", {"missing_value": np.array([-9], "i2")}, {"missing_value": i2(-9)}),
    "a list that repeats _FillValue": ("int16", {"_FillValue": i2(-9), "missing_value": i2(-8)}, {"missing_value": np.array([-8, -9], "i2")}),
    "NaN of floats": ("float32", {}, {"_FillValue": f4("nan")}),
    "NaN of doubles, by another name": ("float64", {"_FillValue": f8("nan")}, {"missing_value": f8("nan")}),
    "NaN beside a number": ("float64", {"_FillValue": f8(-1)}, {"_FillValue": f8("nan"), "missing_value": f8(-1)}),
    "NaN of integers": ("int32", {}, {"_FillValue": f8("nan")}),
    "NaN beside a number of integers": ("int32", {"missing_value": i4(7)}, {"_FillValue": f8("nan"), "missing_value": i4(7)}),
    "packed, too": ("int16", {"scale_factor": f4(0.5), "_FillValue": i2(-9)}, {"scale_factor": f4(0.5), "_FillValue": i2(-9), "missing_value": i2(-9)}),
    "packed, in its place": ("int16", {"scale_factor": f4(0.5), "_FillValue": i2(-9)}, {"scale_factor": f4(0.5), "missing_value": i2(-9)}),
    "signed integers that say so": ("int8", {}, {"_Unsigned": "false"}),
    "unsigned integers that say so": ("uint8", {"_FillValue": u1(255)}, {"_FillValue": u1(255), "_Unsigned": "true"}),
    "north": ("float64", {"units": "degrees_north"}, {"units": "degreeN"}),
    "east": ("float32", {"units": "degree_east"}, {"units": "degrees_E"}),
}  # fmt: skip
UNLIKE = {
    "noleap is no all_leap": ("float64", {"units": DAYS} | NOLEAP, {"units": DAYS} | ALL_LEAP, {"calendar"}),
    "before 1582": ("float64", {"units": DAYS}, {"units": DAYS, "calendar": "proleptic_gregorian"}, {"calendar"}),
    "another calendar and another date": (
        "float64", {"units": DAYS} | NOLEAP, {"units": "days since 2001-01-01", "calendar": "360_day"}, {"units", "calendar"},
    ),
    "another date, and a calendar by another name": (
        "float64", {"units": DAYS} | NOLEAP, {"units": "days since 2001-01-01", "calendar": "365_day"}, {"units"},
    ),
    "times that xarray does not see": ("float64", {"units": DAYS}, {"units": DAYS.upper()}, {"units"}),
    "other units": ("float32", {"units": "K"}, {"units": "degC"}, {"units"}),
    "north is no east": ("float32", {"units": "degrees_north"}, {"units": "degrees_east"}, {"units"}),
    "a name that no reader knows": ("float64", {"units": DAYS, "calendar": "mine"}, {"units": DAYS, "calendar": "yours"}, {"calendar"}),
    "another _FillValue": ("float32", {"_FillValue": f4(1e20)}, {"_FillValue": f4(-9)}, {"_FillValue"}),
    "another missing_value": ("float32", {"missing_value": f4(1e20)}, {"missing_value": f4(-9)}, {"missing_value"}),
    "one more missing_value": (
        "float32", {"_FillValue": f4(1e20)}, {"_FillValue": f4(1e20), "missing_value": f4(-9)}, {"missing_value"},
    ),
    "a double that is no single": ("float32", {"_FillValue": f4(1e20)}, {"_FillValue": f4(1e20), "missing_value": f8(1e20)}, {"missing_value"}),
    "none": ("int16", {"_FillValue": i2(-9)}, {}, {"_FillValue"}),
    "NaN of packed floats": ("float32", {"scale_factor": f8(2)}, {"scale_factor": f8(2), "_FillValue": f4("nan")}, {"_FillValue"}),
    "a scale of another type": ("int16", {"scale_factor": f4(2)}, {"scale_factor": f8(2)}, {"scale_factor"}),
    "unsigned": ("int8", {}, {"_Unsigned": "true"}, {"_Unsigned"}),
    "unsigned, and missing by another name": (
        "int8", {"_Unsigned": "true", "_FillValue": i1(-1)}, {"_Unsigned": "true", "missing_value": i1(-1)}, {"_FillValue", "missing_value"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_only_spelled_otherwise_is_no_difference(name):
    kind, one, other = ALIKE[name]
    assert differences(said(kind, one), said(kind, other)) == {}
    assert signature_of(kind, one) == signature_of(kind, other)


@pytest.mark.parametrize("name", UNLIKE)
def test_what_decodes_otherwise_is_named_as_files_say_it(name):
    kind, one, other, names = UNLIKE[name]
    found = differences(said(kind, one), said(kind, other))
    assert found.keys() == {f"attribute {each}" for each in names}
    for each, pair in found.items():
        assert pair == (said(kind, one).get(each), said(kind, other).get(each))
    assert signature_of(kind, one) != signature_of(kind, other)


def test_text_is_compared_as_it_stands():
    one, other = ({"_FillValue": each} for each in ("-9", "-9.0"))
    assert differences(said("float32", one), said("float32", other))
    assert not differences(said("string", one), said("string", one))


NUMBERS = {
    "float32": np.array([0, 1.5, -9, -8, np.nan, 1e20, 255], "f4"),
    "float64": np.array([0, 1.5, -9, -8, np.nan, 1e20, 255], "f8"),
    "int16": np.array([0, 1, -9, -8, 255, 366], "i2"),
    "int8": np.array([0, 1, -9, -8, -1, 127], "i1"),
    "uint8": np.array([0, 1, 247, 248, 255], "u1"),
    "int64": np.array([0, 1, -9, -8, 255, 2**60], "i8"),
}
MARKS = [
    {}, *({name: value} for name in ("_FillValue", "missing_value") for value in (
        f4("nan"), f8("nan"), f4(-9), f8(-9), i2(-9), f8(1e20), f4(1e20), np.array([-9, -8], "i2"),
        np.array([-9, np.nan]), u1(255), i1(-1),
    )),
    {"_FillValue": i2(-9), "missing_value": i2(-9)}, {"_FillValue": i2(-9), "missing_value": i2(-8)},
    {"_FillValue": f4("nan"), "missing_value": f8(-9)}, {"_FillValue": f8(-9), "missing_value": f8("nan")},
]  # fmt: skip
SCALES = [{}, {"scale_factor": f4(0.5)}, {"scale_factor": f8(0.1)}, {"add_offset": f4(3)},
          {"scale_factor": f4(0.5), "add_offset": f4(1)}]  # fmt: skip
SIGNS = [{}, {"_Unsigned": "true"}, {"_Unsigned": "false"}]
TIMES = [
    {"units": units, **calendar}
    for units in (DAYS, "days since 2000-1-1 00:00", DAYS.upper(), DAYS.title(), "hours since 2000-01-01", "hours", "degrees_north")
    for calendar in ({}, *({"calendar": each} for each in (
        "standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "all_leap", "366_day", "360_day",
    )))
]  # fmt: skip


def decoded(kind, attrs):
    """Return the type and the values that xarray makes of some numbers; why, where it makes none."""
    held = xr.Variable(("x",), NUMBERS[kind], attrs)
    if "since" in str(attrs.get("units")):
        held = held[np.abs(np.nan_to_num(NUMBERS[kind].astype("f8"))) < 1e4]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = decode_cf_variable("v", held, decode_timedelta=True)
            return str(found.dtype), list(map(repr, np.asarray(found.values).tolist()))
        except Exception as error:  # noqa: BLE001 - whatever xarray does not decode
            return type(error).__name__


@pytest.mark.parametrize("kind", NUMBERS)
def test_normal_forms_that_are_equal_decode_to_equal_values(kind):
    attributes = [
        {**marks, **scale, **sign} for marks, scale, sign in itertools.product(MARKS, SCALES, SIGNS)
    ] + [{**time, **marks} for time, marks in itertools.product(TIMES, MARKS[::5])]
    known: dict[str, tuple] = {}
    joined = 0
    for attrs in attributes:
        key = repr(sorted(normalize(said(kind, attrs)).items()))
        if key in known:
            joined += 1
            assert decoded(kind, attrs) == known[key][0], (attrs, known[key][1])
        else:
            known[key] = decoded(kind, attrs), attrs
    assert joined > len(attributes) // 4  # else the forms are not looked at
