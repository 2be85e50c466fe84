"""What a repository knows of its dataset survives what people do to repositories.

Every commit of others is made by the official client.
"""

import shutil
from datetime import UTC, datetime

import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_day,
    write_days,
)
from icevirt import errors
from icevirt.api.dataset.records import recipe_named
from icevirt.api.dataset.target import Target
from icevirt.storage.local import LocalStorage

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.ci]


class World:
    """An archive that grows by a day, and the repository of its dataset."""

    def __init__(self, folder):
        self.archive, self.repo = folder / "archive", str(folder / "repo")
        self.days = write_days(self.archive, 2)
        icevirt.append(str(self.archive), self.repo, concat_dim="time")

    def grow(self):
        day = len(self.days) + 1
        self.days.append(write_day(self.archive / f"day{day}.nc", day))

    def updates(self):
        """Check that an update finds the one day that is new, and nothing else."""
        self.grow()
        report = icevirt.update(self.repo)
        assert (report.files_added, report.files_known) == (1, len(self.days) - 1), report
        found = opened(self.repo)
        found.attrs.pop("note", None)
        found = found.drop_vars(["area"], errors="ignore")
        assert_same_dataset(found, expected_dataset(self.days, "time"))

    def commit(self, deed, **options):
        session = official(self.repo).writable_session("main")
        deed(session)
        return session.commit("theirs", **options)


def note(session):
    zarr.open_group(session.store).attrs["note"] = "theirs"


def area(session):
    field = xr.Dataset({"area": (("y", "x"), np.ones((5, 6)))})
    field.to_zarr(session.store, mode="a", zarr_format=3, consolidated=False)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_dataset_is_updated_whatever_the_official_client_did_to_it(world, tmp_path):
    """Each deed is followed by an update that scans and adds one day."""
    world.commit(note)
    world.updates()
    world.commit(area)
    world.updates()
    assert int(opened(world.repo).area.sum()) == 30
    # an amended commit of a build has no metadata any more
    session = official(world.repo).writable_session("main")
    note(session)
    session.amend("theirs, in place of the build")
    assert (
        official(world.repo).lookup_snapshot(official(world.repo).lookup_branch("main")).metadata
        == {}
    )
    world.updates()
    assert opened(world.repo).attrs["note"] == "theirs"
    # of all snapshots only that of somebody's commit is left
    world.commit(note, metadata={"mine": 1}, allow_empty=True)
    repo = official(world.repo)
    repo.expire_snapshots(datetime.now(UTC))
    assert len(list(repo.ancestry(branch="main"))) == 2
    repo.garbage_collect(datetime.now(UTC))
    world.updates()
    ours = icevirt.Repository.open(world.repo)
    ours.expire_snapshots(datetime.now(UTC))
    ours.garbage_collect(datetime.now(UTC))
    world.updates()
    # a copy is another repository: the recipe has to be trusted there
    copied = str(tmp_path / "copy")
    shutil.copytree(world.repo, copied)
    with pytest.raises(errors.InvalidInputError, match="trust_recipe=") as caught:
        icevirt.update(copied)
    fix, *_ = caught.value.fixes
    world.repo = copied
    world.grow()
    icevirt.update(copied, **fix.arguments)
    world.updates()
    kept = Target.look(LocalStorage(copied), branch="main", group="/", mode="w").last_build()
    digest = kept.metadata["icevirt_build"]["recipe"]
    assert str(world.archive) in recipe_named(LocalStorage(copied), digest).text


def test_branches_and_undo_have_the_record_of_their_own(world):
    repo = icevirt.Repository.open(world.repo)
    repo.create_branch("earlier", repo.lookup_branch("main"))
    world.updates()
    icevirt.undo(world.repo)
    report = icevirt.update(world.repo)
    assert (report.files_added, report.files_scanned) == (1, 0)
    assert icevirt.update(world.repo, branch="earlier").files_added == 1
    assert icevirt.update(world.repo, branch="earlier").already_built


def test_what_others_changed_of_arrays_is_not_lost_behind_an_amended_commit(world):
    session = official(world.repo).writable_session("main")
    zarr.open_group(session.store)["mask"][0, 0] = 1
    session.amend("theirs")
    world.grow()
    assert (
        icevirt.update(world.repo).files_added == 1
    )  # behind the last step, where nothing is lost
    world.grow()
    with pytest.raises(errors.PlanChangedError, match="/mask"):
        icevirt.build(str(world.archive), world.repo, concat_dim="time", mode="w")
    assert opened(world.repo).mask[0, 0] == 1
