"""Reference dates of times are the dates that xarray reads, however they are spelled, or refused."""

import warnings

import cftime
import numpy as np
import pytest
import xarray as xr
from hypothesis import example, given, settings
from hypothesis import strategies as st

from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model.attributes import restore
from icevirt.planning.times.recoding import recode_times
from icevirt.planning.times.units import parse, why_unread
from unit.planning.scanned_facts import File, coord, facts_of

EPOCH = "microseconds since 1970-01-01"
CALENDARS = [None, "gregorian", "proleptic_gregorian", "noleap", "360_day", "julian", "all_leap"]

ZONES = (
    """
Z| Z|z| z|UTC| UTC| utc|GMT| GMT| (UTC)| 0| 5| 0:00| 00:00| +0:00| +00:00|+00:00|+0000| +00:00:00
 +1| +01|+01| +1:00| +01:00|+01:00| +0130| -0130|-0330| -1:30| -01:30| -00:30| -6:00| -06:00|-06:00
 -6| -12| +12:45| +15| +530| +2500| +01:99| 6:00| - 06:00| GMT+1| UTC+1| UTC+01:00| UTC-3
UTC+1|Z+01:00| local| +05:30
""".strip()
    .replace("\n", "|")
    .split("|")
)
CLOCKS = (
    """
 1:2:3| 01:02:03|T01:02:03|t01:02:03|  01:02:03| 1:2| 01:02|T01:02|T1:02| 1| 10| 06|T6|T06| 06Z|T06Z|T00Z|T00:00Z
 0600| 060000|T0600|T060000| 12 PM| 1pm| 1:00 PM| 01:00:00 PM| 12:00:00 AM| 12:00:00 PM| 13:00 PM| 00h| 6h30
 24:00:00| 00:00:60| 23:59:59| 25| 0:0| 00.00.00|,00:00:00|_00:00:00|-00:00:00| noon
 00:00:0.0| 0:0:0.0| 00:00:00.| 00:00:00.5| 00:00:00.1| 00:00:42.25| 00:00:00.000001|T00:00:00.000000000
 00:00:37.1234567| 00:00:37.1234565| 00:00:37.123456789| 00:00:00.000000001| 23:59:59.999999999
 00:00:37.1234567891| 00:00:37.12345678912345|T00:00:00.000Z|T00:00:00.000000Z|T00:00:00.000000000Z
 00:00:00.5 +01:00| 00:00:00.0 +00:00|T00:00:00.000+0000| 15:15:42.5 -6:00| 00:00:00.123456789 -06:00
 00:00:00.0000000 UTC
""".strip()
    .replace("\n", "|")
    .split("|")
)
DATES = (
    """
2000-01-01|2000-1-1|2000-1-01|2000-01-1|+2000-01-01|2000/01/01|2000/1/2|2000.01.02|2000 01 02|20000102|2000-01|2000-1|2000
2000_01_01|2000:01:01 00:00:00|2000-002|2000-366|200001|2000001|20000101T06|20000101T0600|20000101T060000Z
20000101 06:00:00|20000101 060000|2000010106|200001010600|20000101060000|2000-W01-1|2000 1 2 03:04
01-01-2000|1-1-2000|31-12-1899|12-31-1899|13-02-2000|02-13-2000|13.02.2000|15/03/2000|03/15/2000|02-02-2000
Jan 1 2000|1 Jan 2000|01-JAN-2000|1-Jan-2000 00:00:00|2000-Jan-01|2000 Jan 1|January 2, 2000|2 January 2000
Mar 3, 2000 04:05|Jan 2000|Sat Jan 1 2000|Sat, 01 Jan 2000 00:00:00 GMT|1-Jan-00|0:00 2000-01-02
1-1-1|01-01-01|1-1-1 00:00:0.0|1-1-1 00:00:00|0001-01-01|0001-01-01 00:00:00|0001-01-01T00:00:00Z|1/1/1|0001/01/01
00010101|0-1-1|00-01-01|0000-01-01|99-01-01|70-01-01|800-01-01|1000-01-01|1500-01-01|1500-02-29|1582-10-04|1582-10-10
1582-10-14|1582-10-15|1600-01-01|1677-09-21|1677-09-22|1858-11-17|1858-11-17 00:00:00 UTC|2262-04-09|2262-04-12
2300-01-01|9999-12-31|10000-01-01|12000-01-01|-1-01-01|-4713-01-01 12:00:00|-4712-01-01 12:00:00|1582|100
2000-02-29|2000-02-30|2001-02-29|1900-02-29|1970-13-01|2000-00-01|2000-1-0|0000-00-00|2000-04-31
now|today|12:30|yesterday|2000-06-15 now|'1970-01-01'|"1970-01-01"|(1970-01-01)|19000101.5|1900-1-1 0:0:0 0
2000-01-01-06:00|2000-01-01+06:00|2000-01-01 +05:30|2000-01-01 UTC|2000-01-01Z|2000-01-01 (UTC)|2000-01-01 00:00 UTC
""".strip()
    .replace("\n", "|")
    .split("|")
)
SPELLINGS = [
    *DATES,
    *(f"2000-01-02{each}" for each in CLOCKS),
    *(f"2000-01-02 00:00:00{each}" for each in ZONES),
    *(f"1992-10-8 15:15{each}" for each in ZONES),
]

