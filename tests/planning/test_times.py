"""Files that count time from different dates become one dataset with the same times, or none."""

import warnings

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import verified
from icevirt.errors import CombineError
from long_forms import crossed

pytestmark = pytest.mark.ci


def write_month(
    path,
    month,
    *,
    units,
    dtype="f8",
    calendar="standard",
    bounds=False,
    steps=4,
    fill=None,
    chunked=False,
):
    """Write six-hourly values that begin with the month; time counts in ``units``."""
    start = netCDF4.num2date(0, f"hours since 2001-{month:02d}-01", calendar)
    hours = netCDF4.date2num(start, "hours since 2001-01-01", calendar) + 6 * np.arange(steps)
    raw = netCDF4.date2num(
        netCDF4.num2date(hours, "hours since 2001-01-01", calendar), units, calendar
    )
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createDimension("nv", 8 if chunked else 2)
        time = file.createVariable("time", dtype, ("time",), fill_value=fill)
        time.units, time.calendar = units, calendar
        time[:] = raw
        if bounds:
            time.bounds = "time_bnds"
            edges = file.createVariable(
                "time_bnds", dtype, ("time", "nv"), chunksizes=(1, 8) if chunked else (512, 2)
            )
            edges[:] = np.asarray(raw)[:, None] + np.linspace(0.0, 0.25, 8 if chunked else 2)
        field = file.createVariable("v", "f4", ("time", "x"), chunksizes=(1, 3), zlib=True)
        field[:] = np.arange(steps * 3).reshape(steps, 3) + 100 * month


@pytest.fixture
def build(tmp_path, in_process):
    """Write files by month and keyword arguments, build, open: (ours, xarray's own, report)."""

    def run(*months, **common):
        files = []
        for number, more in enumerate(months, 1):
            files.append(str(tmp_path / f"m{number}.nc"))
            write_month(files[-1], number, **{**common, **more})
        repo = str(tmp_path / "repo")
        report = icevirt.build(files, repo, concat_dim="time")
        coder = xr.coders.CFDatetimeCoder(time_unit="us")
        ours = xr.open_dataset(
            repo,
            engine="icevirt",
            decode_times=coder,
            authorize_virtual_chunk_access=report.containers,
        )
        theirs = xr.open_mfdataset(
            files, combine="nested", concat_dim="time", decode_times=coder, data_vars="minimal",
            coords="minimal", compat="override",
        )  # fmt: skip
        verified(repo, report.containers)
        return ours, theirs, report

    return run


COUNTED = [
    ["hours since 2001-01-01", "hours since 2001-02-01", "hours since 2001-03-01"],
    ["hours since 2001-01-01", "minutes since 2001-01-15 12:00", "seconds since 1999-01-01"],
]


@pytest.mark.parametrize(
    ("calendar", "units", "dtype"),
    crossed(["standard", "noleap", "360_day", "standard"], COUNTED, ["f8", "i4"]),
)
def test_times_are_those_that_xarray_decodes_from_the_files(build, units, calendar, dtype):
    ours, theirs, report = build(
        *({"units": each} for each in units), calendar=calendar, dtype=dtype
    )
    assert ours.time.values.tolist() == theirs.time.values.tolist()
    assert len(set(ours.time.values.tolist())) == 12
    np.testing.assert_array_equal(ours.v.values, theirs.v.values)
    assert any("time units converted" in text for text in report.findings)


def test_bounds_count_as_their_coordinate(build):
    ours, theirs, _ = build(
        {"units": "days since 2001-01-01"}, {"units": "days since 2001-02-01"}, bounds=True
    )
    assert ours.time_bnds.values.tolist() == theirs.time_bnds.values.tolist()


def test_bounds_that_are_referenced_are_refused(build):
    with pytest.raises(CombineError, match="time_bnds"):
        build(
            {"units": "days since 2001-01-01"},
            {"units": "days since 2001-02-01"},
            bounds=True,
            chunked=True,
            steps=100,
        )


def test_other_spellings_of_one_count_are_one(build):
    ours, theirs, _ = build(
        {"units": "days since 2001-1-1", "calendar": "standard"},
        {"units": "days since 2001-01-01 00:00:00", "calendar": "gregorian"},
    )
    assert ours.time.values.tolist() == theirs.time.values.tolist()


