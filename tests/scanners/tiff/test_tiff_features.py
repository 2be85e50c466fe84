"""What GDAL keeps beside pixels is shown: places, nodata, scales, masks, sparse tiles, images."""

import sys

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.control import GroundControlPoint
from rasterio.transform import Affine

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import ScanError, UnsupportedError
from icevirt.objects.opening import open_source
from icevirt.scan.registry import oracle_for
from icevirt_scanners.tiff.geokeys import describe_system
from scanners.materialise import materialise
from scanners.tiff.tiff_files import PLACE, by_gdal, quiet, read_gdal, values

TILES = {"TILED": "YES", "BLOCKXSIZE": 32, "BLOCKYSIZE": 32, "compress": "deflate"}


def attributes(scanned, path="/band_data"):
    return scanned.array(path).attributes.values


def codes(scanned):
    return {each.code for each in scanned.findings} - {"needs-package", "not-for-gdal"}


def check_coordinates(path, place):
    scanned = scan_file(path)
    _, height, width = scanned.array("/band_data").shape
    center = place @ Affine.translation(0.5, 0.5)
    x, _ = center @ (np.arange(width), np.zeros(width))
    _, y = center @ (np.zeros(height), np.arange(height))
    np.testing.assert_array_equal(materialise(scanned.array("/x")), x)
    np.testing.assert_array_equal(materialise(scanned.array("/y")), y)
    return scanned


@pytest.mark.parametrize("raster", ["Area", "Point"])
def test_coordinates_are_of_the_centers_of_pixels(raster, tmp_path):
    """GDAL moves what is said of a point by half a pixel; rasterio says where corners are."""
    by_gdal(tmp_path / "a.tif", values("uint8"), tags=lambda f: f.update_tags(AREA_OR_POINT=raster))
    scanned = check_coordinates(tmp_path / "a.tif", PLACE)
    assert attributes(scanned)["AREA_OR_POINT"] == raster


def test_a_matrix_says_where_pixels_are_and_turned_images_have_no_coordinates(tmp_path):
    south_up = Affine(10.0, 0, 500_000, 0, 10.0, 5_000_000)  # only a matrix says so
    by_gdal(tmp_path / "a.tif", values("uint8"), place=south_up)
    check_coordinates(tmp_path / "a.tif", south_up)
    turned = Affine.translation(100, 200) @ Affine.rotation(30) @ Affine.scale(10, -10)
    by_gdal(tmp_path / "b.tif", values("uint8"), place=turned)
    scanned = scan_file(tmp_path / "b.tif")
    assert [each.path for each in scanned.arrays] == ["/band_data", "/band", "/spatial_ref"]
    assert "no-coordinates" in codes(scanned)
    shown = attributes(scanned, "/spatial_ref")["GeoTransform"]
    np.testing.assert_allclose([*map(float, shown.split())], turned.to_gdal(), rtol=1e-12)


def test_images_with_control_points_only_have_no_coordinates_and_say_so(tmp_path):
    points = [
        GroundControlPoint(row=row, col=column, x=column * 2.0, y=-row * 3.0)
        for row, column in ((0, 0), (0, 90), (70, 0), (69, 88))
    ]
    shape = {"driver": "GTiff", "count": 1, "height": 70, "width": 90, "dtype": "uint8"}
    with quiet(), rasterio.open(tmp_path / "a.tif", "w", **shape, gcps=points, crs=4326) as file:
        file.write(values("uint8", (1, 70, 90)))
    scanned = scan_file(tmp_path / "a.tif")
    assert "/x" not in [each.path for each in scanned.arrays]
    (said,) = [each.message for each in scanned.findings if each.code == "no-coordinates"]
    assert "control points only" in said


NODATA = {
    "of its type": ("int16", -9999, np.int16(-9999)),
    "NaN": ("float32", np.nan, np.float32(np.nan)),
    "the smallest float32": ("float32", np.finfo("f4").min, np.finfo("f4").min),
    "a fraction": ("float32", 0.1, np.float32(0.1)),
    "large": ("uint32", 2**32 - 1, np.uint32(2**32 - 1)),
}


