"""Implement `icevirt.relocate`: point a repository to files that moved to another prefix."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from icevirt.amounts import plural
from icevirt.api.events import Clock, long_running, telling_tasks
from icevirt.api.moving import Copies, MovingDatasets, Renaming, compare_copies_of
from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.relocation import Moved, MovedDataset, RelocateReport, total
from icevirt.archive.sources import SourceFile
from icevirt.catalog.file_hashes import hash_of_url
from icevirt.connect.options import s3_store
from icevirt.connect.urls import file_url, is_url, url_of_absolute
from icevirt.errors import InvalidInputError, VerificationError
from icevirt.execution.executor import Executor, describe_jobs, job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of
from icevirt.ids import ObjectId12
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig, persistable
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import ArrayNode, ManifestFile, Node, Snapshot
from icevirt.objects.authorize import GrantedAccess, authorizing_fix, entry_of, normalize_prefix
from icevirt.objects.source_access import SourceAccess
from icevirt.planning.containers import Relocation, relocation, with_old_places
from icevirt.planning.schedule.sampling import sample as drawn
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.repo import layout
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.authorization import Authorization, authorize, refuse_unauthorized, refuse_useless
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.made_here import identify, own_or, read_containers, remember_containers
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Storage
from icevirt.tasks.relocate import RelocateTask
from icevirt.tasks.relocate import relocate as run_relocate
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.repo_updates import Edit
from icevirt.versioning.v1_migration import refuse_v1
from icevirt.wire.manifests.encoding import ManifestEncoding

SAMPLE = 1000
"""References whose bytes are compared by default."""

_FEW = 8  # manifests that are looked at faster than Spark starts
_TASKS_PER_SLOT = 4


def relocate(
    repo: StorageLike,
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    branch: str = "main",
    compare: int | Literal["all"] = SAMPLE,
    store: ObjectStoreConfig | None = None,
    authorize_virtual_chunk_access: Authorization = None,
    message: str | None = None,
    trust_recipe: str | None = None,
    dry_run: bool = False,
    seed: int | None = None,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> RelocateReport:
    """Point a repository to the new place of files that were moved or copied.

    The files keep their paths below the prefix. Every file is looked at in both places: it is
    there, as long as the old one, and longer than its references reach. Bytes of referenced ranges
    are compared. Files whose time or etag changed get a new checksum, after bytes of at least one
    reference to each, and all bytes to which nothing refers, were compared; if such a file cannot
    be compared, because it is no longer at its old place, the call is refused. Where nothing
    refers to the files of a dataset, because all of it is stored, such a file counts as changed.

    Containers with a name move in the configuration: that is not a commit, cannot be undone by
    going back to a snapshot, and concerns all snapshots. References with absolute URLs are changed
    by a commit to one branch: older snapshots, tags and other branches still point to the old
    place. Both happen in one step. If the call is interrupted, call it again.

    The same commit names the new place in what the branch's datasets record, so that `append`,
    `update` and `withdraw` go on there: the list of files, the recipe, files that are held back.
    The scans in the repository's catalog get the new names; those in a catalog elsewhere do not.
    Where a branch shows a snapshot from before, call it again with that branch.

    Args:
        repo: Path or URL of the repository.
        old: Prefix of the files so far: a URL or a directory, or the name of a container.
        new: Prefix of the same files now.
        branch: The branch that the commit goes to.
        compare: How many references' bytes are compared, drawn at random, or "all"; one of each
            file that gets a new checksum comes on top. Lengths and checksums are compared for all
            files.
        store: How the new place is reached, like ``icevirt.s3_store(region=...)``; persisted
            for readers.
        authorize_virtual_chunk_access: As for `Repository.open`: credentials and servers of the
            two places, which need no other word. An endpoint that is authorized with the new prefix
            of S3 is persisted too.
        message: The commit message.
        trust_recipe: The digest of the recipe so far, if another one made it and you trust what
            it reads and runs. The renamed recipe has another digest; `update` trusts that on this
            machine if it trusted the recipe so far.
        dry_run: Only say what would change. No file is looked at.
        seed: Of the sample; by default another one each time. It is in the report.
        executor: What runs tasks, as for `build`; by default this process where there is little to
            do, else the active session of Spark, or processes of this machine.
        progress: Called with every step of the long phases.

    Raises:
        InvalidInputError: No reference lies below the old prefix or the new one, one of them lies
            below the other, or an argument is wrong.
        UnauthorizedError: A prefix was not authorized.
        VerificationError: A file is missing at the new place or differs; nothing was changed.
        RepositoryNotFoundError, RefNotFoundError: They do not exist.
        ReadOnlyError: The repository is read-only.
        FormatError: It is of the V1 format.

    Examples:
        >>> icevirt.relocate("repo", "archive", "s3://bucket/archive/", dry_run=True)
        <RelocateReport plan file:///.../archive/ → s3://bucket/archive/  5 files  ... references>
    """
    if compare != "all" and (isinstance(compare, bool) or not isinstance(compare, int)):
        raise InvalidInputError("not a number of references", do='Pass a number, or "all".')
    if compare != "all" and compare < 1:
        raise InvalidInputError(
            "the number of references is too small",
            do=write_remedy("Pass ", write_option("compare", 1), " or more."),
            compare=compare,
        )
    storage = storage_of(repo)
    given = authorize(own_or(authorize_virtual_chunk_access, identify(storage)))
    work = _RelocateWork(
        storage=storage,
        old=old,
        new=new,
        branch=branch,
        compare=compare,
        store=store,
        access=dict(given),
        authorized=() if authorize_virtual_chunk_access is None else tuple(given),
        message=message,
        trusted=trust_recipe,
        dry_run=dry_run,
        seed=secrets.randbelow(1 << 32) if seed is None else seed,
        executor=executor,
        clock=Clock(progress),
    )
    with long_running("relocate", work.clock), job_tags(storage.url), work.stack:
        return work.run()


@dataclass(slots=True, kw_only=True)
class _RelocateWork:
    """A relocation, one attempt after another until it is in, or must not be."""

    storage: Storage
    old: str | os.PathLike[str]
    new: str | os.PathLike[str]
    branch: str
    compare: int | Literal["all"]
    store: ObjectStoreConfig | None
    access: dict[str, GrantedAccess]
    authorized: tuple[str, ...]  # prefixes that the caller names
    message: str | None
    trusted: str | None
    dry_run: bool
    seed: int
    executor: ExecutorChoice
    clock: Clock
    stack: ExitStack = field(default_factory=ExitStack)
    running: Executor | None = None
    done: dict[ObjectId12, ManifestFile | None] = field(default_factory=dict)  # None: stays
    found: Moved = field(default_factory=Moved)
    decided: Relocation | None = None
    compared: dict[SourceFile, SourceFile] = field(default_factory=dict)  # and what was copied
    unlike: set[SourceFile] = field(default_factory=set)  # of these, files to which nothing refers
    moves_files: bool = False  # references or lists of files name the old place

    def run(self) -> RelocateReport:
        do = "Run the command again when fewer processes write."
        head = RepoInfoFile(self.storage)
        current = head.read()
        self.storage = head.obey(current.info.config)
        held = HeldObjects(self.storage)
        decide = partial(self._attempt, head, held)
        made, _ = head.publish(decide, do=do, held=held, known=current, even_read_only=self.dry_run)
        snapshot_id, manifests, there, datasets = made
        assert self.decided is not None
        if not self.dry_run:
            datasets.follow()
            if read_containers(identify(self.storage)):  # the caller authorized both places
                below = _read_below(self.decided)
                remember_containers(identify(self.storage), [entry_of(each) for each in below])
        return self._report(self.decided, snapshot_id, manifests, there, datasets.reports)

    def _attempt(
        self, head: RepoInfoFile, held: HeldObjects, current: RepoState
    ) -> tuple[tuple[str | None, int, int, MovingDatasets], Sequence[Edit]]:
        refuse_v1(current.info, "relocating files")
        config = RepositoryConfig.from_document(dict(current.info.config or {}))
        encoding = ManifestEncoding.of_config(config.document)
        assets = Assets(self.storage, manifests=encoding)
        base = assets.snapshot(lookup.branch_tip(current.info, self.branch))
        decided = self._decide(config)
        old_is_name = config.get_virtual_chunk_container(str(self.old)) is not None
        if decided != self.decided:
            self.done, self.found, self.decided = {}, Moved(), decided
            self.compared, self.unlike = {}, set()
        both = {each.url_prefix: each for each in _read_below(decided)}
        known = {**config.virtual_chunk_containers, **both}
        moved = decided.old, decided.new
        rest = (
            each for each in self.authorized if not any(place.startswith(each) for place in moved)
        )
        refuse_useless(rest, [*known], lambda near: authorizing_fix([known[near]]))
        named = [decided.new] if old_is_name else [decided.old, decided.new]
        for each in named:  # to name a place here is to authorize it
            if not each.startswith(tuple(self.access)):
                self.access[each] = GrantedAccess()
        if not self.dry_run:
            refuse_unauthorized(both.values(), self.access, what="relocating")
        self._rewrite(base, encoding)
        datasets = self._datasets(head, decided, base)
        self._refuse_wrong()
        written = {key: info for key, info in self.done.items() if info is not None}
        used = {ref.object_id for node in base.arrays() for ref in node.manifests}
        replaced = {key: info for key, info in written.items() if key in used}
        with self.clock.phase("records"):
            datasets.look(current, {key: str(i.id) for key, i in replaced.items()})
        is_known = self.found.references or self.found.there or decided.renamed
        if not is_known and datasets.is_nothing:
            raise InvalidInputError(
                "no reference of this branch lies below the old prefix",
                do="Name a prefix of the files as the repository has it.",
                old=decided.old,
                branch=self.branch,
                containers=sorted(decided.before),
            )
        snapshot_id, edits = None, []
        if not self.dry_run:
            datasets.exclude()
            self.moves_files = bool(self.found.references or datasets.reports)
            edits.append(repo_updates.set_config(self._config))
            if replaced or not datasets.is_nothing:
                nodes = _with_manifests(base.nodes, {key: i.id for key, i in replaced.items()})
                pending = PendingCommit(
                    base=base,
                    branch=self.branch,
                    message=self.message or f"Relocate {decided.old} to {decided.new}",
                    nodes=nodes,
                    written={info.id: info for info in replaced.values()},
                    metadata=datasets.metadata(nodes),
                )
                snapshot, commit = pending.put(head, assets, held)
                snapshot_id = str(snapshot.id)
                edits.append(commit)
        return (snapshot_id, len(replaced), len(used), datasets), edits

    def _datasets(self, head: RepoInfoFile, decided: Relocation, base: Snapshot) -> MovingDatasets:
        return MovingDatasets(
            storage=self.storage,
            head=head,
            branch=self.branch,
            names=Renaming.of(decided.old, decided.new, os.fspath(self.old)),
            access=SourceAccess.of_containers(decided.after, self.access),
            compare=partial(self._compare_copies, base),
            trusted=self.trusted,
            is_plan=self.dry_run,
        )

    def _decide(self, config: RepositoryConfig) -> Relocation:
        containers = config.virtual_chunk_containers
        named = config.get_virtual_chunk_container(str(self.old))
        old = _prefix(self.old, containers) if named is None else named.url_prefix
        new = _prefix(self.new, {})
        store = self.store
        if store is None and (endpoints := self.access.get(new, GrantedAccess()).endpoints):
            if not new.startswith("s3://") or len(endpoints) > 1:
                raise InvalidInputError(
                    "an endpoint alone does not say how the new place is reached",
                    do="Pass store=, like icevirt.gcs_store(...) or icevirt.azure_store(...).",
                    url_prefix=new,
                )
            (endpoint,) = endpoints
            store = s3_store(
                region="us-east-1",
                endpoint_url=endpoint,
                allow_http=endpoint.startswith("http://"),
                force_path_style=True,
                s3_compatible=True,
            )
        return relocation(containers, old, new, store)

    def _rewrite(self, base: Snapshot, encoding: ManifestEncoding) -> None:
        """Run tasks over the manifests that no earlier attempt saw."""
        assert self.decided is not None
        keys = sorted(
            {ref.object_id for node in base.arrays() for ref in node.manifests} - self.done.keys()
        )
        if not keys:
            return
        if self.running is None:
            seen = (self.storage, layout.manifest(keys[0]))
            needs = (
                ClusterNeeds(read=(seen,))
                if self.dry_run
                else ClusterNeeds(written=(self.storage,))
            )
            check_before_first(self._executor(0 if len(keys) <= _FEW else None), needs)
        running = self._executor()
        infos = map(base.manifest, keys)
        counts = np.array([info.num_chunk_refs if info else 0 for info in infos], np.int64)
        samples = [-1] * len(keys)
        if self.compare != "all":
            samples = [len(rows) for rows in drawn(counts, self.compare, seed=self.seed)]
        slots = running.parallelism
        size = -(-len(keys) // (slots * _TASKS_PER_SLOT if slots > 1 else 1))
        users = lookup.users_of(base.arrays(), keys)
        tasks = [
            RelocateTask(
                repo=self.storage,
                users={key: frozenset(users[key]) for key in keys[at : at + size]},
                access=self.access,
                relocation=self.decided,
                manifests=tuple(map(bytes, keys[at : at + size])),
                sample=tuple(samples[at : at + size]),
                seed=self.seed,
                is_plan=self.dry_run,
                encoding=encoding,
            )
            for at in range(0, len(keys), size)
        ]
        phase = "count" if self.dry_run else "compare"
        stage = describe_jobs(f"relocate: {plural(len(keys), 'manifest')}")
        with self.clock.phase(phase), stage:
            report = telling_tasks(self.clock.step, phase, len(tasks))
            parts = running.run(run_relocate, tasks, progress=report)
        self.found = total([self.found, *parts])
        self.done |= dict.fromkeys(keys)
        for old, new, bytes_, references in (row for part in parts for row in part.manifests):
            info = ManifestFile(
                id=ObjectId12(new) if new else ObjectId12(old),
                size_bytes=bytes_,
                num_chunk_refs=references,
            )
            self.done[ObjectId12(old)] = info

    def _executor(self, work: int | None = 0) -> Executor:
        """Return what runs tasks; by default this process, where they are few."""
        if self.running is None:
            with self.clock.phase("executor"):
                found = executor_of(self.executor, work=work, phase=self.clock.phase)
                self.running = self.stack.enter_context(found)
        return self.running

    def _compare_copies(self, base: Snapshot, copies: Copies) -> frozenset[SourceFile]:
        """Compare what was copied of files with a new checksum, unless this was done before.

        Files to which references lead have to be the same. Others that differ, or that cannot be
        compared, are returned: an update takes them as changed files.
        """
        assert self.decided is not None
        new = {each: now for each, now in copies.items() if self.compared.get(each) != now}
        self.unlike -= new.keys()
        hashes = np.array([hash_of_url(each.url) for each in new], np.uint64)
        leads_there = dict(zip(new, np.isin(hashes, self.found.files).tolist(), strict=True))
        for is_referenced in (True, False):
            some = {each: now for each, now in new.items() if leads_there[each] == is_referenced}
            if not some:
                continue
            if not is_referenced and self.found.there:  # these have the checksum of before
                self.unlike |= some.keys()
                continue
            known = self.found
            with self.clock.phase("compare"):
                seen = compare_copies_of(
                    self._executor(), self.storage, base, known, some, self.decided, self.access
                )
            if is_referenced:
                self.found += seen
                self._refuse_wrong()
            else:
                self.found += replace(seen, differences=(), wrong=np.zeros(0, np.uint64))
                wrong = {*seen.wrong.tolist()}
                self.unlike |= {each for each in some if hash_of_url(each.url) in wrong}
        self.compared |= new
        return frozenset(self.unlike & copies.keys())

    def _refuse_wrong(self) -> None:
        found = self.found
        if len(found.wrong):
            first = found.differences[0]
            raise VerificationError(
                f"{len(found.wrong):,} of {len(found.files):,} files are not at the new place as"
                f" they were at the old one; the first: {first.what}",
                do="Copy these files again, with their times (cp -p, rsync -t), and run the command"
                " again; nothing was changed. If they changed at the old place since they were"
                " built, run `icevirt update` there first; if the old files are gone, build again"
                " from the new place.",
                file=first.file,
                files=[*dict.fromkeys(each.file for each in found.differences)][:10],
            )

    def _config(self, document: JSONObject) -> JSONObject:
        """Return the configuration with the containers of the new place."""
        assert self.decided is not None
        config = RepositoryConfig.from_document(dict(document))
        after = self.decided.after
        if self.found.absolute:
            after = with_old_places(self.decided)
        known = config.virtual_chunk_containers
        if not self.moves_files and not self.decided.renamed:
            return document
        for container in sorted(after.values(), key=lambda each: each.name is None):
            if known.get(container.url_prefix) != container:
                config.set_virtual_chunk_container(container)
        return document if config.document == document else persistable(config.document)

    def _report(
        self,
        decided: Relocation,
        snapshot_id: str | None,
        manifests: int,
        there: int,
        datasets: Sequence[MovedDataset],
    ) -> RelocateReport:
        found = self.found
        moved = {each.url_prefix for _, each in decided.renamed}
        is_used = found.references or datasets
        added = decided.after.keys() - decided.before.keys() - moved if is_used else set()
        return RelocateReport(
            repo=self.storage.url,
            branch=self.branch,
            old=decided.old,
            new=decided.new,
            is_plan=self.dry_run,
            snapshot_id=snapshot_id,
            containers_moved=tuple(
                (str(before.name), before.url_prefix, after.url_prefix)
                for before, after in decided.renamed
            ),
            containers_added=tuple(sorted(added)),
            files=len(found.files),
            references=found.references,
            bytes_referenced=found.bytes,
            manifests=manifests,
            manifests_there=there,
            files_restamped=len(found.restamped),
            files_alone=len(found.alone),
            references_compared=found.compared,
            bytes_compared=found.compared_bytes,
            seed=self.seed,
            datasets=tuple(datasets),
            executor="" if self.running is None else self.running.name,
            seconds=self.clock.seconds,
        )


def _prefix(given: str | os.PathLike[str], containers: Mapping[str, Any]) -> str:
    """Return a prefix as containers spell it.

    A directory that is a link by now was none, perhaps, when files were scanned below it.
    """
    text = os.fspath(given)
    if is_url(text):
        return normalize_prefix(text)
    plain = normalize_prefix(url_of_absolute(os.path.abspath(text)))
    is_known = any(each.startswith(plain) or plain.startswith(each) for each in containers)
    return plain if is_known else normalize_prefix(file_url(text))


def _with_manifests(
    nodes: tuple[Node, ...], replaced: Mapping[ObjectId12, ObjectId12]
) -> tuple[Node, ...]:
    """Return nodes that refer to other manifests, in the same boxes of chunks."""
    return tuple(
        node._replace(
            manifests=tuple(
                ref._replace(object_id=replaced.get(ref.object_id, ref.object_id))
                for ref in node.manifests
            ),
        )
        if isinstance(node, ArrayNode)
        else node
        for node in nodes
    )


def _read_below(decided: Relocation) -> Sequence[VirtualChunkContainer]:
    """Return the containers below which files are compared, at both places."""
    found: list[VirtualChunkContainer] = []
    for prefix, containers in ((decided.old, decided.before), (decided.new, decided.after)):
        below = [each for url, each in containers.items() if url.startswith(prefix)]
        above = [each for url, each in containers.items() if prefix.startswith(url)]
        found += below or sorted(above, key=lambda each: -len(each.url_prefix))[:1]
    return found
