"""Files whose values are other places on earth are never stacked, whatever of them is selected."""

import netCDF4
import numpy as np
import pytest
import rasterio
import xarray as xr
import zarr
from rasterio.transform import from_origin

import icevirt
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.planning.meaning.grid_mappings import Placed, contradictions
from long_forms import cases, crossed
from scanners.grib.grib_files import message, put

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

ZONES = [
    {"grid_mapping_name": "transverse_mercator", "longitude_of_central_meridian": each}
    for each in (9.0, 15.0)
]
NOTHING = {"comment": "no projection"}


def netcdf(path, day, mapping):
    """Write a field; ``mapping`` None: it names a mapping that the file lacks."""
    with netCDF4.Dataset(path, "w") as file:
        for dim, length in (("time", 1), ("y", 2), ("x", 3)):
            file.createDimension(dim, length)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2020-01-01"
        time[:] = [day]
        if mapping is not None:
            file.createVariable("crs", "i4", ()).setncatts(mapping)
        field = file.createVariable("field", "f4", ("time", "y", "x"))
        field.grid_mapping = "crs"
        field[:] = day
    return str(path)


def store(path, day, mapping):
    """Write a field of Zarr; its mapping is called otherwise in each store."""
    group = zarr.open_group(path, mode="w")
    name = f"crs{day}"
    time = group.create_array("time", data=np.array([day]), dimension_names=["time"])
    time.attrs["units"] = "days since 2020-01-01"
    values = np.full((1, 2, 3), day, "f4")
    field = group.create_array("field", data=values, dimension_names=["time", "y", "x"])
    field.attrs["grid_mapping"] = name
    if mapping is not None:
        group.create_array(name, data=np.int64(0)).attrs.update(mapping)
    return str(path)


def tiff(path, day, system):
    profile = {"driver": "GTiff", "width": 3, "height": 2, "count": 1, "dtype": "uint8"}
    with rasterio.open(
        path, "w", crs=system, transform=from_origin(500000, 10, 10, 10), **profile
    ) as file:
        file.write(np.full((1, 2, 3), day, "u1"))
    return str(path)


def icon(path, day, uuid):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 1)
        file.createDimension("ncells", 3)
        file.uuidOfHGrid = uuid
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2020-01-01"
        time[:] = [day]
        file.createVariable("field", "f4", ("time", "ncells"))[:] = day
    return str(path)


def grib(path, day, keys):
    keys = {"dataDate": 20260101 + day, **keys}
    uuid = keys.pop("uuid", b"")
    body = message(values=float(day), **keys)
    path.write_bytes(put(body, 3, 20, uuid * 16) if uuid else body)
    return str(path)


def pixels(order):
    return {"sample": "GRIB2", "gridType": "healpix", "Nside": 2, "numberOfDataPoints": 48} | {
        "orderingConvention": order, "longitudeOfFirstGridPointInDegrees": 45,
    }  # fmt: skip


def cells(uuid):
    return {"sample": "GRIB2", "gridType": "unstructured_grid", "numberOfDataPoints": 50} | {
        "numberOfGridUsed": 26, "uuid": uuid,
    }  # fmt: skip


SHIFTED = [
    {},
    {"longitudeOfFirstGridPointInDegrees": 40, "longitudeOfLastGridPointInDegrees": 70},
]
FIELD = {"variables": ["t_surface", "time"]}
ONLY = {"variables": ["field", "time"]}
CASES = {
    "NetCDF, zones": (netcdf, ZONES, "/field", ONLY),
    "NetCDF, zones dropped": (netcdf, ZONES, "/field", {"drop_variables": ["crs"]}),
    "NetCDF, one says nothing": (netcdf, [ZONES[0], NOTHING], "/crs", {}),
    "NetCDF, one says nothing, left out": (netcdf, [NOTHING, ZONES[0]], "/field", ONLY),
    "NetCDF, one lacks it": (netcdf, [ZONES[0], None], "/field", {}),
    "NetCDF, one lacks it, left out": (netcdf, [None, ZONES[0]], "/field", ONLY),
    "NetCDF, in other words": (netcdf, [ZONES[0], {"crs_wkt": 'PROJCS["one"]'}], "/crs", {}),
    "NetCDF, a parameter less": (netcdf, [ZONES[0], {"grid_mapping_name": "transverse_mercator"}], "/crs", {}),
    "Zarr, zones": (store, ZONES, "/field", {}),
    "Zarr, zones left out": (store, ZONES, "/field", ONLY),
    "Zarr, one lacks it": (store, [None, ZONES[1]], "/field", {}),
    "TIFF, one without a system": (tiff, ["EPSG:32632", None], "spatial_ref", {}),
    "TIFF, one without, left out": (tiff, [None, "EPSG:32632"], "band_data", {"variables": ["band_data"]}),
    "TIFF, zones left out": (tiff, ["EPSG:32632", "EPSG:32633"], "band_data", {"drop_variables": ["spatial_ref"]}),
    "TIFF, systems without a code": (
        tiff,
        [f"+proj=laea +lat_0=52 +lon_0={each} +datum=WGS84 +units=m" for each in (10, 20)],
        "spatial_ref",
        {},
    ),
    "TIFF, without a code, left out": (
        tiff,
        [f"+proj=laea +lat_0=52 +lon_0={each} +datum=WGS84 +units=m" for each in (10, 20)],
        "band_data",
        {"variables": ["band_data"]},
    ),
    "GRIB, HEALPix": (grib, [pixels("ring"), pixels("nested")], "spatial_ref", {}),
    "GRIB, HEALPix, selected": (grib, [pixels("ring"), pixels("nested")], "/t_surface", FIELD),
    "GRIB, grids of ICON": (grib, [cells(b"1"), cells(b"2")], "spatial_ref", {}),
    "GRIB, grids of ICON, selected": (grib, [cells(b"1"), cells(b"2")], "/t_surface", FIELD),
    "GRIB, degrees, selected": (grib, SHIFTED, "/t_surface", FIELD),
    "NetCDF, grids of ICON": (icon, ["one", "two"], "/field", {}),
    "NetCDF, grids of ICON, selected": (icon, ["one", "two"], "/field", ONLY),
}  # fmt: skip


