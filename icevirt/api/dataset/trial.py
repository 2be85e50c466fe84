"""Find out which files fit a dataset, by planning it with them; nothing is written to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from icevirt.amounts import plural
from icevirt.api.dataset.change import Request
from icevirt.api.dataset.planning import Planned, hold_against, plan_files
from icevirt.api.dataset.records import digest_of
from icevirt.api.dataset.replacing import OF_OTHERS
from icevirt.api.dataset.scanning import Scan, scan_and_infer, scan_missing
from icevirt.api.dataset.target import Target
from icevirt.archive.catalog import path_of
from icevirt.archive.plan import FileRows
from icevirt.archive.reports.build import BadFile
from icevirt.archive.reports.upkeep import FileHeldBack
from icevirt.archive.schema import ArraySchema
from icevirt.archive.sources import SourceFile, SourceFiles, name_of_url
from icevirt.catalog.facts_reader import Chosen, read_facts
from icevirt.catalog.lookup import CatalogLookup, forget
from icevirt.catalog.parquet import read_table
from icevirt.errors import (
    CombineError,
    IcevirtError,
    OverlapError,
    PlanChangedError,
    UnsupportedError,
)
from icevirt.execution.executor import Executor
from icevirt.execution.executor import describe_jobs as stage_of
from icevirt.planning.schedule.cost_estimate import costs_of
from icevirt.tasks.compare_files import AlikeTask, find_alike

MISFITS = (CombineError, PlanChangedError, UnsupportedError)
"""Errors of files that do not belong to a dataset as they are."""


def is_misfit(error: IcevirtError) -> bool:
    """Say whether files are to blame for an error, and not what others did to the dataset."""
    return isinstance(error, MISFITS) and OF_OTHERS not in error.facts


UNTRIED = "untried"
"""In the place of an error's code: the file may fit."""

_TRIALS = 200  # plans of one update
_KIND = 4  # files of one kind that are worth being tried together


def try_files(executor: Executor, request: Request, files: SourceFiles, target: Target) -> Planned:
    """Plan a dataset of files, as a build does, and hold it against what is there.

    Raises:
        CombineError: They do not combine.
        PlanChangedError: Something of the dataset, or of others, would be lost.
        UnsupportedError: A variable cannot be as its policy wants it.
        ScanError: One is bad.
    """
    planned = plan_dataset(executor, request, files, target, digest_of("trial"))
    facts = planned.facts
    plan = request.commit.named_containers.put_into_containers(facts, planned.plan)
    replacing = hold_against(target, plan, request)
    plan = replace(
        plan,
        cost=replace(costs_of(plan), scan_tasks=0),  # all files were scanned
        executor=executor.name,
        difference=replacing.difference(),
    )
    return replace(planned, plan=plan)


def plan_dataset(
    executor: Executor, request: Request, files: SourceFiles, target: Target, build_id: str
) -> Planned:
    """Plan a dataset of files as the build of an id does; raises as `tried`, but for losses."""
    scan, _ = scan_and_infer(executor, request.scan(files), request.choices.inferring)
    return plan_files(request, executor, scan, target, build_id=build_id, explains=False)


def scan_files_of(
    executor: Executor, request: Request, files: Sequence[SourceFile], again: Sequence[SourceFile]
) -> tuple[int, tuple[BadFile, ...]]:
    """Scan files that the catalog does not describe; return how many, and which are bad.

    Bad files are scanned again by the next update.

    Args:
        executor: Runs the tasks.
        request: Of the update.
        files: To be scanned.
        again: Of them, those that are scanned though the catalog describes them.
    """
    note, before = "", request.scan(again)
    if again:
        known = before.settled()
        described = np.flatnonzero(known.part >= 0)
        note = _forget_files(before, known, described)
    job = request.scan(files)
    count = scan_missing(executor, job)
    known = job.settled()
    found = np.flatnonzero(known.part >= 0)
    if not len(found):
        return count, ()
    some = replace(job, files=SourceFiles(job.files[int(at)] for at in found))
    names, chosen = some.settled().chosen
    closed = read_facts(job.catalog, some.files, names, chosen)
    if closed.bad:
        forget(job.catalog, names, closed.bad_rows)
        if note:  # what was known of the bad ones still holds for the dataset
            bad = {each.url for each in closed.bad}
            good = [at for at in described.tolist() if before.files.urls[at] not in bad]
            if len(good) < len(described):
                _forget_files(before, known, np.array(good, np.int64))
                job.catalog.delete(note)
    return count, closed.bad


def _forget_files(scan: Scan, known: CatalogLookup, at: NDArray[np.int64]) -> str:
    """Let the catalog forget some of the files of a scan; return the note that says so."""
    if not len(at):
        return ""
    return forget(scan.catalog, known.parts, Chosen(part=known.part[at], row=known.row[at]))


_PER_TASK = 64  # files


