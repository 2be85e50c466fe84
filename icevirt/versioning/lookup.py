"""Look up branches, tags, snapshots and their ancestors in the repo info."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from icevirt.errors import FormatError, RefNotFoundError, SnapshotNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.remedy_notation import write_code, write_remedy

_NAMED = 10  # branches or tags in an error


def branch_tip(
    info: RepoInfo, branch: str, refusal: type[RefNotFoundError] = RefNotFoundError
) -> ObjectId12:
    """Return the snapshot a branch points at. Raises ``RefNotFoundError``, or ``refusal``."""
    return _ref(info.branches, branch, "branch", refusal)


def tag_target(info: RepoInfo, tag: str) -> ObjectId12:
    """Return the snapshot a tag points at. Raises ``RefNotFoundError``."""
    return _ref(info.tags, tag, "tag")


def find_snapshot(info: RepoInfo, snapshot: ObjectId12) -> SnapshotSummary:
    """Return the facts about a snapshot. Raises ``SnapshotNotFoundError``."""
    if (found := info.snapshots.get(snapshot)) is None:
        raise SnapshotNotFoundError(
            "no such snapshot",
            do="List them with `repo.ancestry(branch=...)`; expired ones are gone.",
            snapshot=str(snapshot),
        )
    return found


def summary_of(snapshot: Snapshot, parent: ObjectId12 | None) -> SnapshotSummary:
    """Return what the repo info repeats of a snapshot."""
    return SnapshotSummary(
        id=snapshot.id,
        parent_id=parent,
        flushed_at=snapshot.flushed_at,
        message=snapshot.message,
        metadata=snapshot.metadata,
    )


def users_of(
    nodes: Iterable[ArrayNode], manifests: Iterable[bytes]
) -> dict[ObjectId12, dict[ObjectId8, ArrayNode]]:
    """Return the arrays that refer to some manifests, by manifest and node id.

    Arrays that share a manifest leave it one by one, when their references are written elsewhere.
    What the manifest held of them stays in it, and means nothing any more.
    """
    found: dict[ObjectId12, dict[ObjectId8, ArrayNode]] = {ObjectId12(key): {} for key in manifests}
    for node in nodes:
        for ref in node.manifests:
            if ref.object_id in found:
                found[ref.object_id][node.id] = node
    return found


def ancestry(info: RepoInfo, tip: ObjectId12) -> Iterator[SnapshotSummary]:
    """Yield a snapshot and its ancestors, newest first.

    Raises:
        FormatError: The parents form a cycle.
        SnapshotNotFoundError: One is missing.
    """
    seen: set[ObjectId12] = set()
    at: ObjectId12 | None = tip
    while at is not None:
        if at in seen:
            raise FormatError(
                "the history contains a cycle",
                do="Restore `repo` from one of its backups in `overwritten/`.",
                snapshot=str(at),
            )
        seen.add(at)
        found = find_snapshot(info, at)
        yield found
        at = found.parent_id


def reachable(
    tips: Iterable[ObjectId12 | None], fetch: Callable[[ObjectId12], SnapshotSummary | None]
) -> Iterator[SnapshotSummary]:
    """Yield every snapshot that is there and that tips lead to, each once; cycles end."""
    seen: set[ObjectId12] = set()
    for tip in tips:
        at = tip
        while at is not None and at not in seen:
            seen.add(at)
            if (found := fetch(at)) is None:
                break
            yield found
            at = found.parent_id


def _ref(
    refs: Mapping[str, ObjectId12],
    name: str,
    kind: str,
    refusal: type[RefNotFoundError] = RefNotFoundError,
) -> ObjectId12:
    if (target := refs.get(name)) is None:
        from shlex import quote

        more = f" and {len(refs) - _NAMED:,} more" if len(refs) > _NAMED else ""
        there = ", ".join(sorted(refs)[:_NAMED]) + more
        raise refusal(
            f"no such {kind}",
            do=write_remedy(
                f"The repository has {there or f'no {kind}'}. To create it: ",
                write_code(
                    f"repo.create_{kind}({name!r}, snapshot_id)",
                    f"icevirt {kind} create REPO {quote(str(name))}",
                ),
                ".",
            ),
            **{kind: name},
        )
    return target
