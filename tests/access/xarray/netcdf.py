"""A NetCDF file with everything that is odd to decode, and its translation to zarr.

The translation stands in for a scanner here: raw values, attributes as `Attributes.of` encodes them.
"""

import json

import netCDF4
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.attributes import Attributes
from icevirt.model.snapshot import Snapshot, node_of


def write_odd(path):
    """Write the file."""
    with netCDF4.Dataset(path, "w") as file:
        file.title = "odd"
        file.setncattr("version", np.int16(3))
        file.setncattr("range", np.array([1.5, 2.5], "f4"))
        for name, size in {"time": 4, "x": 3, "text": 5, "two": 2}.items():
            file.createDimension(name, size)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "days since 2000-01-01", "noleap"
        time[:] = [0, 1, 59, 60]
        x = file.createVariable("x", "f4", ("x",))
        x.units = "m"
        x[:] = [0.1, 0.2, 0.3]
        packed = file.createVariable("packed", "i2", ("time", "x"), fill_value=np.int16(-999))
        packed.set_auto_maskandscale(False)
        packed.scale_factor, packed.add_offset = np.float32(0.01), np.float32(273.15)
        packed.missing_value = np.int16(-999)
        packed.coordinates = "station height"
        packed[:] = np.arange(12).reshape(4, 3)
        packed[0, 0] = -999
        real = file.createVariable("real", "f4", ("time", "x"), fill_value=np.float32(1e20))
        real.valid_range = np.array([-1, 1], "f4")
        real.missing_value = np.float32(1e20)
        real.nan = np.float64("nan")
        real.inf = np.float32("-inf")
        real[:] = np.linspace(0, 1, 12).reshape(4, 3)
        real[1, 1] = 1e20
        double = file.createVariable("double", "f8", ("x",), fill_value=np.nan)
        double[:] = [1, np.nan, 3]
        unsigned = file.createVariable("unsigned", "i1", ("x",), fill_value=np.int8(-1))
        unsigned.setncattr("_Unsigned", "true")
        unsigned.set_auto_maskandscale(False)
        unsigned[:] = np.array([-2, -1, 5], "i1")
        delta = file.createVariable("delta", "i4", ("x",))
        delta.units = "hours"
        delta[:] = [1, 2, 3]
        station = file.createVariable("station", "S1", ("x", "text"))
        station.setncattr("_Encoding", "utf-8")
        station[:] = np.array(["abc", "déf"[:3], ""])
        letter = file.createVariable("letter", "S1", ("x",), fill_value=b"-")
        letter[:] = np.array([b"a", b"-", b"c"])
        height = file.createVariable("height", "f8", ())
        height[...] = 2.0
        names = file.createVariable("names", str, ("x",))
        names.setncattr_string("kinds", ["one", "two"])
        names[:] = np.array(["one", "", "drei ß"], object)
        group = file.createGroup("inner").createGroup("most")
        group.note = "deep"
        group.createDimension("k", 2)
        value = group.createVariable("value", "u8", ("k",))
        value[:] = np.array([1, 2**63], "u8")


def translate(path):
    """Return the file as a zarr store and the snapshot that describes it."""
    store, nodes = zarr.storage.MemoryStore(), []
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        for group in _groups(file):
            shown = _attributes(group)
            document = {"zarr_format": 3, "node_type": "group", "attributes": dict(shown.values)}
            nodes.append(_node(group.path, document | shown.extension()))
            nodes.extend(_array(store, group.path, v) for v in group.variables.values())
    snapshot = Snapshot(id=ObjectId12.random(), nodes=tuple(nodes), flushed_at=0, message="")
    return store, snapshot


def _groups(group):
    yield group
    for inner in group.groups.values():
        yield from _groups(inner)


def _attributes(owner):
    return Attributes.of({name: owner.getncattr(name) for name in owner.ncattrs()})


def _array(store, group, variable):
    path = f"{group.rstrip('/')}/{variable.name}"
    array = zarr.create_array(
        store,
        name=path,
        shape=variable.shape,
        dtype="string" if variable.dtype is str else variable.dtype,
        dimension_names=variable.dimensions,
    )
    array[...] = variable[...]
    key = f"{path[1:]}/zarr.json"
    body = sync(store.get(key, default_buffer_prototype())).to_bytes()
    shown = _attributes(variable)
    document = json.loads(body) | {"attributes": dict(shown.values)} | shown.extension()
    return _node(path, document)


def _node(path, document):
    return node_of(path, json.dumps(document, allow_nan=False).encode(), ObjectId8.random())
