"""Coarser copies are means of blocks of a variable, kept in step with it."""

from datetime import UTC, datetime

import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from api.test_stored_growth import GROWTHS, Archive, append, correct, name_growth, update
from builds.kept import Kept
from builds.support import official
from icevirt.errors import AlreadyExistsError, FormatError, IcevirtError, InvalidInputError
from icevirt.planning.coarsening import Coarsening, mean_longitudes
from icevirt.planning.levels import say_levels
from icevirt.planning.stored_form import StoredForm
from icevirt.repo.summary import summary
from icevirt.tasks.coarse_values import as_coarse
from long_forms import cases

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def means(values, blocks, weights=None):
    """Return means of blocks by a loop over them, without what is missing."""
    weights = np.ones(values.shape) if weights is None else np.broadcast_to(weights, values.shape)
    shape = [-(-n // block) for n, block in zip(values.shape, blocks, strict=True)]
    found = np.full(shape, np.nan)
    for index in np.ndindex(*shape):
        cut = tuple(slice(i * b, (i + 1) * b) for i, b in zip(index, blocks, strict=True))
        some, weight = values[cut].astype("f8"), weights[cut]
        there = ~np.isnan(some)
        if there.any():
            found[index] = (some[there] * weight[there]).sum() / weight[there].sum()
    return found


class CoarseArchive(Archive):
    """The same dataset, with two coarser copies of the packed variable."""

    def __init__(self, place, **shape):
        super().__init__(place, **shape)
        self.coarsen()

    def coarsen(self, variable="packed", levels=2, **how):
        return self.store(variable, coarsen={"y": 2, "x": 2}, levels=levels, beside=True, **how)

    def open(self, **options):
        prefixes = {"authorize_virtual_chunk_access": [str(self.folder)]}
        return xr.open_dataset(self.repo, engine="icevirt", **prefixes, **options)

    def assert_in_step(self):
        self.assert_as_files()
        with self.open() as fine:
            for level, block in ((1, 2), ("y4_x4", 4)):
                with self.open(level=level) as coarse:
                    expected = means(fine["packed"].values, (1, block, block))
                    np.testing.assert_allclose(coarse["packed"], expected, rtol=2e-7)
                    np.testing.assert_array_equal(coarse["time"], fine["time"])
                    by_xarray = fine["packed"].coarsen(y=block, x=block, boundary="pad").mean()
                    np.testing.assert_allclose(coarse["packed"], by_xarray, rtol=1e-5)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), CoarseArchive)


@pytest.fixture
def archive(kept):
    return kept.lay_down()


def test_levels_are_means_of_blocks(archive):
    archive.assert_in_step()


@pytest.mark.parametrize("steps", cases(GROWTHS, *GROWTHS[::4]), ids=name_growth)
def test_levels_grow_with_their_variable(archive, steps):
    for step in steps:
        step(archive)
    append(archive)
    archive.assert_in_step()


CRS = {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6371229.0}


@pytest.fixture(scope="module")
def globe(tmp_path_factory):
    """Two maps of a regular grid whose blocks do not divide it, with values missing."""
    folder = tmp_path_factory.mktemp("globe")
    lat, lon = np.linspace(-90, 90, 7), np.arange(0.0, 360, 36)
    values = np.random.default_rng(0).normal(280, 9, size=(2, 7, 10)).astype("f4")
    values[0, :3, :4] = values[1, 5, 5] = np.nan
    for step in range(2):
        ds = xr.Dataset(
            {
                "t": (
                    ("time", "lat", "lon"),
                    values[step : step + 1],
                    {"cell_methods": "time: mean", "grid_mapping": "/crs: lat lon"},
                ),
                "flags": (("lat", "lon"), np.zeros((7, 10), "i1"), {"flag_values": [0, 1]}),
                "name": ("lat", np.array(list("abcdefg"))),
                "crs": ((), np.int32(0), {**CRS, "GeoTransform": "-18 36 0 105 0 -30"}),
            },
            {
                "time": ("time", [step], {"units": "days since 2000-01-01"}),
                "lat": ("lat", lat, {"units": "degrees_north"}),
                "lon": ("lon", lon, {"units": "degrees_east"}),
            },
        )
        ds.to_netcdf(folder / f"{step}.nc", engine="h5netcdf")
    repo = str(folder / "repo")
    icevirt.build(str(folder / "*.nc"), repo, concat_dim="time", executor="in-process")
    icevirt.materialize(
        repo, "t", beside=True, coarsen={"lat": 2, "lon": 3}, executor="in-process"
    )  # fmt: skip
    return repo, values, lat


