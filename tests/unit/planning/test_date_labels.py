"""Names and attributes tell dates by formats; what a label is follows from the pattern alone."""
# ruff: noqa: DTZ001, DTZ007, PD011 - labels have no zone, and dimensions have values

import re
import time
from datetime import UTC, datetime, timedelta, timezone

import cftime
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError, InvalidInputError
from icevirt.planning.axes.dates import DateFormat, iso_dates, plain_date, show_labels
from icevirt.planning.axes.file_labels import NamePattern, is_pattern
from icevirt.planning.axes.new_dimensions import new_dimension
from icevirt.planning.combine.options import CombineOptions
from unit.planning.scanned_facts import facts_of, step


def along(labels, *names, dim="z", said=None, attrs=()):
    output = [dict(attrs[at]) if attrs else {} for at in range(len(names))]
    files = [step(name, 1.0, attrs=each) for name, each in zip(names, output, strict=True)]
    return new_dimension(facts_of(*files), dim, labels, said)


def dates(found):
    return [str(each) for each in show_labels(found.values, found.attributes).tolist()]


# -- formats -------------------------------------------------------------------------------------

DAY = [
    "%Y%m%d",
    "%Y-%m-%d",
    "%Y_%m_%d",
    "%Y.%m.%d",
    "%Y%j",
    "%Y-%j",
    "%d%b%Y",
    "%y%m%d",
    "%d.%B %Y",
]
HOUR = ["", "%H", "T%H%M", "_%H-%M-%S", "T%H%M%S%f", " %H"]
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31))


@settings(max_examples=75)
@given(TIMES, st.sampled_from(DAY), st.sampled_from(HOUR))
def test_a_date_that_a_format_writes_is_read_again(at, day, hour):
    text = at.strftime(day + hour)
    expected = datetime.strptime(text, day + hour)
    found = along(f"x_{{z:{day}{hour}}}.nc", f"x_{text}.nc")
    assert found.values.dtype == np.int64
    assert show_labels(found.values, found.attributes)[0] == np.datetime64(expected)
    also = along(f"attribute:when:{day}{hour}", "f", attrs=[{"when": text}])
    assert also.values.tolist() == found.values.tolist()


@pytest.mark.parametrize(
    ("text", "units"),
    [("%Y", "days"), ("%Y%m%d", "days"), ("%Y%j%H", "hours"), ("%Y%m%d%H%M", "minutes"),
     ("%Y%m%d%H%M%S", "seconds"), ("%Y%m%d%H%M%S%f", "microseconds")],
)  # fmt: skip
def test_the_format_and_no_value_decides_about_the_units(text, units):
    name = datetime(2000, 1, 1).strftime(text)
    found = along(f"{{z:{text}}}", name)
    assert found.attributes.values == {
        "units": f"{units} since 1970-01-01",
        "calendar": "proleptic_gregorian",
    }


@pytest.mark.parametrize(
    "text", ["%m%d", "%Y%d", "%Y%m%H", "%Y%j%d", "%Y%y", "%Y%b%m", "%Y%H", "%S"]
)
def test_a_format_tells_a_whole_date(text):
    with pytest.raises(InvalidInputError, match="date format"):
        NamePattern.of(f"{{z:{text}}}.nc")


@pytest.mark.parametrize("text", ["%Y%U", "%Q", "%Y%", "%Y%-d"])
def test_directives_that_are_not_known_are_refused(text):
    with pytest.raises(InvalidInputError, match="no directive"):
        DateFormat.of(text)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("20230229", "{z:%Y%m%d}"), ("2023366", "{z:%Y%j}"), ("20230431", "{z:%Y%m%d}"),
     ("20231301", "{z:%Y%m%d}"), ("2023000", "{z:%Y%j}"), ("00000101", "{z:%Y%m%d}"), ("2023010124", "{z:%Y%m%d%H}")],
)  # fmt: skip
def test_days_that_do_not_exist_are_no_labels(name, pattern):
    with pytest.raises(CombineError, match="does not match") as caught:
        along(pattern, "20200101", name) if len(name) == 8 else along(pattern, name)
    assert caught.value.facts["file"].endswith(name)