UNCLEAR = {  # what xarray reads, and nobody should rely on
    "01-02-2000": "day or the month",
    "1/2/2000": "day or the month",
    "02.03.2000 12:00": "day or the month",
    "7-6-1999 00:00:00 UTC": "day or the month",
    "2000-01-01 00:00:00 EST": "EST",
    "2000-01-01 00:00:00 CET": "CET",
    "2000-01-01 00:00:00 TAI": "TAI",
    "2000-01-01 00:00:00,5": "comma",
    "20000101 060000,5": "comma",
    "2000-01-01T00:00:00\N{MINUS SIGN}06:00": "no date",
    "2000-01-01 " + 80 * "0": "no date",
}


def decoded(values, attrs):
    """Return what xarray decodes: whole nanoseconds, or dates of cftime; None where it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = xr.Variable("time", values, attrs)
        try:
            return xr.coders.CFDatetimeCoder(time_unit="ns").decode(raw).values
        except ValueError:
            return None


def ours(values, units):
    """Return the same from what we read."""
    whole = values * units.step
    if units.is_fine:
        return (units.origin * 1000 + units.nanosecond + whole).astype("M8[ns]")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the year 0
        return cftime.num2date(units.origin + whole // 1000, EPOCH, units.calendar)


def attributes(units, calendar):
    return {"units": units} if calendar is None else {"units": units, "calendar": calendar}


def agrees(unit, spelling, calendar):
    """Say whether a reference is read as xarray reads it; where it is refused, that is said."""
    attrs = attributes(f"{unit} since {spelling}", calendar)
    units, values = parse(attrs["units"], calendar), np.array([0, 2])
    theirs = decoded(values, attrs)
    if units is None:
        assert why_unread(attrs)
        return theirs is None
    assert why_unread(attrs) is None
    assert theirs is not None, (attrs, units)
    mine = ours(values, units)
    if mine.dtype != theirs.dtype:  # of cftime, and in the reach of nanoseconds
        mine = np.array([each.isoformat() for each in mine], "M8[ns]")
    assert mine.tolist() == theirs.tolist(), (attrs, units)
    return True


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("unit", ["days", "hrs", "Seconds", "nanoseconds"])
def test_every_spelling_is_the_date_that_xarray_reads(unit, calendar):
    assert len(set(SPELLINGS)) > 250
    refused = [each for each in SPELLINGS if not agrees(unit, each, calendar)]
    # where xarray asks cftime, which takes the day for the year
    assert [each for each in refused if len(each.split()[0].split("-")[-1]) != 4] == []
    if unit == "days" and calendar in CALENDARS[:3]:
        assert refused == []


@pytest.mark.parametrize(("spelling", "why"), UNCLEAR.items())
@pytest.mark.parametrize("calendar", CALENDARS)
def test_what_depends_on_more_than_the_file_is_refused_by_name(spelling, why, calendar):
    attrs = attributes(f"days since {spelling}", calendar)
    assert parse(attrs["units"], calendar) is None
    assert why in why_unread(attrs)


@pytest.mark.parametrize("spelling", ["2000-01-01 00:00.5", "1970-3-29t12:00:0.123z"])
def test_a_fraction_that_only_some_versions_of_pandas_read_is_never_dropped(spelling):
    units = parse(f"days since {spelling}")
    if units is None:
        assert "fraction" in why_unread({"units": f"days since {spelling}"})
    else:
        assert (units.origin % 1_000_000, units.is_one) == (123_000, False)


UNITS = (
    "days since 2000-01-02| days  since  2000-01-02 |days\tsince\t2000-01-02|days since\t2000-01-02 06Z"
    "|Days since 2000-01-02|D since 2000-01-02|H since 2000-01-02|MIN since 2000-01-02|us since 2000-01-02"
    "|m since 2000-01-02|ns since 2000-01-02|ms since 2000-01-02|weeks since 2000-01-02"
    "|months since 2000-01-02|years since 2000-01-02|common_years since 2000-01-02"
    "|nanosecond since 2000-01-02|microsecs since 2000-01-02|days since 2000-01-02 since 2001-01-01"
    "|dayssince 2000-01-02|days since2000-01-02|growing seasons since 2000-01-02|days since"
).split("|")


@pytest.mark.parametrize(
    "calendar", [*CALENDARS, "", "none", "utc", "tai", "THIRTY_DAY_MONTHS", "NoLeap"]
)
@pytest.mark.parametrize("units", UNITS)
def test_units_and_calendars_are_those_of_xarray(units, calendar):
    attrs = attributes(units, calendar)
    mine, theirs = parse(units, calendar), decoded(np.array([0, 2]), attrs)
    assert (mine is None) == (theirs is None)
    if mine is not None:
        assert mine.is_fine == (units.lower().split()[0] in {"days", "nanosecond"} and "\t" not in
                                units and mine.calendar in {"standard", "proleptic_gregorian"}
                                and units.count("since") == 1)  # fmt: skip


@pytest.mark.parametrize("word", ["SINCE", "Since", "sInCe"])
def test_since_is_read_in_any_case_as_cftime_does(word):
    """xarray leaves such numbers as they are, so that only a conversion reads them."""
    assert parse(f"days {word} 2000-01-02") == parse("days since 2000-01-02")
    assert parse("days since 2000-01-02").text == "days since 2000-01-02"


digits = st.sampled_from(["{}", "{:02d}"])
dates = st.builds(
    lambda form, sep, month, day, y, m, d: form.format(
        y=y, m=month.format(m), d=day.format(d), s=sep
    ),
    st.sampled_from(["{y}{s}{m}{s}{d}"] * 4 + ["{d}{s}{m}{s}{y}", "{m}{s}{d}{s}{y}", "{y}{m}{d}"]),
    st.sampled_from(["-", "-", "-", "/", ".", " "]),
    digits,
    digits,
    st.sampled_from([1, 99, 1500, 1582, 1600, 1677, 1700, 1858, 1970, 2000, 2261, 2300, 9999]),
    st.integers(1, 12),
    st.integers(1, 31),
)
clocks = st.builds(
    lambda sep, form, hour, two, h, m, s, fraction: (
        sep + form.format(h=hour.format(h), m=two.format(m), s=two.format(s), f=fraction)
    ),
    st.sampled_from([" ", " ", "T", "t", "  ", "_", "-"]),
    st.sampled_from(["{h}:{m}:{s}{f}"] * 3 + ["{h}:{m}", "{h}{m}{s}{f}", "{h}", "{h}:{m}{f}"]),
    digits,
    digits,
    st.sampled_from([0, 1, 6, 12, 23, 24]),
    st.sampled_from([0, 30, 59, 60]),
    st.sampled_from([0, 7, 59, 60]),
    st.sampled_from(["", "", ".", ".0", ".5", ".123", ".123456", ".123456789", ".12345678901"]),
)
spellings = st.builds(
    "{}{}{}".format,
    dates,
    st.one_of(st.just(""), clocks),
    st.one_of(st.just(""), st.sampled_from([*ZONES, " AM", " pm", " EST", "+5"])),
)


@given(spellings, st.sampled_from(CALENDARS), st.sampled_from(["days", "hours", "secs"]))
@settings(max_examples=300, deadline=None)
@example("1992-10-8 15:15:42.5 -6:00", None, "days")
@example("1970-3-29t12:00:0.123z", None, "days")  # pandas 2 reads no fraction
def test_any_spelling_is_refused_or_the_date_that_xarray_reads(spelling, calendar, unit):
    agrees(unit, spelling, calendar)


@given(st.lists(st.tuples(spellings, st.integers(-40_000, 40_000)), min_size=2, max_size=3),
       st.sampled_from(["i4", "f8"]), st.sampled_from(["days", "hours"]))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_times_that_are_converted_decode_as_from_their_files(found, kind, unit):
    own = [{"units": f"{unit} since {spelling}"} for spelling, _ in found]
    values = [np.array([0, number], kind) for _, number in found]
    files = [
        File(f"f{n}", {"time": coord("time", numbers, **attrs)})
        for n, (numbers, attrs) in enumerate(zip(values, own, strict=True))
    ]
    try:
        facts, done = recode_times(facts_of(*files), ["time"])
    except CombineError as error:
        assert error.facts["file"].startswith("file:///data/f")  # noqa: PT017
        return
    if not done:
        assert len({*map(str, own)}) == 1 or any(map(why_unread, own))
        return
    schema = ArraySchema.loads(facts.arrays.schema[0])
    attrs = restore(schema.attributes.values, schema.attributes.dtypes)
    for row, (numbers, theirs) in enumerate(zip(values, own, strict=True)):
        held = decoded(facts.arrays.labels.at(row), attrs)
        wanted = decoded(numbers, theirs)
        assert [str(each) for each in held] == [str(each) for each in wanted], (attrs, theirs)


def test_a_file_that_xarray_counts_from_two_dates_is_refused_by_name():
    """CF's zone without a zero: by pandas, and by cftime once a time is after 2262."""
    files = [
        File(
            f"f{n}",
            {"time": coord("time", [0, last], units=f"days since 2000-01-0{n + 1} 00:00 -6:00")},
        )
        for n, last in enumerate([10, 20, 200_000])
    ]
    with pytest.raises(CombineError, match="200000 is a date before 1677 or after 2262") as no:
        recode_times(facts_of(*files), ["time"])
    assert no.value.facts["file"].endswith("f2")
    assert no.value.facts["variable"] == "/time"
