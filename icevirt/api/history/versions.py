"""Find the version that a person names, and say what the history knows of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from icevirt.api.dataset.records import METADATA, provenance_of
from icevirt.archive.reports.history import BuildRecord, LoggedCommit
from icevirt.errors import FormatError, InvalidInputError, SnapshotNotFoundError
from icevirt.ids import ObjectId12
from icevirt.model.arguments import checked
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.versioning import lookup
from icevirt.versioning.history.timestamps import moment

_ABBREVIATED = re.compile("[0-9A-HJKMNP-TV-Z]{4,19}")
_LOOKED_BACK = 1000  # commits, for the build before one
_SHOWN = 5  # names in a message


def resolved(info: RepoInfo, name: str) -> ObjectId12:
    """Return the snapshot that a person named.

    Args:
        info: The repository as it is.
        name: A branch, a tag, a snapshot id or its first letters (at least four), each perhaps
            with ``~2`` behind it for the second one before it.

    Raises:
        InvalidInputError: It names several, or there are not so many before it.
        SnapshotNotFoundError: It names none.
    """
    checked("a version", name, str, do="Pass a branch, a tag or a snapshot id.")
    if (found := _named(info, name)) is not None:
        return found
    base, sign, back = name.rpartition("~")
    if sign and re.fullmatch("[0-9]{0,6}", back) and (found := _named(info, base)) is not None:
        return _before(info, found, int(back or 1), name)
    raise SnapshotNotFoundError(
        f"no branch, tag or snapshot is called {name!r}",
        do="icevirt.log(repo) (icevirt log REPO) lists snapshots; branches and tags are listed by"
        " Repository.list_branches() (icevirt branch list REPO) and Repository.list_tags()"
        " (icevirt tag list REPO).",
        branches=sorted(info.branches)[:_SHOWN],
        tags=sorted(info.tags)[:_SHOWN],
    )


def _named(info: RepoInfo, name: str) -> ObjectId12 | None:
    refs = {kind: refs[name] for kind, refs in _refs(info) if name in refs}
    if len({*refs.values()}) > 1:
        raise InvalidInputError(
            f"{name!r} is both a branch and a tag, of different snapshots",
            do="Pass the snapshot id instead.",
            **{kind: str(key) for kind, key in refs.items()},
        )
    if refs:
        return next(iter(refs.values()))
    try:
        key = ObjectId12.parse(name)
    except (TypeError, ValueError):
        return _abbreviated(info, name)
    return key if key in info.snapshots else None


def _refs(info: RepoInfo) -> Iterator[tuple[str, Mapping[str, ObjectId12]]]:
    yield "branch", info.branches
    yield "tag", info.tags


def _abbreviated(info: RepoInfo, name: str) -> ObjectId12 | None:
    """Return the one snapshot whose id begins so; the V1 format would have to list all."""
    if info.spec_version < 2 or not _ABBREVIATED.fullmatch(name.upper()):
        return None
    found = [key for key in info.snapshots if str(key).startswith(name.upper())]
    if len(found) > 1:
        raise InvalidInputError(
            f"{len(found)} snapshots begin with {name!r}",
            do="Write more of the id.",
            snapshots=sorted(map(str, found))[:_SHOWN],
        )
    return found[0] if found else None


def _before(info: RepoInfo, tip: ObjectId12, back: int, name: str) -> ObjectId12:
    found = next(islice(lookup.ancestry(info, tip), back, None), None)
    if found is None:
        raise InvalidInputError(
            f"{name!r} is before the first snapshot",
            do="icevirt.log(repo) (icevirt log REPO) shows how many there are.",
            snapshot=str(tip),
        )
    return found.id


class Commits:
    """Describes snapshots: with the branches and tags at them, and what their builds recorded."""

    def __init__(self, info: RepoInfo) -> None:
        self._info = info
        self._branches = _by_snapshot(info.branches)
        self._tags = _by_snapshot(info.tags)

    def of(self, summary: SnapshotSummary) -> LoggedCommit:
        """Return what the history knows of a snapshot."""
        return LoggedCommit(
            snapshot_id=str(summary.id),
            parent_id=None if summary.parent_id is None else str(summary.parent_id),
            written_at=moment(summary.flushed_at),
            message=summary.message,
            branches=self._branches.get(summary.id, ()),
            tags=self._tags.get(summary.id, ()),
            build=self._build(summary),
            parents_expired=bool(summary.pruned_ancestor_tx_logs),
            metadata=summary.metadata,
        )

    def at(self, key: ObjectId12) -> LoggedCommit:
        """Return what the history knows of a snapshot. Raises ``SnapshotNotFoundError``."""
        return self.of(lookup.known(self._info, key))

    def _build(self, summary: SnapshotSummary) -> BuildRecord | None:
        recorded = record_of_build(summary)
        if recorded is None or METADATA not in summary.metadata:  # files only moved
            return None
        group = str(recorded.get("group", "/"))
        before = self._build_before(summary, group)
        return BuildRecord(
            build_id=str(recorded["build_id"]),
            group=group,
            files=recorded.get("files"),
            files_before=None if before is None else before.get("files"),
            arrays=recorded.get("arrays"),
            references=recorded.get("references"),
            left_out=_length(recorded.get("left_out")),
            bad_files=_length(recorded.get("bad_files")),
            icevirt=str(recorded.get("icevirt", "")),
        )

    def _build_before(self, summary: SnapshotSummary, group: str) -> Mapping[str, Any] | None:
        if summary.parent_id is None:
            return None
        ancestors = lookup.ancestry(self._info, summary.parent_id)
        records = (record_of_build(each, group) for each in islice(ancestors, _LOOKED_BACK))
        return next((record for record in records if record is not None), None)


def record_of_build(summary: SnapshotSummary, group: str | None = None) -> Mapping[str, Any] | None:
    """Return what a snapshot says of its build; None also where it makes no sense."""
    try:
        return provenance_of(summary, group)
    except FormatError:
        return None


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 0


def _by_snapshot(refs: Mapping[str, ObjectId12]) -> dict[ObjectId12, tuple[str, ...]]:
    found: dict[ObjectId12, tuple[str, ...]] = {}
    for name in sorted(refs):
        found[refs[name]] = (*found.get(refs[name], ()), name)
    return found
