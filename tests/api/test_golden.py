"""What each released version wrote is opened, moved, updated and appended to by this one.

`fixtures/golden/generate.py` says what the cases are, and compared them with their files.
"""

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

import icevirt
from builds.support import official
from fixtures.golden import generate

GOLDEN = Path(generate.__file__).parent
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if path.name[0].isdigit())
CASES = [(each, path) for each in VERSIONS for path in sorted((GOLDEN / each).glob("*.tar.xz"))]
CHANGES = (GOLDEN.parents[1] / "CHANGELOG.md").read_text()
RELEASED = {"0.1.0", *re.findall(r"^## (\d[\d.]+) (?!\(unreleased)", CHANGES, re.MULTILINE)}
"""Versions whose folders stay for ever; a release adds its own, and none is taken out."""

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture
def unpacked(request, tmp_path):
    """Unpack a case, and return its place and what it holds; its files moved there."""
    version, packed = request.param
    with tarfile.open(packed) as files:
        files.extractall(tmp_path, filter="data")
    name = packed.name.removesuffix(".tar.xz")
    notes = json.loads((GOLDEN / version / "holds.json").read_text())
    return tmp_path / name, notes[name]


def test_each_version_has_its_folder_and_each_case_its_notes():
    assert {*VERSIONS} >= RELEASED
    for version in VERSIONS:
        notes = json.loads((GOLDEN / version / "holds.json").read_text())
        packed = {path.name.removesuffix(".tar.xz") for of, path in CASES if of == version}
        assert packed == {*notes}
        assert packed >= {"virtual", "native", "groups", "eras", "twins", "grib", "recipe"}


EACH = pytest.mark.parametrize(
    "unpacked", CASES, indirect=True, ids=[f"{of}-{path.name[:-7]}" for of, path in CASES]
)


@EACH
def test_what_a_version_wrote_is_opened_updated_and_appended_to(unpacked):
    place, notes = unpacked
    repo, archive, where = place / "repo", place / "archive", generate.GROUPS.get(place.name, "/")
    assert icevirt.check(repo, chunks=True).ok
    assert official(repo).lookup_branch("main")
    written = str(generate.PLACE / place.name / "archive")
    (moved,) = icevirt.relocate(repo, written, str(archive)).datasets
    assert generate.held(place) == notes["built"]
    first, second = sorted((place / "later").iterdir())
    shutil.copy2(first, archive)
    own = place / "recipe.toml"
    trust = {"recipe": own} if own.exists() else {"trust_recipe": moved.recipe}
    assert icevirt.update(repo, group=where, **trust).files_added == 1
    assert generate.held(place) == notes["updated"]
    icevirt.append(shutil.copy2(second, archive), repo, group=where)
    assert generate.held(place) == notes["appended"]


@pytest.mark.parametrize(
    "unpacked",
    [each for each in CASES if each[1].name == "recipe.tar.xz"],
    indirect=True,
    ids=VERSIONS,
)
def test_catalogs_and_recipes_of_a_version_are_read(unpacked):
    place, notes = unpacked
    view = icevirt.catalog_view(place / "catalog")
    assert (view.summary().files, view.summary().bad_files) == (3, ())
    assert view.references("/packed").read_all().num_rows == 6
    assert {each.rpartition("/")[2] for each in view.files().read_all()["url"].to_pylist()} == {
        path.name for path in (place / "archive").iterdir()
    }
    recipe = icevirt.load_recipe(place / "recipe.toml") | {"repo": place / "again"}
    icevirt.build(**recipe)
    assert generate.held(place, repo="again") == notes["built"]
