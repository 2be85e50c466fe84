"""Know what a file system does not promise, and make sure of what commits need.

Some network and user-space file systems accept calls that they do not carry out: a lock that two
processes hold, a rename that leaves a name without a file, a read that returns old bytes. So once
for each root in a process, two processes try it (`probe`). That shows what processes of one machine
see of each other; between machines only the kind of the file system tells.

Where locks hold on one machine only, one machine at a time writes: a file in the root names it,
which its writers renew, and which another machine takes over when nothing was written for an hour.
A lock would not do: file systems without locks between machines keep what they read for a while,
so that the next writer could take an old state for the newest.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Self

from icevirt.connect.urls import file_url
from icevirt.errors import StorageError
from icevirt.storage import durable

_MOUNTS = "/proc/self/mountinfo"
_OCTAL = r"\\([0-7]{3})"

# of one machine, whose kernel does all that local storage needs
_KNOWN = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs"}
    | {"rootfs", "tmpfs", "xfs", "zfs"}
)
# views of buckets, which know no lock at all: each machine has its own, and commits would be lost
_BUCKETS = frozenset(
    {"fuse.blobfuse", "fuse.blobfuse2", "fuse.gcsfuse", "fuse.goofys", "fuse.mount-s3"}
    | {"fuse.mountpoint-s3", "fuse.rclone", "fuse.s3fs"}
)
# network file systems whose locks one machine keeps alone: always, or with a mount option
_LOCAL_LOCKS = _BUCKETS | {"9p", "fuse.sshfs", "vboxsf"}
_LOCAL_BY_OPTION = {
    "nfs": {"nolock", "local_lock=all", "local_lock=flock"},
    "nfs4": {"nolock", "local_lock=all", "local_lock=flock"},
    "cifs": {"nobrl"},
    "smb3": {"nobrl"},
    "lustre": {"localflock", "noflock"},
}
_DATABRICKS = ("/dbfs", "/Volumes", "/Workspace")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: its kind, and its options."""

    kind: str
    options: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether it is of one machine, and known to do all that local storage needs."""
        return self.kind in _KNOWN

    @property
    def is_bucket(self) -> bool:
        """Whether it shows objects of a bucket as files."""
        return self.kind in _BUCKETS

    @property
    def is_fuse(self) -> bool:
        """Whether a program decides what its calls do; one of a disk of this machine does not."""
        return self.kind in ("fuse", "virtiofs") or self.kind.startswith("fuse.")

    @property
    def keeps_locks(self) -> bool:
        """Whether locks are known not to hold between machines."""
        return self.kind in _LOCAL_LOCKS or not self.options.isdisjoint(
            _LOCAL_BY_OPTION.get(self.kind, ())
        )


def mount_of(path: str) -> Mount | None:
    """Return the file system of a path, which need not exist yet; None where that is not known."""
    real = os.path.realpath(path)
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        for shown in _DATABRICKS:
            if real == shown or real.startswith(f"{shown}/"):
                return Mount("fuse.mountpoint-s3")
    try:
        device = os.stat(existing(real)).st_dev
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            return find(f"{os.major(device)}:{os.minor(device)}", real, mounts)
    except OSError:
        return None


def existing(path: str) -> str:
    """Return the directory that exists, of a path and those above it."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def find(device: str, path: str, mounts: Iterable[str]) -> Mount | None:
    """Decide by the lines of Linux' ``mountinfo``; the last mount of a device counts.

    A file system with devices of its own, as btrfs has, is found by the longest place of a mount.
    """
    of_device: Mount | None = None
    above: tuple[int, Mount] | None = None
    for line in mounts:
        own, _, below = line.partition(" - ")
        fields, names = below.split(), own.split()
        if len(fields) < 3 or len(names) < 5:
            continue
        mount = Mount(fields[0], frozenset(fields[2].split(",")))
        if names[2] == device:
            of_device = mount
        place = names[4].rstrip("/")
        if "\\" in place:
            place = re.sub(_OCTAL, lambda found: chr(int(found[1], 8)), place)
        covers = path == place or path.startswith(f"{place}/")
        if covers and (above is None or len(place) >= above[0]):
            above = len(place), mount
    return of_device or (above[1] if above else None)


def is_kept_by_kernel(descriptor: int) -> bool:
    """Say whether a lock that this process holds is known to its own kernel.

    Of FUSE the kernel knows only those locks that it keeps itself, because the file system takes
    none: nobody but processes of this machine and mount sees them.
    """
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as facts:
            return any(line.startswith("lock:") for line in facts)
    except OSError:
        return True  # nobody can tell


