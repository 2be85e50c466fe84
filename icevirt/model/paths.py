r"""Define node paths: their canonical form, their parts, their order, and names that readers find.

Spec: "Node Paths". Real snapshots are sorted by the raw UTF-8 bytes of the whole path, not
component by component as the 2.0 text says; the official reader binary-searches in that order.

Zarr replaces a backslash in a path by a slash, so a reader that opens ``a\b`` gets the values of
``b`` in the group ``a``. It omits ``zarr.json`` when it lists a group. Programs written in C end a
name at a NUL. icevirt creates no node with such a name; scanners percent-encode them.
"""

from __future__ import annotations

from urllib.parse import quote_from_bytes

from icevirt.errors import InvalidPathError, check

ROOT = "/"
_NO_NAMES = frozenset(("", ".", ".."))
_RESERVED = "zarr.json"
SUSPICIOUS = ("\\", "\0", _RESERVED)
"""What a node path has somewhere when `problem` refuses a name in it."""
_ESCAPES = str.maketrans({"/": "%2F", "\\": "%5C", "\0": "%00"})


def canonical(path: str) -> str:
    """Return ``path`` as a node path; a missing leading and a trailing ``/`` are forgiven.

    Repositories of other clients may hold nodes that icevirt would not create: see `creatable`.

    Raises:
        InvalidInputError: It is no text, UTF-8 cannot encode it, or a segment is empty, ``.`` or
            ``..``.
    """
    path = check("a node path", path, str, do="Write it like '/group/array'.")
    inner = path.removeprefix("/").removesuffix("/")
    if not inner:
        return ROOT
    if not _NO_NAMES.isdisjoint(inner.split("/")):
        raise InvalidPathError(
            "this is not a valid node path",
            do="Segments must not be empty, '.' or '..'.",
            path=path,
        )
    return "/" + inner


def creatable(path: str) -> str:
    """Return ``path`` as the path of a node to be created, which every Zarr reader finds.

    Raises:
        InvalidInputError: It is no node path, or Zarr does not allow a name in it.
    """
    path = canonical(path)
    if not any(text in path for text in SUSPICIOUS):
        return path
    for segment in path.split("/")[1:]:
        if why := problem(segment):
            raise InvalidPathError(
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


def problem(name: str) -> str:
    """Say why readers of Zarr would not find a node of this name, or ``""`` when they do."""
    if not name or name in (".", ".."):
        return "Zarr does not allow this name"
    if "/" in name:
        return "a slash separates names"
    if "\\" in name:
        return "Zarr reads a backslash as a slash and finds another node"
    if "\0" in name:
        return "C programs end a name at a NUL"
    if name == _RESERVED:
        return "Zarr omits it when it lists a group"
    return "" if is_unicode(name) else "it has surrogates, which UTF-8 cannot encode"


def is_unicode(text: str) -> bool:
    """Say whether UTF-8 can encode a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def node_name(raw: bytes) -> tuple[str, bool]:
    """Return the node name of a name that is not empty, and whether it differs.

    Percent-encoded are: what `problem` refuses, names of dots only, a leading ``__``, which Zarr
    reserves, and all of a name that is not UTF-8. A ``%`` is kept, so that two names may become
    one; `icevirt.scan.registry` refuses that.
    """
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        kept = quote_from_bytes(raw, safe=" ")
    else:
        is_dots = name == _RESERVED or not name.strip(".")
        kept = name.replace(".", "%2E") if is_dots else name.translate(_ESCAPES)
    if kept.startswith("__"):
        kept = "%5F" + kept[1:]
    return kept, kept.encode() != raw


def dimension_name(name: object) -> str | None:
    """Return the name of a dimension, escaped as that of its coordinate is; None for none."""
    return node_name(str(name).encode("utf-8", "surrogatepass"))[0] if name else None
