"""Read the reference files of old repositories: names out of paths, snapshots out of JSON.

A branch is a directory with a file for each commit, named so that the newest comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.legacy.encoding import Encoding
from icevirt.model.json import loads
from icevirt.wire.flatbuffer.reader import Damage

SHORT_FOLDER = "r"

_NAMED = re.compile(r"(?:refs|r)/(?P<kind>branch|tag)[.:](?P<name>.+)/(?P<file>[^/]+)")
_BARE = re.compile(r"r/(?P<name>[^/]+)/(?P<file>[^/]+)")  # as the first specification has it
_BARE_TAG = re.compile(r"r/(?P<name>[^/]+)\.json")
_SEQUENCE = re.compile(r"([0-9A-HJKMNP-TV-Z]{8}|[0-9A-HJKMNP-TV-Z]{13})\.json")
_TAG, _DELETED = "ref.json", "ref.json.deleted"


@dataclass(frozen=True, slots=True)
class RefPaths:
    """Where the reference files of a repository lie, by name."""

    branches: dict[str, tuple[str, ...]]  # the newest first
    tags: dict[str, str]  # deleted ones too
    deleted: frozenset[str]


def parsed(listed: Iterable[str], *, escaped: bool) -> RefPaths:
    """Sort the paths below ``refs/`` or ``r/``; those that are no reference files are left out.

    Args:
        listed: Paths below the root.
        escaped: Whether names are percent-encoded, as on a local disk.

    Raises:
        FormatError: A name is given in two ways.
    """
    branches: dict[str, list[str]] = {}
    tags: dict[str, str] = {}
    deleted = set()
    for path in sorted(listed):
        kind, name, file = _parts(path)
        name = unquote(name) if escaped else name
        if kind == "branch" and _SEQUENCE.fullmatch(file):
            branches.setdefault(name, []).append(path)
        elif kind == "tag" and file == _TAG:
            if name in tags:
                raise _ambiguous("tag", name, (tags[name], path))
            tags[name] = path
        elif kind == "tag" and file == _DELETED:
            deleted.add(name)
    for name, found in branches.items():
        if len({(path.rpartition("/")[0], len(path)) for path in found}) > 1:
            raise _ambiguous("branch", name, found)
    return RefPaths(
        {name: tuple(found) for name, found in branches.items()}, tags, frozenset(deleted)
    )


def _parts(path: str) -> tuple[str, str, str]:
    """Return the kind of a reference, its name, and the name of its file."""
    if found := _NAMED.fullmatch(path):
        return found["kind"], found["name"], found["file"]
    if found := _BARE_TAG.fullmatch(path):
        return "tag", found["name"], _TAG
    if found := _BARE.fullmatch(path):
        return "branch", found["name"], found["file"]
    return "", "", ""


def _ambiguous(kind: str, name: str, found: Iterable[str]) -> FormatError:
    return FormatError(
        f"a {kind} is named in two ways, which two versions of the format would read differently",
        do="Remove the files that are not meant.",
        **{kind: name},
        found=list(found)[:4],
    )


def target(raw: bytes, encoding: Encoding, path: str) -> ObjectId12:
    """Return the snapshot that a reference file names. Raises ``FormatError``."""
    try:
        return ObjectId12(encoding.ref_id(loads(raw)["snapshot"]))
    except (Damage, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "not a reference file",
            do="Restore it from a copy of the repository.",
            path=path,
            found=raw[:80],
        ) from error
