"""Keep a dataset to its last steps: drop files that are wholly behind a window.

The window is counted from the newest step, never from the clock. Chunk indices are absolute, so
that all that stays is written again: therefore it happens only when a tenth of the steps can go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.xarray.datastore import dataset_of
from icevirt.api.dataset.left_out import exclude
from icevirt.api.upkeep.dropping import DatasetFiles
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.upkeep import WindowChange
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model.json import loads
from icevirt.planning.axes.placement import duration_of
from icevirt.repo.repository import Repository

_WORTH = 10  # that part of the steps is dropped at least


@dataclass(frozen=True, slots=True)
class Window:
    """A length of time, or a distance of numbers."""

    text: str
    dimension: str | None  # None: the outermost along which files lie

    @classmethod
    def of(cls, given: str | float | Mapping[str, str | float]) -> Window:
        """Read ``"90D"``, ``100``, ``"time=90D"`` or ``{"time": "90D"}``.

        Raises:
            InvalidInputError: It is none of these.
        """
        dimension: str | None = None
        length: Any = given
        if isinstance(given, Mapping):
            if len(given) != 1:
                raise InvalidInputError("a window has one dimension", do='Pass {"time": "90D"}.')
            ((dimension, length),) = given.items()
        elif isinstance(given, str) and "=" in given:
            dimension, _, length = given.partition("=")
        found = cls(str(length).strip(), dimension)
        if not duration_of(found.text) and not found.number > 0:
            raise InvalidInputError(
                "the window is neither a time nor a number above zero",
                do='Pass a time like window="90D", or a number for coordinates without units.',
                window=found.text,
            )
        return found

    @property
    def number(self) -> float:
        """The distance, where the coordinate holds numbers; 0 where the text is a time."""
        try:
            return float(self.text)
        except ValueError:
            return 0.0

    def keeps(self, values: NDArray[Any], dimension: str) -> NDArray[np.bool_]:
        """Say which labels lie in the window.

        Raises:
            InvalidInputError: The labels are of another kind than the window, or do not increase.
        """
        is_time = values.dtype.kind in "MO"
        if is_time != bool(duration_of(self.text)) or values.dtype.kind not in "MOiuf":
            raise InvalidInputError(
                "the window does not fit the labels of the dimension",
                do='Pass a time like "90D" where labels are times, and a number where they are'
                " numbers.",
                dimension=dimension,
                window=self.text,
                labels=str(values.dtype),
            )
        if not len(values) or not bool(np.all(values[1:] > values[:-1])):
            raise InvalidInputError(
                "a window needs labels that increase from step to step",
                do="Build the dataset with its files in order.",
                dimension=dimension,
            )
        newest = values[-1]
        kept: NDArray[np.bool_]
        if values.dtype.kind == "M":
            kept = values >= newest - np.timedelta64(duration_of(self.text), "us")
            return kept
        if values.dtype.kind == "O":
            from datetime import timedelta

            oldest = newest - timedelta(microseconds=duration_of(self.text))
            return np.array([value >= oldest for value in values], np.bool_)
        kept = values.astype(np.float64) >= float(newest) - self.number
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What of a dataset lies behind a window."""

    files: DatasetFiles
    change: WindowChange
    gone: frozenset[str]  # URLs of the files

    def drop(self) -> WindowChange:
        """Build the dataset without them; files that are named again stay out.

        Raises:
            PlanChangedError: Something that others stored or added would be lost.
        """
        if not self.change.is_due:
            return self.change
        files, change = self.files, self.change
        exclude(files.storage, self.gone, why="window", branch=files.branch, group=files.group)
        report = files.without(
            self.gone,
            message=f"Drop {change.steps_dropped:,} steps behind the window of {change.window}",
        )
        return replace(change, snapshot_id=report.snapshot_id)


