"""Attributes that decode values are corrected where files agree on them, and refused elsewhere."""

import re

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import expected_dataset, opened, write_days
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError
from long_forms import crossed
from planning.test_dimensions import write_steps
from planning.test_times import write_month

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "days")


@pytest.fixture
def months(tmp_path):
    """Months that count time from their own beginnings, with bounds."""
    files = [str(tmp_path / f"m{month}.nc") for month in (1, 2, 3)]
    for month, path in enumerate(files, 1):
        write_month(path, month, units=f"days since 2001-{month:02d}-01", bounds=True)
    return files


def edit(path, variable, **attrs):
    """Set attributes in a file; None deletes one."""
    with netCDF4.Dataset(path, "a") as file:
        for name, value in attrs.items():
            if value is None:
                file[variable].delncattr(name)
            else:
                file[variable].setncattr(name, value)


def built(files, tmp_path, **how):
    """Build, verify every value, and return the dataset."""
    repo = str(tmp_path / "repo")
    report = icevirt.build(files, repo, **grouped({"concat_dim": "time", **how}))
    access = {"authorize_virtual_chunk_access": report.containers}
    checked = icevirt.verify(repo, full=True, **access).checked
    assert not checked.differences
    return opened(repo).load()


def every(**attrs):
    """Return a function that says the same of every file."""
    return lambda file: icevirt.FileChanges(attrs=attrs)


# -- files that disagree ---------------------------------------------------------------------------


def test_one_count_is_not_said_of_times_that_count_from_different_dates(months, tmp_path):
    """Else all of them would begin at the first date."""
    attrs = {"time": {"units": "days since 1900-01-01"}}
    with pytest.raises(CombineError, match=r"attrs would set units.*m1\.nc.*m2\.nc") as caught:
        icevirt.build(
            months, tmp_path / "repo", concat_dim="time", combine_options={"attrs": attrs}
        )
    assert "different reference dates" in caught.value.fixes[0].price
    assert "preprocess" in caught.value.do
    found = built(months, tmp_path)
    wanted = xr.open_mfdataset(months, combine="nested", concat_dim="time").load()
    xr.testing.assert_equal(found["time"], wanted["time"])


UNLIKE = {
    "units of a time": ("time", {"units": "days since 2001-01-01"}),
    "units of a time, removed": ("time", {"units": None}),
    "a calendar": ("time", {"calendar": "noleap"}),
    "a scale": ("packed", {"scale_factor": 0.5}),
    "a scale, removed": ("packed", {"scale_factor": None}),
    "an offset": ("packed", {"add_offset": 1.0}),
    "an offset that a file lacks": ("packed", {"add_offset": 2.0}),
    "a fill value": ("packed", {"_FillValue": -1}),
    "a missing value": ("packed", {"missing_value": -1}),
    "signs": ("packed", {"_Unsigned": "true"}),
    "units of data": ("packed", {"units": "degC"}),
    "bounds": ("time_bnds", {"units": "days since 2001-01-01"}),
}


@pytest.fixture
def unlike(days):
    """Days of which the second one decodes unlike the others, whatever attribute is looked at."""
    with netCDF4.Dataset(days[1], "a") as file:
        for name in ("packed",):
            file[name].scale_factor = np.float32(0.02)
            file[name].delncattr("add_offset")
            file[name].missing_value = np.int16(-7)
            file[name].setncattr("_Unsigned", "true")
            file[name].units = "degF"
        file["time"].units = "days since 2001-01-01"
        file["time"].calendar = "365_day"
        file["time_bnds"].units = "hours since 2001-01-01"
    with netCDF4.Dataset(days[0], "a") as file:
        file["time_bnds"].units = "days since 2001-01-01"
    for path in (days[0], days[2]):
        edit(path, "packed", _FillValue_=0)
    return days


@pytest.mark.parametrize(("variable", "attrs"), UNLIKE.values(), ids=UNLIKE)
def test_what_decodes_is_not_said_alike_of_files_that_say_it_unlike(variable, attrs, unlike):
    if "_FillValue" in attrs:
        with netCDF4.Dataset(unlike[1], "a") as file:
            file.renameVariable("packed", "old")
            made = file.createVariable("packed", "i2", ("time", "y", "x"), fill_value=-5)
            made[:] = 1
    (name,) = attrs
    with pytest.raises(CombineError, match=f"attrs would set {name}=.*{variable}") as caught:
        icevirt.plan(unlike, concat_dim="time", combine_options={"attrs": {variable: attrs}})
    output = {str(caught.value.facts[key]).rsplit("/", 1)[1] for key in ("first", "other")}
    assert "day2.nc" in output