def find_same_layout(
    executor: Executor, request: Request, before: Sequence[SourceFile], now: Sequence[SourceFile]
) -> frozenset[str]:
    """Return the URLs of files that are described as they were before they changed.

    Files that the catalog no longer describes as they were are not among these.

    Args:
        executor: Runs the tasks.
        request: Of the update.
        before: The files as the dataset holds them.
        now: The same files as they are; they were scanned.
    """
    pairs = [(one, other) for one, other in zip(before, now, strict=True) if one != other]
    if not pairs:
        return frozenset()
    both = [request.scan(each).settled() for each in zip(*pairs, strict=True)]
    there = np.flatnonzero((both[0].part >= 0) & (both[1].part >= 0))
    rows = [FileRows(parts=each.parts, part=each.part, row=each.row) for each in both]
    piles = [there[at : at + _PER_TASK] for at in range(0, len(there), _PER_TASK)]
    tasks = [
        AlikeTask(before=rows[0].take(pile), now=rows[1].take(pile), catalog=request.kept_catalog)
        for pile in piles
    ]
    with stage_of(f"compare: {plural(len(there), 'file')}", request.kept_catalog.url):
        found = executor.run(find_alike, tasks) if tasks else []
    return frozenset(
        pairs[at][1].url
        for pile, alike in zip(piles, found, strict=True)
        for at in pile[alike].tolist()
    )


def kinds(request: Request, files: Sequence[SourceFile]) -> list[list[SourceFile]]:
    """Return files that were scanned by what they hold: variables, types, and how large.

    Kinds and their files come in the order in which they are given.
    """
    known = request.scan(files).settled()
    along = {*request.options.concat_dims}
    facts_of_files: list[list[str]] = [[] for _ in files]
    for number in np.unique(known.part[known.part >= 0]).tolist():
        place = {int(known.row[at]): at for at in np.flatnonzero(known.part == number).tolist()}
        path = path_of("arrays", known.parts[number])
        table = read_table(request.kept_catalog, path, ["row", "path", "schema", "shape"])
        for row in table.to_pylist():
            if (at := place.get(row["row"])) is not None:
                names = ArraySchema.loads(row["schema"]).dimension_names
                sizes = zip(names, json.loads(row["shape"]), strict=False)
                fixed = [size for name, size in sizes if name not in along]
                facts_of_files[at].append(json.dumps([row["path"], row["schema"], fixed]))
    found: dict[tuple[str, ...], list[SourceFile]] = {}
    for file, each in zip(files, facts_of_files, strict=True):
        found.setdefault(tuple(sorted(each)), []).append(file)
    return [*found.values()]


def misfits(
    files: Sequence[Sequence[SourceFile]],
    fits: Callable[[Sequence[SourceFile]], IcevirtError | None],
) -> list[FileHeldBack]:
    """Return the files that cannot be in the dataset together with the others.

    All of a kind are tried together. If the first and the last of a refused kind are refused alone,
    for the same reason and not for their steps, all of it is; else halves are tried until single
    files are left. What is left when the tries are used up is held back untried, and comes first
    the next time.

    Args:
        files: That were refused together, by kind; those that are most likely to fit first.
        fits: Says why the dataset cannot hold some files, None where it can.

    Raises:
        IcevirtError: The dataset is refused without any of them.
    """
    if (error := fits(())) is not None:
        raise error
    trials = _MisfitSearch(fits)
    for some in files:
        trials.add_kind(some)
    return trials.held


class _MisfitSearch:
    """What was tried, and what came of it."""

    def __init__(self, fits: Callable[[Sequence[SourceFile]], IcevirtError | None]) -> None:
        self._fits, self._left = fits, _TRIALS
        self._accepted: list[SourceFile] = []
        self.held: list[FileHeldBack] = []

    def add_kind(self, some: Sequence[SourceFile]) -> None:
        """Take all files of a kind, or find those that fit."""
        if len(some) < _KIND or not self._left:
            return self.add(some)
        refused = self._attempt(some)
        if refused is None:
            return self._accepted.extend(some)
        ends = [self._attempt([some[0]]), self._attempt([some[-1]])]
        if any(each is None or isinstance(each, OverlapError) for each in ends):
            return self.add(some)  # steps are each file's own, and say nothing of the others
        if len({each.code for each in ends if each is not None}) > 1:
            return self.add(some)
        first = ends[0] or refused
        name = name_of_url(some[0].url)
        same = f"has the same variables as {name}, which is refused: {first.what}"
        self.held.append(file_held_back(some[0], first.code, first.what))
        self.held += [file_held_back(each, first.code, same) for each in some[1:]]
        return None

    def add(self, some: Sequence[SourceFile]) -> None:
        """Take files if they fit together; else try their halves."""
        if not self._left:
            why = "not tried: too many others fit not"
            self.held += [file_held_back(each, UNTRIED, why) for each in some]
            return
        refused = self._attempt(some)
        if refused is None:
            self._accepted.extend(some)
        elif len(some) == 1:
            self.held.append(file_held_back(some[0], refused.code, refused.what))
        else:
            middle = len(some) // 2
            self.add(some[:middle])
            self.add(some[middle:])

    def _attempt(self, some: Sequence[SourceFile]) -> IcevirtError | None:
        self._left = max(0, self._left - 1)
        return self._fits([*self._accepted, *some])


def file_held_back(file: SourceFile, code: str, error: str) -> FileHeldBack:
    """Return a file that is held back for an error."""
    return FileHeldBack(
        url=file.url,
        size=file.size,
        etag=file.etag,
        last_modified=file.last_modified,
        code=code,
        error=error,
    )


def hold_back(files: Iterable[SourceFile], bad: Sequence[BadFile]) -> Iterator[FileHeldBack]:
    """Yield the bad ones among files, as they are held back."""
    errors = {each.url: each for each in bad}
    for file in files:
        if (found := errors.get(file.url)) is not None:
            yield file_held_back(file, found.code, found.error)
