"""Real files, referred to and read back: the engine shows what the netCDF engine shows."""

from pathlib import Path

import icechunk
import iris_sample_data
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from access.xarray.compare import same_dataset
from access.xarray.netcdf import write_odd
from icevirt.connect.urls import file_url

SAMPLES = Path(iris_sample_data.path)
FILES = [
    *sorted(path.name for path in (SAMPLES / "NEMO").glob("*.nc")),
    "A1B_north_america.nc",
    "ostia_monthly.nc",
    "vlstr_type.nc",
    "atlantic_profiles.nc",
    "odd.nc",
]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Scan and commit each file once."""
    made = {}

    def build(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("files")
            made[name] = folder / "repo", source(name, folder)
            commit(*made[name])
        return made[name]

    return build


def source(name, folder):
    if name == "odd.nc":
        write_odd(folder / name)
        return folder / name
    (found,) = SAMPLES.rglob(name)
    return found


def commit(root, path):
    prefix = file_url(path.parent) + "/"
    config = icevirt.RepositoryConfig()
    store = icevirt.local_filesystem_store(str(path.parent))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    session = icevirt.Repository.create(root, config).writable_session("main")
    icevirt.scan_file(path).write_to(session)
    session.commit(path.name)


def authorised(path):
    return {"authorize_virtual_chunk_access": [file_url(path.parent) + "/"]}


MODES = {
    "decoded": {"decode_timedelta": False},
    "raw": {"decode_cf": False, "concat_characters": False, "decode_coords": False},
}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("name", FILES)
def test_the_engine_shows_what_the_netcdf_engine_shows(built, name, options):
    root, path = built(name)
    with xr.open_dataset(path, engine="netcdf4", **options) as theirs:
        ours = xr.open_dataset(root, engine="icevirt", **options, **authorised(path))
        same_dataset(ours, theirs)


@pytest.mark.parametrize("name", FILES)
def test_the_official_client_reads_the_raw_values(built, name):
    root, path = built(name)
    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(root)),
        None,
        {file_url(path.parent) + "/": icechunk.credentials.LocalFileSystemAccess},
    )
    group = zarr.open_group(repo.readonly_session("main").store, mode="r")
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        for variable in file.variables.values():
            np.testing.assert_array_equal(group[variable.name][...], variable[...])


def test_groups_of_a_file_are_groups_of_the_tree(built):
    root, path = built("odd.nc")
    tree = xr.open_datatree(root, engine="icevirt", **authorised(path))
    with xr.open_datatree(path, engine="netcdf4") as theirs:
        assert [node.path for node in tree.subtree] == [node.path for node in theirs.subtree]
        for node in theirs.subtree:
            ours = tree[node.path].to_dataset()
            same_dataset(ours, node.to_dataset())


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("name", FILES)
def test_what_was_opened_can_be_written_as_native_chunks(built, name, tmp_path):
    root, path = built(name)
    ds = xr.open_dataset(root, engine="icevirt", decode_timedelta=False, **authorised(path))
    # through JSON, which is all that xarray writes, an f4 scale_factor becomes a double
    # and with a text _FillValue xarray's zarr engine writes what it refuses to open
    ds = ds.drop_vars(["packed", "letter"], errors="ignore").load()
    for variable in ds.variables.values():
        for name in ("nan", "inf"):  # refused by the store, as by icechunk: they are not JSON
            variable.attrs.pop(name, None)
    session = icevirt.Repository.create(tmp_path / "native").writable_session("main")
    ds.to_zarr(session.store)
    session.commit("native")
    again = xr.open_dataset(tmp_path / "native", engine="icevirt", decode_timedelta=False)
    xr.testing.assert_identical(again.load(), ds)


def test_without_the_engine_a_single_precision_scale_decodes_to_double(built):
    """The dtype of attributes is known to the icevirt engine only; values differ by rounding."""
    root, path = built("odd.nc")
    engine = xr.open_dataset(root, engine="icevirt", **authorised(path))
    store = icevirt.Repository.open(root, **authorised(path)).readonly_session("main").store
    plain = xr.open_zarr(store, consolidated=False, drop_variables=["letter"])
    assert engine["packed"].dtype == np.float32
    assert plain["packed"].dtype == np.float64
    np.testing.assert_allclose(plain["packed"], engine["packed"], rtol=1e-6)
