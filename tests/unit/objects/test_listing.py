"""What a person names becomes files: in the order given, each once, and none lost silently."""

import errno
import os
from pathlib import Path

import obstore
import pytest

from icevirt.connect.urls import file_url, local_path, natural
from icevirt.errors import InvalidInputError, NotFoundError, StorageError
from icevirt.objects.source_lists.listing import find_changes, list_sources
from icevirt.objects.source_lists.remote_listing import name_before


def made(folder, *names):
    """Make small files, and the directories they lie in."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def listed(sources, folder):
    """List sources and return the paths of the files below ``folder``."""
    return [os.path.relpath(local_path(file.url), folder) for file in list_sources(sources)]


# -- order ---------------------------------------------------------------------------------------


def test_numbers_in_names_count_as_numbers():
    """Leading zeros and mixed names sort as a person expects, and no two are equal."""
    names = ["b10", "b9", "b010x", "b", "9", "b09", "²"]
    assert sorted(names, key=natural) == ["9", "b", "b09", "b9", "b10", "b010x", "²"]


def test_sources_stand_in_the_order_given(tmp_path):
    made(tmp_path, "b.nc", "a.nc", "c/2.nc", "c/1.nc")
    given = [tmp_path / "b.nc", tmp_path / "c", file_url(tmp_path / "a.nc")]
    assert listed(given, tmp_path) == ["b.nc", "c/1.nc", "c/2.nc", "a.nc"]


@pytest.mark.parametrize("pattern", ["", "**", "**/*.nc", "y*/f*.nc"])
def test_directories_and_globs_expand_in_natural_order(tmp_path, pattern):
    """By directory first, then by name: f2 before f10, y 1 apart from y."""
    made(tmp_path, "y/f10.nc", "y/f2.nc", "y 1/f1.nc", "y10/f1.nc", "y9/f1.nc")
    expected = ["y/f2.nc", "y/f10.nc", "y9/f1.nc", "y10/f1.nc", "y 1/f1.nc"]
    assert listed(tmp_path / pattern, tmp_path) == expected


def test_links_are_followed_for_the_url_but_sorted_by_their_own_name(tmp_path):
    made(tmp_path, "pool/z.nc", "pool/y.nc", "by_day/3.nc")
    (tmp_path / "by_day/1.nc").symlink_to(tmp_path / "pool/z.nc")
    (tmp_path / "by_day/2.nc").symlink_to(tmp_path / "pool/y.nc")
    expected = ["pool/z.nc", "pool/y.nc", "by_day/3.nc"]
    assert listed(tmp_path / "by_day", tmp_path) == expected
    assert listed(tmp_path / "by_day/*.nc", tmp_path) == expected


def test_a_file_counts_once_where_it_first_stood(tmp_path):
    """However it is named: again, by a symbolic link, by a hard link."""
    made(tmp_path, "b.nc", "a.nc")
    os.link(tmp_path / "b.nc", tmp_path / "hard.nc")
    (tmp_path / "soft.nc").symlink_to("b.nc")
    assert listed([tmp_path / "b.nc", tmp_path / "*.nc"], tmp_path) == ["b.nc", "a.nc"]


# -- directories and globs -----------------------------------------------------------------------


def test_only_data_is_taken_from_a_directory_but_all_that_matches_from_a_glob(tmp_path):
    """Hidden names are never meant, unless the glob says so; directories are no files."""
    made(tmp_path, "a.NC", "notes.txt", ".b.nc", ".git/c.nc", "d.nc/e.h5")
    assert listed(tmp_path, tmp_path) == ["a.NC", "d.nc/e.h5"]
    assert listed(tmp_path / "*", tmp_path) == ["a.NC", "notes.txt"]
    assert listed(tmp_path / ".*", tmp_path) == [".b.nc"]
    assert listed(tmp_path / "*" / "e.h5", tmp_path) == ["d.nc/e.h5"]


@pytest.mark.parametrize("pattern", ["", "**/*.nc"])
def test_linked_directories_are_entered_once_and_loops_end(tmp_path, pattern):
    made(tmp_path, "disk/2.nc", "disk/1.nc", "archive/0.nc")
    (tmp_path / "archive/linked").symlink_to(tmp_path / "disk")
    (tmp_path / "archive/once more").symlink_to(tmp_path / "disk")
    (tmp_path / "disk/up").symlink_to(tmp_path / "archive")
    expected = ["archive/0.nc", "disk/1.nc", "disk/2.nc"]
    assert listed(tmp_path / "archive" / pattern, tmp_path) == expected


@pytest.mark.parametrize("pattern", ["", "**/*.nc", "*/*.nc", "*/locked/*.nc"])
def test_a_directory_that_cannot_be_read_is_an_error(tmp_path, monkeypatch, pattern):
    """It is named; what it holds would be missing otherwise."""
    made(tmp_path, "a/1.nc", "a/locked/2.nc")
    locked = os.fspath(tmp_path / "a" / ("" if pattern == "*/*.nc" else "locked")).rstrip("/")
    scandir = os.scandir

    def refusing(path):
        if os.fspath(path) == locked:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(StorageError, match="Permission denied") as caught:
        list_sources(tmp_path / pattern)
    assert caught.value.facts["path"] == locked


@pytest.mark.parametrize("pattern", ["", "*.nc", "**/*.nc", "2.nc"])
@pytest.mark.parametrize("target", ["gone.nc", "2.nc"], ids=["dangling", "leading to itself"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path, pattern, target):
    """It stands for a file that the person counts on."""
    made(tmp_path, "1.nc")
    (tmp_path / "2.nc").symlink_to(target)
    with pytest.raises(StorageError, match=r"2\.nc") as caught:
        list_sources(tmp_path / pattern)
    assert caught.value.do


def test_a_dangling_link_that_is_no_data_is_not_missed(tmp_path):
    made(tmp_path, "1.nc")
    (tmp_path / "latest").symlink_to("gone")
    assert listed(tmp_path, tmp_path) == ["1.nc"]


# -- what is no source ---------------------------------------------------------------------------


class BytesPath:
    """A path that is bytes."""

    def __fspath__(self):
        return b"a.nc"


NO_SOURCES = {
    "none": (None, "not NoneType"),
    "an empty string": ("", "not a valid source"),
    "blanks": ([" \n"], "not a valid source"),
    "a NUL": ("a\0*.nc", "not a valid source"),
    "bytes": (b"a.nc", "not bytes"),
    "a path of bytes": (BytesPath(), "not BytesPath"),
    "a number": (5, "not int"),
    "a list in a list": ([["a.nc"]], "not list"),
    "nothing": ([], "no sources"),
    "a server of an unknown kind": ("ftp://host/*.nc", "object store"),
}


@pytest.mark.parametrize(("sources", "output"), NO_SOURCES.values(), ids=NO_SOURCES.keys())
def test_what_names_no_source_is_refused(sources, output):
    with pytest.raises(InvalidInputError, match=output) as caught:
        list_sources(sources)
    assert caught.value.do


@pytest.mark.parametrize("pattern", ["*.nc", "a/*.nc", "a/*/1.nc", "x.txt/*", "**/*.nc"])
def test_a_glob_that_matches_no_file_is_refused(tmp_path, pattern):
    made(tmp_path, "x.txt", "a/b/2.txt")
    with pytest.raises(InvalidInputError, match="matches no file"):
        list_sources(tmp_path / pattern)


@pytest.mark.parametrize("name", ["gone.nc", "x.txt/a.nc"])
def test_a_named_file_that_is_not_there_is_refused(tmp_path, name):
    made(tmp_path, "x.txt")
    with pytest.raises(NotFoundError, match=name):
        list_sources(tmp_path / name)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.nc")
    with pytest.raises(InvalidInputError, match=r"regular.*a\.nc") as caught:
        list_sources(tmp_path)
    assert caught.value.do


@pytest.mark.parametrize("seconds", [1 << 32, (1 << 32) - 0.5])
def test_a_time_that_no_reference_can_carry_is_refused(tmp_path, seconds):
    """The message holds the command that helps."""
    path = made(tmp_path, "a b.nc") / "a b.nc"
    os.utime(path, (seconds, seconds))
    with pytest.raises(InvalidInputError, match="modification time") as caught:
        list_sources(path)
    assert f"touch '{path}'" in caught.value.do
    os.utime(path)
    assert len(list_sources(path)) == 1


@pytest.mark.parametrize("seconds", [-5, 0, 0.5, (1 << 32) - 1])
def test_the_first_and_last_times_are_taken(tmp_path, seconds):
    path = made(tmp_path, "a.nc") / "a.nc"
    os.utime(path, (seconds, seconds))
    (file,) = list_sources(path)
    assert 1 <= file.last_modified_seconds < 1 << 32
    assert find_changes([file]) == {}
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert list(find_changes([file])) == [file.url]


def test_relative_paths_and_home_are_understood(tmp_path, monkeypatch):
    made(tmp_path, "a.nc")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert listed(["a.nc"], tmp_path) == listed("~/*.nc", tmp_path) == ["a.nc"]
    assert listed(Path(), tmp_path) == ["a.nc"]


@pytest.mark.parametrize(
    ("source", "there"),
    [
        ("in/a*.nc4", "in holds a.nc and 1 more."),
        ("in/b.cn", "in holds b.nc and 1 more."),
        ("inn/*.nc", "holds in and 1 more."),
        ("empty", "empty is empty."),
    ],
)
def test_a_source_that_is_not_there_is_reported_what_is(tmp_path, source, there):
    (tmp_path / "in").mkdir()
    (tmp_path / "empty").mkdir()
    for name in ("a.nc", "b.nc"):
        (tmp_path / "in" / name).touch()
    with pytest.raises((InvalidInputError, NotFoundError)) as caught:
        list_sources(str(tmp_path / source))
    assert str(caught.value).endswith(there)


@pytest.mark.parametrize(
    "begin", ["2001-02/day013", "a/0", "a/", "!", "a/\u0080", " ", "/0", "x/b!"]
)
def test_a_listing_begins_behind_a_name_that_object_stores_take(begin):
    store = obstore.store.MemoryStore()
    before = name_before(begin)
    assert before is None or before < begin
    assert [*obstore.list(store, offset=before)] == []
