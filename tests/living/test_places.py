"""Which files of a dataset an update looks at: those below what its operator named."""

import json
import shutil

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import opened, write_day, write_days
from icevirt.errors import FormatError, InvalidInputError

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Where users keep their state: all tests have it there, so that one fork server does for them."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture
def owner(homes, monkeypatch):
    """Be the user who builds, and who knows nothing yet."""
    for each in homes.iterdir():
        shutil.rmtree(each)
    monkeypatch.setenv("XDG_STATE_HOME", str(homes / "owner"))
    monkeypatch.delenv("ICEVIRT_REMEMBER", raising=False)


@pytest.fixture
def archive(tmp_path):
    write_days(tmp_path / "archive", 2)
    return tmp_path / "archive"


@pytest.fixture
def repo(owner, archive, tmp_path):
    made = str(tmp_path / "repo")
    icevirt.build(str(archive), made, concat_dim="time")
    return made


def as_another(call, homes, monkeypatch):
    """Call as a user of other state."""
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(homes / "another"))
        return call()


@pytest.fixture
def laced(repo, archive, homes, tmp_path, monkeypatch):
    """A dataset into which another writer put a file that only its owner can read now."""
    (tmp_path / "private").mkdir()
    theirs = write_day(tmp_path / "private" / "secret.nc", 5)
    as_another(lambda: icevirt.append(theirs, repo, authorize=archive), homes, monkeypatch)
    with netCDF4.Dataset(theirs, "r+") as file:
        file["mask"][:] = 77
    return repo


def values_in(repo):
    with opened(repo) as found:
        return set(np.unique(found["mask"].values).tolist())


@pytest.mark.parametrize("how", [{}, {"dry_run": True}, {"rescan": "s*"}, {"vanished": "remove"}])
def test_a_file_of_another_writer_is_reported_and_left(laced, how):
    report = icevirt.update(laced, **how)
    assert report.files_elsewhere == 1
    assert report.already_built
    (remark,) = [each for each in report.findings if "elsewhere" in each]
    assert "secret.nc" in remark
    assert report.summary == "! 1 elsewhere, not looked at"
    assert 'authorize=["file://' in remark
    assert 77 not in values_in(laced)


def test_new_files_follow_a_file_that_is_left(laced, archive):
    write_day(archive / "day6.nc", 6)
    report = icevirt.update(laced)
    assert (report.files_added, report.files_elsewhere) == (1, 1)
    assert opened(laced).sizes["time"] == 16


PLANS = {
    "a corrected file": lambda archive: write_day(archive / "day2.nc", 2, scale=0.01),
    "a file between others": lambda archive: write_day(archive / "day3.nc", 3),
    "a file that is gone": lambda archive: (archive / "day2.nc").unlink(),
}


@pytest.mark.parametrize("change", PLANS.values(), ids=PLANS)
def test_a_plan_of_all_files_asks_for_the_place_of_each_file_once(change, laced, archive, tmp_path):
    """Planning would open it: values that are stored are read again."""
    change(archive)
    with pytest.raises(InvalidInputError, match="1 file elsewhere") as refused:
        icevirt.update(laced, vanished="remove")
    assert refused.value.facts["files"] == [(tmp_path / "private" / "secret.nc").as_uri()]
    (fix,) = refused.value.fixes
    assert "update" in fix.price
    assert 77 not in values_in(laced)
    report = icevirt.update(laced, vanished="remove", **fix.arguments)
    assert report.files_elsewhere == 0
    assert not report.already_built


def test_variables_are_not_made_anew_of_files_elsewhere(laced):
    with pytest.raises(InvalidInputError, match=r"1 file elsewhere.*for this update"):
        icevirt.update(laced, variables="packed")


# -- the operator's own word ---------------------------------------------------------------------


def test_an_update_goes_on_after_its_owner_appended_another_folder(repo, tmp_path):
    """What a command of this user named is the operator's word; so is the state after it."""
    more = write_days(tmp_path / "more" / "2001", 4)[2:]
    report = icevirt.append(more, repo, authorize=tmp_path / "archive")
    assert report.files_appended == 2
    assert icevirt.update(repo).files_elsewhere == 0
    write_day(tmp_path / "more" / "2001" / "day3.nc", 3)
    report = icevirt.update(repo)
    assert (report.files_corrected, report.files_elsewhere) == (1, 0)


def test_naming_a_folder_once_lets_later_updates_follow_it(laced, tmp_path):
    """Its files are there already, so nothing is appended; the owner's own word is noted."""
    assert icevirt.append(tmp_path / "private", laced, on_changed="keep").already_built
    report = icevirt.update(laced)
    assert (report.files_elsewhere, len(report.held) + report.files_corrected) == (0, 1)


