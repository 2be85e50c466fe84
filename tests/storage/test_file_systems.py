"""Mounted file systems: locks that stay on a machine, views of buckets, FUSE, and what is unknown."""

import errno
import fcntl
import os
import time
from functools import partial

import pytest

import icevirt
from builds.support import write_days
from icevirt.errors import StorageError
from icevirt.execution.selection import default_executor
from icevirt.storage import durable, file_systems
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import LostRace, Written

NFS = "36 35 0:44 / /data rw,relatime shared:1 - nfs4 host:/x rw,vers=4.2,{}addr=1.2.3.4\n"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([NFS.format("")], None),
        ([NFS.format("local_lock=none,")], None),
        ([NFS.format("local_lock=flock,")], "nfs4"),
        ([NFS.format("nolock,")], "nfs4"),
        (["36 35 0:44 / /data rw - fuse.sshfs me@host: rw,user_id=0\n"], "fuse.sshfs"),
        (["36 35 0:44 / /data rw - ext4 /dev/sda rw\n"], None),
        ([NFS.format("nolock,").replace("0:44", "0:45")], None),
        ([NFS.format("nolock,"), NFS.format("")], None),
        (["", "nonsense", "36 35 0:44 / /data rw"], None),
    ],
)
def test_a_file_system_whose_locks_one_machine_keeps_is_known_by_its_mount(lines, kind):
    mount = file_systems.find("0:44", "/elsewhere", lines)
    assert (mount.kind if mount is not None and mount.keeps_locks else None) == kind


MOUNTS = [
    "20 1 254:0 / / rw - ext4 /dev/vda rw\n",
    "36 35 0:44 / /data rw - btrfs /dev/sdb rw\n",
    "37 36 0:50 / /data/b\\040c rw - fuse.s3fs s3fs rw\n",
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/a", "ext4"),
        ("/data/a", "btrfs"),
        ("/data/b", "btrfs"),
        ("/data/b c", "fuse.s3fs"),
        ("/data/b c/d/e", "fuse.s3fs"),
    ],
)
def test_a_file_system_with_devices_of_its_own_is_known_by_its_place(path, kind):
    assert file_systems.find("9:9", path, MOUNTS).kind == kind


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """Returns a function that makes the test's directory a mount of some kind."""
    device = os.stat(tmp_path).st_dev
    output = tmp_path / "mountinfo"
    monkeypatch.setattr(file_systems, "_MOUNTS", str(output))

    def mount(line):
        output.write_text(line.replace("0:44", f"{os.major(device)}:{os.minor(device)}"))
        file_systems.look_at.cache_clear()
        return LocalStorage(tmp_path / "root")

    yield mount
    file_systems.look_at.cache_clear()


def test_where_locks_stay_on_a_machine_one_machine_writes(mounted, tmp_path, monkeypatch):
    storage = mounted(NFS.format("nolock,"))
    storage.put_if("repo", b"1", was=None)
    here = tmp_path / "root" / "machine#0"
    hour = file_systems.LEASE

    def written(seconds_ago):
        os.utime(here, (time.time() - seconds_ago,) * 2)

    def write():
        body, version = storage.get_versioned("repo")
        assert isinstance(storage.put_if("repo", body + b"1", was=version), Written)

    first = here.read_text()
    write()
    written(hour * 0.6)
    write()  # which renews
    assert time.time() - here.stat().st_mtime < hour / 4
    monkeypatch.setattr(file_systems.socket, "gethostname", lambda: "other")
    for refused in (write, storage.refuse_unsafe):
        with pytest.raises(StorageError, match=r"another machine writes.*remove the file"):
            refused()
    written(hour * 1.1)
    storage.refuse_unsafe()
    write()
    assert here.read_text() == first.replace(first.split()[0], "other")
    assert storage.get("repo") == b"1111"
    assert [info.path for info in storage.list()] == ["repo"]


def test_what_was_renewed_meanwhile_is_not_taken_away(tmp_path):
    old, new = tmp_path / "machine#0", b"theirs, and new"
    old.write_bytes(new)
    with durable.directory(tmp_path) as at:
        file_systems._take_away(at, ("theirs, and old", 0.0))
    assert old.read_bytes() == new
    assert os.listdir(tmp_path) == ["machine#0"]


OTHER = "36 35 0:44 / /data rw - {} x rw\n"