def test_files_are_ordered_by_the_times_they_mean(tmp_path, in_process):
    files = [str(tmp_path / name) for name in ("b.nc", "a.nc")]
    write_month(files[0], 2, units="hours since 2001-02-01")  # counts from 0
    write_month(files[1], 1, units="hours since 2000-01-01")  # counts from 8784
    report = icevirt.build(files, str(tmp_path / "repo"), concat_dim="time")
    ours = xr.open_dataset(
        tmp_path / "repo", engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    assert ours.v.values[0, 0] == 100
    assert ours.indexes["time"].is_monotonic_increasing


@pytest.mark.parametrize(
    ("months", "words"),
    [
        (
            [
                {"units": "days since 2001-01-01"},
                {"units": "days since 2001-02-01", "calendar": "noleap"},
            ],
            "calendar",
        ),
        ([{"units": "days since 2001-01-01"}, {"units": "K"}], "units"),
    ],
)
def test_what_counts_something_else_is_refused(tmp_path, months, words, in_process):
    files = []
    for number, how in enumerate(months, 1):
        files.append(str(tmp_path / f"{number}.nc"))
        write_month(files[-1], number, **{**how, "units": "days since 2001-01-01"})
        with netCDF4.Dataset(files[-1], "r+") as file:
            file["time"].units = how["units"]
    with pytest.raises(CombineError, match=words):
        icevirt.build(files, str(tmp_path / "repo"), concat_dim="time")


def test_a_time_that_no_integer_can_count_is_refused(tmp_path, in_process):
    """Nanoseconds reach 292 years far."""
    files = [str(tmp_path / f"{number}.nc") for number in (1, 2)]
    write_month(files[0], 1, units="days since 1601-01-01", dtype="i4")
    with netCDF4.Dataset(files[0], "r+") as file:
        file["time"][:] += 300 * 366
    write_month(files[1], 2, units="milliseconds since 2001-01-01", dtype="i8", steps=1)
    with netCDF4.Dataset(files[1], "r+") as file:
        file["time"].units = "nanoseconds since 2001-01-01"
    with pytest.raises(CombineError, match="no exact value"):
        icevirt.build(files, str(tmp_path / "repo"), concat_dim="time")


def test_files_that_come_later_change_no_time_that_was_built(tmp_path, in_process):
    """One step a file, as xarray writes them: the type stays, and the unit may be finer."""
    files, repo = [], str(tmp_path / "repo")
    coder, shown = xr.coders.CFDatetimeCoder(time_unit="ns"), []
    for number, time in enumerate(np.arange("2001-01-01", "2001-01-02", 6, dtype="M8[h]")):
        files.append(str(tmp_path / f"s{number}.nc"))
        xr.Dataset(
            {"v": (("time", "x"), np.full((1, 3), number, "f4"))}, {"time": [time.astype("M8[ns]")]}
        ).to_netcdf(files[-1])
        report = icevirt.build(files, repo, concat_dim="time", mode="w" if number else "w-")
        ours = xr.open_dataset(
            repo, engine="icevirt", decode_times=coder,
            authorize_virtual_chunk_access=report.containers,
        )  # fmt: skip
        shown.append((ours.time.encoding["dtype"], ours.time.encoding["units"]))
        assert ours.time.values.tolist() == [
            xr.open_dataset(file, decode_times=coder).time.values[0].item() for file in files
        ]
    hours = "hours since 2001-01-01 00:00:00"
    assert shown == [(np.int64, "days since 2001-01-01 00:00:00"), *[(np.int64, hours)] * 3]


# -- however reference dates are spelled ---------------------------------------------------------

NANOSECONDS = xr.coders.CFDatetimeCoder(time_unit="ns")


def build_pair(folder, pairs, kind="f8", *, appends=False):
    """Build files of units and numbers: (times as xarray reads each file, ours, the report)."""
    files = []
    for number, (units, values, *calendar) in enumerate(pairs):
        files.append(str(folder / f"f{number}.nc"))
        attrs = {"units": units, **({"calendar": calendar[0]} if calendar else {})}
        held = xr.Dataset(
            {"v": (("time", "x"), np.full((len(values), 2), number, "f4"))},
            {"time": ("time", np.asarray(values, kind), attrs)},
        )
        held.to_netcdf(files[-1], unlimited_dims=["time"])
    repo = str(folder / "repo")
    report = icevirt.build(files[:1] if appends else files, repo, concat_dim="time")
    if appends:
        report = icevirt.append(files[1:], repo)
    verified(repo, report.containers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xarray's, of dates that cftime reads
        theirs = [xr.open_dataset(file, decode_times=NANOSECONDS).time.values for file in files]
        with xr.open_dataset(
            repo,
            engine="icevirt",
            decode_times=NANOSECONDS,
            authorize_virtual_chunk_access=report.containers,
        ) as ours:
            return np.concatenate(theirs), ours.time.values, report


SPELLED = {
    "zones of winter and summer": [
        ("hours since 2019-01-01 00:00:00 -6:00", [0, 1, 2]),
        ("hours since 2019-07-01 00:00:00 -5:00", [0, 1, 2]),
    ],
    "the example of CF, and with a zero": [
        ("seconds since 1992-10-8 15:15:42.5 -6:00", [0, 1, 2]),
        ("seconds since 1992-10-9 15:15:42.5 -06:00", [0, 1, 2]),
    ],
    "a zone, then none": [
        ("hours since 2019-01-01 00:00:00 -6:00", [0, 1, 2]),
        ("hours since 2019-01-02 00:00:00", [0, 1, 2]),
    ],
    "days before years": [("days since 01-01-2000", [0, 1]), ("days since 2000-01-04", [0, 1])],
    "days that are no months": [("days since 30-12-1899", [0, 1]), ("days since 31-12-1899", [4])],
    "an hour and Z": [
        ("hours since 2000-01-01 06Z", [0, 1, 2]),
        ("hours since 2000-01-02 18Z", [0, 1, 2]),
    ],
    "halves of days": [
        ("hours since 2000-01-01 12:00:00 AM", [0, 1, 2]),
        ("hours since 2000-01-01 12:00:00 PM", [0, 1, 2]),
    ],
    "slashes, and no separators": [("days since 2000/01/01", [0]), ("days since 20000201", [0])],
    "names of months": [("days since Jan 1 2000", [0, 1]), ("hours since 3-FEB-2000", [0, 1])],
    "nanoseconds": [
        ("seconds since 2022-11-12 00:00:37.123456789", [0, 1, 2]),
        ("seconds since 2022-11-12 01:00:37.123457122", [0, 1, 2]),
    ],
    "nanoseconds, then none": [
        ("seconds since 2022-11-12 00:00:37", [0, 1, 2]),
        ("seconds since 2022-11-12 01:00:37.000000789", [0, 1, 2]),
    ],
    "the year 1, of GrADS": [
        ("days since 1-1-1 00:00:0.0", [738_841, 738_842]),
        ("days since 2-1-1 00:00:0.0", [738_843, 738_844]),
    ],
    "nanoseconds cannot reach 1601": [
        ("days since 1601-01-01", [146_097]), ("nanoseconds since 2001-01-01", [86_400 * 10**9]),
    ],
    "cftime ignores the zone": [
        ("hours since 2019-01-01 00:00:00 -6:00", [0, 1], "noleap"),
        ("hours since 2019-01-02 00:00:00 -06:00", [0, 1], "noleap"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("spelled", "kind", "appends"), crossed(SPELLED, ["f8", "i8"], [False, True])
)
def test_times_are_those_of_their_files_however_the_dates_are_spelled(
    tmp_path, in_process, spelled, kind, appends
):
    theirs, ours, report = build_pair(tmp_path, SPELLED[spelled], kind, appends=appends)
    assert ours.tolist() == theirs.tolist()
    assert appends or any("every value exactly" in text for text in report.findings)


def test_times_that_overlap_under_another_zone_are_refused_as_they_overlap(tmp_path, in_process):
    pairs = [
        ("hours since 2019-01-01 00:00:00 -6:00", [0, 1, 2]),
        ("hours since 2019-01-01 07:00:00", [0, 1, 2]),
    ]
    with pytest.raises(CombineError, match="time") as no:
        build_pair(tmp_path, pairs)
    assert "2019-01-01T07" in str(no.value)


UNCLEAR = {
    "days since 01-02-2000": "'01-02-2000' the day or the month may come first",
    "days since 2000-01-04 00:00:00 EST": "EST may be any zone",
    "days since 2000-01-04 00:00:00,5": "the comma",
    "months since 2000-01-04": "no unit 'months'",
}


def test_a_calendar_that_xarray_does_not_know_is_refused_by_name(tmp_path, in_process):
    pairs = [(f"days since 2000-01-0{n}", [0], "tai") for n in (1, 2)]
    with pytest.raises(CombineError, match="xarray knows no calendar 'tai'"):
        build_pair(tmp_path, pairs)


@pytest.mark.parametrize(("units", "why"), UNCLEAR.items())
def test_a_reference_date_without_one_reading_is_refused_by_name(tmp_path, in_process, units, why):
    with pytest.raises(CombineError, match=why) as no:
        build_pair(tmp_path, [("days since 2000-01-01", [0]), (units, [9])])
    assert no.value.facts["other"].endswith("f1.nc")
    assert "write the units in the files like 'days since" in str(no.value)


def test_files_that_say_the_same_need_no_reading(tmp_path, in_process):
    unclear = "days since 01-02-2000"
    theirs, ours, report = build_pair(tmp_path, [(unclear, [0]), (unclear, [9])])
    assert ours.tolist() == theirs.tolist()
    assert not any("converted" in text for text in report.findings)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    found=st.lists(
        st.tuples(
            st.sampled_from(["days", "hours", "seconds", "hrs", "Minutes"]),
            st.sampled_from(["2000-01-0{}", "2000/1/{}", "2000010{}", "{} Feb 2000", "1{}-03-2000",
                             "185{}-11-17"]),
            st.integers(1, 9),
            st.sampled_from(["", " 06:30", " 06:30:00 -6:00", "T06:30:00.5Z", " 06:30:00 UTC",
                             " 06:30:37.123456789", " 1:00 PM", " 0600", " 06:30 +05:30"]),
            st.sampled_from([0, 1, 0.5, 12, 1000]),
        ),
        min_size=2, max_size=4,
    ),
    kind=st.sampled_from(["i4", "i8", "f4", "f8"]),
    calendar=st.sampled_from(["standard", "proleptic_gregorian", "noleap"]),
)  # fmt: skip
def test_whatever_a_plan_calls_exact_decodes_as_from_its_files(
    tmp_path_factory, in_process, found, kind, calendar
):
    pairs = [
        (f"{unit} since {date.format(day)}{clock}", [np.array(value).astype(kind)], calendar)
        for unit, date, day, clock, value in found
    ]
    try:
        theirs, ours, report = build_pair(tmp_path_factory.mktemp("random"), pairs, kind)
    except CombineError:  # steps that overlap, or of mixed calendars
        return
    event("built")
    if any("every value exactly" in text for text in report.findings):
        assert sorted(map(str, ours)) == sorted(map(str, theirs))


# -- durations -----------------------------------------------------------------------------------

LEADS = {
    "marks of two versions of xarray": [
        ("nanoseconds", "timedelta64[ns]", 3600 * 10**9), ("seconds", "timedelta64[s]", 3600),
    ],
    "marks alone": [("hours", "timedelta64[s]", 1), ("hours", "timedelta64[ns]", 1)],
    "units without marks": [("days", None, 1), ("hours", None, 24)],
    "a mark in one": [("hours", None, 1), ("hours", "timedelta64[ns]", 1)],
}  # fmt: skip


def write_leads(path, number, unit, mark, per, kind="i8"):
    attrs = {"units": unit, **({"dtype": mark} if mark else {})}
    lead = np.arange(2 * number, 2 * number + 2) * per
    xr.Dataset(
        {
            "lead": ("time", lead.astype(kind), attrs),
            "v": (("time", "x"), np.full((2, 3), number, "f4")),
        },
        {
            "time": (
                "time",
                np.array([2 * number, 2 * number + 1]),
                {"units": "days since 2000-01-01"},
            )
        },
    ).to_netcdf(path, unlimited_dims=["time"])
    return str(path)


@pytest.mark.parametrize(("lead", "appends", "kind"), crossed(LEADS, [False, True], ["i8", "f8"]))
def test_durations_are_those_of_their_files(tmp_path, in_process, lead, appends, kind):
    files = [write_leads(tmp_path / f"f{n}.nc", n, *way, kind) for n, way in enumerate(LEADS[lead])]
    repo = str(tmp_path / "repo")
    if appends:
        icevirt.build(files[:1], repo, concat_dim="time")
        report = icevirt.append(files[1:], repo)
    else:
        report = icevirt.build(files, repo, concat_dim="time")
    verified(repo, report.containers)
    ours = xr.open_dataset(
        repo,
        engine="icevirt",
        decode_timedelta=True,
        authorize_virtual_chunk_access=report.containers,
    )
    theirs = xr.open_mfdataset(
        files, combine="nested", concat_dim="time", decode_timedelta=True, data_vars="minimal"
    )
    xr.testing.assert_equal(ours[["lead", "v"]].load(), theirs[["lead", "v"]].load())
    assert ours.lead.dtype == theirs.lead.dtype
