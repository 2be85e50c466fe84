"""Archives that are small and quick to write, and the comparison of a repository with its files."""

import contextlib
from dataclasses import replace
from pathlib import Path

import h5py
import icechunk
import netCDF4
import numpy as np
import xarray as xr
import zarr
from icechunk.credentials import LocalFileSystemAccess

import icevirt
from builds.xarray_answer import combined
from icevirt.archive.catalog import path_of
from icevirt.archive.scanned import DEFAULT
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.facts_reader import Chosen, read_facts
from icevirt.catalog.parquet import read_table
from icevirt.catalog.parts import PartRows


def tables_of(outcomes, limits=DEFAULT):
    """Turn the outcomes of a part, scanned under ``limits``, into the rows of its three tables."""
    rows = PartRows(limits)
    for outcome in outcomes:
        rows.add(outcome)
    tables = rows.tables()
    return replace(tables, refs=list(tables.refs))


def closed_of(storage, names):
    """Read the facts of whole parts, as a build does that was given their files."""
    columns = ["url", "size", "etag", "last_modified", "row"]
    tables = [read_table(storage, path_of("files", name), columns).to_pylist() for name in names]
    rows = [(part, row.pop("row"), row) for part, table in enumerate(tables) for row in table]
    chosen = Chosen(
        part=np.array([part for part, _, _ in rows], np.int32),
        row=np.array([row for _, row, _ in rows], np.int32),
    )
    files = SourceFiles(SourceFile(**output) for _, _, output in rows)
    return read_facts(storage, files, names, chosen)


def output(catalog):
    """Return what a view says of a catalog, times of scanning apart."""
    view = icevirt.catalog_view(catalog)
    tables = {}
    for name in ("files", "arrays", "attributes", "references"):
        found = getattr(view, name)().read_all().to_pydict()
        kept = [each for each in found if each not in ("seconds", "scanned_at")]
        rows = sorted(zip(*(map(repr, found[each]) for each in kept), strict=True))
        tables[name] = {each: [row[at] for row in rows] for at, each in enumerate(kept)}
    return tables


def write_day(path, day, *, steps=4, nx=6, ny=5, units="hours since 2001-01-01", scale=0.01):
    """Write one day of a packed, compressed variable with coordinates, as netCDF4 does."""
    with netCDF4.Dataset(path, "w") as file:
        file.title, file.day = "made for tests", np.int32(day)
        file.createDimension("time", None)
        file.createDimension("y", ny)
        file.createDimension("x", nx)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = units, "standard"
        time[:] = np.arange(steps) * 6.0 + 24.0 * day
        bounds = file.createVariable("time_bnds", "f8", ("time", "x"), chunksizes=(512, nx))
        bounds[:] = np.arange(steps * nx).reshape(steps, nx) + day
        for name, size in (("y", ny), ("x", nx)):
            file.createVariable(name, "f4", (name,))[:] = np.linspace(0, 1, size)
        packed = file.createVariable(
            "packed",
            "i2",
            ("time", "y", "x"),
            zlib=True,
            shuffle=True,
            chunksizes=(1, ny, nx),
            fill_value=np.int16(-999),
        )
        packed.set_auto_maskandscale(False)
        packed.scale_factor, packed.add_offset = np.float32(scale), np.float32(273.15)
        packed.units = "K"
        packed[:] = np.arange(steps * ny * nx).reshape(steps, ny, nx) + 7 * day
        packed[0, 0, 0] = -999
        mask = file.createVariable("mask", "i1", ("y", "x"))
        mask[:] = np.arange(ny * nx).reshape(ny, nx) % 2
    return str(path)


