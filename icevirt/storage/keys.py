"""Check object paths below a repository's root, and recognize temporary names."""

from __future__ import annotations

import re

from icevirt.errors import InvalidInputError

_UNFINISHED = re.compile(r".+#\d+")
# The official client stages its files under such names too, and both listings skip them.


def checked(path: str) -> str:
    """Return ``path`` if it names an object below the root.

    Raises:
        InvalidInputError: It is empty, absolute, or has an empty, ``.`` or ``..`` segment.
    """
    if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidInputError("this is not a valid object path of a repository", path=path)
    return path


def below(path: str, prefix: str) -> bool:
    """Say whether ``prefix`` is a whole number of leading segments of ``path``."""
    prefix = prefix.rstrip("/")
    return not prefix or path == prefix or path.startswith(prefix + "/")


def is_unfinished(name: str) -> bool:
    """Say whether a file of this name is somebody's unfinished write, and no object."""
    return _UNFINISHED.fullmatch(name) is not None
