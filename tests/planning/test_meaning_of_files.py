"""Indices into dimensions of their own file, and projections that differ, are never joined."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import verified
from icevirt.errors import CombineError
from long_forms import cases, crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def partition(path, faces, nodes, *, seed=0, time=0, kind="UGRID", shared=False):
    """Write a part of a triangular mesh, with values at two times."""
    random = np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("face", faces), ("node", nodes), ("three", 3)):
            file.createDimension(name, length)
        held = file.createVariable("time", "f8", ("time",))
        held.units = "hours since 2020-01-01"
        held[:] = [time, time + 1]
        index = file.createVariable("connected", "i4", ("face", "three"))
        if kind == "UGRID":
            mesh = file.createVariable("mesh", "i4", ())
            mesh.cf_role, mesh.topology_dimension = "mesh_topology", 2
            mesh.node_coordinates = "node_x node_y"
            mesh.face_node_connectivity = "connected"
            index.cf_role = "face_node_connectivity"
        index.start_index = np.int32(1)
        index[:] = random.integers(1, nodes + 1, (faces, 3))
        for name in ("node_x", "node_y"):
            values = np.arange(nodes) if shared else random.random(nodes)
            file.createVariable(name, "f8", ("node",))[:] = values
        file.createVariable("domain", "i4", ("face",))[:] = seed
        file.createVariable("level", "f4", ("time", "face"))[:] = random.random((2, faces))
        file.createVariable("salt", "f4", ("time", "node"))[:] = random.random((2, nodes))
    return str(path)


def parts(folder, *sizes, **how):
    return [partition(folder / f"part{n}.nc", *size, seed=n, **how) for n, size in enumerate(sizes)]


def assert_groups(repo, report, eras):
    """Compare each era with its files, which follow one another in time."""
    verified(repo, report.containers)
    tree = xr.open_datatree(
        repo, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    assert len(tree.children) == len(eras)
    for number, files in enumerate(eras):
        opened = [xr.open_dataset(each).load() for each in files]
        expected = xr.concat(
            opened, "time", data_vars="minimal", coords="minimal", compat="equals",
            combine_attrs="override",
        )  # fmt: skip
        found = tree[f"/era_{number}"].to_dataset().load()
        xr.testing.assert_equal(found, expected)


SIZES = {"parts of equal sizes": ((4, 5), (4, 5)), "of other sizes": ((4, 5), (3, 4))}
WAYS = {
    "nothing said": {},
    "along faces": {"concat_dim": "face"},
    "along faces and nodes": {"concat_dim": ["face", "node"]},
    "along time": {"concat_dim": "time"},
}


@pytest.mark.parametrize(
    ("way", "kind", "sizes"), crossed(WAYS, ["UGRID", "start_index only"], SIZES)
)
def test_parts_of_a_mesh_are_refused_and_a_fix_gives_each_a_group(
    tmp_path, repo_path, sizes, kind, way
):
    files, how = parts(tmp_path, *SIZES[sizes], kind=kind), WAYS[way]
    with pytest.raises(CombineError) as caught:
        icevirt.build(files, repo_path, **how)
    assert not caught.value.fixes[0].loss
    fix = next(
        each for each in caught.value.fixes
        if each.arguments.get("combine_options", {}).get("on_mismatch") == "eras"
        and "/connected number" in each.price
    )  # fmt: skip
    report = icevirt.build(files, repo_path, **fix.arguments)
    assert_groups(repo_path, report, [[each] for each in files])


def test_the_refusal_names_the_variable_that_numbers(tmp_path, repo_path):
    files = parts(tmp_path, (4, 5), (3, 4))
    with pytest.raises(CombineError, match="/connected numbers the steps along 'node'") as caught:
        icevirt.build(files, repo_path, concat_dim=["face", "node"])
    assert caught.value.facts["variable"] == "/connected"
    assert caught.value.facts["file"].endswith("part0.nc")


@pytest.mark.ci
def test_files_of_many_parts_and_times_are_a_group_for_each_part(tmp_path, repo_path):
    """More parts than files may have other grids without being taken for swaths."""
    files = [
        partition(tmp_path / f"p{part}_t{time}.nc", 4, 5, seed=part, time=2 * time)
        for part in range(7)
        for time in range(2)
    ]
    for time in range(2):  # values in time are new, the mesh is the same
        for part in range(7):
            with netCDF4.Dataset(tmp_path / f"p{part}_t{time}.nc", "a") as file:
                file["level"][:] = file["level"][:] + 100 * time
    report = icevirt.build(
        files, repo_path, concat_dim="time",
        combine_options={"combine": "nested", "on_mismatch": "eras"},
    )  # fmt: skip
    assert_groups(repo_path, report, [files[2 * part : 2 * part + 2] for part in range(7)])


def test_numbers_of_elements_that_all_files_share_are_joined(tmp_path, repo_path):
    """Nodes are equal in all files, so faces of several files number the same ones."""
    files = parts(tmp_path, (4, 5), (3, 5), shared=True)
    for path in files:  # along faces alone nothing else differs
        with netCDF4.Dataset(path, "a") as file:
            file["salt"][:] = 1
    report = icevirt.build(files, repo_path, concat_dim="face")
    verified(repo_path, report.containers)
    found = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    expected = xr.concat(
        [xr.open_dataset(each) for each in files], "face", data_vars="minimal", coords="minimal",
        compat="equals", combine_attrs="override",
    )  # fmt: skip
    xr.testing.assert_equal(found.connected, expected.connected)


def test_a_mesh_that_all_files_hold_is_concatenated_in_time(tmp_path, repo_path):
    files = [partition(tmp_path / f"{n}.nc", 4, 5, seed=7, time=2 * n) for n in range(2)]
    report = icevirt.build(files, repo_path)
    verified(repo_path, report.containers)
    found = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    assert found.level.shape == (4, 4)
    assert found.connected.dims == ("face", "three")


def test_meshes_stacked_along_a_new_dimension_number_their_own(tmp_path, repo_path):
    files = parts(tmp_path, (4, 5), (4, 5))
    report = icevirt.build(
        files, repo_path, concat_dim="part",
        combine_options={"labels": [0, 1], "data_vars": ["all", "node_x", "node_y"]},
    )  # fmt: skip
    verified(repo_path, report.containers)
    found = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    for part, path in enumerate(files):
        own = xr.open_dataset(path)
        for name in ("connected", "node_x"):
            np.testing.assert_array_equal(found[name].values[part], own[name].values)


# -- projections -----------------------------------------------------------------------------------

UTM = {"grid_mapping_name": "transverse_mercator", "longitude_of_central_meridian": 9.0}


def tile(path, day, mapping, *, name="crs", names=None):
    """Write a field of one day on a grid whose mapping has the attributes given."""
    with netCDF4.Dataset(path, "w") as file:
        for dim, length in (("time", 1), ("y", 3), ("x", 4)):
            file.createDimension(dim, length)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2020-01-01"
        time[:] = [day]
        file.createVariable("x", "f8", ("x",))[:] = np.arange(4) * 10.0
        file.createVariable("y", "f8", ("y",))[:] = np.arange(3) * 10.0
        file.createVariable(name, "i4", ()).setncatts(mapping)
        field = file.createVariable("field", "f4", ("time", "y", "x"))
        field.grid_mapping = names or name
        field[:] = day
    return str(path)


UNLIKE = {
    "another zone": {"longitude_of_central_meridian": 15.0},
    "another projection": {"grid_mapping_name": "polar_stereographic"},
    "in words": {"crs_wkt": 'PROJCS["other"]'},
    "a code": {"epsg_code": "EPSG:32633"},
    "a list": {"standard_parallel": np.array([40.0, 60.0])},
    "an ellipsoid": {"semi_major_axis": 6378206.4},
}
BASE = {
    **UTM, "crs_wkt": 'PROJCS["one"]', "epsg_code": "EPSG:32632",
    "standard_parallel": np.array([30.0, 60.0]), "semi_major_axis": 6378137.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("unlike", "names"),
    crossed(
        cases(UNLIKE, "another zone", "another projection", "in words", "a list"),
        ["crs", "crs: x y"],
    ),
)
def test_files_of_several_projections_are_refused_and_groups_keep_them(
    tmp_path, repo_path, unlike, names
):
    change = UNLIKE[unlike]
    files = [
        tile(tmp_path / f"{n}.nc", n, {**BASE, **(change if n else {})}, names=names)
        for n in range(2)
    ]
    (attribute,) = change
    with pytest.raises(CombineError, match=f"several ways.*{attribute} of /crs differs") as caught:
        icevirt.build(files, repo_path)
    first = caught.value.fixes[0].arguments
    assert first == {"combine_options": {"on_mismatch": "eras"}}
    assert not [fix for fix in caught.value.fixes if "scan_options" in fix.arguments]
    report = icevirt.build(files, repo_path, **first)
    assert_groups(repo_path, report, [[each] for each in files])
    for number, path in enumerate(files):
        found = xr.open_dataset(
            repo_path, engine="icevirt", group=f"era_{number}",
            authorize_virtual_chunk_access=report.containers,
        )  # fmt: skip
        xr.testing.assert_identical(
            found.crs.drop_attrs().load(), xr.open_dataset(path).crs.drop_attrs().load()
        )
        assert xr.core.utils.dict_equiv(found.crs.attrs, xr.open_dataset(path).crs.attrs)


ALIKE = {
    "where the file lies": {"GeoTransform": "500000 10 0 0 0 -10"},
    "words": {"long_name": "the zone", "comment": "made by hand"},
    "layout of a text": {"crs_wkt": 'PROJCS["one"]\n'},
    "rounding": {"semi_major_axis": 6378137.0 + 1e-6},
    "an integer": {"longitude_of_central_meridian": np.int32(9)},
    "what only one says": {"reference_ellipsoid_name": "GRS 1980"},
}


@pytest.mark.parametrize("change", ALIKE.values(), ids=ALIKE)
def test_mappings_that_do_not_contradict_are_one(tmp_path, repo_path, change):
    files = [tile(tmp_path / f"{n}.nc", n, {**BASE, **(change if n else {})}) for n in range(2)]
    report = icevirt.build(files, repo_path)
    assert {each.path: each.shape for each in report.arrays}["/field"] == (2, 3, 4)


@pytest.mark.parametrize("is_same", [True, False])
def test_mappings_of_other_names_are_compared(tmp_path, repo_path, is_same):
    other = UTM if is_same else {**UTM, "longitude_of_central_meridian": 15.0}
    files = [
        tile(tmp_path / "0.nc", 0, UTM, name="utm32"),
        tile(tmp_path / "1.nc", 1, other, name="utm33"),
    ]
    if is_same:
        report = icevirt.build(files, repo_path)
        assert {each.path: each.shape for each in report.arrays}["/field"] == (2, 3, 4)
        return
    with pytest.raises(CombineError, match="grid_mapping of /field differs") as caught:
        icevirt.build(files, repo_path)
    assert caught.value.facts["first_has"] == "grid_mapping utm32"
    report = icevirt.build(files, repo_path, **caught.value.fixes[0].arguments)
    assert_groups(repo_path, report, [[each] for each in files])


def test_tiles_of_one_time_get_groups_by_their_projection(tmp_path, repo_path):
    files = [
        tile(tmp_path / "0.nc", 0, UTM),
        tile(tmp_path / "1.nc", 0, {**UTM, "longitude_of_central_meridian": 15.0}),
    ]
    with pytest.raises(CombineError) as caught:
        icevirt.build(files, repo_path)
    report = icevirt.build(files, repo_path, **caught.value.fixes[0].arguments)
    assert_groups(repo_path, report, [[each] for each in files])


def test_a_projection_that_is_set_for_all_files_is_theirs(tmp_path, repo_path):
    files = [
        tile(tmp_path / f"{n}.nc", n, {**UTM, "crs_wkt": f"spelled {n} times"}) for n in range(2)
    ]
    with pytest.raises(CombineError, match="crs_wkt of /crs") as caught:
        icevirt.build(files, repo_path)
    assert "attrs" in caught.value.do
    options = {"attrs": {"/crs": {"crs_wkt": "one"}}}
    report = icevirt.build(files, repo_path, combine_options=options)
    found = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    assert found.crs.attrs["crs_wkt"] == "one"


def test_an_append_of_another_projection_is_refused(tmp_path, repo_path):
    files = [
        tile(tmp_path / f"{n}.nc", n, {**UTM, "longitude_of_central_meridian": 9.0 + 6 * (n == 2)})
        for n in range(3)
    ]
    icevirt.build(files[:2], repo_path)
    with pytest.raises(CombineError, match="longitude_of_central_meridian of /crs"):
        icevirt.append(files[2:], repo_path)


@pytest.mark.parametrize(
    ("names", "decode_coords"), crossed([("crs", "crs"), ("utm32", "utm33")], [True, "all"])
)
def test_eras_of_other_projections_are_not_shown_as_one_dataset(
    tmp_path, repo_path, names, decode_coords
):
    files = [
        tile(tmp_path / f"{n}.nc", n, {**UTM, "longitude_of_central_meridian": 9.0 + 6 * n},
             name=names[n])
        for n in range(2)
    ]  # fmt: skip
    report = icevirt.build(files, repo_path, combine_options={"on_mismatch": "eras"})
    assert not report.opens_as_one
    with pytest.raises(CombineError, match="projects the grid otherwise") as caught:
        report.open(eras="concat", decode_coords=decode_coords)
    assert caught.value.facts["eras"] == ["era_0", "era_1"]
    assert {*report.open().children} == {"era_0", "era_1"}
