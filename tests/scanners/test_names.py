"""Whatever a file calls its variables, each is read under one path, and none for another."""

import json

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import official
from icevirt.connect.urls import file_url
from icevirt.errors import ScanError, UnsupportedError
from scanners.kerchunk.kerchunk_files import zarray
from scanners.odd_names import COLLISIONS, NAMES, netcdf3

GROUPS = {b"a": "a", b"g\\h": "g%5Ch", b"_nc4_non_coord_g": "_nc4_non_coord_g", b"\xff": "%FF"}
FEW = ("a path with a backslash", "not UTF-8", "decomposed (NFD)", "the folder of chunks")
PREFIXED = {
    b"_nc4_non_coord_": "_nc4_non_coord_",
    b"_nc4_non_coord_q": "q",
    b"_nc4_non_coord_..": "%2E%2E",
    b"_nc4_non_coord___y": "%5F_y",
}


def hdf5(folder, odd=NAMES):
    """Each name, in the root and in groups of odd names; values are h5py's."""
    wanted = {}
    with h5py.File(folder / "odd.h5", "w") as file:
        for group, shown in {b"/": "", **GROUPS, b"g": "g"}.items():
            here = file if group == b"/" else file.create_group(group)
            for raw, name in (NAMES[each] for each in (odd if group in (b"/", b"g") else FEW)):
                here.create_dataset(raw, data=np.full((2,), len(wanted)), chunks=(1,))
                wanted[f"{shown}/{name}"] = here[raw][...]
        inner = file.create_group("p")
        for raw, name in PREFIXED.items():
            inner[raw] = np.full(3, len(wanted))
            wanted[f"p/{name}"] = inner[raw][...]
        file["a/b"] = np.full(2, -1)  # what Zarr finds for "a\\b"
        file["g/h/\\"] = np.full(2, -2)
        wanted |= {"a/b": file["a/b"][...], "g/h/%5C": file["g/h/\\"][...]}
    return icevirt.scan_file(folder / "odd.h5"), wanted


def netcdf_3(folder):
    raws = {raw: name for raw, name in NAMES.values() if name.isascii() and b"\xff" not in raw}
    (folder / "odd.nc").write_bytes(netcdf3([*raws, b"nul\0", b"nul2\0\0\0gone"]))
    with netCDF4.Dataset(folder / "odd.nc") as file:
        assert list(file.variables) == [*(raw.decode() for raw in raws), "nul", "nul2"]
        found = [variable[...].data for variable in file.variables.values()]
    names = [*raws.values(), "nul", "nul2"]
    return icevirt.scan_file(folder / "odd.nc"), dict(zip(names, found, strict=True))


def kerchunk(folder):
    names = {
        raw.decode(): name
        for raw, name in NAMES.values()
        if b"\xff" not in raw and raw not in (b"..", b".zmetadata")
    } | {"nul\0": "nul%00"}
    rows = np.arange(2 * len(names), dtype="<i4")
    rows.tofile(folder / "data.bin")
    (folder / "more.bin").write_bytes(np.full(2, -1, "<i4"))
    metadata = zarray(shape=[2], chunks=[2])
    refs = {".zgroup": '{"zarr_format": 2}', "a/b/.zarray": metadata}
    refs["a/b/0"] = [str(folder / "more.bin"), 0, 8]
    wanted = {"a/b": np.full(2, -1)}
    for at, (raw, name) in enumerate(names.items()):
        refs[f"{raw}/.zarray"] = metadata
        refs[f"{raw}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": [raw]})
        refs[f"{raw}/0"] = [str(folder / "data.bin"), 8 * at, 8]
        wanted[name] = rows[2 * at : 2 * at + 2]
    (folder / "refs.json").write_text(json.dumps(refs))
    scanned = icevirt.scan_file(folder / "refs.json")
    assert scanned.array("a%5Cb").dimension_names == ("a%5Cb",)
    return scanned, wanted


def virtualizarr(folder):
    """Through a parser that names arrays as it likes."""
    scanned, wanted = kerchunk(folder)
    del scanned
    return icevirt.scan_file(
        folder / "refs.json", scan_options={"scanner": "scanners.named_parser:scanner"}
    ), wanted


@pytest.mark.ci
@pytest.mark.parametrize("write", [hdf5, netcdf_3, kerchunk, virtualizarr])
def test_every_reader_finds_each_variable_under_a_path_of_its_own(write, tmp_path, repo_path):
    scanned, wanted = write(tmp_path)
    wanted = {f"in/{path.strip('/')}": values for path, values in wanted.items()}
    prefix = file_url(tmp_path) + "/"
    config = icevirt.RepositoryConfig()
    store = icevirt.local_filesystem_store(str(tmp_path))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    repo = icevirt.Repository.create(repo_path, config, [prefix])
    session = repo.writable_session("main")
    scanned.write_to(session, "in")
    session.commit("odd names")

    mine = repo.readonly_session("main").store
    theirs = official(str(repo_path)).readonly_session("main").store
    tree = xr.open_datatree(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=[prefix], decode_cf=False
    )
    for root in (zarr.open_group(mine, mode="r"), zarr.open_group(theirs, mode="r")):
        members = dict(root.members(max_depth=None))
        arrays = {path for path, node in members.items() if isinstance(node, zarr.Array)}
        assert arrays == set(wanted)
        for path, values in wanted.items():
            np.testing.assert_array_equal(root[path][...], values, err_msg=path)
    for path, values in wanted.items():
        group, _, name = path.rpartition("/")
        np.testing.assert_array_equal(tree[f"/{group}"].ds[name], values, err_msg=path)


