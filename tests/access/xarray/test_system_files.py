"""Every NetCDF file of Debian's libncarg-data and ferret-datasets, where they are installed.

``ICEVIRT_TEST_FILES`` names other directories, separated by colons.
"""

import os
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from access.xarray.compare import same_dataset
from access.xarray.test_files import MODES, authorised, commit
from scanners.materialise import materialise

PLACES = "/usr/share/libncarg-data:/usr/share/ncarg:/usr/share/ferret-vis"
MAGIC = (b"CDF", b"\x89HDF\r\n\x1a\n")


def found():
    for place in os.environ.get("ICEVIRT_TEST_FILES", PLACES).split(":"):
        for path in sorted(Path(place).rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    if file.read(8).startswith(MAGIC):
                        yield path


FILES = list(found())
pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not FILES, reason="the packages are not installed"),
]


def variables(group):
    yield from group.variables.values()
    for inner in group.groups.values():
        yield from variables(inner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_raw_values_are_those_of_netcdf4(path):
    scanned = icevirt.scan_file(path)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        for variable in variables(file):
            name = f"{variable.group().path.rstrip('/')}/{variable.name}"
            wanted, array = np.asarray(variable[...]), scanned.array(name)
            values = materialise(array)
            assert array.dimension_names == variable.dimensions
            assert values.shape == wanted.shape
            if wanted.dtype.kind not in "OU":
                assert values.dtype == wanted.dtype.newbyteorder("=")
                wanted = wanted.astype(values.dtype)
                assert values.tobytes() == wanted.tobytes(), name
            elif values.dtype.kind == "S":  # h5py's form of text of a fixed length
                values = np.char.decode(values)
            np.testing.assert_array_equal(values, wanted)


@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("options", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_decoded_values_are_those_of_xarray(path, options, tmp_path):
    commit(tmp_path / "repo", path)
    try:
        theirs = xr.open_dataset(path, engine="netcdf4", **options)
    except Exception as error:  # noqa: BLE001 - whatever it is, ours is the same
        with pytest.raises(type(error)):
            xr.open_dataset(tmp_path / "repo", engine="icevirt", **options, **authorised(path))
        return
    with theirs:
        ours = xr.open_dataset(tmp_path / "repo", engine="icevirt", **options, **authorised(path))
        same_dataset(ours, theirs)
