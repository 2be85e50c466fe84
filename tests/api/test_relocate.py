"""`icevirt.relocate` points a repository to files that moved, and never to other ones."""

import os
import shutil
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from icechunk.credentials import LocalFileSystemAccess

import icevirt
from builds.kept import Kept
from builds.support import (
    assert_same_dataset,
    assert_same_raw,
    expected_dataset,
    write_days,
)
from icevirt.connect.urls import file_url
from icevirt.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    UnauthorizedError,
    VerificationError,
)
from icevirt.repo.made_here import remember_containers
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.tasks.relocate import relocate as run_relocate

LATER = (2e9, 2e9)
pytestmark = pytest.mark.usefixtures("in_process")


def axis_of(array):
    return 0 if "time" in array.metadata.dimension_names else None


class Moving:
    """A repository over three days, and its archive at the old place and the new one."""

    def __init__(self, tmp_path, **commit):
        self.old, self.new = tmp_path / "disk" / "old", tmp_path / "disk" / "new"
        self.files = write_days(self.old)
        for path in self.files:
            os.utime(path, (1.6e9, 1.6e9))
        self.repo = str(tmp_path / "repo")
        self.built = icevirt.build(
            self.files, self.repo, concat_dim="time", commit_options=commit or None
        )
        with expected_dataset(self.files, "time") as expected:
            self.expected = expected.load()

    def move(self, *, times=True):
        shutil.move(self.old, self.new)
        return self if times else self.touch()

    def copy(self, *, times=True):
        shutil.copytree(self.old, self.new)
        return self if times else self.touch()

    def touch(self):
        for path in self.new.iterdir():
            os.utime(path, LATER)
        return self

    def relocate(self, **how):
        both = [file_url(self.old), file_url(self.new)]
        how = {"authorize_virtual_chunk_access": both, "seed": 1} | how
        return icevirt.relocate(self.repo, self.old, self.new, **how)

    def read(self, prefix=None, **which):
        prefix = file_url(self.new) if prefix is None else prefix
        return xr.open_dataset(
            self.repo, engine="icevirt", authorize_virtual_chunk_access=[prefix], **which
        )

    def assert_read(self):
        """Both clients read the files at the new place alone."""
        self.old.rename(self.old.with_name("away")) if self.old.exists() else None
        with self.read() as found:
            assert_same_dataset(found, self.expected)
        theirs = icechunk.Repository.open(
            icechunk.local_filesystem_storage(self.repo),
            authorize_virtual_chunk_access={f"{file_url(self.new)}/": LocalFileSystemAccess},
        )
        store = theirs.readonly_session("main").store
        files = sorted(map(str, self.new.iterdir()))
        assert_same_raw(store, files, lambda _, array: axis_of(array))
        assert icevirt.check(self.repo).ok


def assert_equal_values(found, expected):
    for name in expected.variables:
        np.testing.assert_array_equal(found[name].values, expected[name].values)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), Moving)


@pytest.fixture
def moving(kept):
    return kept.lay_down()


def test_a_moved_archive_is_read_at_its_new_place(moving):
    report = moving.move().relocate()
    assert (report.files, report.files_alone, report.files_restamped) == (3, 3, 0)
    assert report.references == moving.built.references.virtual
    assert report.manifests == report.manifests_there > 0
    assert report.snapshot_id
    assert report.containers_added == (file_url(moving.new) + "/",)
    moving.assert_read()


def test_info_names_only_the_place_of_the_version_that_it_shows(moving):
    """The old container stays in the configuration, for older versions."""
    before = icevirt.Repository.open(moving.repo).lookup_branch("main")
    moving.move().relocate()
    assert icevirt.info(moving.repo).containers == (file_url(moving.new) + "/",)
    older = icevirt.info(moving.repo, snapshot_id=before)
    assert older.containers == (file_url(moving.old) + "/",)
    assert len(icevirt.Repository.open(moving.repo).config.virtual_chunk_containers) == 2


