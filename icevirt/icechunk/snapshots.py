"""icechunk's names of the history, and of the facts about a repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.escaping import escape_line
from icevirt.icechunk._shims.shown import Shown, as_html
from icevirt.repo.history import types
from icevirt.repo.maintenance import chunk_sizes
from icevirt.versioning import diff as engine
from icevirt.versioning.history.ancestry_graph import AncestryGraph

__all__ = ["AncestryGraph", "Diff", "ManifestFileInfo", "SnapshotInfo"]


class SnapshotInfo(Shown, types.SnapshotInfo):
    """A snapshot as the history shows it."""

    _home = "icechunk.snapshots"


class ManifestFileInfo(Shown, types.ManifestFileInfo):
    """A manifest file of a snapshot."""

    _home = "icechunk.snapshots"


class Diff:
    """What differs between two snapshots, by path; chunks as lists, as icechunk has them."""

    new_groups: set[str]
    new_arrays: set[str]
    deleted_groups: set[str]
    deleted_arrays: set[str]
    updated_groups: set[str]
    updated_arrays: set[str]
    updated_chunks: dict[str, list[list[int]]]
    moved_nodes: list[tuple[str, str]]

    def __init__(self, found: engine.Diff) -> None:
        self._found = found
        self.new_groups = set(found.new_groups)
        self.new_arrays = set(found.new_arrays)
        self.deleted_groups = set(found.deleted_groups)
        self.deleted_arrays = set(found.deleted_arrays)
        self.updated_groups = set(found.updated_groups)
        self.updated_arrays = set(found.updated_arrays)
        self.updated_chunks = {path: index.tolist() for path, index in found.updated_chunks.items()}
        self.moved_nodes = list(found.moved_nodes)

    def is_empty(self) -> bool:
        """Return whether nothing differs."""
        return self._found.is_empty()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Diff) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [
            *_lines("Groups created", sorted(self.new_groups)),
            *_lines("Arrays created", sorted(self.new_arrays)),
            *_lines("Group definitions updated", sorted(self.updated_groups)),
            *_lines("Array definitions updated", sorted(self.updated_arrays)),
            *_lines("Nodes moved/renamed", [f"{old} -> {new}" for old, new in self.moved_nodes]),
            *_chunk_lines(self.updated_chunks),
            *_lines("Groups deleted", sorted(self.deleted_groups)),
            *_lines("Arrays deleted", sorted(self.deleted_arrays)),
        ]
        return "".join(f"{escape_line(line)}\n" for line in parts)

    def _repr_html_(self) -> str:
        return as_html(f"<icechunk.snapshots.Diff>\n{self!r}")


def _lines(title: str, paths: list[str]) -> list[str]:
    return [f"{title}:", *(f"    {path}" for path in paths), ""] if paths else []


_MOST = 10  # chunks of an array that are shown


def _chunk_lines(chunks: dict[str, list[list[int]]]) -> list[str]:
    if not chunks:
        return []
    lines = ["Chunks updated:"]
    for path, indices in sorted(chunks.items()):
        lines += [f"    {path}:", *(f"        {index}" for index in indices[:_MOST])]
        more = len(indices) - _MOST
        lines += [f"        ... {more} more"] if more > 0 else []
    return lines


class RepoStatus(Shown, types.RepoStatus):
    """Whether the repository is writable, since when, and why."""

    _home = "icechunk.repository"

    def _show_fields(self) -> Mapping[str, Any]:
        names = {"online": "Online", "read_only": "ReadOnly"}
        return {
            **super()._show_fields(),
            "availability": names.get(self.availability.name, "Offline"),
        }


class ChunkStorageStats(Shown, chunk_sizes.ChunkStorageStats):
    """Bytes of chunks, by storage kind."""

    _home = "icechunk.stats"
