"""Values that xarray masks in a file are masked by the engine and by official readers, too."""

import h5py
import numpy as np
import pytest
import xarray as xr
from numpy import complex64, complex128, float64

import icevirt
from builds.support import official, opened
from icevirt.api.scan import scan_file
from icevirt.errors import CombineError
from long_forms import crossed

C8, FILL = np.array([1, 2j, 9 + 1j, 9], "c8"), "_FillValue"

# what the variable holds, its attributes; what other readers can be told
MASKED = {
    "complex128": (C8.astype("c16"), {FILL: complex128(9 + 1j)}),
    "complex64": (C8, {FILL: complex64(9 + 1j)}),
    "wider and equal": (C8, {FILL: complex128(9 + 1j)}),
    "a real number": (C8, {FILL: float64(9)}),
    "an integer": (C8, {FILL: np.int32(9)}),
    "one value in an array": (C8, {FILL: np.array([9 + 1j], "c8")}),
    "NaN": (C8, {FILL: complex64(complex(np.nan, 0))}),
    "infinite": (np.array([1, complex(np.inf, -np.inf)], "c8"), {FILL: complex64("inf-infj")}),
    "complex missing_value": (C8, {"missing_value": complex64(9 + 1j)}),
    "both, equal": (C8, {FILL: complex64(9 + 1j), "missing_value": complex64(9 + 1j)}),
    "two values, one real": (C8, {FILL: np.array([9 + 1j, 1], "c8")}),
    "a real missing_value beside": (C8, {FILL: complex64(9 + 1j), "missing_value": complex64(9)}),
    "big-endian": (C8.astype(">c8"), {FILL: np.array(9 + 1j, ">c8")}),
    "complex on floats": (np.array([1, 9], "f4"), {FILL: complex64(9)}),
    "complex on integers": (np.array([1, 9], "i2"), {FILL: complex64(9)}),
    "booleans": (np.array([True, False]), {FILL: np.True_}),
    "an integer on booleans": (np.array([True, False]), {FILL: np.int8(0)}),
    "a boolean on integers": (np.array([1, 9], "i2"), {FILL: np.True_}),
}
# not one value of the type: the engine masks as xarray does, others see text
KEPT = {
    "two complex values": (C8, {FILL: np.array([9 + 1j, 2j], "c8")}),
    "two complex missing values": (C8, {"missing_value": np.array([9 + 1j, 2j], "c8")}),
    "not exact": (np.array([0.1, 9], "c8"), {FILL: complex128(0.1)}),
    "not equal": (C8, {FILL: complex64(9 + 1j), "missing_value": complex64(2j)}),
    "imaginary on floats": (np.array([1, 9], "f4"), {FILL: complex64(9 + 1j)}),
    "no boolean": (np.array([True, False]), {FILL: np.int8(2)}),
}
UNSEEN = {"two complex values", "two complex missing values", "not equal"}


def write(path, cases):
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", data=np.arange(4.0))
        x.make_scale("x")
        for name, (values, attributes) in cases.items():
            variable = file.create_dataset(name, data=values)
            variable.attrs.update(attributes)
    return path


def decoded(path, name):
    """Return what xarray makes of a variable as h5py reads it."""
    with h5py.File(path) as file:
        values, attributes = file[name][...], dict(file[name].attrs)
    dims = tuple(f"n{axis}" for axis in range(values.ndim))
    return xr.conventions.decode_cf_variable(name, xr.Variable(dims, values, attributes)).values


def assert_same(found, wanted):
    if wanted.dtype == object:  # booleans and NaN
        assert list(map(str, found)) == list(map(str, wanted))
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fills")
    source = write(folder / "fills.h5", MASKED | KEPT)
    icevirt.build([str(source)], str(folder / "repo"), executor="in-process")
    return source, str(folder / "repo")


@pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")
@pytest.mark.parametrize("name", MASKED | KEPT)
def test_the_engine_masks_what_xarray_masks_in_the_file(name, archive):
    source, repo = archive
    assert_same(opened(repo)[name].values, decoded(source, name))


@pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")
@pytest.mark.parametrize("name", MASKED)
def test_official_readers_mask_the_same(name, archive):
    source, repo = archive
    store = official(repo).readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False, drop_variables=list(KEPT))[name]
    assert_same(found.values, decoded(source, name))


@pytest.mark.parametrize("name", ["complex64", "complex missing_value", "two complex values"])
def test_undecoded_attributes_are_those_of_the_file(name, archive):
    found = opened(archive[1], decode_cf=False)[name].attrs
    _, wanted = (MASKED | KEPT)[name]
    if name == "two complex values":  # of which xarray reads only one as _FillValue
        wanted = {"missing_value": np.sort(wanted[FILL])}
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype
        np.testing.assert_array_equal(found[key], value)


def test_the_scan_tells_of_each_fill_value_that_others_do_not_see(archive):
    said = " ".join(each.message for each in scan_file(archive[0]).findings)
    _, _, hidden = said.partition("readers other than icevirt do not mask")
    assert {name for name in MASKED | KEPT if f"/{name}" in hidden} == UNSEEN


@pytest.mark.parametrize("kind", ["M8[s]", "V2"])
def test_a_fill_value_of_no_number_is_left_out_and_the_reason_is_true(kind, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dtype = h5py.opaque_dtype(np.dtype(kind))
        file.create_dataset("v", data=np.zeros(2, kind).astype(dtype))
        file["v"].attrs.create(FILL, np.zeros((), kind).astype(dtype), dtype=dtype)
    scanned = scan_file(tmp_path / "f.h5")
    assert FILL not in scanned.array("v").attributes.values
    message = next(each.message for each in scanned.findings if each.code == "fill-value-left-out")
    assert "take a number there, and only on variables of numbers" in message


@pytest.mark.parametrize(
    ("name", "chunks"), crossed(["", *list(MASKED)[1:5]], [None, (1, 4)]), ids=str
)
def test_steps_that_no_file_holds_are_missing_complex_numbers(name, chunks, tmp_path):
    attributes = MASKED[name][1] if name else {}
    for day in range(3):
        with h5py.File(tmp_path / f"{day}.h5", "w") as file:
            time = file.create_dataset("time", data=[day])
            time.attrs["units"] = "days since 2000-01-01"
            time.make_scale("time")
            for name in ("a", "b")[: 1 + (day != 1)]:
                variable = file.create_dataset(name, data=C8[None], chunks=chunks)
                variable.attrs.update(attributes)
                variable.dims[0].attach_scale(time)
    repo = str(tmp_path / "repo")
    options = {"missing": "reserve"}
    icevirt.build([f"{tmp_path}/*.h5"], repo, combine_options=options, executor="in-process")
    whole = decoded(tmp_path / "0.h5", "b")[0]
    gone = np.full(4, complex(np.nan, np.nan))
    np.testing.assert_array_equal(opened(repo)["b"].values, [whole, gone, whole])
    np.testing.assert_array_equal(opened(repo)["a"].values, [whole] * 3)


def test_files_whose_complex_fill_values_differ_are_refused_by_both_values(tmp_path):
    for number, fill in enumerate((9 + 1j, 9 + 2j)):
        write(tmp_path / f"{number}.h5", {"v": (C8, {FILL: complex64(fill)})})
    options = {"labels": "{n:d}.h5"}
    with pytest.raises(CombineError) as caught:
        icevirt.plan([f"{tmp_path}/*.h5"], combine_options=options, executor="in-process")
    assert "_FillValue (9+1j)" in str(caught.value)
    assert "_FillValue (9+2j)" in str(caught.value)
