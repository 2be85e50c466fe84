"""Groups of a snapshot as xarray variables, compared with what the netCDF engine shows."""

import json
import threading
import warnings
from dataclasses import replace

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from xarray.backends.store import StoreBackendEntrypoint
from xarray.core.indexing import BasicIndexer

import icevirt
from access.xarray.compare import same, same_dataset
from access.xarray.netcdf import translate, write_odd
from icevirt.access.columns.stored_array import StoredArray
from icevirt.access.store.reading import SessionReader
from icevirt.access.xarray.datastore import (
    IcevirtDataStore,
    LazyArray,
    file_attributes,
    fill_value,
)
from icevirt.errors import InvalidInputError, NodeNotFoundError
from icevirt.model.snapshot import node_of


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    path = tmp_path_factory.mktemp("odd") / "odd.nc"
    write_odd(path)
    return path, *translate(path)


def open_icevirt(odd, group="/", **decoders):
    _, store, snapshot = odd
    return StoreBackendEntrypoint().open_dataset(
        IcevirtDataStore(store, snapshot, group), **decoders
    )


OPTIONS = {
    "decoded": {},
    "raw": {
        "mask_and_scale": False,
        "decode_times": False,
        "concat_characters": False,
        "decode_coords": False,
    },
    "without characters": {"concat_characters": False},
    "without times": {"decode_times": False},
    "with all coordinates": {"decode_coords": "all"},
    "with timedeltas": {"decode_timedelta": True},
    "less one": {"drop_variables": ["packed"]},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("group", ["/", "/inner", "inner/most"])
def test_a_group_shows_what_the_netcdf_engine_shows(odd, options, group):
    defaults = {"decode_timedelta": False} | options
    theirs = xr.open_dataset(odd[0], engine="netcdf4", group=group, **defaults)
    ours = open_icevirt(odd, group, **defaults)
    with theirs:
        same_dataset(ours, theirs)


def test_indexing_before_loading_reads_the_same(odd):
    ours, theirs = open_icevirt(odd), xr.open_dataset(odd[0], engine="netcdf4")
    with theirs:
        for pick in (
            {"x": 1},
            {"x": [2, 0]},
            {"x": slice(None, None, -1), "time": 2},
            {"x": xr.DataArray([0, 1], dims="p"), "time": xr.DataArray([3, 1], dims="p")},
        ):
            for name in ("packed", "real", "names", "station"):
                picked = {k: v for k, v in pick.items() if k in ours[name].dims}
                xr.testing.assert_equal(ours[name].isel(picked), theirs[name].isel(picked))


def test_a_dataset_opened_here_can_be_written_to_netcdf_again(odd, tmp_path):
    ours = open_icevirt(odd, decode_timedelta=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours.to_netcdf(tmp_path / "again.nc", engine="netcdf4")
    with (
        xr.open_dataset(tmp_path / "again.nc", decode_timedelta=False) as again,
        xr.open_dataset(odd[0], decode_timedelta=False) as theirs,
    ):
        xr.testing.assert_identical(again, theirs)


def test_a_missing_group_is_named(odd):
    with pytest.raises(NodeNotFoundError, match="outer"):
        open_icevirt(odd, "/outer")


def test_an_array_is_no_dataset(odd):
    with pytest.raises(InvalidInputError, match="group='/'"):
        open_icevirt(odd, "/packed")


def test_unnamed_dimensions_are_shared_by_length_as_netcdf_does(odd, tmp_path):
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["a"] = np.zeros((2, 3, 2))
        file["b"] = np.zeros((3,))
    with netCDF4.Dataset(tmp_path / "plain.h5") as file:
        named = {name: v.dimensions for name, v in file.variables.items()}
    store, snapshot = translate(tmp_path / "plain.h5")
    nodes = []
    for node in snapshot.nodes:
        document = json.loads(node.user_data)
        document.pop("dimension_names", None)
        nodes.append(node_of(node.path, json.dumps(document).encode(), node.id))
    shown = IcevirtDataStore(store, replace(snapshot, nodes=tuple(nodes)), "/")
    assert {name: v.dims for name, v in shown.get_variables().items()} == named
    assert shown.get_dimensions() == {"phony_dim_0": 2, "phony_dim_1": 3, "phony_dim_2": 2}


FILLS = {
    "base64 as xarray writes it": ("AAAAAAAA+H8=", "f8", np.nan),
    "a plain number": (1e20, "f4", 1e20),
    "a word": ("NaN", "f4", np.nan),
    "an integer": (-999, "i2", -999),
    "text": ("-", "S1", b"-"),
    "a string": ("-", object, "-"),
    "complex": (["AAAAAAAA8D8=", "AAAAAAAA8D8="], "c16", 1 + 1j),
}


@pytest.mark.parametrize(("written", "dtype", "meant"), FILLS.values(), ids=FILLS.keys())
def test_fill_values_of_foreign_repositories_are_understood(written, dtype, meant):
    np.testing.assert_equal(fill_value(written, np.dtype(dtype)), meant)


@pytest.mark.parametrize("extension", [None, 3, [], {}, {"attribute_dtypes": None}])
def test_an_extension_of_another_form_is_ignored(extension):
    assert file_attributes({"attributes": {"a": 1}, "icevirt": extension}) == {"a": 1}


MOVED = {"replaced_attributes": {"_FillValue": ["-", None], "missing_value": [None, "-"]}}


def test_attributes_that_were_changed_for_other_readers_are_shown_as_in_the_file():
    document = {"attributes": {"units": "1", "missing_value": "-"}, "icevirt": MOVED}
    assert file_attributes(document, np.dtype("S1")) == {"_FillValue": b"-", "units": "1"}


def test_attributes_that_somebody_changed_again_stay_so():
    document = {"attributes": {"missing_value": "?"}, "icevirt": MOVED}
    assert file_attributes(document, np.dtype("S1")) == {"missing_value": "?"}


EDITED = {
    "text for a number": ("i2", "unknown"),
    "text that looks like base64": ("f4", "abcd"),
    "a fraction for an integer": ("i2", 0.5),
    "a number out of range": ("i1", 1000),
    "more digits than single precision has": ("f4", 0.1),
    "a list with text": ("f4", [1.0, "x"]),
    "null": ("f8", None),
    "an object": ("f8", {"a": 1}),
    "a dtype that does not exist": ("q17", 1),
}


@pytest.mark.parametrize(("dtype", "value"), EDITED.values(), ids=EDITED.keys())
def test_an_attribute_edited_through_zarr_shows_what_was_written(dtype, value):
    """zarr keeps the record of dtypes when attributes are updated."""
    document = {"attributes": {"a": value}, "icevirt": {"attribute_dtypes": {"a": dtype}}}
    found = file_attributes(document)["a"]
    assert found == value
    assert type(found) is type(value)


KEPT = {
    "an integer": ("i2", 3, np.int16(3)),
    "single precision": ("f4", float(np.float32(0.1)), np.float32(0.1)),
    "a word": ("f4", "-Infinity", np.float32("-inf")),
    "a list": ("u1", [1, 2], np.array([1, 2], "u1")),
    "a whole number for a float": ("f8", 1, np.float64(1)),
}


@pytest.mark.parametrize(("dtype", "value", "meant"), KEPT.values(), ids=KEPT.keys())
def test_an_attribute_gets_its_dtype_back(dtype, value, meant):
    document = {"attributes": {"a": value}, "icevirt": {"attribute_dtypes": {"a": dtype}}}
    same(file_attributes(document)["a"], meant)


def test_indexes_of_a_dataset_on_a_server_are_read_side_by_side_and_once(tmp_path, monkeypatch):
    """What stays of them is a copy: to change values of the dataset changes no later read."""
    names = "abcd"
    axes = {name: (name, np.arange(3.0) + at) for at, name in enumerate(names)}
    xr.Dataset(coords=axes).to_zarr(
        (session := writable(tmp_path)).store, zarr_format=3, consolidated=False
    )
    session.commit("axes")
    monkeypatch.setattr(SessionReader, "is_far", True)
    met, read, before = threading.Barrier(len(names)), [], StoredArray.oindex

    def oindex(self, key):
        read.append(self.zarr.path)
        if len(read) <= len(names):
            met.wait(20)
        return before(self, key)

    monkeypatch.setattr(StoredArray, "oindex", oindex)
    with icevirt.open(tmp_path / "repo") as ds:
        assert sorted(read) == [*names]
        np.testing.assert_array_equal(ds.a, np.arange(3.0))
    lazy = LazyArray(StoredArray(session.store, session.snapshot.node("/a")))
    lazy.read_ahead()
    key = BasicIndexer((slice(None),))
    lazy[key][:] = -1
    np.testing.assert_array_equal(lazy[key], np.arange(3.0))


def writable(tmp_path):
    return icevirt.Repository.create(tmp_path / "repo").writable_session("main")
