"""An append to a group that VirtualiZarr made proposes the build that does what was meant."""

import shlex

import h5py
import icechunk
import numpy as np
import pytest
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from typer.testing import CliRunner
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser

import icevirt
from icevirt.cli.main import app
from icevirt.errors import AlreadyExistsError


@pytest.fixture
def root(tmp_path):
    """Three files, and a repository that VirtualiZarr made of two of them."""
    (tmp_path / "a").mkdir()
    for number in range(3):
        with h5py.File(tmp_path / "a" / f"{number}.h5", "w") as file:
            file["time"] = np.arange(2.0) + 2 * number
            file["time"].make_scale("time")
            made = file.create_dataset("v", data=np.full((2, 900), number, "f8"), chunks=(1, 900))
            made.dims[0].attach_scale(file["time"])
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    datasets = [
        open_virtual_dataset(
            f"file://{tmp_path}/a/{number}.h5",
            parser=HDFParser(),
            registry=registry,
            loadable_variables=["time"],
        )
        for number in range(2)
    ]
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(
            f"file://{tmp_path}/", icechunk.local_filesystem_store(str(tmp_path))
        )
    )
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repo"))
    session = icechunk.Repository.create(storage, config).writable_session("main")
    xr.concat(datasets, dim="time").vz.to_icechunk(session.store)
    session.commit("by VirtualiZarr")
    return tmp_path


def test_the_command_that_an_append_proposes_makes_the_whole_dataset(root):
    """All files are in it: those that the group refers to, and the new one."""
    with pytest.raises(AlreadyExistsError) as caught:
        icevirt.append(root / "a" / "2.h5", root / "repo", executor="in-process")
    (fix,) = caught.value.fixes
    words = shlex.split(fix.command)
    assert words[-3:] == ["--mode", "w", "--allow-changes"]
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    with icevirt.open(root / "repo") as ds:
        assert ds["v"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    history = icevirt.Repository.open(root / "repo").ancestry(branch="main")
    assert "by VirtualiZarr" in [each.message for each in history]


def test_files_elsewhere_than_the_caller_named_are_in_no_command(root):
    """The repository says where they are, and anybody may have written it."""
    (root / "b").mkdir()
    (root / "a" / "2.h5").rename(root / "b" / "2.h5")
    with pytest.raises(AlreadyExistsError) as caught:
        icevirt.append(root / "b" / "2.h5", root / "repo", executor="in-process")
    assert not caught.value.fixes
    assert "allow_changes" in str(caught.value)
    assert "2 below" in str(caught.value)
    with pytest.raises(AlreadyExistsError) as caught:
        icevirt.append(root / "b" / "2.h5", root / "repo", authorize=[str(root / "a")])
    assert f"{root}/a/0.h5" in caught.value.fixes[0].command


def test_a_group_beside_builds_gets_another_group_proposed(root):
    icevirt.build(root / "a" / "2.h5", root / "repo", group="/below", executor="in-process")
    with pytest.raises(AlreadyExistsError) as caught:
        icevirt.append(root / "a" / "2.h5", root / "repo", executor="in-process")
    assert caught.value.fixes[0].arguments == {"group": "/build_2"}
