"""Name the objects below a repository's root, by kind. Spec: "File Layout"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from icevirt.errors import FormatError, InvalidSnapshotIdError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12

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
