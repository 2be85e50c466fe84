"""Archives of NetCDF-3 files, joined along their records, read as the files are read."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import (
    assert_same_dataset,
    assert_same_raw,
    expected_dataset,
    official,
    opened,
    write_day,
)
from icevirt.errors import CombineError

FORMATS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")


pytestmark = pytest.mark.usefixtures("in_process")


def write_month(path, month, *, records, data_model):
    """Write records of several variables, one packed, one a short; they are padded."""
    with netCDF4.Dataset(path, "w", format=data_model) as file:
        file.title = "records"
        file.createDimension("time", None)
        file.createDimension("y", 15)
        file.createDimension("x", 25)
        for name, size in (("y", 15), ("x", 25)):
            file.createVariable(name, "f4", (name,))[:] = np.linspace(0, 1, size)
        mask = file.createVariable("mask", "i1", ("y", "x"))
        mask[:] = np.arange(375).reshape(15, 25) % 2
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "days since 2000-01-01", "standard"
        time[:] = 100.0 * month + np.arange(records)
        flag = file.createVariable("flag", "i2", ("time",))
        flag[:] = np.arange(records) + month
        packed = file.createVariable("packed", "i2", ("time", "y", "x"), fill_value=-999)
        packed.set_auto_maskandscale(False)
        packed.scale_factor, packed.add_offset = np.float32(0.01), np.float32(273.15)
        packed[:] = np.arange(records * 375).reshape(records, 15, 25) + month
        packed[0, 0, 0] = -999
        plain = file.createVariable("plain", "f4", ("time", "y", "x"))
        plain[:] = np.arange(records * 375).reshape(records, 15, 25) / 7
    return str(path)


def write_months(folder, data_model):
    return [
        write_month(folder / f"{month}.nc", month, records=records, data_model=data_model)
        for month, records in enumerate((3, 1, 4), 1)
    ]


@pytest.mark.parametrize("data_model", FORMATS)
def test_months_of_records_are_one_dataset(data_model, tmp_path):
    """Different numbers of records, decoded and raw, by us and by the official client."""
    files, repo = write_months(tmp_path, data_model), str(tmp_path / "repo")
    report = icevirt.build(files, repo, concat_dim="time")
    expected = expected_dataset(files, "time").load()
    assert_same_dataset(opened(repo), expected)
    session = icevirt.Repository.open(
        repo, authorize_virtual_chunk_access=report.containers
    ).readonly_session("main")
    assert_same_raw(session.store, files, lambda v, _: 0 if v.dimensions[:1] == ("time",) else None)
    store = official(repo).readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False).load()
    xr.testing.assert_allclose(found, expected, atol=1e-4)
    references = {array.path: array.references for array in report.arrays}
    assert references["/packed"].virtual == references["/plain"].virtual == 8


def test_one_record_variable_is_joined_too(tmp_path):
    """Its records lie one behind the other, without padding."""
    files = []
    for number in range(3):
        files.append(str(tmp_path / f"{number}.nc"))
        with netCDF4.Dataset(files[-1], "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("time", None)
            file.createDimension("x", 333)
            moving = file.createVariable("d", "i2", ("time", "x"))
            moving[:] = np.arange((number + 1) * 333).reshape(-1, 333) + number
    icevirt.build(files, tmp_path / "repo", concat_dim="time")
    assert_same_dataset(opened(str(tmp_path / "repo")), expected_dataset(files, "time"))


def test_values_of_another_byte_order_are_not_joined_but_refused(tmp_path):
    """NetCDF-4 files are little-endian: the error says what differs, and where."""
    three = str(tmp_path / "3.nc")
    four = write_day(tmp_path / "4.nc", 1)
    with (
        xr.open_dataset(four, decode_cf=False) as held,
        netCDF4.Dataset(three, "w", format="NETCDF3_CLASSIC") as file,
    ):
        for name, size in held.sizes.items():
            file.createDimension(name, None if name == "time" else size)
        for name, variable in held.variables.items():
            kept = {k: v for k, v in variable.attrs.items() if k != "_FillValue"}
            fill = variable.attrs.get("_FillValue")
            made = file.createVariable(name, variable.dtype, variable.dims, fill_value=fill)
            made.set_auto_maskandscale(False)
            made.setncatts(kept)
            made[:] = variable.values
    with pytest.raises(CombineError, match=r"3\.nc"):
        icevirt.build([four, three], tmp_path / "repo", concat_dim="time")