def write_days(folder, days=3, **options):
    """Write some days and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_day(folder / f"day{day}.nc", day, **options) for day in range(1, days + 1)]


def expected_dataset(files, concat_dim, **options):
    """Return what xarray makes of the files, by arguments that choose nothing by themselves."""
    if len(files) == 1:
        return xr.open_dataset(files[0], engine="netcdf4", **options)
    return combined(
        files,
        engine="netcdf4",
        combine="nested",
        concat_dim=concat_dim,
        join="exact",
        data_vars="minimal",
        coords="minimal",
        compat="equals",
        combine_attrs="override",
        **options,
    )


def opened(repo, **options):
    """Open a repository with the engine, everything in it authorised."""
    prefixes = list(icevirt.Repository.open(repo).config.virtual_chunk_containers)
    return xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=prefixes, **options
    )


def verified(repo, containers):
    """Compare every chunk of a repository with its file; return what was checked."""
    checked = icevirt.verify(repo, full=True, authorize_virtual_chunk_access=containers).checked
    assert not checked.differences
    assert not checked.not_compared
    return checked


def official(repo):
    """Open a repository with the official client, everything in it authorised."""
    storage = icechunk.local_filesystem_storage(repo)
    config = icechunk.Repository.fetch_config(storage)
    prefixes = list(config.virtual_chunk_containers or {}) if config else []
    return icechunk.Repository.open(
        storage, authorize_virtual_chunk_access=dict.fromkeys(prefixes, LocalFileSystemAccess)
    )


def opened_by_both(repo, report, **how):
    """Open with icevirt, every chunk verified, and compare with what the official client reads."""
    verified(repo, report.containers)
    ours = xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=report.containers, **how
    ).load()
    store = official(str(repo)).readonly_session("main").store
    theirs = xr.open_zarr(store, consolidated=False, chunks=None, **how)
    for name in ours.variables:
        np.testing.assert_array_equal(ours[name].values, theirs[name].values, err_msg=name)
    return ours


def assert_same_dataset(found, expected):
    """Values, dtypes, dimensions, coordinates, attributes with their types: all equal."""
    xr.testing.assert_identical(found.load(), expected.load())
    assert _attributes(found.attrs) == _attributes(expected.attrs)
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name
        assert _attributes(found[name].attrs) == _attributes(expected[name].attrs), name
        for key in ("units", "calendar", "_FillValue", "missing_value", "scale_factor"):
            ours, theirs = (d[name].encoding.get(key) for d in (found, expected))
            assert type(ours) is type(theirs), (name, key)
            assert ours == theirs or (ours != ours and theirs != theirs), (name, key)


def _attributes(found):
    return {
        name: (type(value), getattr(value, "dtype", None), np.asarray(value).tolist())
        for name, value in found.items()
    }


def assert_same_raw(store, files, axis_of):
    """Compare every array with what the C libraries read, joined along ``axis_of(name)``."""
    root = zarr.open_group(store, mode="r")
    with contextlib.ExitStack() as stack:
        variables = [_variables(stack, file) for file in files]
        assert {name for name, _ in root.arrays()} == set(variables[0])
        for name, array in root.arrays():
            parts = [_raw(held[name]) for held in variables]
            axis = axis_of(variables[0][name], array)
            raw = parts[0] if axis is None else np.concatenate(parts, axis)
            got = np.asarray(array[...])
            assert got.shape == raw.shape, name
            if raw.dtype.kind != "O":
                assert got.dtype == raw.dtype.newbyteorder("="), name
            np.testing.assert_array_equal(got, raw, err_msg=name)


def _variables(stack, file):
    """Open a file, NetCDF-3 by netCDF4 and all others by h5py, and return its variables."""
    if not h5py.is_hdf5(file):
        opened_file = stack.enter_context(netCDF4.Dataset(file))
        opened_file.set_auto_maskandscale(False)
        return opened_file.variables
    return {
        name: item
        for name, item in stack.enter_context(h5py.File(file)).items()
        if isinstance(item, h5py.Dataset) and not _dimension_only(item)
    }


def _raw(dataset):
    if h5py.check_string_dtype(dataset.dtype) and dataset.dtype.kind == "O":
        return dataset.asstr()[...]
    return dataset[...]


def _dimension_only(dataset):
    return b"not a netCDF variable" in bytes(dataset.attrs.get("NAME", b""))


def truncate(path):
    """Cut a file in the middle."""
    with Path(path).open("r+b") as file:
        file.truncate(Path(path).stat().st_size // 2)


def spoil(path):
    """Replace a file by what no scanner reads, and return what it was."""
    was = Path(path).read_bytes()
    Path(path).write_bytes(b"nothing that anybody reads")
    return was
