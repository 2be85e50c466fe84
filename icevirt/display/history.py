"""Format the history of a repository, and what moved in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.history import (
    BranchMove,
    CommitLog,
    DimensionGrowth,
    FilesDifference,
    LoggedCommit,
    MetadataChange,
    NameChange,
    NamedVersions,
    NodeChange,
    OperationLog,
    VersionDiff,
    detailed,
    place,
    shapes,
    when,
)
from icevirt.archive.reports.value_source import ChunkOrigin, ValueSource, WrittenBy
from icevirt.display.blocks import Facts, listed, notes, pasted_line, table_of
from icevirt.display.fixes import quoted
from icevirt.display.text import count, shortened, words

_FILES = 20  # of a kind are shown
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "rewritten": "~", "moved": ">"}


def commit_log(log: CommitLog) -> RenderableType:
    """Return a page of the history for a terminal."""
    lines = [line for commit in log.commits for line in _commit(commit)]
    if log.next is not None:
        lines += [Text(), _command(f"icevirt log {place(log.repo)} --snapshot-id {log.next}")]
    return Group(*lines)


def _commit(commit: LoggedCommit) -> Iterator[Text]:
    names = f" {commit.names}" if commit.names else ""
    yield Text.assemble(
        (commit.snapshot_id, "yellow"),
        (f"  {when(commit.written_at)}", "dim"),
        words(f"  {commit.title}"),
        words(names, "bold green"),
    )
    if commit.build is not None and commit.build.text:
        yield words(f"    {commit.build.text}", "dim")


def _command(text: str) -> Text:
    return _to_paste("older: ", text)


def _to_paste(what: str, command: str) -> Text:
    return Text.assemble((what, "dim"), pasted_line(command), no_wrap=True, overflow="ignore")


# -- differences -------------------------------------------------------------------------------


def version_diff(diff: VersionDiff) -> RenderableType:
    """Return what differs for a terminal."""
    parts: list[RenderableType] = [
        Facts(
            {
                "from": _one(diff.before),
                "to": _one(diff.after),
                "commits": _between(diff),
            }
        )
    ]
    if diff.is_empty():
        parts += [Text(), words("Nothing differs", "bold")]
    parts += listed("Archive", [*map(_steps, diff.steps), *_all_files(diff.files)])
    parts += listed("Groups and arrays", (line for node in diff.nodes for line in _node(node)))
    return Group(*parts, *notes(diff.notes))


def _one(commit: LoggedCommit) -> str:
    return f"{commit.snapshot_id}  {when(commit.written_at)}  {commit.title} {commit.names}".strip()


def _between(diff: VersionDiff) -> str:
    after = f"{diff.commits_after:,} only in the second"
    if not diff.commits_before:
        return f"{diff.commits_after:,}"
    return f"{diff.commits_before:,} only in the first, {after}"


def _steps(growth: DimensionGrowth) -> str:
    where = "" if growth.group == "/" else f" in {growth.group}"
    more = growth.after - growth.before
    return f"{growth.dimension}: {growth.before:,} to {growth.after:,} steps ({more:+,}){where}"


def _all_files(files: Iterable[FilesDifference]) -> Iterator[str]:
    for each in files:
        yield from _files(each)


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


def _node(node: NodeChange) -> Iterator[str]:
    parts = [shapes(node)] if node.kind == "array" else ["group"]
    if node.moved_from is not None:
        parts.append(f"moved from {node.moved_from}")
    if node.change == "rewritten":
        parts.append("written anew")
    if node.chunks_written is not None:
        parts.append(f"{count(node.chunks_written, 'chunk')} written")
    yield f"{_SIGNS[node.change]} {node.path}  {'; '.join(filter(None, parts))}"
    yield from map(_metadata, node.metadata)


def _metadata(change: MetadataChange) -> str:
    if change.before is None:
        return f"    + {change.name} = {shortened(change.after)}"
    if change.after is None:
        return f"    - {change.name}, was {shortened(change.before)}"
    return f"    ~ {change.name}: {shortened(change.before)} to {shortened(change.after)}"


# -- moves and names ---------------------------------------------------------------------------


def branch_move(move: BranchMove) -> RenderableType:
    """Return what moved for a terminal, and the command that takes it back."""
    if move.before.snapshot_id == move.after.snapshot_id:
        return words(f"Branch {move.branch} is there already: {_one(move.after)}")
    verbs = {"undo": "Undone on", "redo": "Done again on", "reset": "Reset"}
    rows = {"was": _one(move.before), "is": _one(move.after)}
    if move.excluded:
        rows["excluded"] = f"{count(move.excluded, 'file')}, from later appends"
    lines = [_one(each) for each in move.dropped]
    if move.more:
        lines.append(f"and {count(move.more, 'commit')} more")
    back = (
        f"icevirt reset {place(move.repo)} {move.before.snapshot_id} --branch {quoted(move.branch)}"
        f" --expect {move.after.snapshot_id}"
    )
    held = f"still held by {', '.join(move.dropped_named)}" if move.dropped_named else ""
    stay = held or "stay readable by id until garbage is collected"
    return Group(
        Text.assemble((verbs[move.action], "bold green"), " ", words(move.branch, "bold")),
        Facts(rows),
        *listed(f"No longer in its history ({stay})" if lines else "", lines),
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
    return Group(*shown, *listed("Deleted; these names stay taken", found.deleted))


def name_change(change: NameChange) -> RenderableType:
    """Return what was created, deleted or renamed for a terminal."""
    former = "" if change.former is None else f" from {change.former}"
    verb = f"{change.action.capitalize()} {change.kind}"
    return Text.assemble(
        (verb, "bold green"), words(f" {change.name}{former} at {change.snapshot_id}")
    )


def operation_log(log: OperationLog) -> RenderableType:
    """Return the operations for a terminal."""
    table = table_of(("time (UTC)", "operation", "details"), right=())
    for each in log.operations:
        table.add_row(when(each.at), words(each.operation, "bold"), words(detailed(each)))
    older = _command(f"icevirt ops-log {place(log.repo)} -n {2 * len(log.operations)}")
    return Group(table, *([Text(), older] if log.has_more else []))


# -- the source of a value ---------------------------------------------------------------------


def value_source(source: ValueSource) -> RenderableType:
    """Return the chunks that hold values for a terminal."""
    labels = ", ".join(f"{name}={label}" for name, label in source.at.items())
    index = ", ".join(f"{name}={at}" for name, at in source.index.items())
    parts: list[RenderableType] = [
        words(source.variable, "bold"),
        Facts({"at": labels or "everywhere", **({"index": index} if index else {})}),
    ]
    for each in source.chunks:
        parts += [Text(), Facts(_origin(each))]
    if not source.chunks:
        parts.append(words("  the array has no values"))
    return Group(*parts)


def _origin(chunk: ChunkOrigin) -> dict[str, str]:
    where = {"file": chunk.location} if chunk.kind == "virtual" else {}
    if chunk.kind == "native":
        where = {"object": f"{chunk.location} (native: stored in the repository)"}
    elif not where:
        where = {"bytes": chunk.place}
    rows = {"chunk": f"{_index(chunk.chunk)} of {chunk.array}", **where}
    if chunk.location:
        end = chunk.offset + chunk.length
        rows["bytes"] = f"{chunk.offset} to {end} ({count(chunk.length, 'byte')})"
    if chunk.etag:
        rows["etag"] = chunk.etag
    if chunk.last_modified is not None:
        rows["modified"] = f"no later than {when(chunk.last_modified)}"
    rows["written by"] = _writer(chunk.written_by)
    if chunk.written_by is not None and chunk.written_by.build_id is not None:
        rows["build"] = chunk.written_by.build_id
    return rows


def _writer(writer: WrittenBy | None) -> str:
    if writer is None:
        return "unknown: no transaction log that was read lists the chunk"
    if writer.written_at is None:
        return f"{writer.snapshot_id}, a snapshot that has expired"
    return f"{writer.snapshot_id}  {when(writer.written_at)}  {shortened(writer.message)}"


def _index(chunk: tuple[int, ...]) -> str:
    return ", ".join(map(str, chunk)) or "the only one"
