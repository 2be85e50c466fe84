"""Name the objects below a repository's root, by kind. Spec: "File Layout"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from icevirt.errors import FormatError, InvalidSnapshotIdError, SpecVersionError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.json import JSON

REPO = "repo"
SNAPSHOTS, MANIFESTS, TRANSACTIONS, CHUNKS = "snapshots", "manifests", "transactions", "chunks"
FOLDERS = (SNAPSHOTS, MANIFESTS, TRANSACTIONS, CHUNKS, "overwritten")
WORK = ("icevirt",)
"""Where builds keep what they need until they commit, catalogs above all."""
BUILDS = "icevirt/builds"
"""Where each build that is not committed yet has a folder, named by its id."""

CONTENT_NAMES = "icevirt/content-names"
"""Where lists of chunks that are named by their content lie."""


def snapshot(key: ObjectId12) -> str:
    """Return the path of a snapshot."""
    return f"{SNAPSHOTS}/{key}"


def manifest(key: ObjectId12) -> str:
    """Return the path of a manifest."""
    return f"{MANIFESTS}/{key}"


def transaction_log(key: ObjectId12) -> str:
    """Return the path of the transaction log of a snapshot."""
    return f"{TRANSACTIONS}/{key}"


def chunk(key: ObjectId12) -> str:
    """Return the path of a native chunk."""
    return f"{CHUNKS}/{key}"


def content_names(key: ObjectId12) -> str:
    """Return the path of a list of chunks that are named by their content."""
    return f"{CONTENT_NAMES}/{key}"


def backup(name: str) -> str:
    """Return the path of a backup of the repo info."""
    return f"overwritten/{name}"


def refuse_other_layouts(config: Mapping[str, JSON] | None, url: str) -> None:
    """Check that the configuration of a repository names no layout of the chunks' directory.

    One is in review upstream. Who takes its chunks for missing reads fill values, and a commit
    would write others where no other client looks for them.

    Raises:
        SpecVersionError: It names one that is not the flat directory of the specification.
    """
    for name, value in _find_layouts("", config or {}):
        if not _FLAT.issuperset(_words_of(value)):
            raise SpecVersionError(
                "the chunks of this repository lie in directories that this version of icevirt"
                " does not know; nothing is read or written",
                do="Upgrade icevirt, or use the client that made the repository.",
                setting=name,
                layout=value,
                repo=url,
            )


def _find_layouts(above: str, config: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    for key, value in config.items():
        name = f"{above}{key}"
        if _LAYOUT.search(key):
            yield name, value
        elif isinstance(value, Mapping) and key not in _OF_NAMES:
            yield from _find_layouts(f"{name}.", value)


def _words_of(value: JSON) -> set[str]:
    """Return what a setting says, in small letters: it may be a word or a mapping of words."""
    if isinstance(value, Mapping):
        return {word for pair in value.items() for each in pair for word in _words_of(each)}
    return set() if value is None else {str(value).lower()}


_LAYOUT = re.compile(r"chunks?_.*(layout|sharding)|(layout|sharding)_.*chunk", re.IGNORECASE)
_FLAT = frozenset({"flat", "default", "kind", "type", "name"})
_OF_NAMES = frozenset({"virtual_chunk_containers"})  # whose keys are names that users chose

INITIAL_OBJECTS = frozenset({snapshot(INITIAL_SNAPSHOT_ID), transaction_log(INITIAL_SNAPSHOT_ID)})
"""What a creation writes before it writes `repo`."""


def snapshot_id(text: str) -> ObjectId12:
    """Read a snapshot id that a person typed. Raises ``SnapshotNotFoundError``."""
    try:
        return ObjectId12.parse(text)
    except (TypeError, ValueError) as error:
        raise InvalidSnapshotIdError(
            "not a snapshot id",
            do="An id has 20 letters and digits; list them with `repo.ancestry(branch=...)`.",
            snapshot=text,
        ) from error


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Name the file in errors about what is in it."""
    try:
        yield
    except FormatError as error:
        error.facts = {"path": path, **error.facts}
        raise