@pytest.mark.parametrize("name", NODATA)
def test_nodata_marks_missing_pixels_and_fills_sparse_tiles(name, tmp_path):
    dtype, nodata, expected = NODATA[name]
    data = np.full((1, 70, 90), nodata, dtype)
    data[0, :20, :20] = 1
    by_gdal(tmp_path / "a.tif", data, nodata=nodata, SPARSE_OK="TRUE", **TILES)
    array = scan_file(tmp_path / "a.tif").array("/band_data")
    assert len(array.references) == 1  # of nine
    found = materialise(array)
    assert found.tobytes() == read_gdal(tmp_path / "a.tif")[0].tobytes()
    assert found[0, -1, -1].tobytes() == expected.tobytes()
    assert "_FillValue" in array.attributes.values


def test_sparse_tiles_are_0_without_nodata_and_refused_where_it_is_none_of_the_type(tmp_path):
    data = np.zeros((1, 70, 90), "u1")
    data[0, :20, :20] = 1
    by_gdal(tmp_path / "a.tif", data, SPARSE_OK="TRUE", **TILES)
    array = scan_file(tmp_path / "a.tif").array("/band_data")
    assert len(array.references) == 1
    np.testing.assert_array_equal(materialise(array), data)
    by_gdal(tmp_path / "b.tif", data + 200, nodata=200, SPARSE_OK="TRUE", **TILES)
    raw = (tmp_path / "b.tif").read_bytes()
    (tmp_path / "b.tif").write_bytes(raw.replace(b"200\0", b"999\0"))
    with pytest.raises(UnsupportedError, match="never written, and no value"):
        scan_file(tmp_path / "b.tif")


def test_scales_and_names_of_bands_are_shown_as_rioxarray_shows_them(tmp_path):
    def equal(file):
        file.scales, file.offsets = [0.1] * 3, [273.15] * 3
        file.descriptions = ("red", "green", "blue")
        file.update_tags(TIFFTAG_DATETIME="2024:01:02 03:04:05", OWN="1")

    def other(file):
        file.scales = [0.1, 0.2, 1]

    by_gdal(tmp_path / "a.tif", values("int16"), tags=equal)
    shown = attributes(scan_file(tmp_path / "a.tif"))
    assert (shown["scale_factor"], shown["add_offset"]) == (0.1, 273.15)
    assert shown["long_name"] == ["red", "green", "blue"]
    assert (shown["TIFFTAG_DATETIME"], shown["OWN"]) == ("2024:01:02 03:04:05", "1")
    by_gdal(tmp_path / "b.tif", values("int16"), tags=other)
    scanned = scan_file(tmp_path / "b.tif")
    assert attributes(scanned)["scales"] == [0.1, 0.2, 1]
    assert "scales-by-band" in codes(scanned)


def test_overviews_have_the_scales_and_names_of_their_image(tmp_path):
    def scale(file):
        file.scales, file.offsets, file.descriptions = [0.1], [5.0], ["heat"]

    data = values("int16", (1, 150, 140))
    by_gdal(tmp_path / "a.tif", data, driver="COG", blocksize=128, tags=scale)
    scanned = scan_file(tmp_path / "a.tif")
    for group in ("", "/overview_1"):
        shown = attributes(scanned, f"{group}/band_data")
        assert (shown["scale_factor"], shown["add_offset"]) == (0.1, 5.0)
        assert shown["long_name"] == "heat"


def test_texts_of_metadata_do_not_scale_values(tmp_path):
    """As of NetCDF that GDAL unscaled: its texts stay, though values have no scale any more."""

    def tag(file):
        file.update_tags(1, scale_factor="0.01", _FillValue="-1", units="K")
        file.update_tags(dtype="float", grid_mapping="crs", long_name="heat")

    by_gdal(tmp_path / "a.tif", values("int16", (1, 70, 90)), crs=None, place=None, tags=tag)
    scanned = scan_file(tmp_path / "a.tif")
    assert attributes(scanned) == {"long_name": "heat", "units": "K"}
    (said,) = [each.message for each in scanned.findings if each.code == "metadata-left-out"]
    assert "_FillValue" in said
    assert "scale_factor" in said