def arguments(write, scan):
    """Return how files are combined: images have no time."""
    along = {"concat_dim": "time"}
    combining = {"combine_options": {"labels": [0, 1]}} if write is tiff else {}
    return {**along, **combining, **({"scan_options": scan} if scan else {})}


NIGHTLY = {
    "NetCDF, one says nothing", "NetCDF, one lacks it, left out", "Zarr, zones",
    "TIFF, one without, left out", "TIFF, zones left out", "TIFF, systems without a code",
    "GRIB, HEALPix", "GRIB, grids of ICON, selected", "NetCDF, grids of ICON",
}  # fmt: skip
"""Each format, way to say a place, and way to leave it out is among the others, too."""


@pytest.mark.parametrize("case", cases(CASES, *(each for each in CASES if each not in NIGHTLY)))
def test_files_of_other_places_are_refused_and_the_first_fix_keeps_them(tmp_path, case):
    write, systems, variable, scan = CASES[case]
    suffix = {tiff: "tif", store: "zarr", grib: "grib2"}.get(write, "nc")
    files = [write(tmp_path / f"{n}.{suffix}", n, each) for n, each in enumerate(systems)]
    how = arguments(write, scan)
    with pytest.raises(CombineError, match=f"several ways.*{variable}") as caught:
        icevirt.plan(files, **how)
    facts = caught.value.facts
    for number, each in enumerate(("first", "other")):
        assert f"/{number}.{suffix}" in facts[each]
    assert facts["first_has"] != facts["other_has"] or "geotiff_keys" in facts["other_has"]
    fix = caught.value.fixes[0]
    assert not fix.loss or not fix.loss.files, fix
    merged = {**how, **fix.arguments}
    if "combine_options" in how:
        merged["combine_options"] = {**how["combine_options"], **fix.arguments["combine_options"]}
    report = icevirt.build(files, str(tmp_path / "repo"), **merged)
    tree = xr.open_datatree(
        str(tmp_path / "repo"), engine="icevirt",
        authorize_virtual_chunk_access=report.containers, decode_times=False,
    )  # fmt: skip
    name = {tiff: "band_data", grib: "t_surface"}.get(write, "field")
    for number in range(2):
        assert (tree[f"era_{number}/{name}"] == number).all()
    with pytest.raises(CombineError):
        report.open(eras="concat")


ALIKE = {
    "a lat-lon grid without a word": [{"grid_mapping_name": "latitude_longitude"}, None],
    "in more words": [{**ZONES[0], "crs_wkt": "one"}, ZONES[0]],
    "a default that is stated": [{**ZONES[0], "false_easting": 0.0}, ZONES[0]],
    "neither says it": [None, None],
    "an empty one and none": [NOTHING, None],
    "in other words of THREDDS": [{**ZONES[0], "_CoordinateAxisTypes": "GeoX GeoY"}, ZONES[0]],
    "a lat-lon grid, once in words alone": [{"grid_mapping_name": "latitude_longitude"}, NOTHING],
    "a lat-lon grid as CF and as GDAL say it": [
        {"grid_mapping_name": "latitude_longitude"},
        {"spatial_ref": 'GEOGCS["WGS 84"]'},
    ],
}


