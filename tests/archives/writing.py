"""Write small files as other tools do: variables with their dimensions, values that differ everywhere."""

import numpy as np

LAT, LON = np.array([-45.0, 0, 45]), np.array([0.0, 90, 180, 270])


def numbers(*shape, begin=0.0, kind="f4"):
    """Return values that differ wherever they lie."""
    return (np.arange(int(np.prod(shape))).reshape(shape) * 0.5 + begin).astype(kind)


def put(file, name, dims, values, *, fill=None, how=None, **attrs):
    """Add a variable to a netCDF4 file, with the dimensions that it needs."""
    values = np.asarray(values)
    for dim, size in zip(dims, values.shape, strict=True):
        if dim not in file.dimensions:
            file.createDimension(dim, size)
    made = file.createVariable(name, values.dtype, dims, fill_value=fill, **(how or {}))
    made.set_auto_maskandscale(False)
    made.setncatts(attrs)
    made[...] = values
    return made
