"""Overviews are groups that the root group lists, also where files are stacked; all is verified."""

import numpy as np
import pytest
import xarray as xr
import zarr
from rasterio.transform import Affine

import icevirt
from builds.support import official
from icevirt.errors import CombineError
from scanners.tiff.tiff_files import by_gdal, read_gdal, values

LABELS = {"labels": "s_{time:%Y%m%d}.tif"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Two COGs, stacked along the dates in their names."""
    folder = tmp_path_factory.mktemp("cogs")
    for day in (1, 2):
        data = values("int16", (2, 300, 201), seed=day)
        how = {"compress": "deflate", "predictor": "YES", "blocksize": 128, "nodata": -5}
        by_gdal(folder / f"s_2024010{day}.tif", data, driver="COG", **how)
    report = icevirt.build(
        str(folder / "*.tif"),
        folder / "repo",
        combine_options=LABELS,
        executor="in-process",
    )
    return folder, report


def read(folder, level=None):
    return np.stack([read_gdal(path, level)[0] for path in sorted(folder.glob("*.tif"))])


def test_a_stack_is_what_rioxarray_shows_with_a_time(stack):
    folder, _ = stack
    with xr.open_dataset(folder / "repo", engine="icevirt", mask_and_scale=False) as found:
        assert found["band_data"].dims == ("time", "band", "y", "x")
        assert {*found.coords} == {"time", "band", "y", "x", "spatial_ref"}
        assert found["time"].dt.day.values.tolist() == [1, 2]
        assert found["spatial_ref"].attrs["grid_mapping_name"] == "transverse_mercator"
        assert found["spatial_ref"].attrs["GeoTransform"] == "500000.3 10.0 0.0 5000000.7 0.0 -10.0"
        assert found["band_data"].attrs["_FillValue"] == -5
        np.testing.assert_array_equal(found["band_data"], read(folder))


def test_overviews_are_groups_that_the_root_lists_by_the_convention(stack):
    folder, _ = stack
    root = zarr.open_group(official(folder / "repo").readonly_session("main").store, mode="r")
    fine, coarse, _ = root.attrs["multiscales"]["layout"]
    assert fine["asset"] == "band_data"
    assert coarse["derived_from"] == "band_data"
    assert coarse["transform"]["scale"] == [1, 1, 2, 201 / 100]
    np.testing.assert_array_equal(root[coarse["asset"]][...], read(folder, 0))


@pytest.mark.parametrize(
    "how", [{"interleave": "pixel"}, {"interleave": "band"}, {"compress": "lerc_zstd"}]
)
def test_images_of_lerc_are_stacked(how, tmp_path):
    for day in (1, 2):
        data = values("int16", (2, 40, 50), seed=day)
        by_gdal(
            tmp_path / f"s_2024010{day}.tif",
            data,
            **{"compress": "lerc", "tiled": True, "blockxsize": 16, "blockysize": 32} | how,
        )
    icevirt.build(
        str(tmp_path / "*.tif"), tmp_path / "repo", combine_options=LABELS, executor="in-process"
    )
    array = zarr.open_group(official(tmp_path / "repo").readonly_session("main").store, mode="r")[
        "band_data"
    ]
    np.testing.assert_array_equal(array[...], read(tmp_path))
    with xr.open_dataset(tmp_path / "repo", engine="icevirt", mask_and_scale=False) as found:
        np.testing.assert_array_equal(found["band_data"], read(tmp_path))


def test_an_overview_that_is_opened_alone_has_the_dimensions_of_the_image(stack):
    folder, _ = stack
    sizes = {"time": 2, "band": 2, "y": 150, "x": 100}
    with xr.open_dataset(folder / "repo", engine="icevirt", group="overview_1") as found:
        assert dict(found.sizes) == sizes
        assert {*found.coords} == {"band", "y", "x", "spatial_ref"}
        place = read_gdal(folder / "s_20240101.tif", 0)[1]
        assert found["x"].values[0] == place.a * 0.5 + place.c
    with xr.open_datatree(folder / "repo", engine="icevirt", group="overview_1") as found:
        assert dict(found.sizes) == sizes


@pytest.mark.parametrize("engine", ["icevirt", "zarr"])
def test_a_stack_is_one_tree_with_its_overviews(stack, engine):
    folder, _ = stack
    found = folder / "repo"
    if engine == "zarr":
        found = official(found).readonly_session("main").store
    more = {} if engine == "icevirt" else {"consolidated": False}
    with xr.open_datatree(found, engine=engine, mask_and_scale=False, **more) as tree:
        coarse = tree["overview_1"].to_dataset(inherit=False)
        assert coarse["band_data"].dims == ("time", "band", "y_overview_1", "x_overview_1")
        assert {*coarse.indexes} == {"y_overview_1", "x_overview_1"}
        assert coarse["x_overview_1"].attrs["axis"] == "X"
        np.testing.assert_array_equal(coarse["band_data"], read(folder, 0))
        np.testing.assert_array_equal(tree["band_data"], read(folder))


def turned(east):
    return Affine.translation(east, 200) @ Affine.rotation(30) @ Affine.scale(10, -10)


def with_bands(**said):
    return {"tags": lambda file: [setattr(file, name, value) for name, value in said.items()]}


UNLIKE = {
    "long_name": [with_bands(descriptions=names) for names in ("ab", "ba")],
    "scales": [with_bands(scales=scales) for scales in ((1, 2), (2, 1))],
    "GeoTransform": [{"place": turned(east)} for east in (100, 150)],
}


@pytest.mark.parametrize("name", UNLIKE)
def test_files_whose_bands_or_places_differ_are_not_stacked_as_the_first_one(name, tmp_path):
    for day, how in enumerate(UNLIKE[name], 1):
        by_gdal(tmp_path / f"s_2024010{day}.tif", values("int16", (2, 20, 30)), **how)
    with pytest.raises(CombineError, match=name):
        icevirt.plan(str(tmp_path / "*.tif"), combine_options=LABELS, executor="in-process")


def test_a_stack_is_verified_with_rasterio(stack):
    folder, _ = stack
    found = icevirt.verify(folder / "repo", full=True, executor="in-process")
    assert found.ok
    assert not found.checked.not_compared
