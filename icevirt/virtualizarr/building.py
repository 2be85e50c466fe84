"""Commit virtual datasets of VirtualiZarr, and make them of what icevirt scanned, planned or built.

References stay columns: no object is made of a chunk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from icevirt.access.references import INLINE_NATIVE
from icevirt.access.virtualizarr import (
    INLINED,
    distinct_names,
    from_virtualizarr,
    is_virtual,
    manifest_group_of,
    refuse_without_virtualizarr,
    to_virtualizarr,
)
from icevirt.api.choices import check_group
from icevirt.api.plan import Plan
from icevirt.archive.reports.build import Opening, open_group
from icevirt.archive.scanned import ScannedFile
from icevirt.archive.sources import SourceFile
from icevirt.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NodeNotFoundError,
    SourcesChangedError,
)
from icevirt.escaping import Pictured
from icevirt.model import paths
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.strings import Strings
from icevirt.objects.source_access import SourceAccess
from icevirt.objects.web_connections import HOSTS
from icevirt.planning.containers import containers_for
from icevirt.planning.schedule.write_tasks import split_rules
from icevirt.repo.commits.build_commit import with_settings
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Storage
from icevirt.tasks.references import cut_of
from icevirt.versioning.merge.conflicts import ConflictDetector
from icevirt.versioning.repo_updates import MAIN
from icevirt.virtualizarr.registry_access import RegistryAccess

if TYPE_CHECKING:
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.manifests import ManifestGroup
    from xarray import Dataset, DataTree

_SHOWN = 5  # names in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualBuildReport(Pictured):
    """The outcome of `icevirt.virtualizarr.build`."""

    repo: str  # URL
    branch: str
    snapshot_id: str
    group: str
    arrays: int  # virtual ones
    references: int
    files: int
    files_unverifiable: int  # without an etag or time: their changes go unnoticed
    bytes_referenced: int
    containers: tuple[str, ...]  # what a reader authorizes
    opening: Opening = field(default_factory=Opening, compare=False, repr=False)

    def open(self, **options: Any) -> Dataset | DataTree:
        """Open the dataset in xarray, authorized for what was written; groups alone are a tree.

        Args:
            options: Arguments of ``xarray.open_dataset`` with ``engine="icevirt"``.
        """
        known = {
            "group": self.group,
            "snapshot_id": self.snapshot_id,
            "authorize_virtual_chunk_access": self.opening.authorization or list(self.containers),
        }
        return open_group(self.opening.place(self.repo), {**known, **options})


def build(
    vds: Dataset | DataTree,
    repo: StorageLike,
    *,
    registry: ObjectStoreRegistry[Any],
    group: str = "/",
    mode: Literal["w-", "w"] = "w-",
    branch: str = MAIN,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    access: Mapping[str, Any] | None = None,
    write_inherited_coords: bool = False,
) -> VirtualBuildReport:
    """Commit a virtual dataset to a repository, which is created if there is none.

    Each file is looked at once, through the registry: references get its checksum, and none may
    reach beyond its end. Containers, and rules that cut large manifests, become part of the
    repository. If others committed meanwhile to other nodes, the commit goes on top of theirs.

    Args:
        vds: Of ``virtualizarr.open_virtual_dataset`` and its kind, combined as you like. Loaded
            variables are written as values.
        repo: Path or URL of the repository.
        registry: The registry that the dataset was opened with.
        group: The group that the dataset becomes.
        mode: "w-" writes into an empty group; "w" replaces what is in the group.
        branch: The branch to commit to.
        message: The commit message.
        metadata: Metadata of the commit.
        access: What containers say of servers, by prefix: a store like
            ``icevirt.s3_store(region="...")``. Credentials are not kept.
        write_inherited_coords: Of a tree: write the coordinates that a group inherits, too, so that
            it can be opened alone.

    Raises:
        AlreadyExistsError: The group is not empty.
        InvalidInputError: The registry has no store for a file, or ``mode`` is another.
        NotFoundError: A file is not there.
        SourcesChangedError: A file is shorter than its references say.
        ConflictError: Others changed the same nodes meanwhile.
        StorageError: A store refuses, or does not answer.
    """
    if mode not in ("w-", "w"):
        raise InvalidInputError("unknown mode", do='Pass mode="w-" or mode="w".', mode=mode)
    top, storage = paths.canonical(check_group(group)), storage_of(repo)
    datasets = _datasets(vds, inherit=write_inherited_coords)
    parts = {paths.join(top, path): each for path, each in datasets}
    used = _Used.of(parts)
    files = _look_at(used.ends, RegistryAccess(registry=registry))
    reach = SourceAccess.of(access)
    wanted = containers_for(Strings.of(files), stores=reach.stores()) if files else ()
    opened = _repository(storage, wanted, used.grids)
    session = opened.writable_session(branch)
    _make_room(session, top, mode)
    checksums = {url: _checksum(file) for url, file in files.items()}
    for path, each in parts.items():
        from_virtualizarr(each, session, group=path, checksum=checksums)
    snapshot_id = session.commit(
        message or f"A virtual dataset of {len(files)} files",
        dict(metadata or {}),
        rebase_with=ConflictDetector(),
    )
    prefixes = tuple(each.url_prefix for each in wanted)
    return VirtualBuildReport(
        repo=opened.storage.url,
        branch=branch,
        snapshot_id=snapshot_id,
        group=top,
        arrays=len(used.grids),
        references=used.references,
        files=len(files),
        files_unverifiable=sum(each is None for each in checksums.values()),
        bytes_referenced=used.nbytes,
        containers=prefixes,
        opening=Opening(opened.storage, reach.authorization(prefixes)),
    )


@dataclass(slots=True)
class _Used:
    """What the virtual variables of datasets use, without an object for a chunk."""

    ends: dict[str, int] = field(default_factory=dict)  # the farthest byte, by URL
    grids: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = field(default_factory=dict)
    references: int = 0
    nbytes: int = 0

    @classmethod
    def of(cls, parts: Mapping[str, Dataset]) -> _Used:
        """Look through datasets, which come by the paths of their groups."""
        used = cls()
        for top, each in parts.items():
            for name, variable in each.variables.items():
                if is_virtual(variable.data):
                    used.add(paths.join(top, str(name)), variable)
        return used

    def add(self, path: str, variable: Any) -> None:
        """Count a virtual variable."""
        manifest = variable.data.manifest
        located = manifest._paths.ravel()  # noqa: SLF001 - columns; the rest is objects
        self.grids[path] = manifest.shape_chunk_grid, tuple(map(str, variable.dims))
        here = (located != "") & (located != INLINED)
        length = manifest._lengths.ravel()[here]  # noqa: SLF001
        end = manifest._offsets.ravel()[here] + length  # noqa: SLF001
        urls, codes = distinct_names(located[here])
        farthest = np.zeros(len(urls), np.uint64)
        np.maximum.at(farthest, codes, end)
        for url, last in zip(urls, farthest.tolist(), strict=True):
            self.ends[url] = max(last, self.ends.get(url, 0))
        self.references += len(end)
        self.nbytes += int(length.sum())


def _datasets(vds: Dataset | DataTree, *, inherit: bool) -> Iterator[tuple[str, Dataset]]:
    if not hasattr(vds, "subtree_with_keys"):
        yield "/", vds  # type: ignore[misc]
        return
    for key, node in vds.subtree_with_keys:
        yield "/" if key == "." else key, node.to_dataset(inherit=inherit)


def _look_at(ends: Mapping[str, int], access: RegistryAccess) -> dict[str, SourceFile]:
    """Return the files of references, each looked at once.

    Raises:
        NotFoundError: One is not there.
        SourcesChangedError: One is shorter than its references say.
    """
    asked = {
        url: HOSTS.submit("/".join(url.split("/")[:3]), lambda url=url: access.facts(url))  # type: ignore[misc]
        for url in ends
    }
    files = {url: future.result() for url, future in asked.items()}
    if short := sorted(url for url, file in files.items() if file.size < ends[url]):
        raise SourcesChangedError(
            "a file is shorter than its references say",
            do="It was replaced since it was parsed: open the virtual dataset again.",
            file=short[0],
            bytes=files[short[0]].size,
            expected=ends[short[0]],
            files=len(short),
        )
    return files


def _checksum(file: SourceFile) -> Any:
    """Return what references say of a file: its etag, or its time."""
    seconds = file.last_modified_seconds
    return file.etag or (datetime.fromtimestamp(seconds, UTC) if seconds else None)


def _repository(
    storage: Storage,
    wanted: Sequence[VirtualChunkContainer],
    grids: Mapping[str, tuple[tuple[int, ...], tuple[str, ...]]],
) -> Repository:
    """Open or create the repository, with containers and rules for large manifests."""
    there = Repository.exists(storage)
    opened = Repository.open(storage) if there else None
    config = RepositoryConfig() if opened is None else opened.config
    cuts = {path: cut_of(config, path, *grid) for path, grid in grids.items()}
    rules = split_rules(
        {path: (cut.num_chunks, cut.steps, 0) for path, (cut, is_new) in cuts.items() if is_new}
    )
    document = with_settings(config.document, wanted, rules)
    settled = RepositoryConfig.from_document(dict(document))
    if opened is None:
        return Repository.create(storage, settled)
    if document != config.document:
        opened.reopen(settled).save_config()
    return Repository.open(storage)


def _make_room(session: Session, top: str, mode: str) -> None:
    """Empty a group, or refuse one that is not empty."""
    here = [] if session.find(top) is None else list(session.snapshot.below(top))
    below = [node.path for node in here if node.path != top]
    if below and mode == "w-":
        raise AlreadyExistsError(
            "the group is not empty",
            do='Write to another group, or pass mode="w" to replace what is there.',
            group=top,
            nodes=below[:_SHOWN],
        )
    for path in below:
        if paths.parent(path) == top:
            session.delete(path)


def open_virtual_dataset(
    source: StorageLike | Repository | Session | ScannedFile | Plan,
    *,
    group: str = "/",
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    inline_native: int = INLINE_NATIVE,
) -> Dataset:
    """Return a virtual dataset of what a repository, a scan or a plan holds in a group.

    Its variables are ``ManifestArray`` objects, as if VirtualiZarr had opened files.

    Args:
        source: A repository, its path or URL; a session; what `icevirt.scan_file` returned; or a
            plan of `icevirt.plan`, whose references are made for it.
        group: The group.
        branch: Of a repository: the branch, by default ``main``.
        tag: Of a repository: the tag.
        snapshot_id: Of a repository: the snapshot.
        inline_native: Maximum bytes per array of repository chunks to embed as inline chunks.

    Raises:
        NodeNotFoundError: There is no such group.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        UnsupportedError: An array has more bytes inside the repository, no dimension names, or a
            chunk grid that is not regular.
        InvalidInputError: VirtualiZarr is not installed.
    """
    refuse_without_virtualizarr()
    if isinstance(source, ScannedFile):
        found = manifest_group_of(source, {})
        for name in paths.canonical(group).split("/")[1:]:
            found = _below(found, name, group) if name else found
        return found.to_virtual_dataset()
    if isinstance(source, Session):
        return to_virtualizarr(source, group, inline_native=inline_native)
    if isinstance(source, Plan):
        with tempfile.TemporaryDirectory() as folder:
            made = source.write(Path(folder) / "repo")
            session = Repository.open(made.repo).readonly_session(snapshot_id=made.snapshot_id)
            return to_virtualizarr(session, group, inline_native=inline_native)
    opened = source if isinstance(source, Repository) else Repository.open(source)
    if branch is None and tag is None and snapshot_id is None:
        branch = MAIN
    session = opened.readonly_session(branch=branch, tag=tag, snapshot_id=snapshot_id)
    return to_virtualizarr(session, group, inline_native=inline_native)


def _below(found: ManifestGroup, name: str, group: str) -> ManifestGroup:
    if name not in found.groups:
        raise NodeNotFoundError(
            "the file has no such group",
            do="Name an existing group.",
            group=group,
            there=sorted(found.groups),
        )
    return found.groups[name]
