"""Define node paths: their canonical form, their parts, and their order in a snapshot.

Spec: "Node Paths". Real snapshots are sorted by the raw UTF-8 bytes of the whole path, not
component by component as the 2.0 text says; the official reader binary-searches in that order.
"""

from __future__ import annotations

from icevirt.errors import InvalidInputError
from icevirt.model import names
from icevirt.model.arguments import checked

ROOT = "/"
_NO_NAMES = frozenset(("", ".", ".."))


def canonical(path: str) -> str:
    """Return ``path`` as a node path; a missing leading and a trailing ``/`` are forgiven.

    Repositories of other clients may hold nodes that icevirt would not create: see `creatable`.

    Raises:
        InvalidInputError: It is no text, UTF-8 cannot encode it, or a segment is empty, ``.`` or
            ``..``.
    """
    path = checked("a node path", path, str, do="Write it like '/group/array'.")
    inner = path.removeprefix("/").removesuffix("/")
    if not inner:
        return ROOT
    if not names.is_unicode(inner):
        raise InvalidInputError(
            "this is not a valid node path",
            do="Remove the surrogates, which UTF-8 cannot encode.",
            path=path,
        )
    if not _NO_NAMES.isdisjoint(inner.split("/")):
        raise InvalidInputError(
            "this is not a valid node path",
            do="Segments must not be empty, '.' or '..'.",
            path=path,
        )
    return "/" + inner


def creatable(path: str) -> str:
    """Return ``path`` as the path of a node to be created, which every Zarr reader finds.

    Raises:
        InvalidInputError: It is no node path, or a name in it is none for Zarr.
    """
    path = canonical(path)
    if not any(text in path for text in names.SUSPICIOUS):
        return path
    for segment in path.split("/")[1:]:
        if why := names.problem(segment):
            raise InvalidInputError(
                f"not a valid name for a node: {why}",
                do="Choose another name.",
                path=path,
                name=segment,
            )
    return path


def join(group: str, name: str) -> str:
    """Return the path of ``name`` below ``group``; either may be given with or without slashes."""
    return canonical(f"{group.rstrip('/')}/{name.lstrip('/')}")


def parent(path: str) -> str:
    """Return the path one level up; the root is its own parent."""
    return path.rsplit("/", 1)[0] or ROOT


def name(path: str) -> str:
    """Return the last segment; empty for the root."""
    return path.rsplit("/", 1)[1]


def ancestors(path: str) -> tuple[str, ...]:
    """Return the paths of all groups above ``path``, root first; none for the root itself."""
    if path == ROOT:
        return ()
    parts = path.split("/")[1:-1]
    return (ROOT, *("/" + "/".join(parts[: n + 1]) for n in range(len(parts))))


def order(path: str) -> bytes:
    """Return the sort key under which nodes stand in a snapshot."""
    return path.encode()
