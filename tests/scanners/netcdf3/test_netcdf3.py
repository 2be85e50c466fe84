"""NetCDF-3 reads through zarr as netCDF4 reads it: values, dtypes, dimensions, attributes."""

from pathlib import Path

import iris_sample_data
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import netcdf3_cases as cases
from icevirt.api.scan import scan_file
from icevirt.model.attributes import restore
from icevirt.objects.opening import open_source
from icevirt.objects.source import LocalSource
from icevirt.scan.contract import Scanner, ScannerOptions
from icevirt.scan.registry import combine
from icevirt_scanners import encoding
from icevirt_scanners.netcdf3 import header, scanner
from icevirt_scanners.netcdf3.scanner import NetCDF3Scanner
from scanners.materialise import Materialised, materialise, store_of

REAL = ("space_weather.nc", "mesh_C4_synthetic_float.nc")


def scan(path, **options):
    with open_source(path) as source:
        how = ScannerOptions(strict=True, **options)
        scanned = combine(NetCDF3Scanner().scan(source, how), how)
        source.check_unchanged()
        return scanned


def shown(attributes):
    """Attributes as the engine shows them, what was moved for other readers taken back."""
    found = restore(attributes.values, attributes.dtypes)
    for name, (was, _) in attributes.replaced.items():
        found.pop(name, None)
        if was is not None:
            found[name] = was
    return found


def assert_attributes(found, owner):
    held = shown(found)
    wanted = {name: owner.getncattr(name) for name in owner.ncattrs()}
    assert set(held) == set(wanted)
    for name, value in wanted.items():
        assert type(held[name]) is type(value), name
        assert getattr(held[name], "dtype", None) == getattr(value, "dtype", None), name
        np.testing.assert_array_equal(held[name], value)


def assert_same(path, *, renamed=(), values=materialise, **options):
    scanned = scan(path, **options)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        assert_attributes(scanned.groups[0].attributes, file)
        assert [array.path for array in scanned.arrays] == [
            "/" + dict(renamed).get(name, name) for name in file.variables
        ]
        for array, variable in zip(scanned.arrays, file.variables.values(), strict=True):
            assert_attributes(array.attributes, variable)
            assert (array.dimension_names, array.shape) == (variable.dimensions, variable.shape)
            found, wanted = values(array), np.asarray(variable[...])
            assert found.dtype == wanted.dtype, array.path
            assert found.tobytes() == wanted.astype(found.dtype).tobytes(), array.path
            concat = options.get("concat_dim")
            assert bool(array.digest) == bool(concat and concat not in array.dimension_names)
            if array.path == f"/{concat}":
                labels = np.frombuffer(array.labels, array.labels_dtype)
                np.testing.assert_array_equal(labels, wanted)
    return scanned


@pytest.mark.parametrize("data_model", cases.FORMATS)
@pytest.mark.parametrize("case", cases.CASES)
def test_a_file_is_what_netcdf4_shows(case, data_model, tmp_path):
    path = cases.write(tmp_path / "a.nc", case, data_model)
    renamed = {"__x": "%5F_x", "zarr.json": "zarr%2Ejson"}
    codes = {"renamed"} if case == "odd_names" else set()
    values = Materialised()
    for concat_dim in (None, "time", "x"):
        scanned = assert_same(path, renamed=renamed, values=values, concat_dim=concat_dim)
        assert {finding.code for finding in scanned.findings} == codes


@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_what_netcdf4_shows(name):
    path = Path(iris_sample_data.path) / name
    values = Materialised()
    for concat_dim in (None, "height", "rLat", "nexample_C4_face"):
        assert not assert_same(path, values=values, concat_dim=concat_dim).findings


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("case", ["fixed", "records", "packed", "one_short", "large_records"])
def test_xarray_decodes_zarr_to_what_it_decodes_from_the_file(case, decode, tmp_path):
    path = cases.write(tmp_path / "a.nc", case, "NETCDF3_CLASSIC")
    found = xr.open_zarr(store_of(scan(path)), consolidated=False, decode_cf=decode).load()
    with xr.open_dataset(path, engine="netcdf4", decode_cf=decode) as wanted:
        assert set(found.variables) == set(wanted.variables)
        for name, variable in wanted.variables.items():
            assert found[name].dims == variable.dims
            if variable.dtype.kind == "f":  # zarr's JSON makes doubles of scale factors
                np.testing.assert_allclose(found[name].values, variable.values, atol=1e-4)
            else:
                np.testing.assert_array_equal(found[name].values, variable.values)


def test_records_that_are_worth_it_are_referenced_one_by_one(tmp_path):
    path = cases.write(tmp_path / "a.nc", "large_records", "NETCDF3_CLASSIC")
    scanned = scan(path, concat_dim="time")
    assert scanned.counts() == {"virtual": 21, "native": 0, "inline": 0}
    table = scanned.array("i2").references
    assert set(np.diff(table.offset).tolist()) == {331 * (4 + 8) + 664}  # 662 bytes, padded
    assert set(table.length.tolist()) == {662}