def test_numbers_of_one_digit_are_read_where_no_digit_touches_them():
    assert dates(along("d_{z:%Y_%m_%d}.nc", "d_2024_1_5.nc", "d_2024_11_25.nc")) == [
        "2024-01-05",
        "2024-11-25",
    ]
    with pytest.raises(CombineError, match="does not match"):
        along("d_{z:%Y%m%d}.nc", "d_202415.nc")


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "all_leap", "julian"])
def test_the_calendar_that_attrs_sets_is_that_of_the_dates(calendar):
    day = "20000230" if calendar == "360_day" else "20000301"
    found = along("{z:%Y%m%d}", day, said={"calendar": calendar})
    (made,) = cftime.num2date(found.values, found.attributes.values["units"], calendar)
    assert made.strftime("%Y%m%d") == day
    assert found.attributes.values["calendar"] == calendar


def test_the_units_that_attrs_sets_count_the_dates():
    found = along("{z:%Y%m%d}", "20000103", said={"units": "hours since 2000-01-01"})
    assert (found.values.tolist(), found.attributes.values["units"]) == (
        [48],
        "hours since 2000-01-01",
    )
    with pytest.raises(InvalidInputError, match="cannot be counted"):
        along("{z:%Y%m%d%H}", "2000010103", said={"units": "days since 2000-01-01"})
    with pytest.raises(InvalidInputError, match="units like"):
        along("{z:%Y%m%d}", "20000103", said={"units": "furlongs"})
    with pytest.raises(InvalidInputError, match="not a calendar"):
        along("{z:%Y%m%d}", "20000103", said={"calendar": "aztec"})


# -- patterns ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name", "label"),
    [
        ("{z}_{t:%Y%m}.nc", "a_r1_i1_200001.nc", "a_r1_i1"),
        ("{z:d}.nc", "0012.nc", 12),
        ("m{z:2d}{t:%Y}.nc", "m122000.nc", 12),
        ("m{z:02d}*.nc", "m122000.nc", 12),
        ("level{z:f}m.nc", "level10.50m.nc", 10.5),
        ("*_{z}.nc", "a_b_c.nc", None),
        ("run{z:d}/out_*.nc", "data/run7/out_1.nc", 7),
        ("{{{z}}}.nc", "{x}.nc", "x"),
        ("a.b+{z}.nc", "a.b+c.nc", "c"),
        ("{z}?.nc", "abc.nc", "ab"),
        ("{z}.nc", "x y%é.nc", "x y%é"),
    ],
)
def test_names_fit_patterns(pattern, name, label):
    assert is_pattern(pattern)
    if label is None:
        with pytest.raises(CombineError, match="in two ways"):
            along(pattern, name)
        return
    found = along(pattern, name)
    assert found.values.tolist() == [label]


@pytest.mark.parametrize(
    "pattern",
    [
        "{z",
        "z}",
        "{}.nc",
        "{:%Y}.nc",
        "{z:x}",
        "{z}{z}",
        "{z:d}_{z:%Y}",
        "{z:0}",
        "{{{z}}",
        "{z:{y}}",
    ],
)
def test_patterns_that_are_wrong_are_refused(pattern):
    with pytest.raises(InvalidInputError, match=r"pattern of the labels|date format"):
        NamePattern.of(pattern)


@pytest.mark.parametrize(
    "text",
    ["a,b", "regex:x{8}", "attribute:{z}", "variable:{z}", "{{z}}", "preprocess", ["{z}"], None],
)
def test_other_labels_are_no_patterns(text):
    assert not is_pattern(text)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="/\0%?#"), min_size=1),
        min_size=1,
        unique=True,
    )
)
def test_any_text_around_a_label_can_be_written(texts):
    """Braces are doubled; wildcards have no escape, and stand for themselves, too."""
    for text in texts:
        pattern = text.replace("{", "{{").replace("}", "}}") + "|{z:%Y%m%d}|"
        found = NamePattern.of(pattern).read([text + "|20240229|"], "z", calendar="standard")
        assert found.there.tolist() == [True]
        assert show_labels(found.values.values, found.values.attributes).tolist() == [
            datetime(2024, 2, 29).date()
        ]


@settings(max_examples=40)
@example("*" * 40 + "{z}" + "*" * 40)
@example("[(.*)+]{z:d}(?:a+)+$")
@given(st.text("*?{}:%Ydz/(a+)[]\\^$|.0", max_size=30))
def test_hostile_patterns_are_refused_or_quick(pattern):
    begin = time.perf_counter()
    try:
        made = NamePattern.of(pattern)
    except InvalidInputError:
        return
    for name in made.names:
        made.labels(["a" * 3000 + "0" * 3000 + "/" + "ab" * 500], name, calendar="standard")
    assert time.perf_counter() - begin < 5