def behind(window: Window, files: DatasetFiles) -> Behind:
    """Find the files that are wholly behind a window.

    Raises:
        InvalidInputError: The dimension is none along which the files lie, or its labels do not
            suit the window.
        UnsupportedError: The dataset has eras.
        CombineError: The dataset's files no longer combine.
    """
    if files.record.get("eras", 1) != 1:
        raise UnsupportedError(
            "a dataset with eras cannot be kept to a window",
            do="Build it from the files of the window, into another group.",
            group=files.group,
        )
    named = (files.record.get("scan") or {}).get("concat_dim") or ()
    along = (named,) if isinstance(named, str) else tuple(named)
    dimension = window.dimension or (along[0] if along else "")
    if dimension not in along:
        raise InvalidInputError(
            "the files do not lie one after another along this dimension",
            do=f"Name one of {', '.join(along) or '(there is none)'}.",
            dimension=dimension,
        )
    values = _labels(files, dimension)
    first = int(np.argmax(window.keeps(values, dimension)))
    change = WindowChange(
        group=files.group,
        dimension=dimension,
        window=window.text,
        first=str(values[0]),
        keeps_from=str(values[0]),
        newest=str(values[-1]),
        steps=len(values),
        steps_dropped=0,
        files=len(files.listing.files),
        files_dropped=0,
        references=0,
        is_due=False,
    )
    if first * _WORTH < len(values):
        return Behind(files=files, gone=frozenset(), change=change)  # and nothing is planned
    plan = files.plan()
    begins, ends = _spans(plan, dimension, len(values))
    is_gone = (ends >= 0) & (ends <= first)
    start = int(begins[(ends >= 0) & ~is_gone].min())
    gone = {plan.files.url[row] for row in np.flatnonzero(is_gone).tolist()}
    # a file that another one stands for would come back in its place
    gone |= {each.url for each in plan.left_out if each.kept in gone}
    return Behind(
        files=files,
        gone=frozenset(gone),
        change=replace(
            change,
            keeps_from=str(values[start]),
            steps_dropped=start,
            files_dropped=len(gone),
            references=sum(array.expected for array in plan.arrays),
            is_due=start > 0 and start * _WORTH >= len(values),
        ),
    )


def _labels(files: DatasetFiles, dimension: str) -> NDArray[Any]:
    """Return the labels of a dimension, as the branch shows them."""
    session = Repository.open(files.storage).readonly_session(files.branch)
    ds = dataset_of(IcevirtStore(session), session.snapshot, files.group, {})
    if dimension not in ds.variables:
        raise InvalidInputError(
            "the dimension has no coordinate to count from",
            do="Build the dataset with labels for this dimension.",
            dimension=dimension,
        )
    values: NDArray[Any] = ds[dimension].values
    return values


def _spans(
    plan: BuildPlan, dimension: str, steps: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each file begins and ends along a dimension; -1 where it lies in no place.

    Raises:
        InvalidInputError: The dataset has another length than its files make.
    """
    begins = np.full(len(plan.files), np.iinfo(np.int64).max)
    ends = np.full(len(plan.files), -1, np.int64)
    for array, axis in _along(plan, dimension):
        if array.shape[array.axes[axis]] != steps:
            raise InvalidInputError(
                "the dataset has another length than its files make",
                do='Build it again from its files: icevirt.build(files, repo, mode="w") (icevirt'
                " build SOURCES... REPO --mode w).",
                variable=array.path,
                steps=steps,
                planned=array.shape[array.axes[axis]],
            )
        np.minimum.at(begins, array.files, array.starts[:, axis])
        np.maximum.at(ends, array.files, array.starts[:, axis] + array.lengths[:, axis])
    return begins, ends


def _along(plan: BuildPlan, dimension: str) -> Iterator[tuple[PlannedArray, int]]:
    """Yield the arrays that have a dimension, and which of their axes for files it is."""
    for array in plan.arrays:
        names = loads(array.zarr_json).get("dimension_names") or ()
        for axis, at in enumerate(array.axes):
            if names[at] == dimension and array.starts.ndim == 2 and array.starts.shape[1] > axis:
                yield array, axis
