"""Random selections of virtual HDF5 files, as h5py has their values: eras, threads, forks."""

import multiprocessing
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import icevirt
from access.columns.test_selected_values import keys
from icevirt.connect.urls import file_url

COUNT = 3  # of the files
SHAPE = (4, 5, 6)  # of the variable in each of them
DTYPES = ["<i2", ">i2", "<i4", ">u4", "<f4", ">f4", "<f8", ">f8", "i1", "u1", "<i8", "S3"]
STORAGE = {
    "contiguous": {},
    "chunks": {"chunks": (1, 2, 4)},
    "deflate": {"chunks": (2, 5, 3), "compression": 1},
    "shuffle, deflate": {"chunks": (1, 3, 6), "compression": 4, "shuffle": True},
    "deflate, fletcher32": {"chunks": (3, 2, 2), "compression": 1, "fletcher32": True},
    "lzf": {"chunks": (2, 2, 2), "compression": "lzf"},
}


@dataclass(kw_only=True)
class Archive:
    """Files along time, their repository, and all values as h5py reads them."""

    repo: Path
    values: np.ndarray

    def variable(self, **options) -> xr.Variable:
        ds = xr.open_dataset(
            self.repo, engine="icevirt", decode_cf=False, cache=False,
            authorize_virtual_chunk_access=[file_url(self.repo.parent / "archive") + "/"],
            **options,
        )  # fmt: skip
        return ds["v"].variable

    def check(self, variable: xr.Variable, key: dict) -> None:
        names = {f"d{axis}": name for axis, name in enumerate(variable.dims)}
        named = {names[dim]: at for dim, at in key.items()}
        expected = xr.Variable(variable.dims, self.values).isel(named)
        found = variable.isel(named)
        assert found.dims == expected.dims
        np.testing.assert_array_equal(found.values, expected.values)


def build(folder: Path, dtype: str, storages: list[dict], *, scatter: bool = False) -> Archive:
    """Write a file for each storage, and build; files stored differently are other eras."""
    archive = folder / "archive"
    archive.mkdir()
    for number, storage in enumerate(storages):
        write(archive / f"{number}.nc", number, np.dtype(dtype), storage, scatter=scatter)
    icevirt.build(
        archive, folder / "repo", concat_dim="time", executor="in-process",
        combine_options={"on_mismatch": "eras"},
    )  # fmt: skip
    read = []
    for path in sorted(archive.iterdir()):
        with h5py.File(path) as file:
            read.append(file["v"][...])
    return Archive(repo=folder / "repo", values=np.concatenate(read))


def write(path: Path, number: int, dtype: np.dtype, storage: dict, *, scatter: bool) -> None:
    plain = np.arange(np.prod(SHAPE)).reshape(SHAPE) + 7 * number
    with h5py.File(path, "w") as file:
        time = file.create_dataset("time", data=np.arange(SHAPE[0]) + SHAPE[0] * number)
        time.make_scale("time")
        time.attrs["units"] = "days since 2000-01-01"
        variable = file.create_dataset("v", shape=SHAPE, dtype=dtype, **storage)
        values = plain.astype(dtype)
        if scatter:  # the chunks of the file lie in no order, and one of them is not there
            for step in (2, 0, 3):
                variable[step] = values[step]
        else:
            variable[...] = values
        variable.dims[0].attach_scale(time)
        for axis, name in enumerate(("time", "y", "x")):
            variable.dims[axis].label = name


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_random_files_and_selections(data):
    storage = STORAGE[data.draw(st.sampled_from(sorted(STORAGE)))]
    dtype = data.draw(st.sampled_from(DTYPES))
    with tempfile.TemporaryDirectory() as folder:
        scatter = data.draw(st.booleans())
        archive = build(Path(folder), dtype, [storage] * COUNT, scatter=scatter)
        shown = archive.variable()
        for _ in range(8):
            archive.check(shown, data.draw(keys(archive.values.shape)))


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_random_eras_and_selections(data):
    chosen = data.draw(st.permutations(sorted(set(STORAGE) - {"contiguous", "chunks"})))
    with tempfile.TemporaryDirectory() as folder:
        archive = build(Path(folder), "<f4", [STORAGE[name] for name in chosen[:COUNT]])
        shown = archive.variable(eras="concat")
        for _ in range(8):
            archive.check(shown, data.draw(keys(archive.values.shape)))


@pytest.fixture
def archive(tmp_path):
    return build(tmp_path, "<f4", [STORAGE["shuffle, deflate"]] * COUNT)


def test_threads_read_one_variable_side_by_side(archive):
    shown = archive.variable()
    rows = [[at % 12, (at * 5) % 12] for at in range(60)]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda each: shown.isel(time=each).values, rows))
    for each, values in zip(rows, read, strict=True):
        np.testing.assert_array_equal(values, archive.values[each])


def test_a_forked_child_reads_what_its_parent_opened_and_read(archive):
    shown = archive.variable()
    archive.check(shown, {})
    context = multiprocessing.get_context("fork")
    child = context.Process(target=archive.check, args=(shown, {"d0": slice(3, 9)}))
    child.start()
    child.join(60)
    assert child.exitcode == 0
