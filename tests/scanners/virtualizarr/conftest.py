"""Messages of GRIB that ecCodes writes."""

import eccodes
import numpy as np
import pytest


@pytest.fixture
def message(tmp_path):
    """Write a GRIB message by ecCodes."""

    def write(
        sample="regular_ll_sfc_grib2",
        values=None,
        lats=(20, 0),
        lons=(0, 30),
        name="m.grib",
        **keys,
    ):
        handle = eccodes.codes_grib_new_from_samples(sample)
        if keys or values is not None:
            grid = {
                "Ni": 4,
                "Nj": 3,
                "latitudeOfFirstGridPointInDegrees": lats[0],
                "latitudeOfLastGridPointInDegrees": lats[1],
                "longitudeOfFirstGridPointInDegrees": lons[0],
                "longitudeOfLastGridPointInDegrees": lons[1],
                "iDirectionIncrementInDegrees": 10,
                "jDirectionIncrementInDegrees": 10,
            }
            for key, value in (grid | keys).items():
                eccodes.codes_set(handle, key, value)
            eccodes.codes_set_values(handle, np.arange(12.0) if values is None else values)
        with (tmp_path / name).open("ab") as file:
            eccodes.codes_write(handle, file)
        eccodes.codes_release(handle)
        return str(tmp_path / name)

    return write