def test_values_are_weighed_by_area_and_missing_ones_take_their_weight_with_them(globe):
    repo, values, lat = globe
    weights = np.cos(np.deg2rad(lat))[None, :, None]
    with xr.open_dataset(repo, engine="icevirt", level="lat2_lon3") as coarse:
        found = coarse["t"]
        np.testing.assert_allclose(found, means(values, (1, 2, 3), weights), rtol=2e-7)
        assert np.isnan(found.values).sum() == 1
        assert found.dtype == "f4"
        assert found.dims == ("time", "lat", "lon")
        assert found.attrs["cell_methods"] == "time: mean lat: lon: mean (area-weighted)"
        np.testing.assert_allclose(coarse["lat"], means(lat, (2,)))
    fine = xr.DataArray(values, dims=("time", "lat", "lon"))
    weight = xr.DataArray(weights[0, :, 0], dims="lat") * fine.notnull()
    how = {"lat": 2, "lon": 3, "boundary": "pad"}
    by_xarray = (fine * weight).coarsen(**how).sum() / weight.coarsen(**how).sum()
    np.testing.assert_allclose(found, by_xarray, rtol=1e-6)


def test_other_readers_find_levels_by_the_convention(globe):
    """The convention multiscales, version 1: assets are paths below the group that says so."""
    repo, values, _ = globe
    group = zarr.open_group(official(repo).readonly_session("main").store, mode="r")
    said = group.attrs["multiscales"]
    assert group.attrs["zarr_conventions"][0]["uuid"] == "d35379db-88df-4056-af3a-620245f8e347"
    fine, coarse = said["layout"]
    assert (fine["asset"], coarse["derived_from"]) == ("t", "t")
    assert coarse["transform"] == {"scale": [1, 2, 3], "translation": [0, 0.5, 1]}
    array = group[coarse["asset"]]
    assert array.shape == tuple(
        int(np.ceil(n / s)) for n, s in zip(values.shape, coarse["transform"]["scale"], strict=True)
    )
    assert array.attrs["icevirt_coarsened_from"] == "../../t"
    with xr.open_dataset(
        official(repo).readonly_session("main").store,
        engine="zarr", group="coarsened/lat2_lon3", consolidated=False,
    ) as shown:  # fmt: skip
        assert {*shown.variables} == {"t", "time", "lat2", "lon3", "crs"}
        assert "crs" in shown.coords
        assert shown["t"].attrs["grid_mapping"] == "crs"
        assert CRS.items() <= shown["crs"].attrs.items()
        assert "GeoTransform" not in shown["crs"].attrs  # of the fine grid
        assert shown["t"].attrs["cell_methods"] == "time: mean lat2: lon3: mean (area-weighted)"
        np.testing.assert_allclose(shown["t"].sel(lon3=36), array[:, :, 0])


def test_xarray_opens_a_tree_with_its_levels_by_every_engine(globe):
    repo, values, _ = globe
    store = official(repo).readonly_session("main").store
    for tree in (
        xr.open_datatree(store, engine="zarr", consolidated=False),
        xr.open_datatree(repo, engine="icevirt", layout="all"),
    ):
        assert tree["t"].shape == values.shape
        assert tree["coarsened/lat2_lon3/t"].dims == ("time", "lat2", "lon3")
        np.testing.assert_array_equal(tree["coarsened/lat2_lon3/time"], tree["time"])


def test_levels_are_shown_where_they_are_asked_for(globe):
    repo, values, _ = globe
    with xr.open_dataset(repo, engine="icevirt") as ds:
        assert ds["t"].shape == values.shape
        assert "multiscales" not in ds.attrs
        assert ds.icevirt.explain(lat=0)["t"].layout == "own"
    assert [*xr.open_datatree(repo, engine="icevirt").groups] == ["/"]
    with pytest.raises(InvalidInputError, match="no such coarser copy") as caught:
        xr.open_dataset(repo, engine="icevirt", level=2)
    assert caught.value.facts["levels"] == ["lat2_lon3"]
    assert summary(icevirt.Repository.open(repo)).twins == {"/coarsened/lat2_lon3/t": True}


def test_a_dataset_of_exported_levels_is_shown_as_any_other(globe, tmp_path):
    with xr.open_dataset(globe[0], engine="icevirt", level=1) as coarse:
        expected = coarse.load()
    expected.to_netcdf(tmp_path / "level.nc", engine="h5netcdf")
    made = str(tmp_path / "repo")
    for group in ("maps", "coarsened/lat2_lon3"):
        icevirt.build(str(tmp_path / "level.nc"), made, group=group, executor="in-process")
    tree = xr.open_datatree(made, engine="icevirt")
    assert {"/maps", "/coarsened/lat2_lon3"} <= {*tree.groups}
    for group in ("maps", "coarsened/lat2_lon3"):
        np.testing.assert_array_equal(tree[group]["t"], expected["t"])


