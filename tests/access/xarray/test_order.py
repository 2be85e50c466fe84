"""Variables and dimensions come in the order of the files, as the netCDF engine shows one of them."""

import json

import icechunk
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import icevirt
from icevirt.access.xarray.writing import to_icechunk
from icevirt.model.attributes import Attributes, read_order

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def write(path, at, names=("zeta", "alpha", "crs"), **more):
    """Write two steps; coordinates stand among the variables, as in files of models."""
    known = {
        "zeta": (("time", "y", "x"), np.full((2, 2, 3), at)),
        "alpha": (("time",), np.arange(2) + at),
        "crs": ((), 0),
    }
    ds = xr.Dataset({name: known.get(name) or more[name] for name in names})
    coords = {"x": [1.0, 2, 3], "time": [2 * at, 2 * at + 1], "y": [0.0, 1]}
    ds.assign_coords({k: v for k, v in coords.items() if k in ds.dims}).to_netcdf(path)


def build(folder, repo, **options):
    own = {key: options.pop(key) for key in ("concat_dim", "group", "mode") if key in options}
    return icevirt.build(str(folder / "*.nc"), repo, combine_options=options, **own)


def shown(folder, repo, **how):
    access = {f"{folder.as_uri()}/": None}
    return xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=access, **how)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in").mkdir()
    for at in (0, 1):
        write(tmp_path / "in" / f"f{at}.nc", at)
    return tmp_path / "in"


def alike(ours, theirs):
    assert list(ours.variables) == list(theirs.variables)
    assert list(ours.sizes) == list(theirs.sizes)
    assert list(ours.coords) == list(theirs.coords)
    assert repr(ours.sizes) == repr(theirs.sizes) or ours.sizes != theirs.sizes


def test_a_dataset_has_the_order_of_its_files(files, tmp_path):
    build(files, tmp_path / "repo")
    alike(shown(files, tmp_path / "repo"), xr.open_dataset(files / "f0.nc"))


def test_what_only_later_files_hold_comes_behind(files, tmp_path):
    write(files / "f2.nc", 2, ("beta", "zeta", "alpha", "crs"), beta=("x", [1.0, 2, 3]))
    build(files, tmp_path / "repo")
    found = [*shown(files, tmp_path / "repo").data_vars]
    assert found == ["zeta", "alpha", "crs", "beta"]


