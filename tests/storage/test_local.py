"""Local disk: no lost update between processes, nothing half-written, errors that say what to do."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

import icevirt
from icevirt.errors import InvalidInputError, ObjectNotFoundError, StorageError
from icevirt.storage import durable, file_systems, local
from icevirt.storage.constructors import storage_of
from icevirt.storage.local import LocalStorage, local_filesystem_storage
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import LostRace, Version, Written
from servers.racing import raced
from storage import dying


def _race(root: str, name: int, times: int) -> None:
    storage = LocalStorage(root)
    for n in range(times):
        while True:
            body, version = storage.get_versioned("repo")
            if isinstance(
                storage.put_if("repo", body + b"%d:%d\n" % (name, n), was=version), Written
            ):
                break


@pytest.mark.ci
def test_of_eight_processes_that_race_none_is_lost(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.put_if("repo", b"", was=None)
    racers = [dying.forked(lambda n=n: _race(str(tmp_path), n, 25)) for n in range(8)]
    assert [dying.status(racer) for racer in racers] == [0] * 8
    lines = storage.get("repo").decode().split()
    assert sorted(lines) == sorted(f"{name}:{n}" for name in range(8) for n in range(25))
    assert os.listdir(tmp_path) == ["repo"]


@pytest.mark.ci
@pytest.mark.parametrize("strike", [dying.strike_writers, dying.strike_creators])
def test_a_writer_killed_at_any_step_leaves_the_old_bytes_or_the_new(tmp_path, strike):
    (struck,) = raced(strike, [(str(tmp_path),)])
    assert struck > 4


def test_a_storage_that_does_not_wait_for_the_disk_says_so_and_nothing_remembers_it(tmp_path):
    import pickle

    scratch = local_filesystem_storage(tmp_path / "a", wait_for_disk=False)
    assert "does not wait for the disk" in repr(pickle.loads(pickle.dumps(scratch)))
    repo = icevirt.Repository.create(scratch)
    repo.save_config()
    again = icevirt.Repository.open(tmp_path / "a").storage
    assert again == scratch
    assert "wait" not in repr(again)
    assert b"wait" not in b"".join(scratch.get(info.path) for info in scratch.list())


def test_objects_that_are_written_with_what_refers_to_them_replace_what_is_there(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.put("a/same", b"same")
    storage.put("a/other", b"torn")
    os.utime(tmp_path / "a/same", (0, 0))
    objects = {"a/same": b"same", "a/other": b"whole", "b/c/new": b"new"}
    for was in (None, Version("an older one")):
        outcome = storage.put_if("repo", b"1", was=was, after=objects)
        assert isinstance(outcome, Written) == (was is None)  # objects are written all the same
        assert {path: storage.get(path) for path in objects} == objects
        storage.delete("b/c/new")
    assert (tmp_path / "a/same").stat().st_mtime > 0


def test_an_unfinished_file_is_no_object(tmp_path):
    storage = LocalStorage(tmp_path)
    (tmp_path / "repo#0").write_bytes(b"half")
    assert list(storage.list()) == []
    assert not storage.exists()


def test_writers_and_deleters_of_one_directory_do_not_hinder_each_other(tmp_path):
    storage, stop = LocalStorage(tmp_path), threading.Event()

    def clear() -> None:
        while not stop.wait(0.05):
            storage.delete_below("deep/down/here")

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for n in range(100):
            storage.put(f"deep/down/there/{n}", b"x")
            storage.delete(f"deep/down/there/{n}")
            storage.put(f"deep/down/here/{n}", b"x")
    finally:
        stop.set()
        thread.join()


def test_nothing_is_created_by_reading(tmp_path):
    storage = LocalStorage(tmp_path / "new")
    assert not storage.exists()
    assert list(storage.list()) == []
    storage.delete("a")
    assert not (tmp_path / "new").exists()


def test_where_unnamed_files_do_not_exist_staged_ones_are_used(tmp_path, monkeypatch):
    real = os.open

    def refuse(path, flags, *args, **kwargs):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE here")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(durable.os, "open", refuse)
    storage = LocalStorage(tmp_path)
    assert isinstance(storage.put_if("repo", b"a", was=None), Written)
    assert storage.put_if("repo", b"b", was=None) == LostRace()
    assert os.listdir(tmp_path) == ["repo"]


def test_new_files_have_the_usual_permissions(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.put("a", b"")
    (tmp_path / "b").write_bytes(b"")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "b").stat().st_mode
    )


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_is_one_error_with_path_and_remedy(tmp_path, monkeypatch, code):
    def refuse(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    storage = LocalStorage(tmp_path / "root")
    monkeypatch.setattr(durable.os, "fsync", refuse)
    with pytest.raises(StorageError) as caught:
        storage.put("a", b"x")
    assert str(tmp_path) in str(caught.value)
    assert os.strerror(code) in str(caught.value)
    assert caught.value.do


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="permission"):
        LocalStorage(tmp_path / "root").put("a", b"x")


def test_a_file_where_the_root_should_be_is_said(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    storage = LocalStorage(tmp_path / "file")
    assert storage.exists()
    with pytest.raises(StorageError, match="is a file"):
        storage.put("a", b"x")
    with pytest.raises(StorageError, match="is a file"):
        LocalStorage(tmp_path / "file" / "root").put("a", b"x")


def test_a_child_forked_while_a_writer_holds_the_lock_does_not_keep_it(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.put("a", b"")
    with durable.directory(tmp_path) as at, file_systems.alone(at, str(tmp_path)):
        child = os.fork()
        if child == 0:
            import time

            time.sleep(30)
            os._exit(0)
    try:
        assert isinstance(storage.put_if("repo", b"x", was=None), Written)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_paths_urls_and_storages_are_storages(tmp_path):
    by_path, memory = storage_of(tmp_path), MemoryStorage()
    assert by_path == storage_of(str(tmp_path)) == storage_of(f"file://{tmp_path}")
    assert by_path == local_filesystem_storage(tmp_path)
    assert storage_of(memory) is memory
    assert storage_of(Path("here")).url == Path.cwd().joinpath("here").as_uri()


@pytest.mark.parametrize(
    "text", ["ftp://host/x", "hdfs://host/x", "s3://", "s3://b/a#b", "https://h/a?b", ""]
)
def test_other_urls_are_refused(text):
    with pytest.raises(InvalidInputError):
        storage_of(text)


def test_a_memory_storage_stays_in_its_process():
    import pickle

    raw = pickle.dumps(storage := MemoryStorage())
    assert pickle.loads(raw) is storage
    del storage
    with pytest.raises(StorageError, match="its own process"):
        pickle.loads(raw)


def test_a_lock_that_is_not_given_back_is_reported_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(file_systems, "_PATIENCE", 0.2)
    storage = LocalStorage(tmp_path)
    storage.put("repo", b"0")
    lock = file_systems.alone
    with (
        durable.directory(tmp_path) as at,
        lock(at, str(tmp_path)),
        pytest.raises(StorageError, match=r"lock.*fuser"),
    ):
        LocalStorage(tmp_path).put_if("repo", b"1", was=storage.get_versioned("repo")[1])
    assert storage.get("repo") == b"0"


def test_a_writer_that_asks_for_no_lock_is_noticed_when_it_was_quicker(tmp_path, monkeypatch):
    """Its bytes are in the place of ours when we look, so ours are lost, and we are told."""
    storage = LocalStorage(tmp_path)
    storage.put("repo", b"0")
    replace = durable.replace

    def then_another(at, name, body, **how):
        replace(at, name, body, **how)
        (tmp_path / "other").write_bytes(b"theirs")
        os.rename(tmp_path / "other", tmp_path / "repo")

    monkeypatch.setattr(durable, "replace", then_another)
    outcome = storage.put_if("repo", b"ours", was=storage.get_versioned("repo")[1])
    assert outcome == LostRace()
    assert storage.get("repo") == b"theirs"


@pytest.mark.parametrize("kind", ["fuse.bindfs", "ext4"])
def test_a_file_that_fuse_replaces_at_that_moment_is_waited_for(tmp_path, kind, monkeypatch):
    """FUSE moves a file that someone reads out of the way before another takes its place."""
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            (tmp_path / "a").write_bytes(b"new")

    monkeypatch.setattr(file_systems, "mount_of", lambda _: file_systems.Mount(kind))
    monkeypatch.setattr(local.time, "sleep", sleep)
    if kind == "ext4":
        with pytest.raises(ObjectNotFoundError):
            LocalStorage(tmp_path).get("a")
    else:
        assert LocalStorage(tmp_path).get("a") == b"new"
    assert len(waits) == (0 if kind == "ext4" else 3)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_changes_no_memory_storage():
    """It has a copy of the objects: what it acknowledged would be lost."""
    storage = MemoryStorage()
    storage.put("a", b"one")
    changes = (
        lambda: storage.put("b", b""),
        lambda: storage.put_if("b", b"", was=None),
        lambda: storage.delete("a"),
        lambda: storage.delete_below(""),
    )
    child = os.fork()
    if child == 0:
        refused = 0
        for change in changes:
            try:
                change()
            except StorageError:
                refused += 1
        os._exit(0 if refused == len(changes) and storage.get("a") == b"one" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [info.path for info in storage.list()] == ["a"]
