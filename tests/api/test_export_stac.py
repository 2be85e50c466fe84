"""A repository is a STAC collection that pystac reads, its files are items in GeoParquet."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pystac
import pytest
import xarray as xr
from jsonschema import Draft7Validator
from pystac.extensions.datacube import DatacubeExtension
from typer.testing import CliRunner

import icevirt
from icevirt.api.stac.collection import scheme_of
from icevirt.api.stac.space import rings_of, space_of, span_of_longitudes, wkb_of
from icevirt.api.stac.times import spell, times_of
from icevirt.api.stac.writing import redact_urls
from icevirt.cli.main import app
from icevirt.errors import AlreadyExistsError, InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig

EAST = {"units": "degrees_east"}
NORTH = {"units": "degrees_north"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Two days of two tiles, a file each, and what was exported."""
    folder = tmp_path_factory.mktemp("stac")
    for day in range(2):
        for tile in range(2):
            lon = np.arange(160.0, 180, 0.25) + 20 * tile  # across the antimeridian
            ds = xr.Dataset(
                {"t": (("time", "lat", "lon"), np.ones((1, 50, 80)), {"units": "K"})},
                coords={
                    "time": [np.datetime64("2001-02-03") + np.timedelta64(day, "D")],
                    "lat": ("lat", np.arange(50.0), NORTH),
                    "lon": ("lon", lon, EAST),
                },
                attrs={
                    "title": "Tiles",
                    "license": "CC-BY-4.0, see https://example.org/license.",
                    "institution": "Some institute",
                    "keywords": "heat, heat; sea",
                },
            )
            packed = {"zlib": True, "chunksizes": (1, 50, 80)}
            ds.to_netcdf(folder / f"d{day}_{tile}.nc", engine="h5netcdf", encoding={"t": packed})
    options = {"concat_dim": ["time", "lon"]}
    icevirt.build(str(folder / "d*.nc"), folder / "repo", executor="in-process", **options)
    report = icevirt.export(folder / "repo", folder / "out", to="stac", executor="in-process")
    return folder, report


def test_pystac_reads_the_collection_and_its_cube(exported):
    folder, report = exported
    document = json.loads((folder / "out/collection.json").read_text())
    found = pystac.Collection.from_dict({**document, "stac_extensions": []})
    found.validate()  # by the schemas of the core, which pystac has
    found = pystac.Collection.from_file(str(folder / "out/collection.json"))
    cube = DatacubeExtension.ext(found)
    assert {name: each.dim_type for name, each in cube.dimensions.items()} == {
        "time": "temporal",
        "lat": "spatial",
        "lon": "spatial",
    }
    assert cube.variables["t"].dimensions == ["time", "lat", "lon"]
    assert cube.variables["t"].unit == "K"
    assert found.extent.spatial.bboxes == [[160.0, 0.0, -160.25, 49.0]]
    assert document["extent"]["temporal"]["interval"] == [
        ["2001-02-03T00:00:00Z", "2001-02-04T00:00:00Z"]
    ]
    assert (found.license, found.keywords) == ("CC-BY-4.0", ["heat", "sea"])
    assert [each.name for each in found.providers] == ["Some institute"]
    (asset,) = found.get_assets(role="latest-version").values()
    assert asset.media_type == "application/vnd.zarr+icechunk"
    assert asset.extra_fields["version"] == report.snapshot_id


def test_the_collection_is_valid_by_the_schema_of_the_datacube_extension(exported):
    folder, _ = exported
    document = json.loads((folder / "out/collection.json").read_text())
    text = (Path(__file__).parents[2] / "fixtures/stac/datacube-2.2.0.json").read_text()
    schema = json.loads(
        text.replace("https://proj.org/schemas/v0.4/projjson.schema.json", "#/definitions/any")
    )
    schema["definitions"]["any"] = {"type": "object"}
    assert schema["$id"] in document["stac_extensions"]
    Draft7Validator(schema).validate(document)
    del document["cube:dimensions"]["lat"]["axis"]  # which the schema sees
    assert not Draft7Validator(schema).is_valid(document)


def test_xarray_opens_the_version_by_what_the_asset_says(exported, tmp_path):
    """As xpystac calls it; the version is the exported one, whatever was committed since."""
    folder, _ = exported
    shutil.copytree(folder / "repo", tmp_path / "repo")
    found = pystac.Collection.from_file(str(folder / "out/collection.json")).assets["xarray"]
    assert found.media_type == "application/vnd.zarr"
    icevirt.undo(tmp_path / "repo")
    options = found.extra_fields["xarray:open_kwargs"]
    access = {"authorize_virtual_chunk_access": [f"{folder.as_uri()}/"]}
    with xr.open_dataset(tmp_path / "repo", **options, **access) as opened:
        assert opened.sizes["time"] == 2