def test_the_first_file_of_the_dataset_counts_whatever_is_listed_first(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.nc", 1, ("crs", "alpha", "zeta"))
    write(tmp_path / "in" / "b.nc", 0)
    build(tmp_path / "in", tmp_path / "repo")
    assert [*shown(tmp_path / "in", tmp_path / "repo").data_vars] == ["zeta", "alpha", "crs"]


def test_new_names_stand_where_the_old_ones_stood(files, tmp_path):
    build(files, tmp_path / "repo", rename={"zeta": "aaa", "x": "lon"}, concat_dim="time")
    theirs = xr.open_dataset(files / "f0.nc").rename(zeta="aaa", x="lon")
    alike(shown(files, tmp_path / "repo"), theirs)


def test_labels_of_a_new_dimension_come_last_as_in_concat(tmp_path):
    (tmp_path / "in").mkdir()
    for at in (0, 1):
        write(tmp_path / "in" / f"f_200{at}.nc", 0)
    build(tmp_path / "in", tmp_path / "repo", labels="f_{year:%Y}.nc")
    opened = [xr.open_dataset(file) for file in sorted((tmp_path / "in").glob("*.nc"))]
    years = pd.DatetimeIndex(["2000", "2001"], name="year")
    theirs = xr.concat(opened, years, data_vars="all", coords="minimal", compat="equals")
    alike(shown(tmp_path / "in", tmp_path / "repo"), theirs)


def test_groups_have_their_own_order(files, tmp_path):
    for at in (0, 1):
        path = files / f"f{at}.nc"
        below = xr.Dataset({"z": ("t", [at]), "b": ("t", [1]), "a": ((), 1)}, {"t": [at]})
        below.to_netcdf(path, group="/deep/er", mode="a")
    build(files, tmp_path / "repo", group="/top", concat_dim=["time", "t"])
    for group in ("/", "/deep/er"):
        ours = shown(files, tmp_path / "repo", group=f"/top{group}")
        alike(ours, xr.open_dataset(files / "f0.nc", group=group))


def test_a_file_that_is_written_by_itself_keeps_its_order(files):
    groups = {}

    class Noted:
        def add_group(self, path, zarr_json):
            groups[path] = json.loads(zarr_json)

        def add_array(self, path, zarr_json, chunks):
            assert chunks is not None

    scanned = icevirt.scan_file(str(files / "f0.nc"))
    scanned.write_to(Noted())
    names = [array.path.removeprefix("/") for array in scanned.arrays]
    assert names != sorted(names)
    assert list(read_order(groups["/"])) == names


def test_a_repository_without_the_record_is_shown_sorted(files, tmp_path):
    build(files, tmp_path / "repo")
    repo = icevirt.Repository.open(tmp_path / "repo")
    session = repo.writable_session("main")
    session.set_metadata("/", b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    session.commit("an earlier version")
    ours = shown(files, tmp_path / "repo")
    assert [*ours.data_vars] == ["alpha", "crs", "zeta"]


def test_variables_that_others_add_come_last(files, tmp_path):
    build(files, tmp_path / "repo")
    repo = icevirt.Repository.open(tmp_path / "repo")
    session = repo.writable_session("main")
    to_icechunk(xr.Dataset({"a2": ("q", [1]), "a1": ("q", [1])}), session, mode="a")
    session.commit("more")
    assert [*shown(files, tmp_path / "repo").data_vars] == ["zeta", "alpha", "crs", "a1", "a2"]


def test_the_official_client_reads_the_repository_and_shows_no_attribute_of_it(files, tmp_path):
    build(files, tmp_path / "repo")
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    group = zarr.open_group(repo.readonly_session("main").store, mode="r")
    assert {*group.array_keys()} == {"zeta", "alpha", "crs", "time", "x", "y"}
    assert "variables" not in group.attrs
    assert not shown(files, tmp_path / "repo").attrs


def test_a_build_again_takes_the_order_of_the_files_of_today(files, tmp_path):
    build(files, tmp_path / "repo")
    (files / "f0.nc").unlink()
    write(files / "f0.nc", 0, ("crs", "zeta", "alpha"))
    build(files, tmp_path / "repo", mode="w")
    assert [*shown(files, tmp_path / "repo").data_vars] == ["crs", "zeta", "alpha"]


@pytest.mark.parametrize(
    "record",
    [None, 7, "alpha", {"alpha": 1}, [1, None, ["alpha"]], [], ["gone", "zeta", "zeta"]],
)
def test_a_record_of_another_form_does_no_harm(record, files, tmp_path):
    """Anybody may have written it."""
    build(files, tmp_path / "repo")
    session = icevirt.Repository.open(tmp_path / "repo").writable_session("main")
    document = {
        "zarr_format": 3, "node_type": "group", "attributes": {},
        "icevirt": {"must_understand": False, "variables": record},
    }  # fmt: skip
    session.set_metadata("/", json.dumps(document).encode())
    session.commit("edited")
    found = [*shown(files, tmp_path / "repo").data_vars]
    assert found[0] == ("zeta" if isinstance(record, list) and "gone" in record else "alpha")
    assert sorted(found) == ["alpha", "crs", "zeta"]


@settings(max_examples=25)
@given(st.lists(st.text(min_size=1, max_size=3), unique=True))
def test_an_order_is_recorded_unless_names_are_sorted(names):
    made = Attributes().extension(names)
    assert ("icevirt" in made) == (names != sorted(names))
    if made:
        assert list(read_order(made)) == names
