"""What a repository holds, as a tree."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from icevirt.archive.report import ArraySummary, GroupSummary, RepositorySummary
from icevirt.display.arrays import facts
from icevirt.display.text import box, count, references, shortened, size, words

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
        "authorize": ", ".join(summary.containers),
    }
    return {name: value for name, value in rows.items() if value}


def _tree(summary: RepositorySummary) -> Tree:
    root = Tree(words("/", "bold blue"))
    branches = {"/": root}
    for group in sorted(summary.groups, key=lambda group: group.path):
        branch = root
        if group.path != "/":
            branch = _above(branches, group.path).add(words(_name(group.path), "bold blue"))
            branches[group.path] = branch
        for line in _attributes(group):
            branch.add(line)
    for array in sorted(summary.arrays, key=lambda array: array.path):
        _above(branches, array.path).add(_array(array))
    return root


def _above(branches: dict[str, Tree], path: str) -> Tree:
    """Return the branch of the nearest group above a node."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in branches:
            return branches[path]
    return branches["/"]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _attributes(group: GroupSummary) -> list[Text]:
    items = list(group.attributes.items())
    lines = [words(f"{name} = {shortened(value)}", "dim") for name, value in items[:_ATTRIBUTES]]
    if rest := len(items) - len(lines):
        lines.append(Text(f"and {count(rest, 'attribute')} more", "dim"))
    return lines


def _array(array: ArraySummary) -> Text:
    dims = ", ".join(
        f"{name or '?'}: {length}"
        for name, length in zip(array.dimension_names, array.shape, strict=True)
    )
    counts = array.references
    return Text.assemble(
        words(_name(array.path), "bold"),
        words(f" {array.data_type} ({dims})"),
        (f"  chunks of {box(array.chunk_shape)}", "dim"),
        f"  {references(counts)}",
        (f" ({size(counts.bytes_referenced + counts.bytes_stored)})", "dim"),
    )
