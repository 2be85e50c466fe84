"""Tell from mount options whether a directory's locks hold between machines."""

from __future__ import annotations

import os
from collections.abc import Iterable

_ALWAYS = frozenset(
    {"9p", "fuse.gcsfuse", "fuse.goofys", "fuse.mount-s3", "fuse.mountpoint-s3", "fuse.rclone"}
    | {"fuse.s3fs", "fuse.sshfs", "vboxsf"}
)
_BY_OPTION = {
    "nfs": {"nolock", "local_lock=all", "local_lock=flock"},
    "nfs4": {"nolock", "local_lock=all", "local_lock=flock"},
    "cifs": {"nobrl"},
    "smb3": {"nobrl"},
    "lustre": {"localflock", "noflock"},
}
_MOUNTS = "/proc/self/mountinfo"


def local_locks(path: str) -> str | None:
    """Return the kind of network file system below ``path`` whose locks one machine keeps alone.

    None: it is none, or nothing can be found out.
    """
    try:
        device = os.stat(path).st_dev
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            return kind_of(f"{os.major(device)}:{os.minor(device)}", mounts)
    except OSError:
        return None


def kind_of(device: str, mounts: Iterable[str]) -> str | None:
    """Decide by the lines of Linux' ``mountinfo``; the last mount of a device counts."""
    found = None
    for line in mounts:
        own, _, below = line.partition(" - ")
        fields = below.split()
        if len(fields) < 3 or own.split()[2:3] != [device]:
            continue
        kind, options = fields[0], set(fields[2].split(","))
        unsafe = kind in _ALWAYS or not options.isdisjoint(_BY_OPTION.get(kind, ()))
        found = kind if unsafe else None
    return found
