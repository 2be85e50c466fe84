"""Sessions start with an archive of classes only where it is whole and nobody else can change it."""

import os
import threading
import time

import pytest

from icevirt.errors import BuildError
from icevirt.execution import class_archive
from icevirt.execution.class_archive import (
    archive_options,
    archives_folder,
    find_archive,
    publish_archive,
)
from icevirt.execution.java import Java
from icevirt.execution.private_cache import make_private

JAVA = Java(path="/opt/java/bin/java", version=17, origin="PATH", build='openjdk version "17.0.1"')


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A Spark with two JARs, and a cache of its own."""
    for name in class_archive._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("a.jar", "b.jar"):
        (jars / name).write_bytes(b"PK")
    return str(tmp_path / "spark")


@pytest.fixture
def archive(home):
    """An archive that is in its place; its content matters to Java alone."""
    return published(home)


def published(home, content=b"classes" * 1000, java=JAVA):
    """Publish an archive as the command does."""
    make_private(archives_folder())
    made = archives_folder() / f"made-{threading.get_ident()}"
    made.write_bytes(content)
    publish_archive(made, java, home)
    return find_archive(java, home)


def test_the_options_name_the_archive_and_let_java_do_without(home, archive):
    options = archive_options(JAVA, home)
    assert options[:2] == (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto")


def test_without_an_archive_there_are_no_options_and_no_folder(home):
    assert archive_options(JAVA, home) == ()
    assert not archives_folder().exists()


def test_a_user_without_home_has_no_archive(home, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(
        class_archive, "cache_path", lambda: (_ for _ in ()).throw(FileNotFoundError)
    )
    assert archive_options(JAVA, home) == ()


def test_an_archive_serves_one_java_and_the_jars_that_it_was_made_of(home, archive, tmp_path):
    other = Java(path=JAVA.path, version=17, origin="PATH", build='openjdk version "17.0.2"')
    assert archive_options(other, home) == ()
    os.utime(tmp_path / "spark" / "jars" / "a.jar", (1, 1))
    assert archive_options(JAVA, home) == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"",
        lambda raw: raw[:99] + bytes([raw[99] ^ 1]) + raw[100:],
    ],
    ids=["a byte short", "half", "empty", "one bit"],
)
def test_a_damaged_archive_is_removed_not_used(home, archive, damage):
    archive.write_bytes(damage(archive.read_bytes()))
    assert archive_options(JAVA, home) == ()
    assert not archive.exists()


def _open_to_group(folder):
    folder.chmod(0o750)


def _behind_a_link(folder):
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def _below_one_that_others_write(folder):
    folder.parent.chmod(0o777)


def _of_another_user(folder):
    os.chown(folder, 12345, -1)


def _below_one_of_another_user(folder):
    os.chown(folder.parent, 12345, -1)


def _with_a_file_that_others_write(folder):
    for file in folder.iterdir():
        file.chmod(0o666)


def _with_a_linked_file(folder):
    for file in list(folder.iterdir()):
        file.rename(folder.parent / "archive")
        file.symlink_to(folder.parent / "archive")


def _with_a_file_of_another_user(folder):
    for file in folder.iterdir():
        os.chown(file, 12345, -1)


@pytest.mark.parametrize(
    "change",
    [
        _open_to_group,
        _behind_a_link,
        _below_one_that_others_write,
        _of_another_user,
        _below_one_of_another_user,
        _with_a_file_that_others_write,
        _with_a_linked_file,
        _with_a_file_of_another_user,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_what_another_user_could_have_put_there_is_neither_used_nor_removed(home, archive, change):
    if "another_user" in change.__name__ and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    assert archive_options(JAVA, home) != ()
    change(archives_folder())
    assert archive_options(JAVA, home) == ()
    assert archive.read_bytes() == b"classes" * 1000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAVA_TOOL_OPTIONS", "-Xshare:off"),
        ("JDK_JAVA_OPTIONS", "-XX:SharedArchiveFile=/mine.jsa"),
        ("PYSPARK_SUBMIT_ARGS", "--driver-java-options -XX:AOTCache=/mine.aot pyspark-shell"),
    ],
)
def test_a_choice_of_the_user_is_left_alone(home, archive, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert archive_options(JAVA, home) == ()


def test_what_is_used_stays_and_what_was_not_used_for_long_goes(home, archive):
    old = time.time() - class_archive.MAX_AGE - 1
    stale = published(home, java=Java(path="/x", version=21, origin="PATH", build="21"))
    os.utime(stale, (old, old))
    os.utime(archive, (old + 1000, old + 1000))
    assert archive_options(JAVA, home) != ()
    assert not stale.exists()
    assert archive.stat().st_mtime > old + 2000


def test_archives_used_least_recently_go_where_all_are_too_large(home, archive, monkeypatch):
    os.utime(archive, (1, 1))
    monkeypatch.setattr(class_archive, "MAX_AGE", float("inf"))
    monkeypatch.setattr(class_archive, "MAX_BYTES", 10_000)
    newer = published(home, java=Java(path="/x", version=21, origin="PATH", build="21"))
    assert (archive.exists(), newer.exists()) == (False, True)


def test_the_archive_in_use_stays_however_large(home, archive, monkeypatch):
    monkeypatch.setattr(class_archive, "MAX_BYTES", 10)
    assert archive_options(JAVA, home) != ()


def test_an_archive_that_was_not_finished_is_removed_after_a_day(home, archive):
    abandoned, begun = (archives_folder() / f"new-{name}" for name in "ab")
    for folder in (abandoned, begun):
        folder.mkdir()
    os.utime(abandoned, (1, 1))
    archive_options(JAVA, home)
    assert (abandoned.exists(), begun.exists()) == (False, True)


def test_of_those_that_are_made_at_once_one_stays_and_is_whole(home):
    made = [threading.Thread(target=published, args=(home, bytes([n]) * 100_000)) for n in range(8)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    assert len(list(archives_folder().iterdir())) == 1
    assert archive_options(JAVA, home) != ()


def test_all_are_removed_on_request(home, archive):
    assert class_archive.remove_archives() == 7000
    assert (archive.exists(), class_archive.remove_archives()) == (False, 0)


def test_nothing_is_removed_from_a_folder_that_is_not_ours_alone(home, archive):
    _behind_a_link(archives_folder())
    with pytest.raises(BuildError, match="class-archives is not a directory"):
        class_archive.remove_archives()
    assert archive.exists()
