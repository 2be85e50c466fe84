"""Our own scanners pass the suite that other people's are given."""

import json

import h5py
import netCDF4
import numpy as np
import pytest
from kerchunk.hdf import SingleHdf5ToZarr

from icevirt.scan.contract import ScannerOptions
from icevirt.testing.samples import Expected, Sample
from icevirt.testing.scanners import ScannerConformance
from icevirt_scanners.hdf5.scanner import Hdf5Scanner
from icevirt_scanners.kerchunk.scanner import KerchunkScanner
from icevirt_scanners.netcdf3.scanner import NetCDF3Scanner
from icevirt_scanners.virtualizarr.scanner import VirtualizarrScanner


def write(path, data_model="NETCDF4", *, text=True):
    """Write a file with groups, coordinates, packed, big-endian, scalar and empty variables."""
    grouped = data_model == "NETCDF4"
    with netCDF4.Dataset(path, "w", format=data_model) as file:
        file.title = "made for tests"
        for name, length in (("time", None), ("y", 4), ("x", 5)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(6) / 4
        more = {"zlib": True, "shuffle": True, "chunksizes": (2, 4, 5)} if grouped else {}
        packed = file.createVariable("packed", "i2", ("time", "y", "x"), fill_value=-9, **more)
        packed.set_auto_maskandscale(False)
        packed.scale_factor = np.float32(0.25)
        packed[:] = np.arange(120).reshape(6, 4, 5)
        order = {"endian": "big"} if grouped else {}
        big = file.createVariable("big", ">f4" if grouped else "f4", ("y", "x"), **order)
        big[:] = np.linspace(0, 1, 20).reshape(4, 5)
        big.limits = np.array([0, 1], "f4")
        file.createVariable("x", "i4", ("x",))[:] = np.arange(5)
        file.createVariable("scalar", "f8", ())[:] = 2.5
        if text:
            file.createVariable("letters", "S1", ("y",))[:] = np.array(list("abcd"), "S1")
        if grouped:
            inner = file.createGroup("in/deep")
            inner.createVariable("v", "u4", ("y",))[:] = np.arange(4)


def by_netcdf4(path, *, attributes=True):
    """Return what netCDF4 reads, all groups."""

    def read():
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            file.set_auto_chartostring(False)
            return dict(below(file))

    def below(group):
        for variable in group.variables.values():
            held = {name: variable.getncattr(name) for name in variable.ncattrs()}
            yield (
                f"{group.path.rstrip('/')}/{variable.name}",
                Expected(
                    values=np.asarray(variable[...]),
                    attributes=held if attributes else None,
                    dimensions=variable.dimensions,
                ),
            )
        for inner in group.groups.values():
            yield from below(inner)

    return read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Samples, which the suite leaves as they are: each is written once."""
    return tmp_path_factory.mktemp("samples")


class TestNetCDF3(ScannerConformance):
    """Three formats of the classic model."""

    @pytest.fixture
    def scanner(self):
        return NetCDF3Scanner()

    @pytest.fixture(params=["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
    def sample(self, request, folder):
        path = folder / f"{request.param}.nc"
        if not path.exists():
            write(path, request.param)
        return Sample(path=path, expected=by_netcdf4(path))


class TestHdf5(ScannerConformance):
    """NetCDF-4, old and latest HDF5."""

    damaged_copies = 20

    @pytest.fixture
    def scanner(self):
        return Hdf5Scanner()

    @pytest.fixture(params=["netcdf4", "earliest", "latest"])
    def sample(self, request, folder):
        path = folder / f"{request.param}.nc"
        is_there = path.exists()
        if request.param == "netcdf4":
            if not is_there:
                write(path)
            return Sample(path=path, expected=by_netcdf4(path))
        if is_there:
            return Sample(path=path, expected=lambda: self.by_h5py(path))
        with h5py.File(path, "w", libver=request.param) as file:
            file.create_dataset("in/v", data=np.arange(100).reshape(10, 10), chunks=(3, 3))
            file.create_dataset("z", data=np.arange(30, dtype=">i2"), chunks=(7,), compression=4)
            file["z"].attrs["n"] = np.float32(3)
        return Sample(path=path, expected=lambda: self.by_h5py(path))

    @staticmethod
    def by_h5py(path):
        with h5py.File(path) as file:
            return {
                name: Expected(values=file[name][...], attributes=dict(file[name].attrs))
                for name in ("/in/v", "/z")
            }


class TestKerchunk(ScannerConformance):
    """References in JSON, the chunks in a NetCDF-4 file beside them."""

    @pytest.fixture
    def scanner(self):
        return KerchunkScanner()

    @pytest.fixture(params=[0, 200], ids=["linked", "small ones inline"])
    def sample(self, request, folder):
        target, path = folder / "target.nc", folder / f"refs{request.param}.json"
        if not target.exists():
            write(target, text=False)
        if not path.exists():
            held = SingleHdf5ToZarr(str(target), inline_threshold=request.param).translate()
            path.write_text(json.dumps(held))
        return Sample(path=path, expected=lambda: self.expected(target))

    @staticmethod
    def expected(target):
        """Return what netCDF4 reads; kerchunk forgets the types of attributes."""
        found = by_netcdf4(target, attributes=False)()
        return {name: Expected(values=held.values) for name, held in found.items()}


class TestVirtualiZarr(ScannerConformance):
    """A parser of VirtualiZarr, which is only used where it is named."""

    chosen_by_content = False
    damaged_copies = 5

    @pytest.fixture
    def scanner(self):
        return VirtualizarrScanner("HDFParser")

    @pytest.fixture
    def sample(self, folder):
        path = folder / "of_parser.nc"
        if not path.exists():
            write(path, text=False)
        return Sample(
            path=path, expected=by_netcdf4(path, attributes=False), options=ScannerOptions()
        )
