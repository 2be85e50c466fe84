"""Indices of partitions count elements of the dataset where that is asked for, and nowhere else."""

from dataclasses import dataclass, field
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from archives.random_proposals import change_call
from builds.support import verified
from icevirt.errors import CombineError, InvalidInputError
from long_forms import cases, crossed

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

JOINED = {"concat_dim": ["face", "node"], "combine_options": {"rebase_indices": True}}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How partitions write what they number."""

    dtype: Any = "i4"
    first: int = 0
    attrs: dict[str, Any] = field(default_factory=dict)
    mesh: dict[str, Any] = field(default_factory=dict)
    fill: Any = None
    none: Any = None  # what stands where an element has fewer corners
    corners_first: bool = False
    node: str = "node"
    name: str = "connected"
    became: str = ""  # data type in the dataset; empty: as in the files
    none_became: Any = None


UGRID = {
    "cf_role": "mesh_topology", "face_node_connectivity": "connected", "node_coordinates": "x y",
}  # fmt: skip
ROLE = {"cf_role": "face_node_connectivity"}
ONE = {**ROLE, "start_index": np.int32(1)}
KINDS = {
    "from 0": Kind(mesh=UGRID, attrs=ROLE),
    "from 1": Kind(mesh=UGRID, attrs=ONE, first=1),
    "a role, and no mesh": Kind(attrs=ONE, first=1),
    "corners along the first dimension": Kind(
        mesh={**UGRID, "face_dimension": "face"}, attrs=ONE, first=1, corners_first=True
    ),
    "a fill value": Kind(mesh=UGRID, attrs=ONE, first=1, fill=-999, none=-999),
    "a fill value that another element gets": Kind(
        mesh=UGRID, attrs=ROLE, fill=9, none=9, none_became=-1
    ),
    "no element is 0": Kind(mesh=UGRID, attrs=ONE, first=1, none=0),
    "no element is -1": Kind(mesh=UGRID, attrs=ROLE, none=-1),
    "unsigned": Kind(mesh=UGRID, attrs=ROLE, dtype="u4", fill=2**32 - 1, none=2**32 - 1),
    "64 bits": Kind(mesh=UGRID, attrs=ROLE, dtype="i8"),
    "floats, as xarray writes numbers that are missing": Kind(
        mesh=UGRID, attrs=ROLE, dtype="f8", fill=np.nan, none=np.nan
    ),
    "one number for the first of all files": Kind(
        mesh=UGRID, attrs={**ROLE, "start_index": np.int32(100)}, first=100
    ),
    "FVCOM": Kind(
        attrs={"long_name": "nodes surrounding element"}, first=1, corners_first=True, name="nv"
    ),
    "MPAS": Kind(node="nVertices", name="verticesOnCell", first=1, none=0),
    "ICON": Kind(node="vertex", name="vertex_of_cell", first=1, corners_first=True),
}  # fmt: skip


def partition(path, kind, faces, nodes, *, seed, time=None, attrs=None):
    """Write a part of a mesh of triangles, every node of which a face has."""
    random = np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("face", faces), (kind.node, nodes), ("three", 3)):
            file.createDimension(name, length)
        if kind.mesh:
            file.createVariable("mesh", "i4", ()).setncatts(kind.mesh)
        dims = ("three", "face") if kind.corners_first else ("face", "three")
        index = file.createVariable(kind.name, kind.dtype, dims, fill_value=kind.fill)
        index.set_auto_mask(False)
        index.setncatts({**kind.attrs, **(attrs or {})})
        numbers = random.permutation(np.arange(3 * faces) % nodes).reshape(faces, 3)
        numbers = (numbers + (attrs or {}).get("start_index", kind.first)).astype(kind.dtype)
        if kind.none is not None:
            numbers[0, 2] = kind.none
        index[:] = numbers.T if kind.corners_first else numbers
        for name in ("x", "y"):
            file.createVariable(name, "f8", (kind.node,))[:] = random.random(nodes)
        along = ()
        if time is not None:
            along = ("time",)
            file.createDimension("time", 2)
            held = file.createVariable("time", "i4", ("time",))
            held.units = "hours since 2020-01-01"
            held[:] = [2 * time, 2 * time + 1]
        random = np.random.default_rng(1000 * (time or 0) + seed)
        shape = (2,) * len(along)
        file.createVariable("level", "f4", (*along, "face"))[:] = random.random((*shape, faces))
        file.createVariable("salt", "f4", (*along, kind.node))[:] = random.random((*shape, nodes))
    return str(path)


def raw(path, **how):
    return xr.open_dataset(path, mask_and_scale=False, decode_times=False, **how).load()


def opened(repo, folder, **how):
    return raw(
        repo, engine="icevirt", authorize_virtual_chunk_access=[f"{folder.as_uri()}/"], **how
    )


def joined(files, kind):
    """Return what numpy makes of the files: numbers of elements grow, all others stay."""
    found, before = [], 0
    for each in map(raw, files):
        first = int(each[kind.name].attrs.get("start_index", kind.first))
        start = int(raw(files[0])[kind.name].attrs.get("start_index", kind.first))
        values = each[kind.name].values
        nodes = each.sizes[kind.node]
        is_element = (values >= first) & (values < first + nodes)
        if kind.fill is not None:
            is_element &= values != kind.fill
        wide = values.astype(kind.became or kind.dtype)
        if kind.none_became is not None:
            wide[values == kind.none] = kind.none_became
        wide[is_element] = values[is_element].astype("i8") + before + start - first
        found.append(wide)
        before += nodes
    return np.concatenate(found, axis=1 if kind.corners_first else 0)


def assert_joined(repo, folder, files, kind):
    """Compare a repository with the files, one after the other."""
    found, all_files = opened(repo, folder), [*map(raw, files)]
    expected = joined(files, kind)
    assert found[kind.name].dtype == expected.dtype
    np.testing.assert_array_equal(found[kind.name].values, expected)
    for name in ("x", "y", "level", "salt"):
        together = np.concatenate([each[name].values for each in all_files], axis=-1)
        np.testing.assert_array_equal(found[name].values, together)
    verified(repo, [f"{folder.as_uri()}/"])


def parts(folder, kind, *sizes, **how):
    return [
        partition(folder / f"part{n}.nc", kind, *size, seed=n, **how)
        for n, size in enumerate(sizes)
    ]


SIZES = {"even": ((4, 5), (4, 5)), "odd": ((4, 6), (3, 5), (5, 7))}


NIGHTLY = {"from 0", "no element is -1", "64 bits", "corners along the first dimension"}
"""The others have each of these, in other company."""


@pytest.mark.parametrize(
    ("name", "size"), crossed(cases(KINDS, *(each for each in KINDS if each not in NIGHTLY)), SIZES)
)
def test_indices_count_all_elements_where_asked(tmp_path, repo_path, name, size):
    kind, sizes = KINDS[name], SIZES[size]
    files = parts(tmp_path, kind, *sizes)
    call = {"concat_dim": ["face", kind.node]}
    with pytest.raises(CombineError, match=f"/{kind.name} numbers the steps along") as caught:
        icevirt.build(files, repo_path, **call)
    fixes = [each.arguments.get("combine_options") for each in caught.value.fixes]
    assert {"rebase_indices": True} in fixes
    icevirt.build(files, repo_path, **call, combine_options={"rebase_indices": True})
    assert_joined(repo_path, tmp_path, files, kind)


@pytest.mark.ci
@pytest.mark.parametrize(
    "kind", cases(["from 0", "a fill value", "FVCOM"], "a fill value", "FVCOM")
)
def test_partitions_are_appended_and_updated(tmp_path, repo_path, kind):
    kind = KINDS[kind]
    files = parts(tmp_path, kind, (4, 6), (3, 5))
    icevirt.build(str(tmp_path / "part*.nc"), repo_path, **JOINED)
    files.append(partition(tmp_path / "part5.nc", kind, 6, 7, seed=5))
    icevirt.append(files[-1], repo_path)
    assert_joined(repo_path, tmp_path, files, kind)
    files.append(partition(tmp_path / "part3.nc", kind, 2, 4, seed=3))
    icevirt.update(repo_path)
    assert_joined(repo_path, tmp_path, files, kind)
    partition(tmp_path / "part1.nc", kind, 5, 8, seed=11)  # another mesh in the place of the second
    icevirt.update(repo_path)
    assert_joined(repo_path, tmp_path, files, kind)


def test_a_file_alone_keeps_its_numbers_until_another_follows(tmp_path, repo_path):
    kind = KINDS["from 1"]
    files = parts(tmp_path, kind, (4, 6), (3, 5))
    icevirt.build(files[:1], repo_path, **JOINED)
    assert_joined(repo_path, tmp_path, files[:1], kind)
    icevirt.append(files[1], repo_path)
    assert_joined(repo_path, tmp_path, files, kind)


@pytest.mark.parametrize("sizes", [((4, 5), (4, 5)), ((4, 6), (3, 5))], ids=["even", "odd"])
def test_partitions_of_several_times_are_told_from_steps(tmp_path, repo_path, sizes):
    kind = KINDS["a fill value"]
    files = [
        [partition(tmp_path / f"p{n}_t{t}.nc", kind, *size, seed=n, time=t) for t in range(3)]
        for n, size in enumerate(sizes)
    ]
    everything = [each for some in files for each in some]
    with pytest.raises(CombineError) as caught:
        icevirt.build(everything, repo_path)
    asked = [
        fix for fix in caught.value.fixes
        if fix.arguments.get("combine_options", {}).get("rebase_indices")
    ]  # fmt: skip
    assert asked[0].arguments["concat_dim"] == ["time", "face", "node"]
    icevirt.build(everything, repo_path, **asked[0].arguments)
    found = opened(repo_path, tmp_path)
    np.testing.assert_array_equal(
        found[kind.name].values, joined([some[0] for some in files], kind)
    )
    for name in ("level", "salt"):
        each = [np.concatenate([raw(f)[name].values for f in some]) for some in files]
        np.testing.assert_array_equal(found[name].values, np.concatenate(each, axis=1))


def test_no_proposal_takes_partitions_for_steps(tmp_path, repo_path):
    files = parts(tmp_path, KINDS["from 1"], (4, 6), (3, 5), time=0)
    with pytest.raises(CombineError) as caught:
        icevirt.build(files, repo_path)
    for fix in caught.value.fixes:
        combining = fix.arguments.get("combine_options", {})
        is_nested = combining.get("combine") == "nested"
        assert not is_nested or combining.get("on_mismatch") == "eras", fix
    kept = [each.arguments["combine_options"] for each in caught.value.fixes if not each.loss]
    assert {"rebase_indices": True} in kept
    assert not caught.value.fixes[0].loss


def test_numbers_get_a_wider_type_where_theirs_is_too_narrow(tmp_path, repo_path):
    kind = Kind(
        mesh=UGRID, attrs=ROLE, dtype="i1", fill=-1, none=-1, became="i2", none_became=-1
    )  # fmt: skip
    files = parts(tmp_path, kind, (40, 90), (40, 90))
    icevirt.build(files, repo_path, **JOINED)
    assert_joined(repo_path, tmp_path, files, kind)


def test_files_that_begin_at_another_number_count_alike(tmp_path, repo_path):
    kind = KINDS["from 1"]
    files = [
        partition(tmp_path / "0.nc", kind, 4, 5, seed=0),
        partition(tmp_path / "1.nc", kind, 4, 5, seed=1, attrs={"start_index": np.int32(0)}),
    ]
    icevirt.build(files, repo_path, **JOINED)
    assert_joined(repo_path, tmp_path, files, kind)
    assert opened(repo_path, tmp_path)[kind.name].attrs["start_index"] == 1


def test_a_number_of_no_element_is_refused_by_name(tmp_path, repo_path):
    """Files that say nothing count from 0 (UGRID); these count from 1."""
    kind = Kind(mesh=UGRID, attrs=ROLE, first=1)
    files = parts(tmp_path, kind, (4, 6), (3, 5))
    with pytest.raises(CombineError, match=r"has the number 6.*from 0 to 5") as caught:
        icevirt.build(files, repo_path, **JOINED)
    assert caught.value.facts["variable"] == "/connected"
    assert 'attrs={"/connected": {"start_index": 1}}' in caught.value.do
    fixed = {**JOINED["combine_options"], "attrs": {"/connected": {"start_index": 1}}}
    icevirt.build(files, repo_path, concat_dim=["face", "node"], combine_options=fixed)
    assert_joined(repo_path, tmp_path, files, kind)


def test_a_person_says_what_is_numbered(tmp_path, repo_path):
    kind = Kind(name="corners")
    files = parts(tmp_path, kind, (4, 6), (3, 5))
    how = {"index_of": {"corners": "node"}}
    with pytest.raises(CombineError, match="/corners numbers the steps along 'node'"):
        icevirt.build(files, repo_path, concat_dim=["face", "node"], combine_options=how)
    how["rebase_indices"] = True
    icevirt.build(files, repo_path, concat_dim=["face", "node"], combine_options=how)
    assert_joined(repo_path, tmp_path, files, kind)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"index_of": {"corner": "node"}}, "index_of names 'corner'"),
        ({"index_of": {"connected": "nodes"}}, "index_of names 'nodes'"),
        ({"index_of": {"connected": "elements"}}, "index_of names 'elements'"),
        ({"index_of": {"connected": "nod"}, "rebase_indices": True}, "index_of names 'nod'"),
        ({"rebase_indices": True}, "no variable numbers elements"),
        ({"index_of": {"nn": "node"}, "rebase_indices": True}, "index_of names 'nn'"),
        ({"index_of": {"nn": "node", "n2": "node"}, "rebase_indices": True}, "index_of names"),
        ({"rename": {"connecte": "nn", "n2": "m"}}, "variable or dimension 'connecte'"),
        ({"tolerance": {"nn": 1.0, "n2": 2.0}}, "tolerance names 'nn'"),
    ],
)
def test_options_that_do_nothing_are_refused_and_what_is_printed_is_accepted(
    tmp_path, repo_path, options, what
):
    files = parts(tmp_path, Kind(), (4, 6), (3, 5))
    call = {"concat_dim": ["face", "node"], "combine_options": options}
    with pytest.raises(InvalidInputError, match=what) as caught:
        icevirt.build(files, repo_path, **call)
    assert caught.value.fixes
    for fix in caught.value.fixes:
        icevirt.plan(files, **change_call(call, fix))


def test_instances_of_ragged_arrays_are_counted_through(tmp_path, repo_path):
    files = []
    for number, (stations, rows) in enumerate([(2, 5), (3, 4)]):
        files.append(str(tmp_path / f"{number}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            file.createDimension("station", stations)
            file.createDimension("obs", rows)
            index = file.createVariable("which", "i4", ("obs",))
            index.instance_dimension = "station"
            index[:] = np.arange(rows) % stations
            file.createVariable("lat", "f8", ("station",))[:] = np.arange(stations) + 10 * number
            file.createVariable("value", "f4", ("obs",))[:] = np.arange(rows) + 100 * number
    how = {"concat_dim": ["obs", "station"]}
    with pytest.raises(CombineError, match="/which numbers the steps along 'station'"):
        icevirt.build(files, repo_path, **how)
    icevirt.build(files, repo_path, **how, combine_options={"rebase_indices": True})
    found, own = opened(repo_path, tmp_path), [*map(raw, files)]
    per_row = np.concatenate([each.lat.values[each.which.values] for each in own])
    np.testing.assert_array_equal(found.lat.values[found.which.values], per_row)


def test_large_partitions_refer_to_what_fits_and_store_the_numbers(tmp_path, repo_path):
    kind = KINDS["from 1"]
    files = parts(tmp_path, kind, (160_000, 150_000), (160_000, 150_000), (10_000, 7_000))
    with pytest.raises(CombineError) as caught:
        icevirt.build(files, repo_path)
    asked = [
        fix for fix in caught.value.fixes
        if fix.arguments.get("combine_options", {}).get("rebase_indices")
    ]  # fmt: skip
    assert asked[0].arguments.keys() == {"concat_dim", "combine_options"}  # nothing is dropped
    report = icevirt.build(files, repo_path, **asked[0].arguments)
    assert_joined(repo_path, tmp_path, files, kind)
    arrays = {each.path: each.references for each in report.arrays}
    assert not arrays["/connected"].virtual
    assert arrays["/x"].virtual


NESTED = {"rebase_indices": True, "combine": "nested", "on_mismatch": "eras"}


def test_sweeps_of_radar_volumes_number_the_rays_of_all(tmp_path, repo_path):
    """Two volumes of one scan strategy have equal numbers, which mean other rays."""
    rays = (30, 30, 24)
    for at, count in enumerate(rays):
        each = count // 3
        times = np.datetime64("2024-01-01", "ns") + np.arange(count) * np.timedelta64(1, "s")
        xr.Dataset(
            {
                "DBZ": (("time", "range"), np.random.default_rng(at).random((count, 5))),
                "sweep_number": ("sweep", np.arange(3, dtype="i4")),
                "sweep_start_ray_index": ("sweep", np.array([0, each, 2 * each], "i4")),
                "sweep_end_ray_index": (
                    "sweep",
                    np.array([each - 1, 2 * each - 1, count - 1], "i4"),
                ),
            },
            coords={"time": times + np.timedelta64(300 * at, "s")},
        ).to_netcdf(tmp_path / f"{at}.nc")
    source = str(tmp_path / "*.nc")
    with pytest.raises(CombineError, match="numbers the steps along 'time'") as error:
        icevirt.build(source, repo_path)
    change = {"concat_dim": ["sweep", "time"], "combine_options": {"rebase_indices": True}}
    assert "--concat-dim sweep --concat-dim time --rebase-indices" in {
        " ".join(each.flags) for each in error.value.fixes
    }
    for shared in ({"concat_dim": "time"}, {"concat_dim": "time", "combine_options": NESTED}):
        with pytest.raises(CombineError, match="numbers the steps along 'time'"):
            icevirt.build(source, repo_path, **{**change, **shared})
    icevirt.build(source, repo_path, **change)
    with xr.open_dataset(repo_path, engine="icevirt") as found:
        first, last = (found[f"sweep_{end}_ray_index"].values for end in ("start", "end"))
        assert found.sizes["time"] == sum(rays)
        assert [*found["sweep_number"].values] == [0, 1, 2] * 3
    assert [*first] == [0, 10, 20, 30, 40, 50, 60, 68, 76]
    assert [*last + 1] == [*first[1:], sum(rays)]