@pytest.mark.parametrize("layout", [TILES, {"BLOCKYSIZE": 16}], ids=["tiles", "strips"])
def test_the_mask_of_a_dataset_is_a_variable_and_said(layout, tmp_path):
    mask = np.zeros((70, 90), np.uint8)
    mask[10:40, 7:60] = 255
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        by_gdal(tmp_path / "a.tif", values("uint8"), tags=lambda f: f.write_mask(mask), **layout)
    scanned = scan_file(tmp_path / "a.tif")
    assert "mask-beside" in codes(scanned)
    found = materialise(scanned.array("/mask"))
    np.testing.assert_array_equal(found * 255, mask)
    with quiet(), rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(found * 255, file.dataset_mask())
    with open_source((tmp_path / "a.tif").as_uri()) as source:
        box = (slice(5, 30), slice(1, 90))
        np.testing.assert_array_equal(
            oracle_for(source).read_values(source, "/mask", box), found[box]
        )


@pytest.mark.parametrize("bits", [1, 2, 4, 7, 10, 12, 20])
def test_packed_samples_are_read(bits, tmp_path):
    dtype = "uint8" if bits <= 8 else "uint16" if bits <= 16 else "uint32"
    data = values(dtype) & np.array(2**bits - 1, dtype)
    for number, how in enumerate((TILES, TILES | {"interleave": "band"}, {"BLOCKYSIZE": 16})):
        path = tmp_path / f"{number}.tif"
        by_gdal(path, data, NBITS=bits, **how)
        found = materialise(scan_file(path).array("/band_data"))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, data)


def test_samples_of_24_bits_are_a_stream_in_little_endian_files_only(tmp_path):
    data = values("uint32") & np.uint32(2**24 - 1)
    by_gdal(tmp_path / "a.tif", data, NBITS=24, **TILES)
    np.testing.assert_array_equal(
        materialise(scan_file(tmp_path / "a.tif").array("/band_data")), data
    )
    by_gdal(tmp_path / "b.tif", data, NBITS=24, ENDIANNESS="BIG", **TILES)
    with pytest.raises(UnsupportedError, match="24 bits in a big-endian file"):
        scan_file(tmp_path / "b.tif")


def test_further_images_are_groups_and_one_of_them_can_be_the_root(tmp_path):
    images = [np.arange(64 * 64, dtype="u2").reshape(64, 64) + n for n in range(3)]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for image in images:
            file.write(image, photometric="minisblack", contiguous=False)
    scanned = scan_file(tmp_path / "a.tif")
    assert [group.path for group in scanned.groups] == ["/", "/image_2", "/image_3"]
    for group, image in zip(("", "/image_2", "/image_3"), images, strict=True):
        found = materialise(scanned.array(f"{group}/band_data"))
        np.testing.assert_array_equal(found[0], image)
    only = scan_file(tmp_path / "a.tif", scan_options={"source_group": "image_2"})
    assert [array.path for array in only.arrays] == ["/band_data", "/band"]
    with pytest.raises(ScanError, match="no such group"):
        scan_file(tmp_path / "a.tif", scan_options={"source_group": "image_4"})


def test_pyproj_is_needed_for_reference_systems_only(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyproj", None)
    describe_system.cache_clear()
    by_gdal(tmp_path / "a.tif", values("uint8"))
    with pytest.raises(UnsupportedError, match="pip install pyproj"):
        scan_file(tmp_path / "a.tif")
    left = scan_file(tmp_path / "a.tif", scan_options={"drop_variables": ["spatial_ref"]})
    assert [array.path for array in left.arrays] == ["/band_data", "/band", "/y", "/x"]
    by_gdal(tmp_path / "b.tif", values("uint8"), crs=None)
    assert "/x" in [array.path for array in scan_file(tmp_path / "b.tif").arrays]


@pytest.mark.parametrize("units", ["days since 2020-01-01", "hours"])
def test_units_of_metadata_make_no_times(units, tmp_path):
    """rioxarray shows the numbers, and the text as units, which it does not decode."""
    data = values("int16", (1, 70, 90))
    by_gdal(tmp_path / "a.tif", data, tags=lambda file: file.update_tags(1, units=units))
    report = icevirt.build([str(tmp_path / "a.tif")], str(tmp_path / "repo"))
    shown = report.open(decode_timedelta=True).band_data
    np.testing.assert_array_equal(shown.values, data)
    assert (shown.dtype.kind, shown.attrs["gdal_units"]) == ("i", units)
    assert any("units of GDAL's metadata are no times" in str(each) for each in report.findings)