@pytest.mark.parametrize(
    ("variable", "attrs"),
    [each for name, each in UNLIKE.items() if name not in ("units of data", "a fill value")],
)
def test_a_function_does_not_say_it_alike_either(variable, attrs, unlike):
    (name,) = attrs
    with pytest.raises(CombineError, match=f"preprocess would set {name}=.*{variable}") as caught:
        icevirt.plan(
            unlike, concat_dim="time", combine_options={"preprocess": every(**{variable: attrs})}
        )
    assert "look at file.variables" in caught.value.do


@pytest.mark.parametrize("option", ["attrs", "preprocess"])
def test_bounds_are_not_taken_from_times_that_count_from_different_dates(option, months):
    """Else each file's would go on counting from its own date, and nothing would set which."""
    attrs = {"time": {"bounds": None}}
    how = {"attrs": attrs} if option == "attrs" else {"preprocess": every(**attrs)}
    with pytest.raises(CombineError, match=f"{option} would set bounds=None of /time"):
        icevirt.plan(months, concat_dim="time", **grouped(how))


def test_files_that_were_renamed_into_one_are_files_of_one(months):
    """Also under the name that one of them has only."""
    with netCDF4.Dataset(months[1], "a") as file:
        file.renameVariable("time", "t")
        file.renameDimension("time", "t")
    attrs = {"time": {"units": "days since 2001-01-01"}}
    with pytest.raises(CombineError, match="attrs would set units"):
        icevirt.plan(
            months, concat_dim="time", combine_options={"rename": {"t": "time"}, "attrs": attrs}
        )


# -- files that agree ------------------------------------------------------------------------------


def with_attrs(files, **attrs):
    """Return what xarray reads from files once their attributes are corrected in place."""
    for path in files:
        with netCDF4.Dataset(path, "a") as file:
            for variable, values in attrs.items():
                for name in values.keys() - {"_FillValue"}:
                    file[variable].setncattr(name, values[name])
        with h5py.File(path, "a") as file:
            file["packed"].attrs.modify("_FillValue", np.array([8], "i2"))
    with expected_dataset(files, "time") as found:
        return found.load()


@pytest.mark.ci
def test_a_correction_that_all_files_need_is_what_editing_the_files_would_be(days, tmp_path):
    attrs = {
        "time": {"units": "days since 1900-01-01", "calendar": "noleap"},
        "packed": {"scale_factor": 0.5, "add_offset": -1.5, "_FillValue": 8, "units": "degC"},
    }
    found = built(days, tmp_path, attrs=attrs)
    for name in ("scale_factor", "add_offset"):
        attrs["packed"][name] = np.float32(attrs["packed"][name])
    xr.testing.assert_equal(found, with_attrs(days, **attrs))
    assert found["packed"].encoding["scale_factor"].dtype == "f4"


def test_other_spellings_of_one_count_are_corrected_together(days, tmp_path):
    edit(days[1], "time", units="hours since 2001-1-1 00:00", calendar="gregorian")
    edit(days[2], "time", calendar=None)
    found = built(days, tmp_path, attrs={"time": {"units": "hours since 1900-01-01"}})
    assert str(found["time"].values[0])[:13] == "1900-01-02T00"


def test_what_some_files_do_not_say_is_supplied(days, tmp_path):
    edit(days[1], "packed", units=None)
    found = built(days, tmp_path, attrs={"packed": {"units": "K"}})
    assert found["packed"].attrs["units"] == "K"


def test_a_function_corrects_the_one_file_that_is_wrong(days, tmp_path):
    with expected_dataset(days, "time") as files:
        wanted = files.load()
    edit(days[1], "time", units="days since 2001-01-01")
    edit(days[1], "packed", scale_factor=np.float32(1))

    def correct(file):
        if file.variables["/time"].attrs["units"].startswith("days"):
            right = {"time": {"units": "hours since 2001-01-01"}, "packed": {"scale_factor": 0.01}}
            return icevirt.FileChanges(attrs=right)
        return None

    xr.testing.assert_equal(built(days, tmp_path, preprocess=correct), wanted)