def test_each_file_is_an_item_where_and_when_it_is(exported):
    folder, report = exported
    table = pq.read_table(folder / "out/items.parquet")
    assert (report.files, report.notes) == (4, ())
    rows = {each["id"]: each for each in table.to_pylist()}
    assert rows.keys() == {"d0_0", "d0_1", "d1_0", "d1_1"}
    row = rows["d1_1"]
    assert row["bbox"] == {"xmin": -180.0, "ymin": 0.0, "xmax": -160.25, "ymax": 49.0}
    assert row["datetime"].isoformat() == "2001-02-04T00:00:00+00:00"
    data = row["assets"]["data"]
    assert data["href"] == (folder / "d1_1.nc").as_uri()
    assert data["file:size"] == (folder / "d1_1.nc").stat().st_size
    assert data["type"] == "application/netcdf"
    geo = json.loads(table.schema.metadata[b"geo"])
    assert geo["columns"]["geometry"]["geometry_types"] == ["Polygon"]
    assert geo["columns"]["geometry"]["bbox"] == [-180.0, 0.0, 179.75, 49.0]
    ring = np.frombuffer(row["geometry"][13:], "<f8").reshape(-1, 2).tolist()
    assert ring == [list(each) for each in rings_of((-180.0, 0.0, -160.25, 49.0))[0]]


def test_an_item_is_valid_by_the_schema_of_the_core(exported):
    row = pq.read_table(exported[0] / "out/items.parquet").to_pylist()[0]
    box = list(row["bbox"].values())
    dates = ("datetime", "start_datetime", "end_datetime")
    item = {
        **{key: row[key] for key in ("type", "stac_version", "id", "links", "assets")},
        "collection": row["collection"],
        "bbox": box,
        "geometry": {"type": "Polygon", "coordinates": rings_of(tuple(box))},
        "properties": {key: row[key].isoformat() for key in dates},
    }
    pystac.Item.from_dict(json.loads(json.dumps(item))).validate()


