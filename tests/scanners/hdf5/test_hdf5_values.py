"""Every odd file reads through zarr as h5py reads it, or is refused with a clear error."""

import h5py
import netCDF4
import numpy as np
import pytest

from fixtures import hdf5_cases
from icevirt.api.scan import scan_file
from icevirt.errors import ScanError, UnsupportedError
from icevirt_scanners.hdf5 import filters
from scanners.materialise import Materialised, materialise

READABLE = {name: case for name, case in hdf5_cases.CASES.items() if not case.refused}
REFUSED = {name: case for name, case in hdf5_cases.CASES.items() if case.refused}


def assert_same(found, wanted, path):
    wanted = np.asarray(wanted)
    if wanted.dtype.kind == "O":  # strings
        texts = [text.decode("utf-8", "surrogateescape") for text in wanted.reshape(-1).tolist()]
        shown = [
            text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else str(text)
            for text in found.reshape(-1).tolist()
        ]
        assert (found.shape, shown) == (wanted.shape, texts), path
        return
    assert found.shape == wanted.shape, path
    if wanted.dtype.names:
        assert found.dtype.names == wanted.dtype.names
        for name in wanted.dtype.names:
            assert_same(found[name], wanted[name], f"{path}.{name}")
        return
    assert found.dtype == wanted.dtype.newbyteorder("="), path
    assert found.tobytes() == wanted.astype(found.dtype).tobytes(), path


def oracle(file: h5py.File, path: str, shape):
    """What h5py reads; netCDF's longer unlimited axes are filled."""
    group, _, name = path.rpartition("/")
    hidden = f"{group}/_nc4_non_coord_{name}"
    dataset = file[hidden if hidden in file else path]
    values = dataset[...]
    if dataset.dtype.kind == "O" and dataset.shape == ():
        values = np.array(values, object)
    if values.shape == shape:
        return values
    full = np.full(shape, dataset.fillvalue, values.dtype)
    full[tuple(slice(n) for n in values.shape)] = values
    return full


@pytest.mark.parametrize("name", READABLE)
def test_every_array_equals_what_h5py_reads(name, tmp_path):
    """Whatever dimension files are concatenated along: one of the array, and one that it lacks."""
    case, path = READABLE[name], tmp_path / "odd.h5"
    case.write(path)
    scanned = scan_file(path, scan_options={"drop_variables": case.drop})
    assert set(case.codes) <= {finding.code for finding in scanned.findings}, case.odd
    values = Materialised()
    assert_equal_to_h5py(scanned, None, path, case, values)
    own = {name for array in scanned.arrays for name in array.dimension_names}
    for concat in ("time", *{"phony_dim_0"} & own):
        again = scan_file(path, scan_options={"drop_variables": case.drop}, concat_dim=concat)
        assert_equal_to_h5py(again, concat, path, case, values)


def assert_equal_to_h5py(scanned, concat, path, case, values):
    with h5py.File(path) as file:
        for array in scanned.arrays:
            key = array.path.strip("/")
            wanted = (
                case.expected[key]
                if key in case.expected
                else oracle(file, array.path, array.shape)
            )
            assert_same(values(array), wanted, array.path)
            if concat and concat not in array.dimension_names:
                assert array.digest
            if array.path == f"/{concat}":
                assert np.frombuffer(array.labels, array.labels_dtype).shape == array.shape


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_represented_is_refused_by_name(name, tmp_path):
    case, path = REFUSED[name], tmp_path / "odd.h5"
    case.write(path)
    with pytest.raises(ScanError, match=case.refused) as caught:
        scan_file(path)
    assert "/d" in str(caught.value)
    assert "drop_variables" in str(caught.value)
    scan_file(path, scan_options={"drop_variables": ["d"]})


@pytest.mark.parametrize("name", [n for n in READABLE if n.startswith("nc_")])
def test_no_variable_and_no_dimension_of_netcdf_is_lost(name, tmp_path):
    path = tmp_path / "odd.nc"
    READABLE[name].write(path)
    scanned = scan_file(path)
    with netCDF4.Dataset(path) as file:
        wanted = {}
        pending = [("", file)]
        while pending:
            prefix, group = pending.pop()
            pending += [(f"{prefix}/{key}", inner) for key, inner in group.groups.items()]
            for key, variable in group.variables.items():
                wanted[f"{prefix}/{key}"] = (variable.dimensions, variable.shape)
    assert {a.path: (a.dimension_names, a.shape) for a in scanned.arrays} == wanted