def test_bounds_are_corrected_with_their_coordinate(tmp_path):
    """Whether they say what they count, or leave that to the coordinate."""
    for own in (False, True):
        folder = tmp_path / str(own)
        folder.mkdir()
        files = [str(folder / f"m{month}.nc") for month in (1, 2)]
        for month, path in enumerate(files, 1):
            write_month(path, month, units="days since 2001-01-01", bounds=True)
            if own:
                edit(path, "time_bnds", units="days since 2001-01-01", calendar="standard")
        attrs = {"time": {"units": "days since 1900-01-01"}}
        found = built(files, folder, attrs=attrs)
        low, high = found["time_bnds"].values.T
        assert (low <= found["time"].values).all()
        assert (found["time"].values <= high).all()
        assert str(low[0])[:10] == "1900-01-01"


def test_bounds_that_count_otherwise_must_be_named_too(tmp_path):
    path = str(tmp_path / "m.nc")
    write_month(path, 1, units="days since 2001-01-01", bounds=True)
    edit(path, "time_bnds", units="hours since 2001-01-01")
    attrs = {"time": {"units": "days since 1900-01-01"}}
    with pytest.raises(InvalidInputError, match=re.escape('attrs={"time_bnds": {"units": ...}}')):
        icevirt.plan(path, combine_options={"attrs": attrs})
    attrs["time_bnds"] = {"units": "hours since 1900-01-01"}
    assert icevirt.plan(path, combine_options={"attrs": attrs})


def test_bounds_count_in_the_calendar_of_their_coordinate(tmp_path):
    """Where they have units of their own and no calendar, as xarray reads them."""
    files = [str(tmp_path / f"m{month}.nc") for month in (2, 3)]
    for month, path in zip((2, 3), files, strict=True):
        units = f"days since 2000-{month:02d}-01"
        write_month(path, month, units=units, calendar="noleap", bounds=True)
        edit(path, "time_bnds", units=units)
    found = built(files, tmp_path)
    wanted = xr.open_mfdataset(files, combine="nested", concat_dim="time", coords="minimal",
                               data_vars="minimal", compat="override")  # fmt: skip
    assert found["time_bnds"].values.tolist() == wanted["time_bnds"].values.tolist()


# -- values of attributes --------------------------------------------------------------------------

WRONG = {
    "a fill value out of range": ("_FillValue", 99999, "a value of its data type int16"),
    "a fill value between integers": ("_FillValue", 1.5, "a value of its data type int16"),
    "a fill value that is NaN": ("_FillValue", float("nan"), "a value of its data type int16"),
    "a fill value of text": ("_FillValue", "none", "a number"),
    "a scale of text": ("scale_factor", "0.01", "a number"),
    "a scale that is true": ("scale_factor", True, "a number"),
    "a calendar that is a number": ("calendar", 360, "a string"),
    "units that are a list": ("units", ["K"], "a string"),
}


@pytest.mark.parametrize(("name", "value", "wanted"), WRONG.values(), ids=WRONG)
def test_a_value_that_its_attribute_cannot_have_is_refused(name, value, wanted, days):
    with pytest.raises(
        InvalidInputError, match=f"the attribute {name} of /packed must be {wanted}"
    ):
        icevirt.plan(days, concat_dim="time", combine_options={"attrs": {"packed": {name: value}}})


def test_a_scale_that_is_whole_in_the_files_may_become_a_fraction(days, tmp_path):
    """It is never cut down to 0."""
    for path in days:
        edit(path, "packed", scale_factor=np.int32(1), add_offset=np.int32(0))
    found = built(days, tmp_path, attrs={"packed": {"scale_factor": 0.5}})
    assert found["packed"].encoding["scale_factor"] == 0.5
    assert found["packed"].values[0, 0, 1] == 4.0


def test_words_of_a_command_line_are_what_attributes_hold(days, tmp_path):
    """Which reads `1` and `true` as JSON."""
    attrs = {"packed": {"units": 1, "_Unsigned": True}, "x": {"_FillValue": float("nan")}}
    found = built(days, tmp_path, attrs=attrs)
    assert found["packed"].attrs["units"] == "1"
    assert found["packed"].encoding["_Unsigned"] == "true"
    assert np.isnan(found["x"].encoding["_FillValue"])


