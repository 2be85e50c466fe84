"""Whose recipe `icevirt update` follows, and what an update lists again."""

import os
import re
from pathlib import Path

import pandas as pd
import pytest
import xarray as xr

import icevirt
from builds.support import (
    opened,
    write_day,
)
from icevirt import errors
from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.repo import kept_objects

pytestmark = pytest.mark.usefixtures("in_process")


# -- whom to trust -------------------------------------------------------------------------------


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """Be a user who built nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "strangers"))


def test_a_strangers_recipe_is_shown_and_trusted_by_its_digest(repo, archive, stranger, run):
    write_day(archive / "day3.nc", 3)
    status, _, output = run("update", repo)
    assert status == 1
    assert str(archive) in output
    digest = re.search("--trust-recipe ([0-9a-f]{40})", output)[1]
    assert run("update", repo, "--trust-recipe", digest[::-1])[0] == 1
    assert run("update", repo, "--trust-recipe", digest)[0] == 0
    assert opened(repo).sizes["time"] == 12
    assert icevirt.update(repo).already_built  # they made this commit
    icevirt.append(write_day(archive / "day4.nc", 4), repo)
    assert icevirt.update(repo).already_built


def test_a_recipe_that_runs_nothing_is_followed_below_authorized_directories(
    repo, archive, stranger, tmp_path
):
    write_day(archive / "day3.nc", 3)
    with pytest.raises(UnauthorizedError, match="covers nothing"):
        icevirt.update(repo, authorize=tmp_path / "archive2")
    for wrong in ([archive, 1], "", [""]):
        with pytest.raises(InvalidInputError, match="authorize="):
            icevirt.update(repo, authorize=wrong)
    assert icevirt.update(repo, authorize=archive).files_added == 1
    for place in (archive, str(archive), [archive], archive.as_uri()):
        with xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=place) as ds:
            assert ds["packed"].load().size


def run_me(_):
    raise AssertionError("a name in a repository was run")


AUTHORITY = {
    "a function": f'[combine_options]\npreprocess = "{__name__}:run_me"',
    "credentials": '[access]\n"s3://theirs/" = "environment"',
    "a directory": '[scan_options]\nallow_references_to = ["/etc"]',
    "a publication": '[commit_options.publish_as]\n"/a/" = "s3://b/"',
}


@pytest.mark.parametrize("more", AUTHORITY.values(), ids=AUTHORITY)
def test_a_recipe_that_runs_or_reaches_something_needs_its_digest(more, repo, archive, monkeypatch):
    """Also where this user built the dataset: whoever changes the recipe changes its digest."""
    from icevirt.api.dataset import recipes

    known = recipes.recipe_named
    monkeypatch.setattr(
        recipes,
        "recipe_named",
        lambda *output: type(known(*output))(f"{known(*output).text}\n{more}\n"),
    )
    with pytest.raises(InvalidInputError, match="you did not make the recipe") as caught:
        icevirt.update(repo, authorize=str(archive))
    assert caught.value.facts["sources"] == [str(archive)]
    assert len(caught.value.facts) > 2


def test_a_changed_recipe_is_not_the_one_that_the_snapshot_names(repo):
    (kept,) = Path(repo, "icevirt", "recipes").iterdir()
    kept.write_text(kept.read_text().replace("archive", "etc"))
    kept_objects._cache.cache_clear()  # as in a process that did not write it
    with pytest.raises(errors.FormatError, match="recipe="):
        icevirt.update(repo)
    kept.unlink()
    with pytest.raises(InvalidInputError, match="recipe="):
        icevirt.update(repo)


def test_a_recipe_of_ones_own_says_everything(repo, archive, stranger, tmp_path):
    (tmp_path / "more").mkdir()
    write_day(tmp_path / "more" / "day3.nc", 3)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('version = 2\nsources = ["archive", "more/*.nc"]\n')
    assert icevirt.update(repo, recipe=recipe).files_added == 1
    assert icevirt.update(repo).already_built


UNLISTABLE = {
    "a table": lambda days: pd.DataFrame({"url": days}),
    "an iterator": iter,
}


@pytest.mark.parametrize("of", UNLISTABLE.values(), ids=UNLISTABLE)
def test_sources_that_cannot_be_listed_again_are_said_to_be_so(of, archive, tmp_path):
    days = [str(archive / f"day{day}.nc") for day in (1, 2)]
    report = icevirt.build(of(days), tmp_path / "other", concat_dim="time")
    assert "cannot list these sources again" in report.findings[-1]
    with pytest.raises(InvalidInputError, match="icevirt append"):
        icevirt.update(tmp_path / "other")


def test_files_that_were_named_are_exactly_these(archive, tmp_path):
    days = [str(archive / f"day{day}.nc") for day in (1, 2)]
    report = icevirt.build(days, tmp_path / "other", concat_dim="time")
    assert "exactly these 2 files" in report.findings[-1]
    write_day(archive / "day3.nc", 3)
    assert icevirt.update(tmp_path / "other").already_built
    write_day(archive / "day2.nc", 2, scale=0.02)
    assert "scale_factor" in icevirt.update(tmp_path / "other").held[0].error
    write_day(archive / "day2.nc", 2)
    os.remove(archive / "day1.nc")
    report = icevirt.update(tmp_path / "other", vanished="remove")
    assert (report.files_corrected, report.files_vanished) == (1, 1)