@pytest.mark.ci
def test_a_record_beyond_16_mib_is_split(tmp_path):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("time", None)
        file.createDimension("y", 5)
        file.createDimension("x", 1024 * 1024)
        file.createVariable("flag", "i1", ("time",))[:2] = [1, 2]
        big = file.createVariable("d", "f4", ("time", "y", "x"))
        big[:2] = np.arange(2 * 5 * 1024 * 1024, dtype="f4").reshape(2, 5, 1024, 1024)
    array = scan(path).array("d")
    assert array.chunk_shape == (1, 1, 1024 * 1024)
    assert len(array.references) == 10
    with netCDF4.Dataset(path) as file:
        np.testing.assert_array_equal(materialise(array), file["d"][:])


def test_crumbs_are_stored_not_referenced(tmp_path):
    path = cases.write(tmp_path / "a.nc", "records", "NETCDF3_CLASSIC")
    assert scan(path).counts()["virtual"] == 0
    assert scan(path, max_native_bytes=0, drop_variables=("time",)).counts()["inline"] == 0


def test_the_digest_is_that_of_the_same_values_in_netcdf_4(tmp_path):
    for name, data_model in (("3.nc", "NETCDF3_CLASSIC"), ("4.nc", "NETCDF4_CLASSIC")):
        cases.write(tmp_path / name, "fixed", data_model)
    three, four = (
        scan(tmp_path / "3.nc", concat_dim="t"),
        scan_file(tmp_path / "4.nc", concat_dim="t"),
    )
    assert {a.path: (a.digest, a.fill_value) for a in three.arrays} == {
        a.path: (a.digest, a.fill_value) for a in four.arrays
    }


@pytest.mark.parametrize("piece", [8, 64, 4096])
@pytest.mark.parametrize("near", [0, 10**6])
def test_values_read_in_pieces_are_the_same(piece, near, tmp_path, monkeypatch):
    path = cases.write(tmp_path / "a.nc", "records", "NETCDF3_CLASSIC")
    before = scan(path, concat_dim="x").arrays
    monkeypatch.setattr(scanner, "PIECE", piece)
    monkeypatch.setattr(scanner, "_NEAR", near)
    monkeypatch.setattr(encoding, "PIECE", piece)
    assert scan(path, concat_dim="x").arrays == before
    assert_same(path)


class Counting(LocalSource):
    """A remote file that remembers what was read of it."""

    local_path = None

    def read(self, offset, length):
        self.reads = [*getattr(self, "reads", []), (offset, length)]
        return super().read(offset, length)


def test_only_the_header_and_what_is_stored_is_read(tmp_path, monkeypatch):
    path = cases.write(tmp_path / "a.nc", "large_records", "NETCDF3_CLASSIC")
    for first in (4, 100, 64 * 1024):
        monkeypatch.setattr(header, "_FIRST", first)
        with Counting(str(path)) as source:
            scanned = NetCDF3Scanner().scan(source, ScannerOptions())
        assert scanned == scan(path)
        assert len(source.reads) <= 6
        assert max(offset + length for offset, length in source.reads) <= max(4 * 300, first)


def test_a_scanner_it_is():
    scanner = NetCDF3Scanner()
    assert isinstance(scanner, Scanner)
    assert [scanner.accepts(b"CDF" + bytes([n])) for n in range(7)] == [
        n in (1, 2, 5) for n in range(7)
    ]
    assert not scanner.accepts(b"CDF")


@settings(max_examples=20)
@given(
    variables=st.lists(
        st.tuples(
            st.sampled_from(["S1", *cases.CLASSIC]),
            st.booleans(),
            st.lists(st.integers(0, 2), max_size=2),
        ),
        max_size=5,
    ),
    lengths=st.lists(st.integers(1, 7), min_size=3, max_size=3),
    records=st.integers(0, 5),
    data_model=st.sampled_from(cases.FORMATS),
    concat_dim=st.sampled_from([None, "t", "d0"]),
)
def test_random_files_are_what_netcdf4_shows(
    variables, lengths, records, data_model, concat_dim, tmp_path_factory
):
    path = tmp_path_factory.mktemp("random") / "a.nc"
    with netCDF4.Dataset(path, "w", format=data_model) as file:
        file.createDimension("t", None)
        for number, length in enumerate(lengths):
            file.createDimension(f"d{number}", length)
        for number, (dtype, moving, axes) in enumerate(variables):
            dims = ("t",) * moving + tuple(f"d{axis}" for axis in axes)
            shape = (records,) * moving + tuple(lengths[axis] for axis in axes)
            made = file.createVariable(f"v{number}", dtype, dims)
            raw = np.arange(int(np.prod(shape))) % 90 + 33
            made[...] = (
                raw.astype("u1").view("S1") if dtype == "S1" else raw.astype(dtype)
            ).reshape(shape)
    assert_same(path, concat_dim=concat_dim)