def test_who_built_and_moved_it_opens_it_without_naming_prefixes(moving, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    moving.move()
    remember_containers(file_url(moving.repo), [f"{file_url(moving.old)}/"])  # as a build does
    moving.relocate()
    with icevirt.open(moving.repo) as found:
        assert_same_dataset(found, moving.expected)


def test_who_only_moved_it_names_prefixes(moving, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    moving.move().relocate()
    with pytest.raises(UnauthorizedError, match="Pass authorize_virtual_chunk_access"):
        icevirt.open(moving.repo).load()


def test_a_copy_with_other_times_is_compared_and_recorded_anew(moving):
    report = moving.copy(times=False).relocate(compare="all")
    assert report.files_restamped == report.files == 3
    assert report.references_compared == report.references
    assert report.files_alone == 0
    moving.assert_read()


def test_by_default_a_sample_is_compared(moving):
    report = moving.copy(times=False).relocate(compare=4)
    assert 3 <= report.references_compared < report.references  # one of each file at least
    assert report.files_restamped == 3
    again = moving.relocate()
    assert again.references == again.manifests == 0
    assert again.snapshot_id is None


def test_older_snapshots_still_lead_to_the_old_place(moving):
    moving.copy().relocate()
    first = moving.built.snapshot_id
    with moving.read(file_url(moving.old), snapshot_id=first) as found:
        assert_same_dataset(found, moving.expected)
    os.rename(moving.old, moving.old.with_name("gone"))
    with (
        moving.read(file_url(moving.old), snapshot_id=first) as found,
        pytest.raises(ObjectNotFoundError, match=r"icevirt relocate REPO file:///.*/old/ NEW"),
    ):
        found.load()


def test_a_changed_file_without_its_original_is_refused(moving):
    moving.move(times=False)
    with pytest.raises(VerificationError, match=r"compared with its old place") as caught:
        moving.relocate()
    assert "3 of 3 files" in str(caught.value)
    assert len(list(icevirt.Repository.open(moving.repo).ancestry(branch="main"))) == 2


def test_a_file_with_another_time_is_compared_whatever_the_sample(moving):
    """Its length is the same, so that nothing else tells it apart."""
    moving.copy(times=False)
    spoilt = Path(moving.new, Path(moving.files[1]).name)
    spoilt.write_bytes(bytes(spoilt.stat().st_size))
    os.utime(spoilt, LATER)
    for seed in range(5):
        with pytest.raises(VerificationError, match="another one than at its old place"):
            moving.relocate(compare=1, seed=seed)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (Path.unlink, "does not exist"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), "bytes, and .* at its old place"),
        (lambda path: path.write_bytes(other_bytes(path)), "another one than at its old place"),
    ],
)
def test_a_file_that_is_another_one_is_refused(moving, spoil, words):
    moving.copy()
    spoil(moving.new / "day2.nc")
    head = RepoInfoFile(icevirt.local_filesystem_storage(moving.repo))
    before = head.read().info
    with pytest.raises(VerificationError, match=words) as caught:
        moving.relocate(compare="all")
    assert caught.value.facts["file"].endswith("new/day2.nc")
    assert head.read().info == before


def other_bytes(path):
    return bytes(byte ^ 1 for byte in path.read_bytes())


def test_a_truncated_file_without_its_original_is_refused(moving):
    moving.move()
    path = moving.new / "day2.nc"
    stat = path.stat()
    os.truncate(path, 100)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(VerificationError, match="references reach to"):
        moving.relocate()


def test_a_container_with_a_name_moves_in_the_configuration(tmp_path):
    moving = Moving(tmp_path, containers={"archive": str(tmp_path / "disk" / "old")}).copy()
    plan = moving.relocate(dry_run=True)
    assert plan.is_plan
    assert plan.manifests == 0
    assert plan.references == moving.built.references.virtual
    report = moving.relocate()
    old, new = (f"{file_url(each)}/" for each in (moving.old, moving.new))
    assert report.containers_moved == plan.containers_moved == (("archive", old, new),)
    assert report.manifests == 0
    assert report.snapshot_id  # of what the dataset records
    config = icevirt.Repository.open(moving.repo).config
    assert list(config.virtual_chunk_containers) == [new]
    moving.assert_read()
    with moving.read(snapshot_id=moving.built.snapshot_id) as found:
        assert_same_dataset(found, moving.expected)
    assert moving.relocate(authorize_virtual_chunk_access=[new]).references == 0


