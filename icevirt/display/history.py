"""Format the history of a repository, and what moved in it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.history import (
    BranchMove,
    ChunkOrigin,
    CommitLog,
    DimensionGrowth,
    FilesDifference,
    LoggedCommit,
    NameChange,
    NamedVersions,
    NodeChange,
    OperationLog,
    ValueSource,
    VersionDiff,
    describe_details,
    place,
    shapes,
    when,
)
from icevirt.display.blocks import (
    Facts,
    count,
    head_report,
    list_lines,
    notes,
    paste_line,
    shorten,
    table_of,
    words,
)
from icevirt.display.fixes import quote_word

_FILES = 20  # of a kind are shown
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "rewritten": "~", "moved": ">"}


def commit_log(log: CommitLog) -> RenderableType:
    """Return a page of the history for a terminal."""
    lines = [line for commit in log.commits for line in _commit(commit)]
    if log.next is not None:
        older = f"icevirt log {place(log.repo)} --snapshot-id {log.next}"
        lines += [Text(), _to_paste("older: ", older)]
    return Group(*lines)


def _commit(commit: LoggedCommit) -> Iterator[Text]:
    yield Text.assemble(
        (commit.snapshot_id, "yellow"),
        (f"  {when(commit.written_at)}", "dim"),
        words(f"  {commit.title}"),
        words(f" {commit.names}" if commit.names else "", "bold green"),
    )
    if commit.build is not None and commit.build.text:
        yield words(f"    {commit.build.text}", "dim")


def _to_paste(what: str, command: str) -> Text:
    return Text.assemble((what, "dim"), paste_line(command), no_wrap=True, overflow="ignore")


# -- differences -------------------------------------------------------------------------------


def version_diff(diff: VersionDiff) -> RenderableType:
    """Return what differs for a terminal."""
    commits = f"{diff.commits_after:,}"
    if diff.commits_before:
        commits = f"{diff.commits_before:,} only in the first, {commits} only in the second"
    archive = [*map(_steps, diff.steps), *(line for each in diff.files for line in _files(each))]
    return Group(
        Facts({"from": _one(diff.before), "to": _one(diff.after), "commits": commits}),
        *([Text(), words("Nothing differs", "bold")] if diff.is_empty() else []),
        *list_lines("Archive", archive),
        *list_lines("Groups and arrays", _nodes(diff)),
        *notes(diff.notes),
    )


def _one(commit: LoggedCommit) -> str:
    return f"{commit.snapshot_id}  {when(commit.written_at)}  {commit.title} {commit.names}".strip()


def _steps(growth: DimensionGrowth) -> str:
    where = "" if growth.group == "/" else f" in {growth.group}"
    more = growth.after - growth.before
    return f"{growth.dimension}: {growth.before:,} to {growth.after:,} steps ({more:+,}){where}"


def _files(files: FilesDifference) -> Iterator[str]:
    where = "" if files.group == "/" else f" in {files.group}"
    before = "none" if files.before is None else f"{files.before:,}"
    after = "none" if files.after is None else f"{files.after:,}"
    if not files.listed:
        yield f"files: {before} to {after}{where}"
        return
    kinds = {"+": files.added, "-": files.gone, "~": files.changed}
    said = f"{len(files.added):,} added, {len(files.gone):,} gone, {len(files.changed):,} changed"
    yield f"files: {before} to {after}{where}: {said}"
    for sign, urls in kinds.items():
        yield from (f"  {sign} {url}" for url in urls[:_FILES])
        if len(urls) > _FILES:
            yield f"  {sign} and {len(urls) - _FILES:,} more"


def _nodes(diff: VersionDiff) -> Iterator[str]:
    for node in diff.nodes:
        if not node.holds_the_same:
            yield from _node(node)
    if diff.same:
        yield f"written anew, and the same: {', '.join(diff.same)}"


def _chunks(node: NodeChange) -> str:
    """Return ``24 chunks of 1,440 changed: time 72 to 95``."""
    written, changed = node.chunks_written, node.chunks_changed
    if changed is None:
        anew = "written anew" if node.change == "rewritten" else ""
        said = (anew, "" if written is None else f"{count(written, 'chunk')} written")
        return "; ".join(filter(None, said))
    if not changed:
        return "written anew, of the same chunks"
    axes = zip(node.dimension_names, node.differs_in, node.shape or (), strict=False)
    parts = ", ".join(
        f"{name or '?'} {low:,} to {high - 1:,}" if high - low > 1 else f"{name or '?'} {low:,}"
        for name, (low, high), length in axes
        if high - low < length
    )
    of = "" if written is None else f" of {written:,}"
    return f"{count(changed, 'chunk')}{of} changed{f': {parts}' if parts else ''}"


def _node(node: NodeChange) -> Iterator[str]:
    parts = (
        shapes(node) if node.kind == "array" else "group",
        "" if node.moved_from is None else f"moved from {node.moved_from}",
        _chunks(node),
    )
    yield f"{_SIGNS[node.change]} {node.path}  {'; '.join(filter(None, parts))}"
    for change in node.metadata:
        before, after = shorten(change.before), shorten(change.after)
        if change.before is None:
            yield f"    + {change.name} = {after}"
        elif change.after is None:
            yield f"    - {change.name}, was {before}"
        else:
            yield f"    ~ {change.name}: {before} to {after}"


# -- moves and names ---------------------------------------------------------------------------


def branch_move(move: BranchMove) -> RenderableType:
    """Return what moved for a terminal, and the command that takes it back."""
    if move.before.snapshot_id == move.after.snapshot_id:
        return words(f"Branch {move.branch} is there already: {_one(move.after)}")
    verbs = {"undo": "Undone on", "redo": "Done again on", "reset": "Reset"}
    excluded = f"{count(move.excluded, 'file')}, from later appends" if move.excluded else None
    rows = {"was": _one(move.before), "is": _one(move.after), "excluded": excluded}
    more = [f"and {count(move.more, 'commit')} more"] if move.more else []
    stay = "stay readable by id until garbage is collected"
    if move.dropped_named:
        stay = f"still held by {', '.join(move.dropped_named)}"
    back = (
        f"icevirt reset {place(move.repo)} {move.before.snapshot_id}"
        f" --branch {quote_word(move.branch)} --expect {move.after.snapshot_id}"
    )
    return Group(
        Text.assemble((verbs[move.action], "bold green"), " ", words(move.branch, "bold")),
        Facts(rows),
        *list_lines(f"No longer in its history ({stay})", [*map(_one, move.dropped), *more]),
        Text(),
        _to_paste("back: ", back),
    )


def named_versions(found: NamedVersions) -> RenderableType:
    """Return branches or tags for a terminal."""
    table = table_of((found.kind, "snapshot", "time (UTC)", "message"), right=())
    for each in found.names:
        message = words(each.message.partition("\n")[0])
        table.add_row(words(each.name, "bold"), each.snapshot_id, when(each.written_at), message)
    shown: list[RenderableType] = [table] if found.names else [words(f"no {found.kind}s")]
    return Group(*shown, *list_lines("Deleted; these names stay taken", found.deleted))


def name_change(change: NameChange) -> RenderableType:
    """Return what was created, deleted or renamed for a terminal."""
    former = "" if change.former is None else f" from {change.former}"
    return Text.assemble(
        (f"{change.action.capitalize()} {change.kind}", "bold green"),
        words(f" {change.name}{former} at {change.snapshot_id}"),
    )


def operation_log(log: OperationLog) -> RenderableType:
    """Return the operations for a terminal."""
    table = table_of(("time (UTC)", "operation", "details"), right=())
    for each in log.operations:
        table.add_row(when(each.at), words(each.operation, "bold"), describe_details(each))
    older = f"icevirt ops-log {place(log.repo)} -n {2 * len(log.operations)}"
    return Group(table, *([Text(), _to_paste("older: ", older)] if log.has_more else []))


# -- the source of a value ---------------------------------------------------------------------


def value_source(source: ValueSource) -> RenderableType:
    """Return the chunks that hold values for a terminal."""
    labels = ", ".join(f"{name}={label}" for name, label in source.at.items())
    index = ", ".join(f"{name}={at}" for name, at in source.index.items())
    chunks = (part for each in source.chunks for part in (Text(), Facts(_origin(each))))
    rows = {"at": labels or "everywhere", "index": index or None}
    none = [] if source.chunks else [words("  the array has no values")]
    return head_report(source.variable, rows, *chunks, *none)


def _origin(chunk: ChunkOrigin) -> dict[str, str | None]:
    index = ", ".join(map(str, chunk.chunk)) or "the only one"
    native = f"{chunk.location} (native: stored in the repository)"
    span = f"{chunk.offset} to {chunk.offset + chunk.length} ({count(chunk.length, 'byte')})"
    writer = chunk.written_by
    if writer is None:
        written = "unknown: no transaction log that was read lists the chunk"
    elif writer.written_at is None:
        written = f"{writer.snapshot_id}, a snapshot that has expired"
    else:
        written = f"{writer.snapshot_id}  {when(writer.written_at)}  {shorten(writer.message)}"
    modified = chunk.last_modified
    is_inline = chunk.kind not in ("virtual", "native")
    return {
        "chunk": f"{index} of {chunk.array}",
        "file": chunk.location if chunk.kind == "virtual" else None,
        "object": native if chunk.kind == "native" else None,
        "bytes": span if chunk.location else chunk.place if is_inline else None,
        "etag": chunk.etag or None,
        "modified": None if modified is None else f"no later than {when(modified)}",
        "written by": written,
        "build": None if writer is None else writer.build_id,
    }
