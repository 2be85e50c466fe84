"""Infer the dimensions to concatenate along: those whose labels differ between files.

It compares the first good file with the last: by the catalog where it describes them, else by a
scan of these two before all others, which takes what the dimensions need while both are open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import batched, chain, islice, takewhile

import numpy as np

from icevirt.api.pipeline.stages import Scan, begin_scan, combined_facts, scan_missing
from icevirt.archive.catalog import parts_of
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.facts_beside import BesideReader
from icevirt.catalog.facts_reader import read_facts
from icevirt.catalog.lookup import CatalogLookup
from icevirt.errors import IcevirtError
from icevirt.execution.executor import Executor, described
from icevirt.model import paths
from icevirt.objects.source_access import in_force
from icevirt.planning.axes.candidates import merging
from icevirt.planning.axes.differing import (
    ComparedLabels,
    LabelsByDimension,
    comparable,
    differing,
    of_many,
)
from icevirt.planning.combine.hints import holds_labels
from icevirt.planning.schedule.balance_scans import pieces_of
from icevirt.tasks.scan import End, EndsFound, EndsTask, run_scan_ends

_TRIED = 64  # files from each end, among which a good one is looked for


def scan_and_infer(
    executor: Executor, job: Scan, tolerance: Mapping[str, float] | None
) -> tuple[Scan, int]:
    """Scan the files that are not in the catalog yet; infer the dimensions where none is named.

    Args:
        executor: Runs the tasks.
        job: The scan.
        tolerance: How far coordinates may differ that are the same. None: nothing is inferred, and
            the options of the scan hold.

    Returns:
        The scan with its dimensions, and the number of files scanned.
    """
    if tolerance is None or job.options.concat_dims or len(job.files) < 2:
        return job, scan_missing(executor, job)
    known = begin_scan(job)
    found = _compared(executor, job, known, tolerance)
    later = job if found.dimensions is None else _along(job, found.dimensions)
    known = job.settled() if found.files else known
    scanned = found.files + scan_missing(executor, later, known, ends=found.files)
    if found.dimensions is None:  # no file near an end is good, or one ends its process
        found = _compared(executor, job, job.settled(), tolerance)
    if not found.dimensions:
        found = EndsFound(dimensions=_among_all(executor, job, tolerance))
    return _along(job, found.dimensions), scanned


def _along(job: Scan, dimensions: tuple[str, ...] | None) -> Scan:
    """Return the scan along dimensions; one name is kept as it is, as where a person gives it."""
    found = dimensions or ()
    concat_dim = found if len(found) > 1 else next(iter(found), None)
    return replace(job, options=replace(job.options, concat_dim=concat_dim))


def _compared(
    executor: Executor, job: Scan, known: CatalogLookup, tolerance: Mapping[str, float]
) -> EndsFound:
    """Compare the first good file and the last; those that the catalog lacks are scanned."""
    places = range(len(job.files))
    first, last = (_end(executor, job, known, order) for order in (places, places[::-1]))
    if first.parts or last.parts:
        task = EndsTask(
            ends=(first, last),
            tolerance=tuple(tolerance.items()),
            options=job.options,
            catalog=job.catalog,
            access=in_force(),
            limits=job.limits,
        )
        with described("scan: the first and the last file", job.catalog.url):
            (found,) = executor.run(run_scan_ends, [task], storage=job.catalog)
        return found
    if first.labels is None or last.labels is None:
        return EndsFound(dimensions=None)
    return EndsFound(dimensions=differing(first.labels, last.labels, tolerance))


def _end(executor: Executor, job: Scan, known: CatalogLookup, order: range) -> End:
    """Return what the catalog says of the first good file in an order, or which it may be."""
    done = 0
    for some in chain([order[:1]], batched(order[1:], _TRIED)):
        there = [*takewhile(lambda at: known.part[at] >= 0, some)]
        facts = _facts(job, known, there)
        if facts is not None and len(facts.files):
            return End(labels=_labels(executor, job, facts.only(np.zeros(1, np.int64))))
        done += len(there)
        if len(there) < len(some):
            missing = takewhile(lambda at: known.part[at] < 0, order[done:])
            return _unknown(job, known.attempt, islice(missing, _TRIED))
    return End(labels=None)


def _unknown(job: Scan, attempt: int, places: Iterable[int]) -> End:
    """Return files that the catalog does not describe, each as a part."""
    files = [job.files[at] for at in places]  # few enough for parts of one file
    pieces = pieces_of(job.files) if pieces_of(files) else {}
    parts = parts_of(files, identity=job.identity, attempt=attempt, pieces=pieces)
    return End(labels=None, parts=parts)


def _facts(job: Scan, known: CatalogLookup, places: list[int]) -> CatalogFacts | None:
    """Read the facts of some files, of which the catalog describes all."""
    if not places:
        return None
    names, chosen = replace(known, part=known.part[places], row=known.row[places]).chosen
    files = SourceFiles(job.files[at] for at in places)
    return read_facts(job.catalog, files, names, chosen).facts


def _labels(executor: Executor, job: Scan, facts: CatalogFacts) -> LabelsByDimension:
    """Return the labels of a file's dimensions; those that its scan did not take are taken now."""
    (found,) = _labels_of_all(executor, job, facts)
    return found


def _labels_of_all(executor: Executor, job: Scan, facts: CatalogFacts) -> list[LabelsByDimension]:
    arrays = facts.arrays
    schemas = [ArraySchema.loads(text) for text in arrays.schema.values]
    kinds, kind = np.unique(
        np.stack([arrays.path.codes, arrays.schema.codes]), axis=1, return_inverse=True
    )
    holds = [
        holds_labels(
            arrays.path.values[path], schemas[code].dimension_names, schemas[code].data_type
        )
        for path, code in kinds.T.tolist()
    ]
    rows = np.flatnonzero(np.array(holds, np.bool_)[kind.reshape(-1)])
    facts = replace(facts, arrays=arrays.take(rows))
    along = replace(
        job.options, concat_dim=tuple(dict.fromkeys(map(paths.name, facts.arrays.path.values)))
    )
    with suppress(IcevirtError):  # the plan says what is wrong with values that cannot be taken
        beside = BesideReader(job.catalog)
        facts = combined_facts(executor, replace(job, options=along), facts, beside)
    found: list[dict[str, ComparedLabels]] = [{} for _ in range(len(facts.files))]
    for at, row in enumerate(rows.tolist()):
        if (kept := facts.arrays.labels.get(at)) is not None:
            attributes = schemas[arrays.schema.codes[row]].attributes
            labels = comparable(kept.tobytes(), kept.dtype.str, attributes)
            found[int(facts.arrays.file[at])][paths.name(facts.arrays.path[at])] = labels
    return [*found]


def _among_all(executor: Executor, job: Scan, tolerance: Mapping[str, float]) -> tuple[str, ...]:
    """Compare all files that were scanned, where the first and the last say nothing."""
    known = job.settled()
    there = np.flatnonzero(known.part >= 0).tolist()
    facts = _facts(job, known, there)
    if facts is None:
        return ()
    labels = _labels_of_all(executor, job, facts)
    return of_many(labels, tolerance) or (merging(facts) if len(facts.files) > 1 else ())