# -- coordinates that are made of labels -----------------------------------------------------------

MADE = {
    "a list": ["a", "b", "c"],
    "file names": r"regex:day(\d)\.nc",
    "an attribute": "attribute:day",
    "a function": "preprocess",
    "a variable": "variable:number",
}


def stackable(days):
    for number, path in enumerate(days, 1):
        with netCDF4.Dataset(path, "a") as file:
            file["time"][:] = np.arange(4)
            file["time_bnds"][:] = 0
            file["packed"].set_auto_maskandscale(False)
            file["packed"][:] = number
            file.createVariable("number", "i4", ())[...] = number
    return days


@pytest.mark.parametrize(("labels", "by"), crossed(MADE.values(), ["attrs", "function", "both"]))
def test_attributes_of_labels_are_set(labels, by, days):
    attrs = {"member": {"long_name": "ensemble member", "level": np.int32(3)}}

    def function(file):
        output = {"member": int(file.attrs["day"])} if labels == "preprocess" else {}
        more = {"member": {"long_name": "told", "by": "function"}} if by == "both" else attrs
        return icevirt.FileChanges(attrs={} if by == "attrs" else more, labels=output)

    plan = icevirt.plan(
        stackable(days),
        concat_dim="member",
        combine_options={
            "labels": {"member": labels},
            "attrs": None if by == "function" else attrs,
            "preprocess": function,
        },
    )
    (found,) = (each for each in plan.arrays if each.path == "/member")
    kept = dict(found.schema.attributes.values)
    wanted = {"long_name": "ensemble member", "level": 3}
    assert {name: kept[name] for name in wanted} == wanted
    assert ("by" in kept) == (by == "both")
    assert found.schema.attributes.dtypes["level"] == "i4"


def test_attributes_of_labels_are_read(days, tmp_path):
    """And may say that labels are times."""
    attrs = {"start": {"units": "days since 2020-01-01", "standard_name": "time"}}
    built(stackable(days), tmp_path, concat_dim="start", labels=r"regex:day(\d)\.nc", attrs=attrs)
    found = opened(str(tmp_path / "repo"))
    assert found["start"].attrs == {"standard_name": "time"}
    assert str(found["start"].values[0])[:10] == "2020-01-02"


def test_attributes_of_labels_that_come_from_times_are_those_of_the_times(tmp_path):
    """What they count is said of the variable; everything else of the labels."""
    files = write_steps(tmp_path, hours=(0,), numbers=(1,))
    how = {"concat_dim": ["init"], "labels": {"init": "variable:reftime"}}
    attrs = {"init": {"long_name": "start"}}
    (found,) = (
        a for a in icevirt.plan(files, **grouped(how, attrs=attrs)).arrays if a.path == "/init"
    )
    assert found.schema.attributes.values["long_name"] == "start"
    assert found.schema.attributes.values["standard_name"] == "forecast_reference_time"
    for variable, message in (
        ("init", "of the variable that they come from"),
        ("reftime", "attrs would set"),
    ):
        attrs = {variable: {"units": "days since 1900-01-01"}}
        with pytest.raises((InvalidInputError, CombineError), match=message):
            icevirt.plan(files, **grouped(how, attrs=attrs))


@pytest.mark.parametrize("policy", ["override", "drop", "drop_conflicts", "no_conflicts"])
def test_attributes_of_labels_are_combined_like_all_others(policy, days):
    def function(file):
        day = int(file.attrs["day"])
        return icevirt.FileChanges(attrs={"member": {"same": "x", "day": day}})

    how = {
        "concat_dim": "member",
        "labels": [3, 2, 1],
        "preprocess": function,
        "combine_attrs": policy,
    }
    if policy == "no_conflicts":
        with pytest.raises(CombineError, match="attributes differ"):
            icevirt.plan(stackable(days), **grouped(how))
        return
    plan = icevirt.plan(stackable(days), **grouped(how))
    (found,) = (each for each in plan.arrays if each.path == "/member")
    wanted = {"override": {"same": "x", "day": 1}, "drop": {}, "drop_conflicts": {"same": "x"}}
    assert found.schema.attributes.values == wanted[policy]


