"""Keep what an append needs to know of a dataset that it does not look at.

The state is one immutable object below ``icevirt/tails/``, named by a digest of its bytes, which
the metadata of a snapshot names. It holds what the catalog says of the files at both ends of the
dataset, what the last build decided, and where the list of files goes on. It is no part of the
Icechunk format, and if it is lost, the next append plans from all files and writes another.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.api.dataset.scanning import Scan
from icevirt.archive.facts import ArrayColumns, FileColumns
from icevirt.archive.plan import BuildPlan
from icevirt.archive.sources import SourceFile
from icevirt.catalog.part_copies import copy_files
from icevirt.catalog.parts import mark
from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.planning.filled_cells import files_at_corners
from icevirt.planning.lengthened import (
    Decided,
    decision_of,
    files_at_ends,
    files_of_schemas,
    groups_decided,
)
from icevirt.planning.records import BUILD_ID
from icevirt.repo.kept_objects import cache_of
from icevirt.repo.layout import WORK
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Storage

FOLDER = "tails"
MOST_ENDS = 256
"""Files at the ends; a dataset with more of them is always planned from all files."""

_VERSION = 1
_STATE = "state.json"
_MOST = 1 << 28  # bytes of all that a state holds
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold: equal states are equal bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TailState:
    """What an append knows of a dataset beside the snapshot."""

    identity: str  # of the scan
    decided: Mapping[str, Decided]  # by path
    groups: Mapping[str, str]  # digests by path
    ends: tuple[SourceFile, ...]  # in the order of the dataset
    files: int
    pieces: tuple[tuple[str, int], ...]  # of the list of files: name, and the row it begins with
    born: str  # the snapshot in which a build made the arrays; "": the one that names this
    hot: str  # the manifest that the next references join; "": none
    described: Mapping[str, bytes]  # objects of a catalog of the ends, by path

    def catalog(self) -> MemoryStorage:
        """Return a catalog that describes the files at the ends."""
        storage = MemoryStorage()
        mark(storage)
        for path, raw in self.described.items():
            storage.put(path, raw)
        return storage


def describe_ends(
    source: Storage, files: FileColumns, identity: str
) -> tuple[str, tuple[SourceFile, ...], dict[str, bytes]]:
    """Return what a catalog says of files at the ends: identity, files, and objects by path."""
    into = MemoryStorage()
    copy_files(source, files, into, identity)
    ends = tuple(
        SourceFile(
            url=files.url[at],
            size=int(files.size[at]),
            etag=files.etag[at],
            last_modified=int(files.last_modified[at]),
        )
        for at in range(len(files))
    )
    return identity, ends, {info.path: into.get(info.path) for info in into.list()}


def write_tail(storage: Storage, state: TailState) -> str:
    """Write a state; return its name."""
    raw = pack(state)
    name = name_of(raw)
    storage.put(path_of_tail(name), raw)
    return name


def keep_tail(storage: Storage, name: str, state: TailState, size: int) -> None:
    """Keep a state that was just written for the next append of this process."""
    cache_of(storage).put(path_of_tail(name), state, 4 * size)


def path_of_tail(name: str) -> str:
    """Return where a state lies in the repository."""
    return f"{WORK[0]}/{FOLDER}/{name}"


def name_of(raw: bytes) -> str:
    """Return the name of a state."""
    return hashlib.blake2b(raw, digest_size=10).hexdigest()


def tail_of(storage: Storage, record: Mapping[str, Any]) -> TailState | None:
    """Return the state that the record of a build names; None where there is none to be used."""
    name = str(record.get("tail", ""))
    state: TailState | None = cache_of(storage).find(path_of_tail(name))
    try:
        state = state or read_tail(storage, name)
    except FormatError:
        return None  # a plan of all files does not need it
    is_ours = state is not None and state.pieces[-1][0] == record.get("listing")
    return state if is_ours else None


def read_tail(storage: Storage, name: str) -> TailState | None:
    """Read a state; None where there is none.

    Raises:
        FormatError: It is not what a build wrote.
    """
    path = path_of_tail(name)
    if not BUILD_ID.fullmatch(name):
        return None
    try:
        raw = storage.get(path)
    except ObjectNotFoundError:
        return None
    if name_of(raw) != name:
        raise _damage_error(path, "its bytes do not agree with its name")
    try:
        return _unpack(raw)
    except (ValueError, TypeError, KeyError, zipfile.BadZipFile, AttributeError) as error:
        raise _damage_error(path, str(error)) from error


def _damage_error(path: str, cause: str) -> FormatError:
    return FormatError(
        "what a dataset's last append recorded is damaged",
        do=f"Delete {path} in the repository; the next append then plans from all files.",
        path=path,
        cause=cause,
    )


def pack(state: TailState) -> bytes:
    """Return a state as bytes."""
    document = {
        "version": _VERSION,
        "identity": state.identity,
        "decided": {path: each.dumps() for path, each in state.decided.items()},
        "groups": dict(state.groups),
        "ends": [[e.url, e.size, e.etag, e.last_modified] for e in state.ends],
        "files": state.files,
        "pieces": [list(piece) for piece in state.pieces],
        "born": state.born,
        "hot": state.hot,
    }
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        text = json.dumps(document, separators=(",", ":")).encode()
        file.writestr(zipfile.ZipInfo(_STATE, _DATE), text, zipfile.ZIP_DEFLATED)
        for path in sorted(state.described):
            file.writestr(zipfile.ZipInfo(path, _DATE), state.described[path], zipfile.ZIP_STORED)
    return sink.getvalue()


def _unpack(raw: bytes) -> TailState:
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        if sum(info.file_size for info in file.infolist()) > _MOST:
            raise ValueError("it is too large")
        held = json.loads(file.read(_STATE))
        if held["version"] != _VERSION:
            raise ValueError(f"version {held['version']}")
        described = {name: file.read(name) for name in file.namelist() if name != _STATE}
    return TailState(
        identity=str(held["identity"]),
        decided={path: Decided.loads(each) for path, each in held["decided"].items()},
        groups={str(path): str(each) for path, each in held["groups"].items()},
        ends=tuple(
            SourceFile(url=str(url), size=int(size), etag=str(etag), last_modified=int(time))
            for url, size, etag, time in held["ends"]
        ),
        files=int(held["files"]),
        pieces=_pieces(held["pieces"]),
        born=str(held["born"]),
        hot=str(held["hot"]),
        described=described,
    )


def _pieces(held: Any) -> tuple[tuple[str, int], ...]:
    found = tuple((str(name), int(begin)) for name, begin in held)
    if not found or not all(BUILD_ID.fullmatch(name) for name, _ in found):
        raise ValueError("it names no list of files")
    return found


def ends_of(plan: BuildPlan, files: FileColumns, arrays: ArrayColumns) -> NDArray[np.int64] | None:
    """Return the files that stand for all in the plan of an append; None where none can.

    Args:
        plan: Of the build.
        files: Of its facts.
        arrays: The same.

    Returns:
        Rows of the plan's files, ascending.
    """
    is_cube = len(plan.concat_dim) > 1
    ends = files_at_corners(plan) if is_cube else files_at_ends(plan)
    if ends is None:
        return None
    others = [_row_of(plan.files, files, at) for at in files_of_schemas(arrays).tolist()]
    found = np.unique(np.concatenate([ends, *others]))
    return found if len(found) <= MOST_ENDS else None


def _row_of(planned: FileColumns, files: FileColumns, at: int) -> NDArray[np.int64]:
    """Return the row that a file of the facts has in the plan, if it has one."""
    name = files.parts[int(files.part[at])]
    if name not in planned.parts:
        return np.zeros(0, np.int64)
    same = planned.part == planned.parts.index(name)
    return np.flatnonzero(same & (planned.row == files.row[at]))


def leave_tail(
    storage: Storage,
    scan: Scan,
    plan: BuildPlan,
    ends: NDArray[np.int64] | None,
    pieces: tuple[tuple[str, int], ...],
) -> str:
    """Write the state from which an append goes on; return its name, "" where none can."""
    if ends is None or plan.origin is not None:
        return ""
    identity, files, objects = describe_ends(scan.catalog, plan.files.take(ends), scan.identity)
    state = TailState(
        identity=identity,
        decided={array.path: decision_of(array) for array in plan.arrays},
        groups=groups_decided(plan.groups),
        ends=files,
        files=len(scan.files),
        pieces=pieces,
        born="",
        hot="",
        described=objects,
    )
    return write_tail(storage, state)
