"""Format the contents of a repository as a tree."""

from __future__ import annotations

from collections.abc import Container

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from icevirt.archive.reports.build import ArraySummary, GroupSummary, RepositorySummary
from icevirt.display.arrays import facts
from icevirt.display.text import box, count, entry, references, shortened, size, words

_ATTRIBUTES = 8  # of a group are shown


def repository_summary(summary: RepositorySummary) -> RenderableType:
    """Return the summary for a terminal."""
    return Group(words(summary.repo, "bold"), facts(_facts(summary)), Text(), _tree(summary))


def _facts(summary: RepositorySummary) -> dict[str, str]:
    rows = {
        "snapshot": f"{summary.snapshot_id}, {summary.written_at}: {summary.message}",
        "history": f"{count(summary.snapshots, 'snapshot')}, format {summary.spec_version}",
        "branches": ", ".join(summary.branches),
        "tags": ", ".join(summary.tags),
        "authorize": ", ".join(map(entry, summary.containers)),
    }
    return {name: value for name, value in rows.items() if value}


def _tree(summary: RepositorySummary) -> Tree:
    groups = {group.path: group for group in summary.groups}
    arrays: dict[str, list[ArraySummary]] = {}
    for array in sorted(summary.arrays, key=lambda array: array.path):
        arrays.setdefault(_nearest(array.path, groups), []).append(array)
    root = Tree(words("/", "bold blue"))
    branches = {"/": root}
    for path in sorted({*groups, "/"}):  # a group comes before those below it
        if path != "/":
            above = _nearest(path, branches)
            branches[path] = branches[above].add(words(_below(path, above), "bold blue"))
        for line in _attributes(groups[path]) if path in groups else ():
            branches[path].add(line)
        for array in arrays.get(path, ()):
            branches[path].add(_array(array, _below(array.path, path)))
    return root


def _nearest(path: str, known: Container[str]) -> str:
    """Return the nearest known group above a node."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in known:
            return path
    return "/"


def _below(path: str, group: str) -> str:
    """Return a path as seen from a group above it."""
    return path.removeprefix(group).lstrip("/")


def _attributes(group: GroupSummary) -> list[Text]:
    items = list(group.attributes.items())
    lines = [words(f"{name} = {shortened(value)}", "dim") for name, value in items[:_ATTRIBUTES]]
    if rest := len(items) - len(lines):
        lines.append(Text(f"and {count(rest, 'attribute')} more", "dim"))
    return lines


def _array(array: ArraySummary, name: str) -> Text:
    dims = ", ".join(
        f"{name or '?'}: {length}"
        for name, length in zip(array.dimension_names, array.shape, strict=True)
    )
    counts = array.references
    return Text.assemble(
        words(name, "bold"),
        words(f" {array.data_type} ({dims})"),
        (f"  chunks of {box(array.chunk_shape)}", "dim"),
        f"  {references(counts)}",
        (f" ({size(counts.bytes_referenced + counts.bytes_stored)})", "dim"),
    )