_PATIENCE = 300.0  # seconds that a writer waits for the lock
_LOCK = "lock#0"  # a file that no listing shows, and that stays


@cache
def look_at(root: str) -> Mount | None:
    """Look once in a process whether commits to a root are safe; None: its kind is known to do all.

    Raises:
        StorageError: They are not safe.
    """
    mount = mount_of(root) or Mount("unknown")
    if mount.is_known:
        return None
    if mount.is_bucket:
        raise StorageError(
            "this directory shows a bucket as files, without locks: commits would be lost",
            do="Name the repository by the URL of the bucket: s3://, gs:// or abfss://.",
            path=root,
            file_system=mount.kind,
        )
    probe(existing(root), mount.kind)
    return mount


@contextmanager
def alone(at: int, root: str) -> Iterator[None]:
    """Hold the lock of a root, whose descriptor is given.

    Raises:
        StorageError: Another process does not release it, or another machine writes.
    """
    mount = look_at(root)
    with _hold(at, root):
        if mount is None:
            yield
            return
        # directories are locked on this machine only, whatever the server can do: of NFS, SMB
        # and FUSE the kernel passes on locks of files
        file = os.open(os.path.join(root, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with _hold(file, root):
                if mount.keeps_locks or (mount.is_fuse and is_kept_by_kernel(file)):
                    claim(at, root, mount.kind)
                yield
        finally:
            os.close(file)


@contextmanager
def _hold(descriptor: int, root: str) -> Iterator[None]:
    """Hold a lock; fail after a while if another process does not release it.

    It is held for as long as a small file takes to be written, so no writer waits long for one that
    runs.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            pass
        if time.monotonic() > end:
            raise StorageError(
                f"another process has held the lock of the repository for {_PATIENCE:.0f} s",
                do="Find a stopped or hanging writer with `fuser -v DIRECTORY`, and resume or end "
                "it.",
                url=file_url(root),
            )
        from icevirt.connect.retry import jitter

        time.sleep(jitter(0.0005, 0.01))
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile must not keep it


_ROUNDS = 8  # replacements that the other process has to see

# the other process: it locks and reads on request, a line each
_OTHER = """
import fcntl, os, sys
folder = sys.argv[1]
for line in sys.stdin:
    verb, name = line.split()
    path = os.path.join(folder, name)
    try:
        if verb == "lock":
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            answer = "taken"
            os.close(fd)
        else:
            with open(path, "rb") as file:
                answer = "bytes " + file.read().hex()
    except BlockingIOError:
        answer = "held"
    except FileNotFoundError:
        answer = "absent"
    except OSError as error:
        answer = "error " + (error.strerror or str(error))
    print(answer, flush=True)
"""


def probe(folder: str, kind: str) -> None:
    """Try out a directory that exists, of a kind of file system.

    Raises:
        StorageError: It does not do what is needed, or nothing can be written.
    """
    mark = int.from_bytes(os.urandom(7))
    name, lock = f"probe#{mark}", f"lock#{mark}"  # which no listing shows
    try:
        with durable.directory(folder) as at, _Other(folder) as other:
            try:
                failed = _try_locks(folder, lock, other) or _try_files(at, name, folder, other)
            finally:
                for each in (name, lock, f"{name}0"):
                    with suppress(OSError):
                        os.unlink(each, dir_fd=at)
    except OSError as error:
        failed = f"a call fails: {os.strerror(error.errno or 0)}"
    if failed:
        raise StorageError(
            "this file system does not do what commits to a repository need",
            do="Write to an object store by its URL (s3://, gs://, abfss://), or to a local disk, "
            "and copy the repository from there.",
            path=folder,
            file_system=kind,
            found=failed,
        )


def _try_locks(folder: str, name: str, other: _Other) -> str:
    """Return what is wrong with locks, "" if nothing is."""
    fd = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (answer := other.ask("lock", name)) != "held":
            return f"another process gets a lock that is held ({answer})"
    finally:
        os.close(fd)
    answer = other.ask("lock", name)
    return "" if answer == "taken" else f"a lock that was given back is not free ({answer})"


def _try_files(at: int, name: str, folder: str, other: _Other) -> str:
    """Return what is wrong with creating, replacing, reading and deleting, "" if nothing is."""
    body = b"0"
    try:
        if not durable.create(at, name, body):
            return "a new file is there already"
        if durable.create(at, name, b"other"):
            return "a file is created where there is one"
    except durable.NoHardLinksError:
        durable.replace(at, name, body, staged=f"{name}0")
    for number in range(_ROUNDS):
        looks = []
        for _ in range(2):
            with open(os.path.join(folder, name), "rb") as file:
                facts = os.fstat(file.fileno())
                looks.append((file.read(), facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns))
        for answer in (other.ask("read", name), f"bytes {looks[0][0].hex()}"):
            if answer != f"bytes {body.hex()}":
                return f"a process does not read what was written ({answer[:40]})"
        if looks[0] != looks[1]:
            return "a file that nobody changed changes its number or time"
        body = str(number).encode() * (number + 2)
        durable.replace(at, name, body, staged=f"{name}0")
    os.unlink(name, dir_fd=at)
    answer = other.ask("read", name)
    return "" if answer == "absent" else "a deleted file can still be read"


class _Other:
    """Another process, which locks and reads; a context that ends it."""

    def __init__(self, folder: str) -> None:
        import subprocess  # few file systems have to be tried out

        self._process = subprocess.Popen(  # noqa: S603  # this interpreter, a text of ours
            [sys.executable, "-I", "-S", "-c", _OTHER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, verb: str, name: str) -> str:
        """Let it do one thing, and return what it says."""
        assert self._process.stdin is not None, "a pipe"
        assert self._process.stdout is not None, "a pipe"
        self._process.stdin.write(f"{verb} {name}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


LEASE = 3600.0
"""Seconds after which the machine that wrote last is taken to be gone; its writers renew before."""

_NAME = "machine#0"  # which no listing shows
_BOOT = "/proc/sys/kernel/random/boot_id"


def claim(at: int, root: str, kind: str) -> None:
    """Make sure that this machine is the one that writes to a root, which is open as ``at``.

    Raises:
        StorageError: Another machine wrote less than an hour ago, or the same one through another
            mount.
    """
    mine = _mine(at)
    while True:
        if (found := _text_of(at, _NAME)) is None:
            if _create(at, mine):
                return
            continue
        text, written = found
        age = time.time() - written
        if text == mine and age < LEASE / 2:
            return
        if text != mine and age < LEASE:
            raise _refusal(text, age, root, kind)
        _take_away(at, found)


def refuse_other_machines(root: str) -> None:
    """Look whether commits are safe, and do no more than find out whether another machine writes.

    Raises:
        StorageError: They are not, or one does.
    """
    mount = look_at(root)
    if mount is None or not os.path.isdir(root):
        return
    with durable.directory(root) as at:
        text, written = _text_of(at, _NAME) or ("", 0.0)
        if text != _mine(at) and (age := time.time() - written) < LEASE:
            raise _refusal(text, age, root, mount.kind)


def _mine(at: int) -> str:
    """Name this machine and mount; locks hold between those who name the same."""
    return f"{socket.gethostname()} {_boot()} {os.fstat(at).st_dev:x}\n"


@cache
def _boot() -> str:
    try:
        with open(_BOOT, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "-"


def _text_of(at: int, name: str) -> tuple[str, float] | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError:
        return None
    with open(fd, encoding="utf-8", errors="replace") as file:
        return file.read(1000), os.fstat(fd).st_mtime


def _create(at: int, text: str) -> bool:
    """Create the file where there is none; False if there is one."""
    with suppress(durable.NoHardLinksError):
        return durable.create(at, _NAME, text.encode())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(_NAME, flags, 0o666, dir_fd=at)
    except FileExistsError:
        return False
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    return True


def _take_away(at: int, found: tuple[str, float]) -> None:
    """Remove the file that was found, and no other one: it may just have been renewed."""
    aside = durable.name_unfinished("machine")
    try:
        os.rename(_NAME, aside, src_dir_fd=at, dst_dir_fd=at)
    except FileNotFoundError:
        return  # another machine did
    if _text_of(at, aside) != found:
        with suppress(OSError):
            os.link(aside, _NAME, src_dir_fd=at, dst_dir_fd=at)
    os.unlink(aside, dir_fd=at)


def _refusal(text: str, age: float, root: str, kind: str) -> StorageError:
    host = text.partition(" ")[0].strip() or "unknown"
    minutes = max(1, round((LEASE - age) / 60))
    path = os.path.join(root, _NAME)
    here = host == socket.gethostname()
    return StorageError(
        "another machine writes to this repository, and locks of this file system do not reach it"
        if not here
        else "this machine writes to this repository through another mount, which has other locks",
        do=f"Write from {'that mount' if here else host}, or to an object store. If nothing writes "
        f"there any more, try again in {minutes} minutes, or remove the file {path!r} now.",
        path=root,
        file_system=kind,
        machine=host,
        seconds_ago=round(max(0.0, age)),
    )
