r"""Check that every Zarr reader can find a node by its name, and escape other names.

Zarr replaces a backslash in a path by a slash, so a reader that opens ``a\b`` gets the values of
``b`` in the group ``a``. It omits ``zarr.json`` when it lists a group. Programs written in C end a
name at a NUL. icevirt creates no node with such a name; scanners percent-encode them.
"""

from __future__ import annotations

from urllib.parse import quote_from_bytes

_RESERVED = "zarr.json"
SUSPICIOUS = ("\\", "\0", _RESERVED)
"""What a node path has somewhere when `problem` refuses a name in it."""
_ESCAPES = str.maketrans({"/": "%2F", "\\": "%5C", "\0": "%00"})


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
