"""A file of several grids: a group of each, or one of them."""

import re

import numpy as np
import pytest
import xarray as xr

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import CombineError, ScanError
from scanners.grib.grib_files import by_eccodes, message, put

EAST = {"longitudeOfFirstGridPointInDegrees": 5, "longitudeOfLastGridPointInDegrees": 35}
GROUPS = {
    "regular_ll_3x4_20_0": ("t2m", {"shortName": "2t"}),
    "regular_ll_3x4_20_5": ("t2m", {"shortName": "2t", **EAST}),
    "regular_gg_64x128_87.863799_0": ("sp", {"sample": "regular_gg_sfc_grib2", "shortName": "sp"}),
}
MAPS = {
    "lambert_4x5_21.1_237.3": {
        "gridType": "lambert",
        "Latin1InDegrees": 38.5,
        "Latin2InDegrees": 38.5,
    },
    "polar_stereographic_4x5_21.1_237.3": {"gridType": "polar_stereographic"},
}


def fields(lead):
    for which, (_, keys) in enumerate(GROUPS.values()):
        values = None if "sample" in keys else np.arange(12.0) + lead + 100 * which
        yield message(**keys, forecastTime=lead, values=values)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Files of three grids, of which two have one shape and one variable, and their dataset."""
    folder = tmp_path_factory.mktemp("grids")
    how = {"executor": "in-process", "scan_options": {"grids": "groups"}}
    for lead in (0, 6):
        (folder / f"{lead}.grib2").write_bytes(b"".join(fields(lead)))
        if lead:
            icevirt.update(folder / "repo", executor="in-process")
        else:
            icevirt.build(f"{folder}/*.grib2", folder / "repo", **how)
    return folder


def access(folder):
    return {"authorize_virtual_chunk_access": [f"{folder.as_uri()}/"]}


@pytest.mark.ci
def test_each_grid_is_a_group_that_grows(built):
    tree = icevirt.open(str(built / "repo"), **access(built))
    for group, (name, _) in GROUPS.items():
        for step, lead in enumerate((0, 6)):
            body = [*fields(lead)][[*GROUPS].index(group)]
            theirs, mine = by_eccodes(body), tree[group][name].isel(time=0, step=step)
            np.testing.assert_array_equal(mine.values.reshape(-1), theirs.values)
            latitude, longitude = xr.broadcast(mine.latitude, mine.longitude)
            np.testing.assert_allclose(latitude.values.reshape(-1), theirs.latitude, atol=1e-9)
            np.testing.assert_allclose(longitude.values.reshape(-1), theirs.longitude, atol=1e-9)
    found = icevirt.verify(str(built / "repo"), full=True, executor="in-process", **access(built))
    assert found.ok
    assert found.checked.not_compared == ()
    assert {f"/{group}/{name}" for group, (name, _) in GROUPS.items()} <= found.checked.compared


@pytest.mark.ci
def test_one_grid_is_chosen_by_the_name_of_its_group(built, tmp_path):
    repo, group = str(tmp_path / "repo"), [*GROUPS][1]
    options = {"scan_options": {"source_group": group}}
    icevirt.build(f"{built}/*.grib2", repo, executor="in-process", **options)
    found = icevirt.verify(repo, full=True, executor="in-process", **access(built))
    assert (found.ok, found.checked.not_compared) == (True, ())
    assert xr.open_dataset(repo, engine="icevirt").longitude.values[0] == 5
    with pytest.raises(ScanError, match="no such group") as caught:
        scan_file(built / "0.grib2", scan_options={"source_group": "nested"})
    assert caught.value.facts["there"] == [f"/{group}" for group in GROUPS]


@pytest.mark.usefixtures("in_process")
def test_a_plan_prints_the_option_that_makes_groups(built, run):
    status, _, said = run("plan", f"{built}/*.grib2")
    assert status
    assert "Build a group of each grid: --grids groups" in " ".join(said.split())


@pytest.mark.ci
def test_a_coordinate_of_one_of_several_grids_is_not_compared_with_another(built, tmp_path):
    """Which of them a dataset has that leaves the others' variables out, is not recorded."""
    u = message(shortName="10u", **EAST)
    (tmp_path / "a.grib2").write_bytes(message(shortName="2t") + u)
    repo, options = tmp_path / "repo", {"scan_options": {"drop_variables": "t2m"}}
    icevirt.build(tmp_path / "a.grib2", repo, executor="in-process", **options)
    found = icevirt.verify(str(repo), full=True, executor="in-process", **access(tmp_path))
    assert found.ok
    assert dict(found.checked.not_compared) == {
        "/longitude": "the file has several grids with such a coordinate"
    }
    assert {"/u10", "/latitude"} <= found.checked.compared


@pytest.mark.parametrize("group", MAPS)
def test_a_map_is_called_by_its_first_point(group, tmp_path):
    keys = {"Nx": 5, "Ny": 4, "jScansPositively": 1, "LaDInDegrees": 60, "LoVInDegrees": 262}
    first = {"latitudeOfFirstGridPointInDegrees": 21.1, "longitudeOfFirstGridPointInDegrees": 237.3}
    how = MAPS[group] | keys | first | {"DxInMetres": 30000, "DyInMetres": 30000}
    if group.startswith("polar"):
        del how["LoVInDegrees"]
    (tmp_path / "a.grib2").write_bytes(message("GRIB2", **how))
    found = scan_file(tmp_path / "a.grib2", scan_options={"grids": "groups"})
    assert found.arrays[-1].path == f"/{group}/t_surface"


def test_grids_that_differ_in_what_no_name_says_have_a_digest_in_their_names(tmp_path):
    other = {"longitudeOfLastGridPointInDegrees": 60, "iDirectionIncrementInDegrees": 20}
    both = {}
    for name, body in {
        "a": message() + message(**other),
        "b": message(**other) + message(),
    }.items():
        (tmp_path / f"{name}.grib2").write_bytes(body)
        found = scan_file(tmp_path / f"{name}.grib2", scan_options={"grids": "groups"})
        both[name] = {
            group.path: found.array(f"{group.path}/longitude")
            .references.inline.view(float)
            .tolist()
            for group in found.groups
            if group.path != "/"
        }
    assert both["a"] == both["b"]  # whatever stands first
    assert sorted(both["a"].values()) == [[0, 10, 20, 30], [0, 20, 40, 60]]
    assert all(re.fullmatch(r"/regular_ll_3x4_20_0_[0-9a-f]{8}", path) for path in both["a"])


def icon(number):
    keys = {"gridType": "unstructured_grid", "numberOfDataPoints": 9, "numberOfGridUsed": number}
    return message("GRIB2", **keys, dataDate=20240100 + number, values=np.full(9, float(number)))


def test_files_of_one_list_of_points_combine_and_those_of_two_do_not(tmp_path):
    for name, body in (("a", icon(1)), ("b", put(icon(1), 1, 16, b"\5")), ("c", icon(2))):
        (tmp_path / f"{name}.grib2").write_bytes(body)
    files = [str(tmp_path / f"{name}.grib2") for name in "abc"]
    plan = icevirt.plan(files[:2], executor="in-process")
    assert "2 steps" in str(plan)
    with pytest.raises(CombineError, match="/spatial_ref"):
        icevirt.plan(files, executor="in-process")