@pytest.mark.parametrize(
    ("variable", "how", "match"),
    [
        ("t", {"coarsen": {"depth": 2}}, "not a number of elements"),
        ("t", {"coarsen": {"time": 2}}, "that does not grow"),
        ("t", {"coarsen": {"lat": 1}}, "not a number of elements"),
        ("t", {"coarsen": {"lat": 2}, "levels": 0}, "beside a whole variable"),
        ("t", {"levels": 2}, "beside a whole variable"),
        ("t", {"coarsen": {"lat": 2}, "beside": False}, "beside a whole variable"),
        ("t", {"coarsen": {"lat": 2}, "where": {"lat": slice(0, 9)}}, "beside a whole variable"),
        ("flags", {"coarsen": {"lat": 2}}, "flags, which have no mean"),
        ("name", {"coarsen": {"lat": 2}}, "no numbers"),
        ("/coarsened/lat2_lon3/t", {"coarsen": {"lat": 2}}, "is stored already"),
    ],
)
def test_what_has_no_coarser_copy_is_refused_and_nothing_is_made(globe, variable, how, match):
    repo = globe[0]
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    with pytest.raises(IcevirtError, match=match):
        icevirt.materialize(repo, variable, **{"beside": True, "executor": "in-process"} | how)
    assert icevirt.Repository.open(repo).lookup_branch("main") == tip


def test_a_level_left_behind_by_others_is_not_shown(archive):
    session = official(archive.repo).writable_session("main")
    zarr.open_group(session.store)["packed"][0, 0, 0] = 9
    session.commit("theirs")
    append(archive)
    with pytest.raises(InvalidInputError, match="left behind"):
        archive.open(level=1)
    with archive.open(level=1, layout="all") as shown:
        assert shown["packed"].sizes["time"] == 16
    archive.coarsen()
    with archive.open() as fine, archive.open(level=1) as coarse:
        expected = means(fine["packed"].values, (1, 2, 2))
        np.testing.assert_allclose(coarse["packed"], expected, rtol=2e-7)


def change_scale(repo):
    """Let the same numbers mean other values."""
    session = repo.writable_session("main")
    zarr.open_group(session.store)["packed"].attrs["scale_factor"] = 7.0
    session.commit("theirs")


def forget_marks(repo):
    """Change a value, and expire all commits before, which say what was in step."""
    session = repo.writable_session("main")
    zarr.open_group(session.store)["packed"][0, 0, 0] = 9
    session.commit("theirs")
    repo.expire_snapshots(older_than=datetime.now(UTC))


@pytest.mark.parametrize("change", [change_scale, forget_marks])
def test_a_level_is_not_shown_where_its_variable_may_have_other_values(archive, change):
    change(official(archive.repo))
    with pytest.raises(InvalidInputError, match="coarser copy"):
        archive.open(level=1)
    archive.coarsen()
    with archive.open() as fine, archive.open(level=1) as coarse:
        expected = means(fine["packed"].values, (1, 2, 2))
        np.testing.assert_allclose(coarse["packed"], expected, rtol=2e-7)


def delete(repo, path):
    session = repo.writable_session("main")
    del zarr.open_group(session.store)[path]
    session.commit("theirs")


def test_a_level_of_a_variable_that_is_gone_is_not_shown(archive):
    delete(official(archive.repo), "packed")
    with pytest.raises(InvalidInputError, match="variable that is gone"):
        archive.open(level=1)
    tree = xr.open_datatree(
        archive.repo, engine="icevirt", authorize_virtual_chunk_access=[str(archive.folder)]
    )
    assert [*tree.groups] == ["/"]


def read_multiscales(archive):
    group = zarr.open_group(official(archive.repo).readonly_session("main").store, mode="r")
    return [each["asset"] for each in group.attrs.get("multiscales", {}).get("layout", ())]


def test_a_group_names_the_levels_that_there_are(archive):
    levels = ["coarsened/y2_x2/packed", "coarsened/y4_x4/packed"]
    assert read_multiscales(archive) == ["packed", *levels]
    delete(official(archive.repo), levels[0])
    update(archive)
    assert read_multiscales(archive) == ["packed", levels[1]]
    delete(official(archive.repo), levels[1])
    correct(archive)
    assert read_multiscales(archive) == []
    archive.coarsen()
    assert read_multiscales(archive) == ["packed", *levels]