def test_the_command_says_what_it_wrote_and_replaces_nothing(exported, tmp_path):
    folder, _ = exported
    arguments = ["export", str(folder / "repo"), str(tmp_path / "new"), "--to", "stac"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert "an item for each file" in ran.output
    assert {each.name for each in (tmp_path / "new").iterdir()} == {
        "collection.json",
        "items.parquet",
    }
    with pytest.raises(AlreadyExistsError):
        icevirt.export(folder / "repo", tmp_path / "new", to="stac")
    with pytest.raises(InvalidInputError, match='to="stac"'):
        icevirt.export(folder / "repo", tmp_path / "x", to="csv")


LONGITUDES = {
    "the whole Earth": (np.arange(0.0, 360, 2.5), (-180.0, 180.0)),
    "the whole Earth, both ends": (np.linspace(-180, 180, 73), (-180.0, 180.0)),
    "a region": (np.arange(5.0, 15), (5.0, 14.0)),
    "a region by 360": (np.arange(250.0, 260), (-110.0, -101.0)),
    "across the antimeridian": (np.arange(170.0, 190), (170.0, -171.0)),
    "across Greenwich by 360": (np.append(np.arange(350.0, 360), np.arange(10.0)), (-10.0, 9.0)),
    "up to the antimeridian": (np.arange(170.0, 181), (170.0, 180.0)),
    "a point": (np.array([200.0]), (-160.0, -160.0)),
}


@pytest.mark.parametrize(("longitudes", "wanted"), LONGITUDES.values(), ids=LONGITUDES.keys())
def test_west_and_east_are_the_ends_of_longitudes(longitudes, wanted):
    assert span_of_longitudes(longitudes) == wanted


@pytest.mark.parametrize(
    ("options", "kind", "platform"),
    [
        ({"region": "eu-west-1"}, "aws-s3", "https://{bucket}.s3.{region}.amazonaws.com"),
        (
            {"region": "us-east-1", "endpoint_url": "https://me:pw@s3.example.org:9000"},
            "custom-s3",
            "https://s3.example.org:9000",
        ),
    ],
)
def test_a_bucket_is_described_with_its_region_or_its_own_server(options, kind, platform):
    found = scheme_of("s3://bucket/repo", ObjectStoreConfig("s3", options))
    assert found == {
        "type": kind,
        "platform": platform,
        "bucket": "bucket",
        "region": options["region"],
    }


def test_urls_of_references_are_written_without_secrets():
    urls = ["https://me:pw@a.org/x.nc", "https://a.org/y.nc?X-Amz-Signature=abc", "s3://b/a.nc"]
    found = redact_urls(pa.table({"url": pa.array(urls, pa.large_string())}))["url"].to_pylist()
    assert found == ["https://a.org/x.nc", "https://a.org/y.nc", "s3://b/a.nc"]


def test_a_box_across_the_antimeridian_is_two_polygons():
    box = (170.0, -10.0, -170.0, 10.0)
    assert [ring[0][0] for ring in rings_of(box)] == [170.0, -180.0]
    assert wkb_of(box)[1] == 6  # MultiPolygon


PROJECTED = """
import json
from pyproj import CRS, Transformer
import numpy as np, xarray as xr
from icevirt.api.stac.space import space_of
system = CRS.from_epsg(3035)
x, y = np.arange(4_000_000.0, 4_100_000, 10_000), np.arange(3_000_000.0, 3_050_000, 10_000)
ds = xr.Dataset(
    {"v": (("y", "x"), np.zeros((5, 10)), {"grid_mapping": "crs"}), "crs": ((), 0, system.to_cf())},
    coords={"x": ("x", x, {"axis": "X"}), "y": ("y", y, {"axis": "Y"})},
)
space = space_of(ds)
lon, lat = Transformer.from_crs(system, 4326, always_xy=True).transform(*np.meshgrid(x, y))
print(json.dumps([space.reference, space.box(), [lon.min(), lat.min(), lon.max(), lat.max()]]))
"""


@pytest.mark.ci
def test_a_projection_is_undone_through_the_grid_mapping():
    """In a process of its own: where eccodes was loaded before pyproj, the process ends badly."""
    ran = subprocess.run([sys.executable, "-c", PROJECTED], capture_output=True, check=True)
    reference, box, wanted = json.loads(ran.stdout)
    assert reference == 3035
    np.testing.assert_allclose(box, wanted)


def test_swaths_have_the_box_of_their_points():
    lat, lon = np.array([[1.0, 2.0], [3.0, np.nan]]), np.array([[10.0, 11.0], [12.0, 13.0]])
    ds = xr.Dataset(coords={"lat": (("y", "x"), lat, NORTH), "lon": (("y", "x"), lon, EAST)})
    assert space_of(ds).box() == (10.0, 1.0, 12.0, 3.0)
    assert space_of(ds).box([0, 0], [1, 2]) == (10.0, 1.0, 11.0, 2.0)


def test_the_points_of_a_large_grid_are_not_multiplied():
    """They would take 13 GB."""
    lat, lon = np.linspace(-89, 89, 20_000), np.linspace(0, 300, 40_000)
    ds = xr.Dataset(coords={"lat": ("lat", lat, NORTH), "lon": ("lon", lon, EAST)})
    west, south, east, north = space_of(ds).box([0, 0], [20_000, 200])
    assert (south, north, west) == (-89.0, 89.0, 0.0)
    assert east == pytest.approx(lon[199])


def test_without_latitudes_there_is_no_box_and_it_says_why():
    space = space_of(xr.Dataset({"v": ("x", [1, 2])}))
    assert space.box() is None
    assert "neither latitudes and longitudes nor a grid mapping" in space.note


@pytest.mark.parametrize(
    ("calendar", "lost", "first"),
    [("noleap", 0, "2000-02-28T00:00:00Z"), ("360_day", 2, "2000-02-28T00:00:00Z")],
)
def test_dates_of_other_calendars_stand_as_they_read(calendar, lost, first):
    times = xr.date_range("2000-02-28", periods=4, calendar=calendar, use_cftime=True)
    found = times_of(xr.Dataset(coords={"time": times}))
    assert calendar in found.note
    assert int(np.isnat(found.values).sum()) == (1 if lost else 0)
    assert found.ends[0] == first
    assert ("no dates elsewhere" in found.note) == bool(lost)


def test_times_of_files_are_those_of_their_steps_in_any_order():
    days = np.array(["2000-01-05", "2000-01-01", "NaT", "2000-01-03"], "M8[ns]")
    found = times_of(xr.Dataset(coords={"time": days}))
    start, end = found.ranges(np.array([0, 2, 1, 0]), np.array([2, 3, 4, 0]))
    assert start.astype("M8[D]").astype(str).tolist() == ["2000-01-01", "NaT", "2000-01-01", "NaT"]
    assert end.astype("M8[D]").astype(str).tolist() == ["2000-01-05", "NaT", "2000-01-03", "NaT"]
    assert spell(np.datetime64("2000-01-01T00:00:00.500000", "us")) == "2000-01-01T00:00:00.5Z"