def test_regular_expressions_take_linear_time():
    begin = time.perf_counter()
    with pytest.raises(CombineError, match="does not match"):
        along("regex:/(a+)+(a+)+!".replace("(a+)+", "(?:a+)+", 1), "a" * 4000)
    assert time.perf_counter() - begin < 5


def test_a_label_of_a_path_with_escapes_is_as_people_read_it():
    assert NamePattern.of("{z}.nc").labels(
        ["file:///d/a%20b.nc", "s3://d/a%20b.nc", "https://h/x.nc?v=1"], "z", calendar="standard"
    ).values.tolist() == ["a b", "a%20b", "x"]


def test_dates_in_folders_and_names_add_up():
    names = ["2024/01/d_05.nc", "2024/02/d_01.nc"]
    assert dates(along("{z:%Y}/{z:%m}/d_{z:%d}.nc", *names)) == ["2024-01-05", "2024-02-01"]
    again = ["2024/d_20240105.nc", "2023/d_20240105.nc"]
    with pytest.raises(CombineError, match="does not match") as caught:
        along("{z:%Y}/d_{z:%Y%m%d}.nc", *again)
    assert caught.value.facts["file"].endswith("2023/d_20240105.nc")


def test_a_date_between_wildcards_is_not_a_part_of_a_longer_number():
    assert dates(along("*{z:%Y%m%d}*", "v100_20240105_x.nc")) == ["2024-01-05"]
    with pytest.raises(CombineError, match="does not match"):
        along("*{z:%Y%m%d}.nc", "s120240105.nc")
    with pytest.raises(CombineError, match="in two ways"):
        along("*{z:%Y%m%d}*", "pr_20000101-20001231.nc")


# -- regular expressions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name", "shown"),
    [
        (
            "_s(%Y%j%H%M%S%f)_",
            "G16_s20240011200206_e20240011209514.nc",
            "2024-01-01 12:00:20.600000",
        ),
        (r"\.A(%Y%j)\.", "MOD13Q1.A2024001.h09v05.nc", "2024-01-01"),
        (r"(?P<t>%Y-?%m-?%d)", "x2024-0105", "2024-01-05"),
        (r"[)(]?_(?:a|b)(%Y)", "x_b2024", "2024-01-01"),
    ],
)
def test_the_group_of_a_regular_expression_may_be_a_date_format(pattern, name, shown):
    assert dates(along(f"regex:{pattern}", name)) == [shown]


def test_a_percent_sign_without_a_year_is_a_percent_sign():
    assert along("regex:/(%d.)", "%d1").values.tolist() == ["%d1"]


def test_what_re2_lacks_still_works():
    assert along(r"regex:(?<=/r)([0-9]+)(?=\.nc)", "r7.nc", "r10.nc").values.tolist() == [7, 10]


def test_digits_of_a_name_are_no_number_where_it_would_lose_some():
    names = ("20240101000000000000001", "20240101000000000000002")
    assert along("regex:/([0-9]+)$", *names).values.tolist() == list(names)
    assert along("regex:/r(.*)$", "r1_0", "r2").values.tolist() == ["1_0", "2"]
    assert along("regex:/r(.*)$", "rnan", "r2").values.tolist() == ["2", "nan"]


# -- attributes ----------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),
    st.sampled_from(["T", " "]),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
    st.sampled_from(["", "Z", " UTC", "+00:00", "-0530", "+02"]),
)
def test_iso_dates_are_read_in_utc(at, sep, timespec, zone):
    text = at.isoformat(sep, timespec)
    expected = datetime.fromisoformat(text)
    shift = {"-0530": timedelta(hours=5, minutes=30), "+02": timedelta(hours=-2)}.get(
        zone, timedelta()
    )
    found = iso_dates([text + zone])
    assert found.values.astype("datetime64[us]").tolist() == [expected + shift]


@pytest.mark.parametrize(
    "text",
    [
        "2000",
        "2000-13-01",
        "2000-01-01T24:00",
        "20000101",
        "2000-01",
        "2000-01-00",
        "",
        "x",
        "2000-01-01x",
    ],
)
def test_other_texts_are_no_dates(text):
    assert not iso_dates([text]).there.any()


def test_a_percent_sign_is_doubled():
    assert dates(along("attribute:when:%Y%%", "f", attrs=[{"when": "2024%"}])) == ["2024-01-01"]