@pytest.mark.ci
def test_a_build_keeps_odd_names_apart(tmp_path, repo_path, in_process):
    _, wanted = hdf5(tmp_path, FEW)
    icevirt.build(tmp_path / "odd.h5", repo_path)
    prefixes = [file_url(tmp_path) + "/"]
    tree = xr.open_datatree(
        repo_path,
        engine="icevirt",
        authorize_virtual_chunk_access=prefixes,
        decode_cf=False,
    )
    for path, values in wanted.items():
        group, _, name = path.rpartition("/")
        np.testing.assert_array_equal(tree[f"/{group}"].ds[name], values, err_msg=path)
    checked = icevirt.verify(repo_path, full=True, authorize_virtual_chunk_access=prefixes)
    assert checked.ok, checked


@pytest.mark.parametrize("pair", COLLISIONS.values(), ids=COLLISIONS)
@pytest.mark.parametrize("kind", ["arrays", "groups", "an array and a group", "dimensions"])
def test_names_that_become_one_are_refused(kind, pair, tmp_path):
    one, other = pair
    with h5py.File(tmp_path / "two.h5", "w") as file:
        match kind:
            case "arrays":
                file[one], file[other] = [1], [2]
            case "groups":
                file.create_group(one)["x"], file.create_group(other)["y"] = [1], [2]
            case "an array and a group":
                file[one] = [1]
                file.create_group(other)["x"] = [2]
            case "dimensions":
                file["v"] = np.zeros((2, 3))
                for at, (name, length) in enumerate(((one, 2), (other, 3))):
                    file.create_dataset(name, (length,), "f4").make_scale(
                        "This is a netCDF dimension but not a netCDF variable. "
                    )
                    file["v"].dims[at].attach_scale(file[name])
    with pytest.raises(UnsupportedError, match="would have the same name") as caught:
        icevirt.scan_file(tmp_path / "two.h5")
    assert caught.value.facts["file"] == file_url(tmp_path / "two.h5")


def test_variables_whose_names_become_one_are_left_out_by_name(tmp_path):
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["a\\b"], file["a%5Cb"], file["c"] = [1], [2], [3]
    scanned = icevirt.scan_file(tmp_path / "two.h5", scan_options={"drop_variables": "/a%5Cb"})
    assert [array.path for array in scanned.arrays] == ["/c"]


NETCDF3_TWICE = {
    "trailing NULs": [b"a", b"a\0\0"],
    "behind a NUL": [b"a\0b", b"a\0c"],
    "escaped": [b"a/b", b"a%2Fb"],
}


@pytest.mark.parametrize("names", NETCDF3_TWICE.values(), ids=NETCDF3_TWICE)
def test_names_of_netcdf_3_that_become_one_are_refused(names, tmp_path):
    (tmp_path / "two.nc").write_bytes(netcdf3(names))
    with pytest.raises(UnsupportedError, match="would have the same name"):
        icevirt.scan_file(tmp_path / "two.nc")


KEYS = {
    "an escape": ("a\\b", "a%5Cb", UnsupportedError, "would have the same name"),
    "an empty part": ("a", "a/", ScanError, "empty"),
    "an empty part before": ("a", "/a", ScanError, "empty"),
    "the group itself": ("a", "a/.", ScanError, "empty"),
    "the group above": ("a", "b/../a", ScanError, "empty"),
}


@pytest.mark.parametrize("case", KEYS.values(), ids=KEYS)
def test_keys_of_references_that_name_one_node_are_refused(case, tmp_path):
    one, other, error, says = case
    held = {".zgroup": '{"zarr_format": 2}'}
    held |= {f"{key}/.zarray": zarray(shape=[0], chunks=[1]) for key in (one, other)}
    (tmp_path / "refs.json").write_text(json.dumps(held))
    with pytest.raises(error, match=says):
        icevirt.scan_file(tmp_path / "refs.json")


def test_attributes_whose_names_become_one_are_reported(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["\\xff"], file.attrs[b"\xff"] = 1, 2
    scanned = icevirt.scan_file(tmp_path / "a.h5")
    assert list(scanned.groups[0].attributes.values) == ["\\xff"]
    assert [found.code for found in scanned.findings] == ["attribute-left-out"]


def test_a_link_that_libhdf5_reads_as_a_path_is_refused(tmp_path):
    """libhdf5 writes no such name; asked for it, it opens ``b`` in ``a``."""
    path = tmp_path / "link.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["a/b"] = [1]
        file["a!b"] = [2]
    path.write_bytes(path.read_bytes().replace(b"a!b", b"a/b"))
    with pytest.raises(ScanError, match="opens another object"):
        icevirt.scan_file(path)