def test_an_authorization_is_for_one_call(laced, tmp_path):
    assert icevirt.update(laced, authorize=tmp_path / "private", dry_run=True).files_elsewhere == 0
    assert icevirt.update(laced).files_elsewhere == 1


def test_files_of_a_list_are_followed_when_the_list_names_them_no_more(owner, archive, tmp_path):
    listed = tmp_path / "lists" / "files.txt"
    listed.parent.mkdir()
    listed.write_text("\n".join(str(each) for each in sorted(archive.iterdir())))
    icevirt.build(f"@{listed}", tmp_path / "repo", concat_dim="time")
    listed.write_text(write_day(tmp_path / "lists" / "day3.nc", 3))
    report = icevirt.update(tmp_path / "repo")
    assert (report.files_added, report.files_known, report.files_elsewhere) == (1, 2, 0)


def test_a_recipe_of_others_may_not_name_a_list(repo, archive, homes, tmp_path, monkeypatch):
    """What a list names is known only once it was read and its files were looked at."""
    listed = archive / "files.txt"
    listed.write_text(str(archive / "day1.nc"))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'version = 2\nsources = ["@{listed}", "{archive}"]\n')
    write_day(archive / "day3.nc", 3)
    icevirt.update(repo, recipe=recipe)

    def update():
        with pytest.raises(InvalidInputError, match="trust_recipe"):
            icevirt.update(repo, authorize=archive)

    as_another(update, homes, monkeypatch)


def test_links_of_the_archive_lead_where_its_owner_put_them(owner, tmp_path):
    write_days(tmp_path / "blobs", 2)
    (tmp_path / "archive").mkdir()
    for each in sorted((tmp_path / "blobs").iterdir()):
        (tmp_path / "archive" / each.name).symlink_to(each)
    icevirt.build(tmp_path / "archive", tmp_path / "repo", concat_dim="time")
    for each in ("archive", "blobs"):
        (tmp_path / each / "day2.nc").unlink()
    report = icevirt.update(tmp_path / "repo", vanished="remove")
    assert (report.files_vanished, report.files_elsewhere) == (1, 0)


def test_a_relocated_archive_stays_ones_own(repo, archive, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(archive, moved)
    both = [archive.as_uri(), moved.as_uri()]
    icevirt.relocate(repo, archive, moved, authorize_virtual_chunk_access=both)
    write_day(moved / "day3.nc", 3)
    report = icevirt.update(repo)
    assert (report.files_added, report.files_elsewhere) == (1, 0)


# -- what is said is no authority ----------------------------------------------------------------


def named_by_the_repository(repo, url_prefix):
    """Let the repository name one more container, as any client can."""
    opened_ = icevirt.Repository.open(repo)
    store = icevirt.local_filesystem_store(url_prefix.removeprefix("file://"))
    opened_.config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(url_prefix, store))
    opened_.save_config()


@pytest.mark.parametrize("call", ["build", "append", "update"])
def test_a_report_opens_no_container_that_only_the_repository_names(
    call, repo, archive, homes, tmp_path
):
    """Nor is one noted for `icevirt.open`: a repeated build would note what others put there."""
    named_by_the_repository(repo, f"{tmp_path.as_uri()}/")
    named_by_the_repository(repo, "file:///etc/")
    report = {
        "build": lambda: icevirt.build(str(archive), repo, concat_dim="time"),
        "append": lambda: icevirt.append(str(archive), repo),
        "update": lambda: icevirt.update(repo),
    }[call]()
    assert report.already_built
    assert set(report.opens_below) == {f"{archive.as_uri()}/"}
    noted = (homes / "owner" / "icevirt" / "recipes.jsonl").read_text()
    told = [each for line in noted.splitlines() for each in json.loads(line).get("containers", ())]
    assert set(told) == {f"{archive.as_uri()}/"}
    with report.open() as found:
        assert found["packed"].load().size


def test_a_list_with_odd_urls_is_refused(laced, monkeypatch):
    from icevirt.api.dataset import change
    from icevirt.archive.sources import SourceFile, SourceFiles
    from icevirt.catalog.listings import FileListing

    odd = SourceFile(url="file:///archive/../etc/x.nc", size=1, last_modified=10**18)
    listing = FileListing(files=SourceFiles([odd]), pieces=())
    monkeypatch.setattr(change, "files_of_build", lambda *_: listing)
    with pytest.raises(FormatError, match="no build writes"):
        icevirt.update(laced)


def test_a_report_of_a_foreign_dataset_is_opened_below_what_was_authorized(
    repo, archive, homes, monkeypatch
):
    write_day(archive / "day3.nc", 3)

    def append():
        return icevirt.append(archive / "day3.nc", repo)

    report = as_another(append, homes, monkeypatch)
    with report.open() as found, xr.open_dataset(archive / "day3.nc") as source:
        np.testing.assert_array_equal(found["packed"][-4:], source["packed"])