def test_attributes_that_are_iso_dates_make_a_time_axis():
    attrs = [{"start": "2024-01-02T00:00:20.6Z"}, {"start": "2024-01-01"}]
    found = along("attribute:start", "a", "b", attrs=attrs)
    assert dates(found) == ["2024-01-01 00:00:00", "2024-01-02 00:00:20.600000"]
    assert found.attributes.values["units"] == "microseconds since 1970-01-01"
    with pytest.raises(CombineError, match="is not a date as in other files") as caught:
        along("attribute:start", "a", "b", "c", attrs=[*attrs, {"start": "unknown"}])
    assert caught.value.facts["file"].endswith("/c")
    with pytest.raises(InvalidInputError, match="beyond microseconds"):
        along("attribute:start", "a", attrs=[{"start": "2024-01-01T00:00:00.0000001"}])
    with pytest.raises(CombineError, match="is not a date like"):
        along("attribute:start:%Y%m%d", "a", "b", attrs=[{"start": "20240101"}, {"start": "x"}])


# -- lists ---------------------------------------------------------------------------------------

LISTS = {
    "datetime": [datetime(2000, 1, 2), datetime(2000, 1, 1, 6)],
    "with a zone": [
        datetime(2000, 1, 2, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(2000, 1, 1, 6, tzinfo=UTC),
    ],
    "dates beside times": [datetime(2000, 1, 2).date(), datetime(2000, 1, 1, 6)],
    "Timestamp": [pd.Timestamp("2000-01-02"), pd.Timestamp("2000-01-01T06")],
    "DatetimeIndex": pd.DatetimeIndex(["2000-01-02", "2000-01-01T06"]),
    "datetime64": np.array(["2000-01-02", "2000-01-01T06"], "datetime64[ns]"),
    "list of datetime64": [np.datetime64("2000-01-02"), np.datetime64("2000-01-01T06", "h")],
    "Series": pd.Series(pd.DatetimeIndex(["2000-01-02", "2000-01-01T06"])),
}


@pytest.mark.parametrize("listed", LISTS.values(), ids=LISTS)
def test_dates_of_all_kinds_are_listed(listed):
    held = CombineOptions(labels={"z": listed}).labels["z"]
    found = along(held, "a", "b")
    assert dates(found) == ["2000-01-02 00:00:00", "2000-01-01 06:00:00"]
    assert found.attributes.values["calendar"] == "proleptic_gregorian"


def test_dates_of_cftime_keep_their_calendar():
    listed = [cftime.DatetimeNoLeap(2000, 3, 1), cftime.DatetimeNoLeap(2000, 2, 28, 12)]
    found = along(CombineOptions(labels=listed).labels, "a", "b")
    units, calendar = (found.attributes.values[name] for name in ("units", "calendar"))
    assert cftime.num2date(found.values, units, calendar).tolist() == listed
    mixed = [cftime.DatetimeNoLeap(2000, 3, 1), cftime.Datetime360Day(2000, 2, 30)]
    with pytest.raises(InvalidInputError, match="several calendars"):
        along(CombineOptions(labels=mixed).labels, "a", "b")


@pytest.mark.parametrize(
    "value",
    [
        np.datetime64("NaT", "ns"),
        pd.NaT,
        pd.Timestamp(1),
        np.datetime64(1, "ns"),
        np.datetime64("12000-01-01"),
    ],
)
def test_times_that_are_none_or_too_fine_are_refused(value):
    with pytest.raises(InvalidInputError, match="is not a date"):
        plain_date(value)


def test_dates_beside_texts_are_refused():
    with pytest.raises(InvalidInputError, match="all dates"):
        along([datetime(2000, 1, 1), "2000-01-02"], "a", "b")


@settings(max_examples=20)
@given(st.lists(TIMES, min_size=1, max_size=6))
def test_listed_dates_keep_their_order(times):
    found = along(times, *(f"f{at}" for at in range(len(times))))
    assert found.values.astype("datetime64[us]").tolist() == list(dict.fromkeys(times))
    assert found.values[found.cell].astype("datetime64[us]").tolist() == times


def test_a_million_names_are_read_at_once():
    days = np.datetime64("1990-01-01") + np.arange(20_000)
    urls = [f"s3://archive/p_{re.sub('-', '', str(day))}_v1.nc" for day in days]
    begin = time.perf_counter()
    found = NamePattern.of("p_{z:%Y%m%d}_*.nc").labels(urls, "z", calendar="standard")
    assert (found.values.values.astype("datetime64[D]") == days).all()
    assert time.perf_counter() - begin < 2
