"""Implement `icevirt.verify`: compare a repository with its source files.

Files of datasets to which no reference leads are looked at too. A repository says which these are,
and anybody may have written it: only those below places that the caller authorized are.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.api.commit_options import refuse_misplaced_options
from icevirt.api.dataset.files_held import files_of_build
from icevirt.api.dataset.records import newest_records, provenance_of, records_in
from icevirt.api.events import Clock, long_running, telling_tasks
from icevirt.api.trust.recorded_scanners import find_scanner, recorded_scanner
from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.verification import Checked, VerifyReport, total
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.file_hashes import hashes_of
from icevirt.errors import FormatError, InvalidInputError
from icevirt.execution.executor import Executor, describe_jobs, job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.objects.authorize import GrantedAccess
from icevirt.objects.source_access import SourceAccess
from icevirt.planning.edits.file_edits import read_recorded
from icevirt.planning.remedies import of_arguments
from icevirt.planning.schedule.sampling import sample
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.repo import layout
from icevirt.repo.authorization import (
    Authorization,
    authorize,
    find_unauthorized,
    refuse_unauthorized,
)
from icevirt.repo.made_here import identify, own_or
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.scan.registry import find_named
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Storage
from icevirt.tasks.verify.comparison import compare_values
from icevirt.tasks.verify.references import (
    CopiedTask,
    VerifyTask,
    check_copied,
    check_references,
    prefixes_used,
)
from icevirt.versioning import lookup
from icevirt.versioning.manifest_splitting import along_arrays

VALUES = 100
"""Chunks whose values are compared by default."""

_FEW = 8  # manifests, and
_HANDFUL = 200  # chunks, that are looked at faster than Spark starts
_TASKS_PER_SLOT = 4


@refuse_misplaced_options
def verify(
    repo: StorageLike,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    references: bool | None = None,
    values: int | None = None,
    full: bool = False,
    seed: int | None = None,
    scanner: str | None = None,
    authorize_virtual_chunk_access: Authorization = None,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> VerifyReport:
    """Compare one version of a repository with the files it refers to.

    Args:
        repo: Path or URL of the repository.
        branch: The branch whose newest version is verified; ``main`` unless another is named.
        tag: The tag whose version is verified.
        snapshot_id: The version that is verified.
        references: Look at every referenced file: existence, length, checksum; and at the files of
            datasets of which everything was copied, below the prefixes that are authorized. By
            default yes, unless only values are requested.
        values: Compare the values of that many chunks, drawn at random, as read through the
            repository with what h5py or netCDF4 reads from the file; 100 if nothing is
            requested. The coordinates and stored variables of each file met are compared too.
        full: Compare all chunks.
        seed: Of the sample; by default another one each time. It is in the report.
        scanner: The scanner that describes the files for the comparison of values; by default the
            one that the build named, if it is installed under that name or you named it on this
            machine, else each file's content decides.
        authorize_virtual_chunk_access: As for `Repository.open`: prefixes to read below; left out:
            what builds of this user on this machine referred to.
        executor: What runs tasks, as for `build`; by default this process where there is little to
            do, else the active session of Spark, or processes of this machine.
        progress: Called with every step of the long phases.

    Raises:
        UnauthorizedError: A container that references of the version use was not authorized.
        InvalidInputError: Arguments contradict one another; or the build named a scanner that is
            not installed, or that only you may name.
        RepositoryNotFoundError, RefNotFoundError, SnapshotNotFoundError: They do not exist.

    Examples:
        >>> report = icevirt.verify("repo", authorize_virtual_chunk_access=["archive"])
        >>> report.ok, report.checked.references, report.checked.files
        (True, 48, 4)
    """
    if values is not None and values < 0:
        raise InvalidInputError(
            "the number of chunks is negative",
            do=write_remedy("Pass ", write_option("values", 0), " or more."),
            values=values,
        )
    asked = references is not None or values is not None or full
    with_references = references if references is not None else not asked
    wanted = VALUES if not asked else values or 0
    if not (with_references or wanted or full):
        raise InvalidInputError(
            "nothing to verify",
            do=write_remedy(
                "Pass ",
                write_option("references", True),
                ", ",
                write_code("values=N", "--values N"),
                " or ",
                write_option("full", True),
                ".",
            ),
        )
    storage = storage_of(repo)
    access = authorize(own_or(authorize_virtual_chunk_access, identify(storage)))
    opened = Repository.open(storage, authorize_virtual_chunk_access=access)
    ref = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id}
    if not any(ref.values()):
        ref["branch"] = "main"
    session = opened.readonly_session(**ref)  # type: ignore[arg-type]  # a name each
    scanners: Mapping[str, str] = {}
    if scanner is not None:
        if scanner:
            find_named(scanner)
        scanners = {paths.ROOT: scanner}
    elif wanted or full:
        scanners = _find_scanners(opened, session)
    return _verify(
        opened,
        session,
        access,
        with_references=with_references,
        wanted=wanted,
        full=full,
        seed=secrets.randbelow(1 << 32) if seed is None else seed,
        scanners=scanners,
        executor=executor,
        clock=Clock(progress),
    )


def verify_snapshot(
    storage: Storage,
    snapshot_id: str,
    *,
    values: int,
    access: Mapping[Any, Any],
    scanners: Mapping[str, str],
    executor: ExecutorChoice,
) -> VerifyReport:
    """Verify a version that a call made: all references, and the values of some chunks.

    Args:
        storage: The repository.
        snapshot_id: The version, which may be on no branch.
        values: How many chunks are compared.
        access: As ``authorize_virtual_chunk_access``.
        scanners: That describe the files of the datasets that the call made, by group. Datasets of
            other groups are not looked at.
        executor: Runs the tasks.

    Raises:
        UnauthorizedError: References of the version use other containers.
    """
    granted = authorize(access)
    opened = Repository.open(storage, authorize_virtual_chunk_access=granted)
    session = opened.readonly_session(snapshot_id=snapshot_id)
    return _verify(
        opened,
        session,
        granted,
        with_references=True,
        wanted=values,
        full=False,
        seed=secrets.randbelow(1 << 32),
        scanners=scanners,
        own=scanners.keys(),
        executor=executor,
        clock=Clock(),
    )


def _verify(
    opened: Repository,
    session: Session,
    access: Mapping[str, GrantedAccess],
    *,
    with_references: bool,
    wanted: int,
    full: bool,
    seed: int,
    scanners: Mapping[str, str],
    executor: ExecutorChoice,
    clock: Clock,
    own: Collection[str] | None = None,
) -> VerifyReport:
    """Verify a version; given ``own`` groups, only the datasets of these groups."""
    storage = opened.storage
    records = [
        each
        for each in _records_of(opened, session)
        if own is None or str(each.get("group")) in own
    ]
    nodes = [*session.snapshot.arrays()]
    if own is not None:
        nodes = _arrays_of(own, nodes, _records_of(opened, session))
    work = _Work(
        session, storage, access, build=_build_of(opened, session), scanners=scanners, nodes=nodes
    )
    with long_running("verify", clock), job_tags(storage.url), ExitStack() as stack:
        size = work.total if full else wanted
        is_small = len(work.manifests) <= _FEW and size <= _HANDFUL
        with clock.phase("executor"):
            made = executor_of(executor, work=0 if is_small else None, phase=clock.phase)
            running = stack.enter_context(made)
        path = layout.snapshot(session.snapshot.id)
        check_before_first(running, ClusterNeeds(read=((storage, path),)))
        _refuse_unauthorized(session, access, work, running)
        slots = running.parallelism
        work.tasks = slots * _TASKS_PER_SLOT if slots > 1 else 1  # alone, none waits for the last

        def done(phase: str, function: Callable[[VerifyTask], Any], tasks: list[Any]) -> list[Any]:
            if not tasks:
                return []
            report = telling_tasks(clock.step, phase, len(tasks))
            with clock.phase(phase), describe_jobs(f"verify: {phase}"):
                return running.run(function, tasks, progress=report)

        found: list[Checked] = []
        if with_references:
            looked = done("references", check_references, work.all())
            met = np.concatenate([np.zeros(0, np.uint64), *(urls for _, urls in looked)])
            found += [checked for checked, _ in looked]
            with clock.phase("references"), describe_jobs("verify: files without references"):
                found.append(
                    check_files_copied(
                        opened, session, access, met, running=running, records=records
                    )
                )
        chosen = work.some(wanted, full=full, seed=seed)
        found += done("values", compare_values, chosen)
    checked = total(found)
    return VerifyReport(
        repo=storage.url,
        snapshot_id=session.snapshot_id,
        checked=_with_unmatched(session, checked) if full else checked,
        seed=seed,
        executor=running.name,
        seconds=clock.seconds,
    )


def _with_unmatched(session: Session, checked: Checked) -> Checked:
    """Add arrays with values of which nothing was compared; labels of a new axis have no file.

    Stored arrays are compared beside the chunks of a file that are references.
    """
    seen = checked.compared | {path for path, _ in checked.not_compared}
    unmatched = tuple(
        node.path
        for node in session.snapshot.arrays()
        if node.path not in seen
        and node.manifests
        and not any(each.array == node.path for each in checked.differences)
        and node.dimension_names != (paths.name(node.path),)
    )
    return replace(checked, unmatched=unmatched)


def _refuse_unauthorized(
    session: Session,
    access: Mapping[str, GrantedAccess],
    work: _Work,
    running: Executor,
) -> None:
    """Ask for the prefixes of containers that references use, and for no others."""
    missing = find_unauthorized(session.config.virtual_chunk_containers.values(), access)
    if not missing:
        return
    with describe_jobs("verify: prefixes of files"):
        found = running.run(prefixes_used, work.all())
    used = frozenset[str]().union(*found)
    containers = session.config.virtual_chunk_containers
    needed = [each for prefix, each in containers.items() if prefix in used]
    refuse_unauthorized(needed, access, what="verification")


def _build_of(opened: Repository, session: Session) -> Mapping[str, Any]:
    """Return what the newest build says that led to a version; other commits may follow it."""
    info = opened.head.read().info
    here = session.snapshot
    if (found := provenance_of(here)) is not None or here.id not in info.snapshots:
        return found or {}
    older = map(provenance_of, lookup.ancestry(info, here.id))
    return next((each for each in older if each is not None), {})


def _arrays_of(
    own: Collection[str], nodes: Iterable[ArrayNode], records: Iterable[Mapping[str, Any]]
) -> list[ArrayNode]:
    """Return the arrays whose nearest group with a build is one of ``own``."""
    known = {*own, *(str(each.get("group")) for each in records)}
    return [
        node
        for node in nodes
        if next((each for each in reversed(paths.ancestors(node.path)) if each in known), "") in own
    ]


def _find_scanners(opened: Repository, session: Session) -> dict[str, str]:
    """Return the scanners that were named for datasets of a version, by group.

    Raises:
        InvalidInputError: One is not installed, or only the caller may name it.
    """
    found = {}
    for record in _records_of(opened, session):
        group = str(record.get("group"))
        name = find_scanner(opened.storage, record)
        if name is None:
            recorded = recorded_scanner(record)
            raise InvalidInputError(
                "the build named a scanner, which is not taken from the repository",
                fixes=[of_arguments({"scanner": recorded}, "runs it, if you trust this name")],
                do="Anyone who can write the repository could choose what is run here.",
                group=group,
                recorded=recorded,
            )
        found[group] = name
    return found


def _records_of(opened: Repository, session: Session) -> Iterator[Mapping[str, Any]]:
    """Yield what the last build of each group said."""
    info, here = opened.head.read().info, session.snapshot
    if here.id in info.snapshots:
        return newest_records(info, here.id)
    return records_in(here)


class _Work:
    """The manifests of a snapshot, those that share files next to one another."""

    def __init__(
        self,
        session: Session,
        storage: Any,
        access: Mapping[str, Any],
        *,
        build: Mapping[str, Any],
        scanners: Mapping[str, str],
        nodes: Iterable[ArrayNode],
    ) -> None:
        self._session, self._storage, self._access = session, storage, access
        self._scanners = scanners
        self.manifests = in_order(session.snapshot, nodes)
        choices = build.get("combine", {})
        self._tolerance: Mapping[str, float] = choices.get("tolerance") or {}
        is_rebased = bool(choices.get("rebase_indices"))
        self._index_of = dict(choices.get("index_of") or {}) if is_rebased else None
        self._edit, self._function = read_recorded(choices.get("edits"))
        self.tasks = 1  # how many the work is cut into

    @property
    def total(self) -> int:
        """References of all manifests."""
        return sum(count for _, count in self.manifests)

    def all(self) -> list[VerifyTask]:
        """Return tasks that together see every manifest."""
        return [self._task(pile) for pile in self._piles(self.manifests)]

    def some(self, size: int, *, full: bool, seed: int) -> list[VerifyTask]:
        """Return tasks that together see a sample of the references."""
        counts = np.array([count for _, count in self.manifests], np.int64)
        drawn = sample(counts, self.total if full else size, seed=seed)
        chosen = [
            (key, rows) for (key, _), rows in zip(self.manifests, drawn, strict=True) if len(rows)
        ]
        return [self._task(pile) for pile in self._piles(chosen)]

    def _piles[T](self, what: Sequence[tuple[ObjectId12, T]]) -> list[list[tuple[ObjectId12, T]]]:
        size = -(-len(what) // self.tasks) or 1
        return [list(what[at : at + size]) for at in range(0, len(what), size)]

    def _task(self, pile: Sequence[tuple[ObjectId12, Any]]) -> VerifyTask:
        return VerifyTask(
            repo=self._storage,
            snapshot_id=self._session.snapshot_id,
            access=self._access,
            manifests=tuple(bytes(key) for key, _ in pile),
            rows=tuple(rows for _, rows in pile),
            tolerance=self._tolerance,
            edit=self._edit,
            preprocessed=bool(self._function),
            index_of=self._index_of,
            scanners=self._scanners,
        )


def in_order(snapshot: Snapshot, nodes: Iterable[ArrayNode]) -> list[tuple[ObjectId12, int]]:
    """Return manifests with counts of references, those that share files beside one another."""
    found = ((key, snapshot.manifest(key)) for key in along_arrays(nodes))
    return [(key, info.num_chunk_refs) for key, info in found if info is not None]


_PER_TASK = 4096  # files


def check_files_copied(
    opened: Repository,
    session: Session,
    access: Mapping[str, GrantedAccess],
    met: NDArray[np.uint64],
    *,
    running: Executor,
    records: Iterable[Mapping[str, Any]],
) -> Checked:
    """Look at the files of a version's datasets that references do not lead to.

    Args:
        opened: The repository.
        session: Its version.
        access: What was authorized, by prefix.
        met: The hashes of the URLs of files that were looked at.
        running: Runs tasks.
        records: What the builds of the datasets said.
    """
    reach = SourceAccess.of_containers(session.config.virtual_chunk_containers, access)
    places = tuple(prefix for prefix in access if prefix.startswith("file://"))
    places += tuple(grant.prefix for grant in reach.grants)
    tasks, unread = [], []
    for record in records:
        try:
            files = files_of_build(opened.storage, record).files
        except (FormatError, InvalidInputError) as error:
            unread.append((str(record.get("group")), error.what))
            continue
        out = {str(url) for url, *_ in record.get("bad_files") or ()}
        out |= {*(record.get("combine", {}).get("absent") or ())}
        left = np.flatnonzero(~np.isin(hashes_of(files)["url"], met))
        named = (file for file in files.at(left) if file.url.startswith(places))
        rest = [file for file in named if file.url not in out]
        tasks += [
            CopiedTask(files=SourceFiles(rest[at : at + _PER_TASK]), access=reach)
            for at in range(0, len(rest), _PER_TASK)
        ]
    found = total(running.run(check_copied, tasks)) if tasks else Checked()
    return found + Checked(not_compared=tuple(unread))