@pytest.mark.parametrize(("case", "is_selected"), crossed(ALIKE, [False, True]))
def test_files_of_one_place_are_stacked(tmp_path, case, is_selected):
    files = [netcdf(tmp_path / f"{n}.nc", n, each) for n, each in enumerate(ALIKE[case])]
    if "lat" in case:
        for path in files:
            with netCDF4.Dataset(path, "a") as file:
                file.renameDimension("y", "lat")
                file.renameDimension("x", "lon")
    plan = icevirt.plan(files, concat_dim="time", scan_options=ONLY if is_selected else {})
    assert {each.path: each.shape for each in plan.arrays}["/field"] == (2, 2, 3)


def numbers_of(held, **beside):
    """Return the kinds of files of a field that names crs; the code of a schema is its file."""
    places = {path: range(len(each)) for path, each in held.items()}

    def rows_of(path):
        return Placed(*[np.array([*places[path]])] * 3)

    attributes = {path: dict(enumerate(each)) for path, each in held.items()}
    found = contradictions(attributes, rows_of, **beside)
    return {each.path: each.kind.tolist() for each in found}


NAMED = {"grid_mapping": "crs"}


@pytest.mark.parametrize(
    ("last", "kinds"), [(ZONES[0], {}), (ZONES[1], {"/field": [0, 0, 1]})], ids=["same", "other"]
)
def test_files_of_older_catalogs_did_not_note_a_mapping_that_is_left_out(last, kinds):
    placed = {"/field": {1: ZONES[0], 2: last}}
    held = {"/field": [NAMED, NAMED, NAMED]}
    assert numbers_of(held, placed=placed, unnoted={"/field": {0}}) == kinds
    assert numbers_of(held, placed=placed)["/field"][:2] == [0, 1]


@pytest.mark.parametrize("path", ["/spatial_ref", "/field"])
def test_files_of_older_catalogs_say_nothing_of_systems_and_grids_that_scans_note_now(path):
    keys = [{"geotiff_keys": "1=1"}, {"uuidOfHGrid": "one"}][path == "/field"]
    held = {"/field": [{"grid_mapping": "spatial_ref"}] * 2}
    if path == "/field":
        beside = {"placed": {"/field": {1: keys}}, "everywhere": {"/spatial_ref"}}
        assert numbers_of({**held, "/spatial_ref": [ZONES[0]] * 2}, **beside) == {}
        return
    held["/spatial_ref"] = [{"GeoTransform": "0 1 0 0 0 1"}, keys]
    everywhere = {"/spatial_ref"}
    assert numbers_of(held, unnoted={path: {0}}, everywhere=everywhere) == {}
    assert numbers_of(held, everywhere=everywhere) == {path: [0, 1]}


def test_a_schema_says_whether_a_scan_noted_a_place():
    for noted in (None, {}, {"grid_mapping_name": "healpix"}):
        one = ArraySchema(
            dimension_names=(), chunk_shape=None, data_type="int8", codecs=(), fill_value=0,
            placed_by=noted,
        )  # fmt: skip
        assert ArraySchema.loads(one.dumps()).placed_by == noted


SAID = {
    "left out": (ZONES, ONLY),
    "one lacks it": ([ZONES[0], None], {}),
    "dropped": (ZONES, {"drop_variables": ["crs"]}),
}


@pytest.mark.parametrize("case", SAID)
def test_what_the_error_proposes_accepts_the_files(tmp_path, case):
    systems, scan = SAID[case]
    files = [netcdf(tmp_path / f"{n}.nc", n, each) for n, each in enumerate(systems)]
    how = {"concat_dim": "time", "scan_options": scan}
    with pytest.raises(CombineError) as caught:
        icevirt.plan(files, **how)
    named = '"crs"' if case == "one lacks it" else "None"
    assert f'{{"attrs": {{"/field": {{"grid_mapping": {named}}}}}}}' in str(caught.value)
    attrs = {"/field": {"grid_mapping": "crs" if case == "one lacks it" else None}}
    report = icevirt.build(files, str(tmp_path / "repo"), combine_options={"attrs": attrs}, **how)
    assert report.open().field.shape == (2, 2, 3)


def test_a_file_of_another_place_is_not_added(tmp_path):
    repo = str(tmp_path / "repo")
    (tmp_path / "in").mkdir()
    for number in range(2):
        netcdf(tmp_path / f"in/{number}.nc", number, ZONES[0])
    icevirt.build([str(tmp_path / "in/*.nc")], repo, concat_dim="time", scan_options=ONLY)
    new = netcdf(tmp_path / "in/2.nc", 2, ZONES[1])
    with pytest.raises(CombineError, match="longitude_of_central_meridian of /field"):
        icevirt.append([new], repo)
    updated = icevirt.update(repo)
    assert "longitude_of_central_meridian of /field differs in 1 of 3 files" in str(updated)
    with xr.open_zarr(
        icevirt.Repository.open(repo).readonly_session("main").store, consolidated=False
    ) as held:
        assert held.sizes["time"] == 2
