"""Keep files in the user's cache that no other user can change.

What is kept is code that processes of this user will run. So the folder has mode 0700, and neither
it nor a directory above may be changed by another user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_path() -> Path:
    """Return the folder of icevirt in the user's cache, which need not exist.

    Raises:
        OSError: The user has no home.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # others count as none, by the XDG Base Directory Specification
        return Path(given) / "icevirt"
    try:
        return Path.home() / ".cache" / "icevirt"
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error


def make_private(folder: Path) -> None:
    """Make a folder, and those above that are missing, for this user alone.

    Raises:
        OSError: It cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def fault_of(folder: Path) -> str | None:
    """Return why files of the folder must not be used; None if only this user can write them.

    Raises:
        OSError: The folder does not exist, or cannot be looked at.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a directory"  # as a symbolic link is not
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if found.st_mode & 0o077:
        return f"{folder} is open to other users (chmod 700 would close it)"
    return next(filter(None, map(_fault_above, folder.resolve().parents)), None)


def _fault_above(folder: Path) -> str | None:
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        return f"{folder} belongs to another user"
    # with the sticky bit, as in /tmp, only the owner of a file may replace it
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return f"other users may write to {folder} (chmod go-w would forbid it)"
    return None
