"""Build a dataset without some of its files, and keep one to its last steps that way.

It becomes what a build of the other files makes, in one commit, from the scans that its catalog
holds. A window is counted from the newest step, never from the clock. Chunk indices are absolute,
so that all that stays is written again: therefore only when a tenth of the steps can go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.xarray.datastore import dataset_of
from icevirt.api.dataset import left_out
from icevirt.api.dataset.change import Dataset, DatasetChange, Request
from icevirt.api.dataset.left_out import exclude
from icevirt.api.dataset.planning import plan_files
from icevirt.api.dataset.records import concat_dims, recipe_or_none
from icevirt.api.dataset.scanning import scan_and_infer
from icevirt.api.dataset.transaction import ExecutorStarter, commit_change
from icevirt.api.events import Clock
from icevirt.api.recorded import continue_options
from icevirt.api.trust.readable_places import ReadablePlaces
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import BuildReport
from icevirt.archive.reports.upkeep import WindowChange
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model.json import loads
from icevirt.planning.axes.axis import duration_of
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.repository import Repository
from icevirt.storage.protocol import Storage


@dataclass(frozen=True, kw_only=True)
class DatasetFiles(Dataset):
    """A dataset that is built without some of its files."""

    starter: ExecutorStarter
    clock: Clock

    @classmethod
    def of(
        cls,
        storage: Storage,
        *,
        branch: str,
        group: str,
        prefixes: Iterable[str],
        starter: ExecutorStarter,
        clock: Clock,
    ) -> DatasetFiles:
        """Look which files a dataset is made of.

        Raises:
            InvalidInputError: No build made it, the repository does not list its files, or these
                lie elsewhere than below the prefixes.
            FormatError: The list is damaged.
        """
        known = Dataset.look(storage, branch=branch, group=group)
        if not known.record:
            raise InvalidInputError(
                "no build made this group, so that it is unknown which files it is made of",
                do="Name the group of a dataset that icevirt built.",
                branch=branch,
                group=known.target.group,
            )
        places = ReadablePlaces.of(prefixes)
        places.refuse_others(known.listing.files, repo=storage.url, what="call")
        return cls(
            target=known.target,
            record=known.record,
            catalog=known.catalog,
            starter=starter,
            clock=clock,
        )

    def plan(self) -> BuildPlan:
        """Plan the dataset of all its files.

        Raises:
            InvalidInputError: The build had options that only a caller may give.
        """
        # files that are gone have their steps all the same
        request = self._request(absent=frozenset())
        scan = request.scan(self.listing.files, bad=len(self.bad))
        target = self.target
        executor = self.starter.start(self.listing.files, target.storage)
        with self.clock.phase("scan"):
            scan, _ = scan_and_infer(executor, scan, request.choices.inferring)
        with self.clock.phase("plan"):
            return plan_files(request, executor, scan, target, build_id="").plan

    def without(
        self, gone: Collection[str], *, message: str, allow_changes: bool = False
    ) -> BuildReport:
        """Build the dataset of all other files, in one commit.

        Raises:
            PlanChangedError: Something other than steps would be lost.
            CombineError: The other files do not combine.
            InvalidInputError: No file would be left.
        """
        change = DatasetChange(dataset=self, removed=gone)
        if not len(change.kept.files):
            raise InvalidInputError(
                "no file of the dataset would be left",
                do="Delete its group instead.",
                group=self.target.group,
            )
        storage, about = self.target.storage, {}
        if name := self.target.find_held_back()[0]:
            held = left_out.read_held(storage, name)
            rest = left_out.without(held, gone)
            if len(rest) < len(held):
                name = left_out.keep_held(storage, rest) if rest else ""
            about = {"held": name} if name else {}
        request = self._request(about=about)
        commit = replace(request.commit, allow_changes=allow_changes, message=message)
        request = replace(request, commit=commit)
        return commit_change(request, lambda: change, self.starter, self.clock)

    def _request(self, **more: Any) -> Request:
        how = continue_options(
            self.target.storage,
            self.record,
            concat_dim=None,
            scan_options=None,
            combine_options=None,
            commit_options={"branch": self.target.branch},
            takes_options=False,
        )
        return self.request(
            how,
            progress=self.clock.step,
            recipe=recipe_or_none(self.target.storage, self.record),
            also=self.scans_alike(how),
            expected=frozenset({"steps"}),
            **more,
        )


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
                do=write_remedy(
                    "Pass a time like ",
                    write_code('window="90D"', "90D"),
                    ", or a number for coordinates without units.",
                ),
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
        kind, span = values.dtype.kind, duration_of(self.text)
        if (kind in "MO") != bool(span) or kind not in "MOiuf":
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
        if kind == "M":
            found = values >= newest - np.timedelta64(span, "us")
        elif kind == "O":
            oldest = newest - timedelta(microseconds=span)
            found = [value >= oldest for value in values]
        else:
            found = values.astype(np.float64) >= float(newest) - self.number
        return np.asarray(found, np.bool_)


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
        target = files.target
        exclude(target.storage, self.gone, why="window", branch=target.branch, group=target.group)
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
            group=files.target.group,
        )
    along = concat_dims(files.record)
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
        group=files.target.group,
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
    """Return the labels of a dimension, as the branch showed them with the list of files."""
    target = files.target
    session = Repository.open(target.storage).readonly_session(snapshot_id=str(target.tip))
    ds = dataset_of(IcevirtStore(session), session.snapshot, target.group, {})
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
                do=write_remedy(
                    "Build it again from its files: ",
                    write_code(
                        'icevirt.build(files, repo, mode="w")',
                        "icevirt build SOURCES... REPO --mode w",
                    ),
                    ".",
                ),
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
