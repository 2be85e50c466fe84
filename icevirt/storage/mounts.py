"""Look up what kind of file system a directory is on, and how far its locks reach."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

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