def test_a_container_with_a_name_and_other_times_needs_a_commit_too(tmp_path):
    moving = Moving(tmp_path, containers={"archive": str(tmp_path / "disk" / "old")})
    report = moving.copy(times=False).relocate()
    assert report.containers_moved
    assert report.snapshot_id
    assert report.manifests
    session = icevirt.Repository.open(moving.repo).readonly_session("main")
    assert all(url.startswith("vcc://archive/") for url in urls_of(session))
    moving.assert_read()


def urls_of(session):
    for node in session.snapshot.arrays():
        for ref in node.manifests:
            for table in session.assets.read_manifest(ref.object_id).arrays.values():
                yield from table.locations.url[np.unique(table.source[table.kind == 2])]


def test_a_folder_of_a_named_container_moves_out_of_it(tmp_path):
    moving = Moving(tmp_path, containers={"disk": str(tmp_path / "disk")}).copy()
    prefix = file_url(tmp_path / "disk")
    report = moving.relocate(authorize_virtual_chunk_access=[prefix])
    assert not report.containers_moved
    assert not report.containers_added
    session = icevirt.Repository.open(moving.repo).readonly_session("main")
    assert {url.rpartition("/")[0] for url in urls_of(session)} == {"vcc://disk/new"}
    shutil.rmtree(moving.old)
    with moving.read(prefix) as found:
        assert_same_dataset(found, moving.expected)


def test_the_plan_changes_nothing_and_needs_no_authorization(moving):
    head = RepoInfoFile(icevirt.local_filesystem_storage(moving.repo))
    before = head.read().info
    plan = moving.relocate(dry_run=True, authorize_virtual_chunk_access=None)
    assert plan.is_plan
    assert (plan.files, plan.references) == (3, moving.built.references.virtual)
    assert plan.bytes_referenced == moving.built.references.bytes_referenced
    assert plan.manifests == plan.manifests_there
    assert plan.containers_added == (file_url(moving.new) + "/",)
    assert head.read().info == before


def test_to_name_both_places_is_to_authorize_them(moving):
    assert moving.copy().relocate(authorize_virtual_chunk_access=[]).snapshot_id
    with moving.read() as found:
        assert_same_dataset(found, moving.expected)


@pytest.mark.parametrize("new", ["old/deeper", ".", "old"])
def test_prefixes_that_overlap_are_refused(moving, new):
    with pytest.raises(InvalidInputError, match="below the other"):
        icevirt.relocate(moving.repo, moving.old, moving.old.parent / new)


def test_a_prefix_of_no_reference_is_refused(moving, tmp_path):
    with pytest.raises(InvalidInputError, match="no reference") as caught:
        icevirt.relocate(moving.repo, tmp_path / "else", tmp_path / "where", dry_run=True)
    assert caught.value.facts["containers"] == [file_url(moving.old) + "/"]


def test_a_kill_before_the_last_write_leaves_the_old_state(moving, monkeypatch):
    moving.copy(times=False)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RepoInfoFile, "swap", killed)
        with pytest.raises(KeyboardInterrupt):
            moving.relocate()
    with moving.read(file_url(moving.old)) as found:
        assert_same_dataset(found, moving.expected)
    assert icevirt.check(moving.repo).ok
    assert moving.relocate().snapshot_id
    moving.assert_read()


def test_a_commit_of_somebody_else_meanwhile_stays(moving, in_process):
    moving.copy()
    made = []

    def meanwhile():
        if not made:
            session = icevirt.Repository.open(moving.repo).writable_session("main")
            session.store  # noqa: B018 - the session is open
            zarr.open_group(session.store, mode="a").attrs["note"] = "kept"
            made.append(session.commit("a note"))

    in_process.after[run_relocate] = meanwhile
    assert moving.relocate().snapshot_id
    with moving.read() as found:
        assert found.attrs["note"] == "kept"
        assert_equal_values(found.load(), moving.expected)