@pytest.mark.parametrize("kind", ["fuse.s3fs", "fuse.gcsfuse", "fuse.mountpoint-s3"])
def test_a_view_of_a_bucket_is_refused_before_anything_is_written(mounted, tmp_path, kind):
    storage = mounted(OTHER.format(kind))
    for _ in range(2):
        with pytest.raises(StorageError, match="s3://"):
            storage.put_if("repo", b"1", was=None)
    with pytest.raises(StorageError, match=kind), default_executor("in-process"):
        icevirt.build(write_days(tmp_path / "in", 2), tmp_path / "root", concat_dim="time")
    assert not storage.exists()


def test_a_folder_of_databricks_is_one(mounted, tmp_path, monkeypatch):
    storage = mounted(OTHER.format("ext4"))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    storage.refuse_unsafe()
    monkeypatch.setattr(file_systems, "_DATABRICKS", (str(tmp_path),))
    file_systems.look_at.cache_clear()
    with pytest.raises(StorageError, match="URL of the bucket"):
        storage.refuse_unsafe()


def test_what_nobody_knows_is_tried_out_once_and_leaves_nothing(mounted, tmp_path, monkeypatch):
    tried, real = [], file_systems.probe

    def noting(folder, kind):
        tried.append(kind)
        real(folder, kind)

    monkeypatch.setattr(file_systems, "probe", noting)
    storage = mounted(OTHER.format("fuse.mystery"))
    storage.refuse_unsafe()  # where there is no root yet
    first, second = (storage.put_if("repo", b"1", was=None) for _ in range(2))
    assert isinstance(first, Written)
    assert second == LostRace()
    assert tried == ["fuse.mystery"]
    assert [info.path for info in storage.list()] == ["repo"]
    # a lock that the kernel keeps, of a file system that is said to be a program's
    inside = {each.name for each in (tmp_path / "root").iterdir()}
    assert inside == {"repo", "lock#0", "machine#0"}
    assert {each.name for each in tmp_path.iterdir()} == {"root", "mountinfo"}


def never(*_, **__):
    """Do nothing, as a file system that only says so."""


def no_link(*_, **__):
    raise OSError(errno.EPERM, "Operation not permitted")


def copied(staged, name, *, src_dir_fd, dst_dir_fd):
    """Write into the old file, and not with the last bytes."""
    with open(staged, "rb", opener=partial(os.open, dir_fd=src_dir_fd)) as file:
        body = file.read()
    with open(name, "wb", opener=partial(os.open, dir_fd=dst_dir_fd)) as file:
        file.write(body[:-1])
    os.unlink(staged, dir_fd=src_dir_fd)


def overwriting(staged, name, *, src_dir_fd, dst_dir_fd, follow_symlinks):
    """Link over what is there."""
    os.rename(staged, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


BROKEN = {
    "locks that do nothing": ("fcntl", "flock", never, "a lock that is held"),
    "locks that fail": ("fcntl", "flock", no_link, "a call fails: Operation not permitted"),
    "renames that lose bytes": ("os", "rename", copied, "does not read what was written"),
    "links that replace": ("os", "link", overwriting, "created where there is one"),
    "deletions that do nothing": ("os", "unlink", never, "deleted file"),
}


@pytest.mark.parametrize(("module", "name", "deed", "output"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_system_that_only_pretends_is_refused(
    module, name, deed, output, mounted, monkeypatch, tmp_path
):
    """What this process calls is replaced by what such file systems do; the other one is real."""
    storage = mounted(OTHER.format("fuse.mystery"))
    monkeypatch.setattr(durable, "_has_unnamed", lambda: False)
    with monkeypatch.context() as broken:
        broken.setattr({"fcntl": fcntl, "os": os}[module], name, deed)
        with pytest.raises(StorageError, match="fuse") as raised:
            storage.refuse_unsafe()
    assert output in raised.value.facts["found"]
    storage.refuse_unsafe()


def test_without_hard_links_the_lock_is_enough(mounted, monkeypatch):
    monkeypatch.setattr(durable, "_has_unnamed", lambda: False)
    monkeypatch.setattr(os, "link", no_link)
    storage = mounted(OTHER.format("fuse.mystery"))
    storage.put("chunks/a", b"1")
    assert isinstance(storage.put_if("repo", b"1", was=None), Written)
    assert storage.put_if("repo", b"2", was=None) == LostRace()
    body, version = storage.get_versioned("repo")
    assert isinstance(storage.put_if("repo", body + b"2", was=version), Written)
    assert storage.get("repo") == b"12"