def test_without_its_plugin_a_filter_that_zarr_knows_is_referenced_all_the_same(
    tmp_path, monkeypatch
):
    path = tmp_path / "a.nc"
    hdf5_cases.CASES["nc_plugins"].write(path)
    with_plugins = scan_file(path)
    monkeypatch.setattr(filters.h5z, "filter_avail", lambda code: code < 256)
    without = scan_file(path, concat_dim="time")
    for array in without.arrays:
        assert array.references == with_plugins.array(array.path).references
        assert len(array.digest) == 32
    again = scan_file(path, concat_dim="time")
    assert [a.digest for a in again.arrays] == [a.digest for a in without.arrays]


def test_without_its_plugin_values_that_must_be_read_are_refused(tmp_path, monkeypatch):
    hdf5_cases.CASES["lzf"].write(tmp_path / "a.h5")
    monkeypatch.setattr(filters.h5z, "filter_avail", lambda code: code < 256)
    with pytest.raises(UnsupportedError, match="lzf") as caught:
        scan_file(tmp_path / "a.h5")
    assert caught.value.facts["variable"] == "/d"
    assert "hdf5plugin" in str(caught.value)


def test_second_names_of_datasets_are_arrays_and_those_of_groups_are_reported(tmp_path):
    hdf5_cases.CASES["links"].write(tmp_path / "a.h5")
    scanned = scan_file(tmp_path / "a.h5")
    arrays = {array.path: array.references for array in scanned.arrays}
    assert set(arrays) == {"/g/h/real", "/hard", "/soft", "/relative"}
    assert all(table == arrays["/hard"] for table in arrays.values())
    assert [group.path for group in scanned.groups] == ["/", "/g", "/g/h"]
    assert {(finding.path, finding.code) for finding in scanned.findings} == {
        ("/g/h/up", "linked-group"),
        ("/soft_group", "linked-group"),
        ("/g/h/real", "linked-dataset"),  # the root is walked first
        ("/soft", "linked-dataset"),
        ("/relative", "linked-dataset"),
        ("/dangling", "dangling-link"),
        ("/loop", "dangling-link"),
        ("/through", "dangling-link"),
        ("/outside", "external-link"),
    }


def test_the_names_of_an_enumeration_are_reported(tmp_path):
    hdf5_cases.CASES["enums"].write(tmp_path / "a.h5")
    findings = scan_file(tmp_path / "a.h5").findings
    output = {f.path: f.message for f in findings if f.code == "values-have-names"}
    assert output == dict.fromkeys(["/kind", "/holes"], "an enumeration: A=0, B=5")


def test_a_coordinate_beyond_the_budget_is_referenced_unless_it_orders_the_files(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(1000.0)
        file["x"].make_scale("x")
    assert scan_file(path, scan_options={"max_native_bytes_per_file": 8000}).array("x").whole
    assert not scan_file(path, scan_options={"max_native_bytes_per_file": 7999}).array("x").whole
    with pytest.raises(UnsupportedError, match="too large"):
        scan_file(path, scan_options={"max_native_bytes_per_file": 7999}, concat_dim="x")


def test_a_budget_of_nothing_refuses_what_must_be_stored(tmp_path):
    hdf5_cases.CASES["szip"].write(tmp_path / "a.h5")
    with pytest.raises(UnsupportedError, match=r"szip.*") as caught:
        scan_file(tmp_path / "a.h5", scan_options={"max_native_bytes_per_file": 100})
    assert caught.value.facts["variable"] == "/d"
    assert "drop_variables" in str(caught.value)


def test_a_mask_that_all_chunks_share_is_referenced_when_the_budget_is_short(tmp_path):
    hdf5_cases.CASES["mask_all_chunks"].write(tmp_path / "a.h5")
    scanned = scan_file(tmp_path / "a.h5", scan_options={"max_native_bytes_per_file": 100})
    assert scanned.counts()["inline"] == 0
    assert_same(materialise(scanned.array("d")), hdf5_cases.CUBE, "d")


@pytest.mark.parametrize("name", ["shuffle_only", "shuffle_only_latest", "early_allocation"])
def test_edges_whose_filter_keeps_their_size_are_referenced(name, tmp_path):
    hdf5_cases.CASES[name].write(tmp_path / "a.h5")
    assert (
        scan_file(tmp_path / "a.h5", scan_options={"max_native_bytes_per_file": 0}).counts()[
            "inline"
        ]
        == 0
    )
