"""Nodes whose names Zarr reads as paths: read as what they are, or refused; never another's values.

icevirt creates none. The official client does when keys are set directly.
"""

import asyncio
import json

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype

import icevirt
from icevirt.access.kerchunk import to_kerchunk
from icevirt.access.xarray.writing import to_icechunk
from icevirt.errors import InvalidInputError, NodeNotFoundError, UnsupportedError
from icevirt.model.chunks import ChunkTable

GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{}}'
EMPTY = ChunkTable.empty(1)


def document(dim="x"):
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [2],
            "data_type": "int32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
            "dimension_names": [dim],
        }
    ).encode()


@pytest.fixture
def root(repo_path):
    """A repository of the official client: ``b`` in ``a`` holds 1, ``a\\b`` holds 2."""
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(repo_path)))
    session = repo.writable_session("main")
    make = default_buffer_prototype().buffer.from_bytes

    async def write():
        for folder in ("", "a/", "g\\h/"):
            await session.store.set(f"{folder}zarr.json", make(GROUP))
        for number, path in enumerate(("a/b", "a\\b", "g\\h/v", "plain"), 1):
            await session.store.set(f"{path}/zarr.json", make(document()))
            await session.store.set(f"{path}/c/0", make(np.full(2, number, "<i4").tobytes()))

    asyncio.run(write())
    session.commit("odd")
    return repo_path


def test_the_engine_reads_each_node_as_what_it_is(root):
    ds = xr.open_dataset(root, engine="icevirt")
    assert {name: ds[name].values.tolist() for name in ds} == {"a\\b": [2, 2], "plain": [4, 4]}
    assert xr.open_dataset(root, engine="icevirt", group="a").b.values.tolist() == [1, 1]
    assert xr.open_dataset(root, engine="icevirt", group="g\\h").v.values.tolist() == [3, 3]
    tree = xr.open_datatree(root, engine="icevirt")
    assert tree["g\\h"].v.values.tolist() == [3, 3]
    assert ds.chunk()["a\\b"].compute().values.tolist() == [2, 2]


@pytest.mark.parametrize("group", ["g/h", "a\\", "\\a", "a\\b\\c", "plain\\"])
def test_the_engine_folds_no_name_of_a_group(group, root):
    with pytest.raises(NodeNotFoundError):
        xr.open_dataset(root, engine="icevirt", group=group)


def test_zarr_is_not_handed_another_node_and_the_remedy_mends_it(root):
    repo = icevirt.Repository.open(root)
    top = zarr.open_group(repo.readonly_session("main").store, mode="r")
    assert top["a/b"][...].tolist() == [1, 1]
    with pytest.raises(UnsupportedError, match="reads the backslash") as caught:
        list(top.members())
    with pytest.raises(UnsupportedError, match="reads the backslash"):
        xr.open_zarr(repo.readonly_session("main").store, consolidated=False)
    for wrong in ("/a\\b", "/g\\h"):
        session = repo.rearrange_session("main")
        session.move(wrong, wrong.replace("\\", "_"))
        session.commit("rename")
    assert "session.move('/a\\\\b', '/a_b')" in caught.value.do
    top = zarr.open_group(repo.readonly_session("main").store, mode="r")
    found = {name: node[...].tolist() for name, node in top.arrays()}
    assert found == {"a_b": [2, 2], "plain": [4, 4]}
    assert top["g_h/v"][...].tolist() == [3, 3]


UNSAYABLE = {
    "a backslash": "a\\b",
    "a backslash in a group": "a\\b/c",
    "zarr's metadata": "zarr.json",
    "a NUL": "a\0",
    "half a character": "a\ud800",
}


REFUSED = (
    "not a valid name for a node|holds half a letter|concat_dim is not|not a valid new name|this is not a valid "
    "node path"
)


@pytest.mark.parametrize("name", UNSAYABLE.values(), ids=UNSAYABLE)
def test_no_node_of_such_a_name_is_created(name, repo_path):
    repo = icevirt.Repository.create(repo_path)
    session = repo.writable_session("main")
    session.add_group("/here", GROUP)
    session.commit("a group")
    session, moving = repo.writable_session("main"), repo.rearrange_session("main")
    ways = [
        lambda: session.add_group(f"/{name}", GROUP),
        lambda: session.add_array(f"/{name}", document(), EMPTY),
        lambda: session.add_array(f"/here/{name}/v", document(), EMPTY),
        lambda: moving.move("/here", f"/{name}"),
        lambda: icevirt.build("*.nc", repo_path, group=name),
        lambda: icevirt.plan("*.nc", group=name),
        lambda: icevirt.build("*.nc", repo_path, concat_dim=name),
        lambda: icevirt.build("*.nc", repo_path, combine_options={"rename": {"x": name}}),
    ]
    for way in ways:
        with pytest.raises(InvalidInputError, match=REFUSED):
            way()
    assert not session.has_uncommitted_changes


def test_xarray_writes_no_variable_to_the_path_of_another(repo_path):
    session = icevirt.Repository.create(repo_path).writable_session("main")
    ds = xr.Dataset({"b": ("x", [1, 1])})
    to_icechunk(ds, session, group="a")
    for name in ("a\\b", "a/b", "a\\", "zarr.json"):
        with pytest.raises(InvalidInputError, match="Zarr cannot store a variable of this name"):
            to_icechunk(ds.rename(b=name), session, mode="a")
    with pytest.raises(InvalidInputError, match="not a valid name for a node"):
        to_icechunk(ds + 1, session, group="a\\b", mode="a")
    assert zarr.open_group(session.store, mode="r")["a/b"][...].tolist() == [1, 1]


@pytest.mark.parametrize("name", ["a\\b", ".zarray", ".zattrs", ".zgroup", ".zmetadata"])
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_kerchunks_references_have_no_such_name(form, name, root, tmp_path):
    repo = icevirt.Repository.open(root)
    session = repo.writable_session("main")
    if "\\" not in name:
        session.delete("/a\\b")
        session.delete("/g\\h")
        session.add_array(f"/{name}", document(), EMPTY)
    with pytest.raises(UnsupportedError, match="kerchunk references cannot hold"):
        to_kerchunk(session, "/", tmp_path / "out", format=form)
    assert not (tmp_path / "out").exists()


def test_a_name_that_no_directory_can_have_is_refused_by_parquet(repo_path, tmp_path):
    session = icevirt.Repository.create(repo_path).writable_session("main")
    session.add_array(f"/{'n' * 300}", document(), EMPTY)
    with pytest.raises(UnsupportedError, match="cannot make a directory"):
        to_kerchunk(session, "/", tmp_path / "out", format="parquet")
    to_kerchunk(session, "/", tmp_path / "out.json")
