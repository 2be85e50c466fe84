"""Copy a repository of an older format into a new V2 repository, and leave the old one as it is.

Objects come first and `repo` last, by one conditional create: until then the new repository is not
there. Names of objects follow from their content or from the old repository, so an upgrade that was
interrupted goes on when it is run again, and chunks that were copied are not copied again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.upgrade import Chunks, UpgradeCopyReport
from icevirt.connect.urls import local_path
from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.legacy.containers import containers_in_use
from icevirt.legacy.copying import MOST_LINES, Findings, SnapshotCopier
from icevirt.legacy.repository import OldRepoState
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.generation import without_old_format_warning
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.objects.authorize import entry_of
from icevirt.repo import creation
from icevirt.repo.assets import Assets
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.repo.v1.as_v2 import V1RepoState
from icevirt.storage.object_store import ObjectReading
from icevirt.storage.protocol import Storage
from icevirt.versioning import lookup
from icevirt.versioning.repo_updates import MAIN
from icevirt.versioning.v1_migration import V1State, migrated

_CARRIED = ("inline_chunk_threshold_bytes", "get_partial_values_concurrency", "compression")


def upgrade(
    source: Storage,
    target: Storage,
    *,
    chunks: Chunks = "copy",
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> UpgradeCopyReport:
    """Make a V2 repository of an older one; see `icevirt.upgrade`."""
    return _CopyingUpgrade(source, target, chunks, dry_run, progress or (lambda _: None)).run()


@dataclass(slots=True)
class _CopyingUpgrade:
    source: Storage
    target: Storage
    chunks: Chunks
    dry_run: bool
    tell: Callable[[Progress], None]
    findings: Findings = field(default_factory=Findings)

    def run(self) -> UpgradeCopyReport:
        _refuse_nested(self.source.url, self.target.url)
        with without_old_format_warning():
            current = RepoInfoFile(self.source).read()
        if current.info.spec_version > 1:
            raise InvalidInputError(
                "this repository is already V2",
                do="It needs no upgrade. Copy its whole directory or prefix with the tool of your"
                " storage.",
                repo=self.source.url,
            )
        head = RepoInfoFile(self.target)
        if head.find() is not None:
            raise creation.there_is_one(self.target)
        creation.refuse_foreign(self.target)
        read = current.assets if isinstance(current, OldRepoState) else Assets(self.source)
        state = self._state(current)
        copy = SnapshotCopier(
            read, Assets(self.target), self.findings, chunks=self.chunks, dry_run=self.dry_run
        )
        snapshots: dict[ObjectId12, SnapshotSummary] = {}
        for done, summary in enumerate(_parents_first(state.snapshots)):
            self._tell(done, len(state.snapshots))
            parent = None if summary.parent_id is None else snapshots[summary.parent_id]
            snapshots[summary.id] = copy.snapshot(summary, parent)
        self._tell(len(snapshots), len(snapshots))
        config, authorize = self._config(current.info)
        state = replace(state, snapshots=dict(sorted(snapshots.items())), config=config)
        info = migrated(state, head.now())
        if not self.dry_run and head.create(info) is None:
            raise creation.there_is_one(self.target)
        old = current.info.old
        return UpgradeCopyReport(
            source=self.source.url,
            repo=self.target.url,
            dry_run=self.dry_run,
            generation="V1" if old is None else old.generation.name,
            snapshots=len(snapshots),
            branches=len(state.branches),
            tags=len(state.tags),
            manifests=len(copy.manifests),
            references=self.findings.references,
            chunks=self.findings.copied,
            bytes=self.findings.copied_bytes,
            authorize=authorize,
            notes=_lines(self.findings.notes),
            lost=_lines(self.findings.lost),
        )

    def _tell(self, done: int, total: int) -> None:
        step = Progress(phase="upgrade", done=done, total=total, unit="snapshots")
        self.tell(
            replace(step, references=self.findings.references, bytes=self.findings.copied_bytes)
        )

    # -- what there is -----------------------------------------------------------------------

    def _state(self, current: RepoState) -> V1State:
        """Return branches, tags and snapshots as far as they can be read.

        Raises:
            FormatError, SnapshotNotFoundError: The tip of ``main`` cannot be.
        """
        info = current.info
        lookup.known(info, info.branches[MAIN])
        known: dict[ObjectId12, SnapshotSummary] = {}
        lines = {}
        for name, line in sorted(_lines_of(current).items(), key=lambda item: item[0] != MAIN):
            whole = tuple(key for key in line if self._walk(info, key, f"branch {name!r}", known))
            if whole and whole[-1] == line[-1]:
                lines[name] = whole
            else:
                self.findings.lose(f"branch {name!r}: its snapshot {line[-1]} cannot be read")
        tags = {}
        for name in info.tags:
            if self._walk(info, info.tags[name], f"tag {name!r}", known):
                tags[name] = info.tags[name]
        return V1State(
            branches={name: line[-1] for name, line in sorted(lines.items())},
            tags=dict(sorted(tags.items())),
            deleted_tags={name: _deleted_tag(current, name) for name in sorted(info.deleted_tags)},
            snapshots=known,
            config=None,
            lines=lines,
        )

    def _walk(
        self, info: RepoInfo, tip: ObjectId12, who: str, known: dict[ObjectId12, SnapshotSummary]
    ) -> bool:
        """Read a snapshot and its ancestors; False if not even the snapshot can be read."""
        later: SnapshotSummary | None = None
        at: ObjectId12 | None = tip
        while at is not None and at not in known:
            try:
                found = info.snapshots[at]
            except (KeyError, FormatError) as error:
                cause = "it is missing" if isinstance(error, KeyError) else str(error)
                self.findings.lose(f"snapshot {at} of {who}, and what came before: {cause}")
                if later is None:
                    return False
                known[later.id] = replace(later, parent_id=None)
                return True
            known[at] = later = found
            at = found.parent_id
        return True

    def _config(self, info: RepoInfo) -> tuple[Mapping[str, Any], tuple[Any, ...]]:
        document = dict(info.config or {})
        config = RepositoryConfig()
        for name in _CARRIED if info.old is not None else set(document):
            if document.get(name) is not None and name != "virtual_chunk_containers":
                config.document[name] = document[name]
        if isinstance(compression := config.document.get("compression"), Mapping):
            config.document["compression"] = {**compression, "algorithm": "zstd"}
        apart = {}
        if stored := self.findings.stored:
            self.findings.urls[stored] = None
            # the official client knows no container whose prefix is percent-encoded
            above = stored.partition("%")[0].rpartition("/")[0] + "/"
            source = self.source
            apart[above] = source.config if isinstance(source, ObjectReading) else None
        containers, uncovered = containers_in_use(document, self.findings.urls, apart)
        for url in uncovered:
            self.findings.lose(f"virtual chunks at {url}: no client of today reads such a location")
        for container in containers:
            config.set_virtual_chunk_container(container)
        had = document.get("virtual_chunk_containers")
        if isinstance(had, Mapping) and len(had) > len(containers):
            self.findings.note("virtual chunk containers: only prefixes in use were carried over")
        return config.document, tuple(map(entry_of, containers))


def _lines_of(current: RepoState) -> dict[str, tuple[ObjectId12, ...]]:
    if isinstance(current, OldRepoState):
        return current.lines()
    return {name: (key,) for name, key in current.info.branches.items()}


def _deleted_tag(current: RepoState, name: str) -> ObjectId12 | None:
    """Return the snapshot that a deleted tag named, if that is still known."""
    match current:
        case OldRepoState() if name in current.paths.tags:
            return current.target(current.paths.tags[name])
        case V1RepoState():
            return current.files.deleted_tag(name)
        case _:
            return None


def _parents_first(
    snapshots: Mapping[ObjectId12, SnapshotSummary],
) -> Iterator[SnapshotSummary]:
    """Yield snapshots, each after its parent."""
    done: set[ObjectId12] = set()
    for key in snapshots:
        line = []
        at: ObjectId12 | None = key
        while at is not None and at not in done and at in snapshots:
            done.add(at)
            line.append(snapshots[at])
            at = snapshots[at].parent_id
        yield from reversed(line)


def _lines(found: Mapping[str, None]) -> tuple[str, ...]:
    lines = tuple(found)
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else (*lines[:MOST_LINES], f"and {more} more")


def _refuse_nested(source: str, target: str) -> None:
    one, other = (_resolved(url) for url in (source, target))
    if one.startswith(other) or other.startswith(one):
        raise InvalidInputError(
            "the old and the new repository have the same path, or one lies in the other",
            do=f"Choose a path beside the old one: icevirt upgrade {quote(source)}"
            f" {quote(source + '-v2')}",
            source=source,
            target=target,
        )


def _resolved(url: str) -> str:
    path = os.path.realpath(local_path(url)) if url.startswith("file:") else url
    return path.rstrip("/") + "/"
