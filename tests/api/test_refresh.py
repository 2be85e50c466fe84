"""Readers that stay open see what a branch shows now; what is undone may stay out."""

from pathlib import Path

import pytest
import xarray as xr
from typer.testing import CliRunner

import icevirt
from builds.support import opened, write_days
from icevirt.cli.main import app
from icevirt.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("in_process")


def test_a_dataset_is_refreshed_as_it_was_opened_and_undone_files_stay_out(tmp_path):
    days, repo = write_days(tmp_path / "days", 3), str(tmp_path / "repo")
    icevirt.append(days[:1], repo, concat_dim="time")
    ds = opened(repo, mask_and_scale=False, drop_variables=["mask"])
    assert ds.icevirt.refresh() is ds
    icevirt.append(days[1:2], repo)
    now = ds.icevirt.refresh()
    assert (ds.sizes["time"], now.sizes["time"]) == (4, 8)
    assert now.packed.dtype == "int16"
    assert "mask" not in now
    assert now.packed[4:].load().max() > 0  # with the same authorization
    assert now.icevirt.refresh(chunks={}).packed.chunks is not None
    tree = xr.open_datatree(repo, engine="icevirt")
    assert tree.to_dataset().icevirt.refresh().sizes["time"] == 8

    ran = CliRunner().invoke(app, ["undo", repo, "--exclude"])
    assert "1 file, from later appends" in ran.output
    assert now.icevirt.refresh().sizes["time"] == 4
    again = icevirt.append(str(Path(days[0]).parent), repo)
    assert (again.files_excluded, again.files_appended) == (1, 1)
    pinned = opened(repo, branch=None, snapshot_id=again.snapshot_id)
    with pytest.raises(InvalidInputError, match="shows one version"):
        pinned.icevirt.refresh()
    with pytest.raises(InvalidInputError, match="does not say which repository"):
        xr.Dataset().icevirt.refresh()
    icevirt.Repository.open(repo).writable_session("main").commit("nothing", allow_empty=True)
    with pytest.raises(InvalidInputError, match="not a build whose files are listed"):
        icevirt.undo(repo, exclude=True)