def test_a_build_goes_on_from_the_new_place(moving):
    moving.move().relocate()
    files = sorted(map(str, moving.new.iterdir()))
    report = icevirt.build(files, moving.repo, concat_dim="time", mode="w")
    assert not report.already_built
    with moving.read() as found:
        assert_same_dataset(found, moving.expected)


def test_verification_asks_only_for_prefixes_that_references_use(moving):
    moving.move().relocate()
    with pytest.raises(UnauthorizedError) as caught:
        icevirt.verify(moving.repo, authorize_virtual_chunk_access=[])
    assert caught.value.facts["containers"] == [file_url(moving.new) + "/"]
    report = icevirt.verify(
        moving.repo, references=True, authorize_virtual_chunk_access=[file_url(moving.new)]
    )
    assert report.ok
    assert report.checked.references == moving.built.references.virtual


def test_tasks_of_other_processes_do_the_same(moving):
    report = moving.copy(times=False).relocate(executor="processes")
    assert report.files == report.files_restamped == 3
    moving.assert_read()


def in_bucket(place, files, folder):
    for path in sorted(map(Path, files)):
        place.store().put(f"{folder}/{path.name}", path.read_bytes())
    return f"{place.url}/{folder}/"


def test_an_archive_goes_from_disk_to_a_bucket_and_on(moving, s3):
    """Both steps get other checksums, which both clients check."""
    keys = icevirt.s3_credentials(access_key_id="test", secret_access_key="test")
    one, two = (in_bucket(s3, moving.files, folder) for folder in ("one", "two"))
    store = icevirt.s3_store(
        region="us-east-1", endpoint_url=s3.endpoint, allow_http=True, force_path_style=True
    )
    on_disk, access = {file_url(moving.old): None}, {(one, s3.endpoint): keys}
    first = icevirt.relocate(
        moving.repo,
        moving.old,
        one,
        store=store,
        authorize_virtual_chunk_access=on_disk | access,
        compare="all",
    )
    assert first.files_restamped == first.files == 3
    assert first.references_compared == first.references
    shutil.rmtree(moving.old)
    access |= {(two, s3.endpoint): keys}
    second = icevirt.relocate(
        moving.repo, one, two, authorize_virtual_chunk_access=access, compare="all"
    )
    del access[one, s3.endpoint]
    assert second.references_compared == second.references == first.references
    repo = icevirt.Repository.open(moving.repo, authorize_virtual_chunk_access=access)
    session = repo.readonly_session("main")
    assert {url.rpartition("/")[0] + "/" for url in urls_of(session)} == {two}
    with xr.open_dataset(
        moving.repo, engine="icevirt", authorize_virtual_chunk_access=access
    ) as found:
        assert_same_dataset(found, moving.expected)
    theirs = icechunk.Repository.open(
        icechunk.local_filesystem_storage(moving.repo),
        authorize_virtual_chunk_access=icechunk.containers_credentials(
            {two: icechunk.s3_credentials(access_key_id="test", secret_access_key="test")}
        ),
    ).readonly_session("main")
    raw = xr.open_zarr(theirs.store, consolidated=False, decode_cf=False, chunks=None)
    ours = xr.open_zarr(session.store, consolidated=False, decode_cf=False, chunks=None)
    assert_equal_values(raw.load(), ours)
    back = moving.new
    back.mkdir()
    for name in ("day1.nc", "day2.nc", "day3.nc"):
        (back / name).write_bytes(bytes(s3.store().get(f"two/{name}").bytes()))
    access |= {file_url(back): None}
    third = icevirt.relocate(
        moving.repo, two, back, compare=1, authorize_virtual_chunk_access=access
    )
    assert third.files_restamped == 3
    moving.assert_read()
