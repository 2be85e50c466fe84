"""Profiles of different lengths: padded where asked."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import opened_by_both
from fixtures import archives
from grouping import grouped
from icevirt.errors import CombineError

# -- ragged profiles -------------------------------------------------------------------------------


def test_argo_profiles_are_padded_where_asked(tmp_path, repo_path):
    files = archives.argo_like(tmp_path)
    report = icevirt.build(
        files, repo_path, concat_dim="N_PROF", combine_options={"pad": "N_LEVELS"}
    )
    ours = opened_by_both(repo_path, report)
    single = [xr.open_dataset(path) for path in files]
    longest = max(each.sizes["N_LEVELS"] for each in single)
    theirs = xr.combine_nested(
        [each.pad(N_LEVELS=(0, longest - each.sizes["N_LEVELS"])) for each in single],
        concat_dim="N_PROF", join="exact", data_vars="minimal", coords="minimal",
        compat="equals", combine_attrs="override",
    ).load()  # fmt: skip
    assert dict(ours.sizes) == {"N_PROF": 3, "N_LEVELS": 8}
    assert (
        "2 of 3 files are shorter along 'N_LEVELS' than the longest (8), and read as missing "
        "after their ends: /PRES, /TEMP"
    ) in report.findings
    for name in ("PRES", "TEMP", "JULD"):
        np.testing.assert_array_equal(ours[name].values, theirs[name].values, err_msg=name)


def write_profile(path, levels, *, chunk=100, kind="f4", fill=-1.0):
    """Write a profile that is too long to be stored, in chunks."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("profile", 1)
        file.createDimension("level", levels)
        file.createDimension("x", 3000)
        data = file.createVariable(
            "data", kind, ("profile", "level", "x"), zlib=True, fill_value=fill,
            chunksizes=(1, chunk, 3000),
        )  # fmt: skip
        data[:] = (np.arange(levels)[:, None] + np.arange(3000)) % 100
    return str(path)


def test_chunks_of_long_profiles_are_referenced_where_they_end_on_the_grid(tmp_path, repo_path):
    """One that is not full, where a longer profile goes on, is stored with what is missing."""
    files = [
        write_profile(tmp_path / f"{n}.nc", levels) for n, levels in enumerate((200, 350, 100, 250))
    ]
    report = icevirt.build(
        files, repo_path, concat_dim="profile", combine_options={"pad": ["level"]}
    )
    ours = opened_by_both(repo_path, report)
    assert (report.references.virtual, report.references.native) == (2 + 4 + 1 + 2, 1)
    for row, path in enumerate(files):
        theirs = xr.open_dataset(path).data.values[0]
        np.testing.assert_array_equal(ours.data.values[row, : len(theirs)], theirs)
        assert np.isnan(ours.data.values[row, len(theirs) :]).all()


RAGGED = {
    "not asked for": ((200, 350), {}, {}, r'differ along level.*"pad": \["level"\]'),
    "no missing value": (
        (200, 350), {"pad": "level"}, {"kind": "i2", "fill": None}, "has no _FillValue",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("levels", "how", "kind", "output"), RAGGED.values(), ids=RAGGED)
def test_profiles_that_cannot_be_padded_are_refused(tmp_path, levels, how, kind, output):
    files = [write_profile(tmp_path / f"{n}.nc", each, **kind) for n, each in enumerate(levels)]
    with pytest.raises(CombineError, match=output):
        icevirt.plan(files, concat_dim="profile", **grouped(how))


@pytest.mark.ci
def test_padded_durations_of_integers_are_missing_where_they_are_decoded(tmp_path, repo_path):
    """Else xarray shows the least integer of 64 bits in the place of a fill value."""
    files = []
    for number, lines in enumerate((3, 4)):
        files.append(str(tmp_path / f"orbit{number}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            group = file.createGroup("PRODUCT")
            group.createDimension("time", 1)
            group.createDimension("scanline", lines)
            time = group.createVariable("time", "i4", ("time",))
            time[:], time.units = [1000 + number], "seconds since 2010-01-01"
            group.createVariable("scanline", "f8", ("scanline",))[:] = np.arange(lines)
            delta = group.createVariable("delta_time", "i4", ("time", "scanline"))
            delta[:], delta.units = [number + np.arange(lines)], "milliseconds"
    with pytest.raises(CombineError, match="differ along scanline") as caught:
        icevirt.build(files, repo_path)
    first = caught.value.fixes[0]
    assert "decode_timedelta=True" in first.price
    icevirt.build(files, repo_path, **first.arguments)
    held = xr.open_dataset(
        repo_path,
        engine="icevirt",
        group="PRODUCT",
        decode_timedelta=True,
        authorize_virtual_chunk_access=[f"{tmp_path.as_uri()}/"],
    )
    expected = np.array([[0, 1, 2, "NaT"], [1, 2, 3, 4]], "m8[ms]")
    np.testing.assert_array_equal(held["delta_time"], expected)
