"""Find which groups of a repository are eras of one archive, from their parent group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from icevirt.archive.eras import MARK
from icevirt.errors import CombineError, FormatError
from icevirt.model import paths
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import GroupNode, Snapshot

DO = "Open the eras one by one with group=, without eras=."
"""What helps where eras cannot be shown as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EraGroups:
    """What the group that holds eras says of them."""

    path: str  # of that group
    dimension: str | None  # None: they lie beside one another along several
    names: tuple[str, ...]  # of the groups, in the order of the eras
    by_coordinate: bool  # steps are in the order of its values
    contiguous: bool  # each era is one run of steps

    def below(self, inner: str) -> list[str]:
        """Return the path of a group of the files in each era."""
        return [paths.join(paths.join(self.path, f"/{name}"), inner) for name in self.names]


def eras_around(snapshot: Snapshot, group: str) -> tuple[EraGroups, str] | None:
    """Return the eras that a group holds or lies beside, and the path of the group in each era.

    Raises:
        FormatError: What the group says of its eras cannot be understood.
    """
    wanted = at = paths.canonical(group)
    while True:
        node = snapshot.find(at)
        if isinstance(node, GroupNode) and (found := _described(node)) is not None:
            inner = wanted.removeprefix(at).strip("/")
            # whoever names an era means that one
            return None if inner.split("/")[0] in found.names else (found, f"/{inner}")
        if at == paths.ROOT:
            return None
        at = paths.parent(at)


def groups_with_eras(snapshot: Snapshot, top: str) -> Iterator[str]:
    """Yield the groups at and below ``top``, those of eras once and without the eras' names."""
    nodes = [node for node in snapshot.below(top) if isinstance(node, GroupNode)]
    held = [found for node in nodes if (found := _described(node)) is not None]
    if (around := eras_around(snapshot, top)) is not None:
        held.append(around[0])
    eras = {path: each for each in held for path in each.below(paths.ROOT)}
    seen = dict.fromkeys([top])
    for node in nodes:
        era = next((path for path in eras if _is_below(node.path, path)), None)
        path = node.path
        if era is not None:  # as if the era were not between the group and what it holds
            path = paths.join(eras[era].path, "/" + node.path.removeprefix(era).strip("/"))
        seen[path] = None
    yield from seen


def _is_below(path: str, group: str) -> bool:
    return path == group or path.startswith(group.rstrip("/") + "/")


def refuse_lacking(snapshot: Snapshot, eras: EraGroups, inner: str) -> None:
    """Refuse a group that only some eras have; nobody knows how many steps the others lack."""
    lacking = [
        name
        for name, path in zip(eras.names, eras.below(inner), strict=True)
        if snapshot.find(path) is None
    ]
    if lacking and len(lacking) < len(eras.names):
        raise CombineError(
            f"group {inner!r} is not in all eras",
            do=DO,
            eras=list(eras.names),
            lacking=lacking,
        )


def _described(node: GroupNode) -> EraGroups | None:
    told = (document_of(node).get("attributes") or {}).get(MARK)
    match told:
        case None:
            return None
        case {
            "version": 1,
            "dimension": str() | None as dimension,
            "groups": [_, *_] as names,
            "order": "coordinate" | "given" as order,
            "contiguous": bool() as contiguous,
        }:
            return EraGroups(
                path=node.path,
                dimension=dimension,
                names=tuple(map(str, names)),
                by_coordinate=order == "coordinate",
                contiguous=contiguous,
            )
        case _:
            raise FormatError(
                "this group's description of its eras is not valid",
                do=f"A newer icevirt may have written it: upgrade icevirt. {DO}",
                group=node.path,
                found=told,
            )