def test_files_do_not_say_different_things_of_what_labels_mean(days):
    def function(file):
        return icevirt.FileChanges(attrs={"member": {"units": f"days since {file.attrs['day']}"}})

    with pytest.raises(CombineError, match="different attributes for the labels of 'member'"):
        icevirt.plan(
            stackable(days),
            concat_dim="member",
            combine_options={"labels": [1, 2, 3], "preprocess": function},
        )


# -- names that are not there ----------------------------------------------------------------------

NOWHERE = {
    "attrs of a typing error": ({"attrs": {"packd": {"units": "K"}}}, "Did you mean 'packed'"),
    "attrs of a name that was changed": (
        {"attrs": {"packed": {"units": "K"}}, "rename": {"packed": "tas"}},
        "after renaming",
    ),
    "attrs of a dimension": ({"attrs": {"nv": {"units": "K"}}}, "no file has a variable 'nv'"),
    "attrs of labels there are not": ({"attrs": {"member": {"units": "1"}}}, "'member'"),
    "a function's attrs": ({"preprocess": every(packd={"units": "K"})}, r"'packd'.*day1\.nc"),
    "a function's attrs of what it drops": (
        {
            "preprocess": lambda file: icevirt.FileChanges(
                drop_variables="mask", attrs={"mask": {"units": "1"}}
            )
        },
        "'mask'.*after renaming and dropping",
    ),
    "a function's new name": (
        {"preprocess": lambda file: icevirt.FileChanges(rename={"packd": "tas"})},
        "changes 'packd'",
    ),
    "what a function drops": (
        {"preprocess": lambda file: icevirt.FileChanges(drop_variables="maks")},
        "Did you mean 'mask'",
    ),
    "one file's, which others have": (
        {
            "preprocess": lambda file: (
                icevirt.FileChanges(attrs={"extra": {"a": 1}})
                if file.url.endswith("day1.nc")
                else None
            )
        },
        r"'extra'.*day1\.nc",
    ),
    "pad": ({"pad": "levels"}, "pad names 'levels'"),
    "pad of what is concatenated": ({"pad": "time"}, "pad names 'time'"),
    "a tolerance": ({"tolerance": {"lat": 1e-6}}, "tolerance names 'lat'"),
    "a tolerance of what is concatenated": ({"tolerance": {"time": 1e-6}}, "'time' has one"),
    "a float variable": ({"float_variables": "tas"}, "float_variables names 'tas'"),
    "a float variable that is fixed": ({"float_variables": "mask"}, "'mask' has none"),
}


@pytest.mark.parametrize(("how", "message"), NOWHERE.values(), ids=NOWHERE)
def test_a_name_that_changes_nothing_is_refused(how, message, days):
    with netCDF4.Dataset(days[1], "a") as file:
        file.createVariable("extra", "f4", ("time",))[:] = 1
        file.createDimension("nv", 2)
        file.createVariable("sides", "f4", ("nv",))[:] = 1
    for path in (days[0], days[2]):
        with netCDF4.Dataset(path, "a") as file:
            file.createDimension("nv", 2)
            file.createVariable("sides", "f4", ("nv",))[:] = 1
    with pytest.raises(InvalidInputError, match=message) as caught:
        icevirt.plan(days, concat_dim="time", **grouped(how, missing="reserve"))
    assert caught.value.do or caught.value.fixes


def test_regular_is_refused_for_labels(days):
    with pytest.raises(InvalidInputError, match="spacing does not apply to dimensions"):
        icevirt.plan(
            stackable(days),
            concat_dim="member",
            combine_options={"labels": [1, 2, 3], "spacing": 1},
        )


def test_a_function_may_name_what_some_of_its_files_lack(days, tmp_path):
    with netCDF4.Dataset(days[1], "a") as file:
        file.createVariable("extra", "f4", ("y", "x"))[:] = 1
    change = icevirt.FileChanges(drop_variables=["extra"], attrs={"mask": {"a": "b"}})
    found = built(days, tmp_path, preprocess=lambda file: change)
    assert "extra" not in found
    assert found["mask"].attrs == {"a": "b"}


def test_nan_is_a_number_in_any_attribute_that_is_set(days, tmp_path):
    said = {"valid_min": float("nan"), "missing_value": -999}
    found = built(days, tmp_path, attrs={"packed": said})["packed"]
    assert np.isnan(found.attrs["valid_min"])
    assert found.encoding["missing_value"].dtype == np.int16