def test_what_others_say_of_other_levels_stays():
    theirs = {"layout": [{"asset": "0"}, {"asset": "1", "derived_from": "0"}], "more": 1}
    how = Coarsening(factors=(2,))
    before = {"zarr_conventions": [{"name": "proj:"}], "multiscales": theirs, "title": "t"}
    said = say_levels(before, "/", [("/t", "/coarsened/x2/t", how)])
    assert [each["asset"] for each in said["multiscales"]["layout"]] == [
        "0", "1", "t", "coarsened/x2/t",
    ]  # fmt: skip
    left = say_levels(said, "/", ())
    assert (left["multiscales"], left["title"]) == (theirs, "t")
    alone = say_levels({"title": "t"}, "/", [("/t", "/coarsened/x2/t", how)])
    assert say_levels(alone, "/", ()) == {"title": "t"}


@pytest.mark.parametrize(
    ("longitudes", "means"),
    [
        ([357.5, 358.5, 359.5, 0.5, 1.5], [358, 0, 1.5]),
        ([178.5, 179.5, 179.5, -179.5, -178.5, -177.5], [179, -180, -178]),
        ([358.5, 359.5, 360.5, 361.5], [359, 361]),
        ([0.0, 90, 180, 270], [45, 225]),
        ([1.0, 359, 357], [0, 357]),
        ([359.25, 0.25], [359.75]),
    ],
    ids=str,
)
def test_longitudes_on_both_sides_of_the_seam_have_their_mean_there(longitudes, means):
    np.testing.assert_array_equal(mean_longitudes(np.array(longitudes, "f4"), 2), means)


@pytest.mark.parametrize(
    ("attributes", "ndim"),
    [
        ({"units": "degrees_east"}, 2),
        ({"units": "degree", "standard_name": "wind_from_direction"}, 1),
        ({"units": "radian", "standard_name": "platform_azimuth_angle"}, 1),
    ],
)
def test_directions_have_no_mean(attributes, ndim):
    planned = {"shape": [4] * ndim, "data_type": "float32", "attributes": attributes}
    assert "directions" in Coarsening(factors=(2,) * ndim).misfit(planned)


@pytest.mark.parametrize(
    "coarsen",
    [
        {},
        {"factors": [0, 2]},
        {"factors": "2"},
        {"factors": [1], "axis": 1},
        {"factors": [2], "area": 1},
    ],
    ids=str,
)
def test_a_record_of_a_copy_is_checked(coarsen):
    raw = {"chunk_shape": [1], "codec": "zstd", "of": "/t", "coarsen": coarsen}
    if coarsen:
        with pytest.raises((ValueError, TypeError)):
            StoredForm.of_record(raw)
    else:
        assert "dimensions" in StoredForm.of_record(raw).misfit({"shape": [3], "data_type": "int8"})


def test_latitudes_of_another_length_are_refused():
    how = Coarsening(factors=(1, 2), area="/lat", axis=1)
    with pytest.raises(FormatError, match="do not fit"):
        as_coarse(np.zeros((2, 3)), {"shape": [2, 3]}, how, np.ones(4))


def test_a_level_takes_no_dimension_of_others(archive):
    session = official(archive.repo).writable_session("main")
    group = zarr.open_group(session.store)
    group.create_array("stations", shape=(3,), dtype="i4", dimension_names=["x2"])
    session.commit("theirs")
    with pytest.raises(AlreadyExistsError, match="name of another dimension"):
        archive.coarsen("mask", levels=1)


def test_a_level_takes_no_name_of_others(archive):
    session = official(archive.repo).writable_session("main")
    zarr.open_group(session.store).create_array("coarsened/y2_x2/mask", shape=(2,), dtype="i4")
    session.commit("theirs")
    with pytest.raises(AlreadyExistsError, match="name of another array"):
        archive.coarsen("mask", levels=1)


@pytest.mark.parametrize("text", ["crs", "/crs", "../crs", "crs: lat lon", None])
def test_a_copy_calls_its_grid_mapping_by_the_name_that_it_has_beside_it(text):
    planned = {"shape": [4], "data_type": "float32", "attributes": {}}
    planned["attributes"] = {} if text is None else {"grid_mapping": text}
    made = Coarsening(factors=(2,)).apply(planned, "/t", "/coarsened/x2/t")["attributes"]
    assert made.get("grid_mapping") == made.get("coordinates") == (text and "crs")
