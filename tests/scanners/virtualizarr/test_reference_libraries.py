"""`verify` compares what an adapter describes with the format's own library, or says why not."""

import sys

import h5py
import numpy as np
import pytest
import tifffile
import zarr
from gribberish.virtualizarr import GribberishParser
from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore

import icevirt
from builds.support import official
from icevirt.errors import UnsupportedError
from icevirt.objects.opening import open_source
from icevirt_scanners.virtualizarr.reference_libraries import read_values
from icevirt_scanners.virtualizarr.scanner import VirtualizarrScanner

pytestmark = pytest.mark.usefixtures("in_process")

GRIB = "virtualizarr:gribberish.virtualizarr.GribberishParser"
TIFF = "virtualizarr:virtual_tiff.VirtualTIFF"


def verify(files, tmp_path, scanner, **how):
    """Build and compare everything; return the report and what was not compared, by array."""
    repo = str(tmp_path / "repo")
    icevirt.build(files, repo, scan_options={"scanner": scanner}, **how)
    found = icevirt.verify(repo, full=True, authorize_virtual_chunk_access=[str(tmp_path)])
    return found, dict(found.checked.not_compared)


@pytest.fixture
def forecast(message):
    """Two files of two messages each, at two times."""
    for day in (1, 2):
        for hour in (0, 12):
            path = message(
                jPointsAreConsecutive=0,
                dataDate=20240100 + day,
                dataTime=100 * hour,
                values=np.arange(12.0) + day * hour,
                name=f"{day}.grib2",
            )
    return [path.replace("2.grib2", "1.grib2"), path]


def test_grib_is_compared_with_eccodes_with_its_times_and_points(forecast, tmp_path):
    found, not_compared = verify(forecast, tmp_path, GRIB)
    assert found.ok
    assert found.checked.chunks == 4
    assert found.checked.compared == {
        f"/sfc/instant/{name}" for name in ("tmp", "time", "latitude", "longitude")
    }
    assert not_compared == {"/sfc/instant/spatial_ref": "ecCodes has no key of that name"}


def swap_messages(url, registry):
    """Describe a file as gribberish does, with the messages of its times exchanged."""
    store = GribberishParser()(url=url, registry=registry)
    inside = store._group.groups["sfc"].groups["instant"]
    old = inside.arrays["tmp"]
    new = ChunkManifest.from_arrays(
        paths=old.manifest._paths,
        offsets=old.manifest._offsets[::-1].copy(),
        lengths=old.manifest._lengths[::-1].copy(),
    )
    arrays = {**inside.arrays, "tmp": ManifestArray(metadata=old.metadata, chunkmanifest=new)}
    groups = {"sfc": ManifestGroup(groups={"instant": ManifestGroup(arrays=arrays)})}
    return ManifestStore(ManifestGroup(groups=groups), registry=None)


swapped = VirtualizarrScanner(swap_messages)


def test_messages_at_other_times_are_differences(forecast, tmp_path):
    found, _ = verify(forecast, tmp_path, f"{__name__}:swapped")
    assert {each.array for each in found.checked.differences} == {"/sfc/instant/time"}


@pytest.mark.ci
def test_forecasts_get_axes_of_their_names_as_eccodes_reads_them(message, tmp_path):
    values = {}
    for init in (0, 6):
        for lead in (0, 3):
            name = f"fc_2024010{1 + init // 6}_{lead}.grib2"
            values[init, lead] = np.arange(12.0).reshape(3, 4) + 10 * init + lead
            path = message(
                jPointsAreConsecutive=0,
                dataDate=20240101 + init // 6,
                forecastTime=lead,
                values=values[init, lead].ravel(),
                name=name,
            )
    found, _ = verify(
        path.replace(name, "*.grib2"),
        tmp_path,
        GRIB,
        concat_dim=["init", "lead"],
        combine_options={
            "labels": "fc_{init:%Y%m%d}_{lead:d}.grib2",
            "rename": {"/sfc/instant/time": "valid"},
            "data_vars": {name: ["all", "/sfc/instant/valid"] for name in ("init", "lead")},
        },
    )
    assert (found.ok, found.checked.chunks) == (True, 4)
    expected = np.stack([*values.values()]).reshape(2, 2, 1, 3, 4)
    repo = str(tmp_path / "repo")
    ours = icevirt.Repository.open(repo, authorize_virtual_chunk_access=[str(tmp_path)])
    for each in (ours, official(repo)):
        held = zarr.open_array(each.readonly_session("main").store, path="sfc/instant/tmp")
        np.testing.assert_array_equal(held[...], expected)


@pytest.mark.parametrize("library", ["tifffile", "rasterio", "neither"])
@pytest.mark.parametrize("shape", [(64, 64), (64, 64, 3), (3, 64, 64)], ids=str)
def test_images_are_read_by_tifffile_or_rasterio(library, shape, tmp_path, monkeypatch):
    """Either is enough: one that is not installed, or cannot read an image, is not needed."""
    if library == "rasterio":
        pytest.importorskip("rasterio")
    images = [
        np.arange(64 * 64 * (len(shape) * 2 - 3), dtype="f4").reshape(shape) + n for n in (0, 1)
    ]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for image in images:
            planes = "separate" if shape[0] == 3 else "contig"
            how = {"photometric": "minisblack", "planarconfig": planes if len(shape) > 2 else None}
            file.write(image, tile=(32, 32), compression="zlib", **how)
    for other in {"tifffile", "rasterio"} - {library}:
        monkeypatch.setitem(sys.modules, other, None)
    region = tuple(slice(1, length) for length in shape)
    with open_source((tmp_path / "a.tif").as_uri()) as source:
        if library == "neither":
            with pytest.raises(UnsupportedError, match="tifffile or rasterio installed"):
                read_values(dict, source, "/1", region)
        else:
            found = read_values(dict, source, "/1", region)
            np.testing.assert_array_equal(found, images[1][region])


def test_tiff_is_compared_with_tifffile(tmp_path):
    paths = [str(tmp_path / f"{number}.tif") for number in range(2)]
    for number, path in enumerate(paths):
        image = np.arange(64 * 64, dtype="u2").reshape(64, 64) + number
        tifffile.imwrite(path, image, tile=(32, 32), compression="zlib")
    found, not_compared = verify(
        paths,
        tmp_path,
        TIFF,
        concat_dim="time",
        combine_options={"combine": "nested", "labels": {"time": ["2024-01-01", "2024-01-02"]}},
    )
    assert (found.ok, found.checked.chunks, not_compared) == (True, 8, {})


def test_hdf5_is_compared_with_h5py(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=np.arange(6), chunks=(3,), compression="gzip")
    path = str(tmp_path / "a.h5")
    found, not_compared = verify(path, tmp_path, "virtualizarr:HDFParser")
    assert (found.ok, found.checked.chunks, not_compared) == (True, 2, {})


def test_other_formats_say_that_nothing_compares_them(tmp_path):
    np.arange(3, dtype="<i4").tofile(tmp_path / "raw.bin")
    path = str(tmp_path / "raw.bin")
    found, not_compared = verify(path, tmp_path, "scanners.virtualizarr.own_format:scanner")
    assert found.ok
    assert not_compared == {"/v": "no reference library is known for files like this"}
