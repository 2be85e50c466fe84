"""Define what plans cost and builds report, and the summary of a repository."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icevirt.amounts import count_exactly, plural
from icevirt.errors import Fix, InvalidInputError
from icevirt.escaping import Pictured, escape_line
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import JSON
from icevirt.model.snapshot import Extent
from icevirt.remedy_notation import change, flag_of, list_code, write_code, write_remedy

if TYPE_CHECKING:
    from xarray import Dataset, DataTree


_SHOWN = 20  # files in a text

GDAL = "GDAL 3.14"
"""The release that `Readers` speaks of: the first one with a driver for Icechunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """What readers lack to decode an array; nothing where they decode it."""

    zarr_lacks: tuple[str, ...] = ()  # zarr-python, alone or over the official icechunk client
    gdal_lacks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The readers in words, like ``zarr, GDAL`` or ``zarr with pcodec``."""
        zarr = f"zarr with {' and '.join(self.zarr_lacks)}" if self.zarr_lacks else "zarr"
        return zarr if self.gdal_lacks else f"{zarr}, GDAL"

    def __or__(self, other: Readers) -> Readers:
        """Return the readers of two arrays that become one: what is lacked for either."""
        return Readers(
            zarr_lacks=tuple(dict.fromkeys(self.zarr_lacks + other.zarr_lacks)),
            gdal_lacks=tuple(dict.fromkeys(self.gdal_lacks + other.gdal_lacks)),
        )


def reason_of(error: str, url: str) -> str:
    """Return an error of a file without the name of the file, for a line that begins with it."""
    named = f"file={url!r}, ", f" (file={url!r})"
    return change(error, lambda text: text.replace(named[0], "").replace(named[1], ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFile:
    """A source file that was left out, and why."""

    url: str
    code: str  # of the error
    error: str

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """How plugins of HDF5 are allowed, where they would read it."""
        return (_PLUGINS,) if _ALLOW in self.error else ()

    @property
    def impossible(self) -> tuple[str, ...]:
        """Variables of types that Zarr lacks, where the file can be read without them."""
        for each in list_code(self.error):
            words = shlex.split(each.command)
            if words[1::2] and {*words[::2]} == {flag_of("drop_variables")}:
                return tuple(words[1::2])
        return ()

    @property
    def remedy(self) -> str:
        """What to do about it, in the words of Python."""
        if self.fixes:
            return f"pip install hdf5plugin, and set {_ALLOW}=1"
        return _REMEDIES.get(self.code, "repair, replace or remove the file")


_ALLOW = "ICEVIRT_HDF5_PLUGINS"  # the variable that allows plugins, which errors name
_PLUGINS = Fix(
    python="",
    flags=(),
    price="decodes and stores these values; plugins are programs, so trust the files",
    first=f"pip install hdf5plugin && export {_ALLOW}=1",
)
_REMEDIES = {
    "timeout": write_remedy(
        write_code('scan_options={"file_timeout": seconds}', "--file-timeout SECONDS"),
        " gives it more time",
    ),
    "oom": write_remedy(
        write_code('scan_options={"file_memory": "8GiB"}', "--file-memory 8GiB"),
        " gives it more memory",
    ),
    "unsupported": write_remedy(
        write_code('scan_options={"variable_policy": "skip"}', "--variable-policy skip"),
        " leaves the variable out",
    ),
    "storage": "make the file readable, and scan again",
}


class BadFiles(Pictured, tuple[BadFile, ...]):
    """Files that could not be scanned, as a table."""

    __slots__ = ()

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the columns ``url``, ``code``, ``error`` and ``remedy`` of every file."""
        return [(bad.url, bad.code, bad.error, bad.remedy) for bad in self]

    def __repr__(self) -> str:
        shown = ["  ".join(map(escape_line, row)) for row in self.rows()[:_SHOWN]]
        more = [f"and {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []
        return "\n".join([f"<{plural(len(self), 'bad file')}>", *shown, *more])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCounts:
    """Chunk references by where their bytes lie, and how many bytes that is."""

    virtual: int = 0
    native: int = 0
    inline: int = 0
    stored: int = 0  # native or inline: of a plan, where the size of encoded values decides
    bytes_referenced: int = 0  # in source files
    bytes_stored: int = 0  # native and inline, in the repository

    @classmethod
    def of(cls, table: ChunkTable) -> ReferenceCounts:
        """Count references by kind, and their bytes."""
        virtual = table.kind == ChunkType.virtual
        return cls(
            virtual=table.count(ChunkType.virtual),
            native=table.count(ChunkType.native),
            inline=table.count(ChunkType.inline),
            bytes_referenced=int(table.length[virtual].sum()),
            bytes_stored=int(table.length[~virtual].sum()),
        )

    def __add__(self, other: ReferenceCounts) -> ReferenceCounts:
        return ReferenceCounts(
            virtual=self.virtual + other.virtual,
            native=self.native + other.native,
            inline=self.inline + other.inline,
            stored=self.stored + other.stored,
            bytes_referenced=self.bytes_referenced + other.bytes_referenced,
            bytes_stored=self.bytes_stored + other.bytes_stored,
        )

    @property
    def total(self) -> int:
        """References of every kind."""
        return self.virtual + self.native + self.inline + self.stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySummary:
    """One array as ``icevirt info`` and the build report show it."""

    path: str
    data_type: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int | Extent, ...]
    dimension_names: tuple[str | None, ...]
    references: ReferenceCounts
    manifests: int
    readers: Readers


class Opening:
    """A storage and credentials, as the call was given them; they stay in this process.

    Pickles and deep copies keep only which prefixes are read. What opens them is then made anew of
    the environment, where the report came to. It is no dataclass, so that `dataclasses.asdict`
    copies it.

    Args:
        storage: The repository; None: its URL leads there.
        authorization: As ``authorize_virtual_chunk_access``; None: not known yet.
    """

    __slots__ = ("authorization", "storage")

    def __init__(self, storage: Any = None, authorization: Mapping[Any, Any] | None = None) -> None:
        self.storage = storage
        self.authorization = authorization

    @property
    def prefixes(self) -> tuple[str | tuple[str, str], ...]:
        """What is read, without credentials."""
        return tuple(self.authorization or ())

    def place(self, url: str) -> Any:
        """Return what opens a repository: the storage, or its URL where there is none here."""
        return url if self.storage is None else self.storage

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle may hold."""
        return Opening, (None, None if self.authorization is None else dict.fromkeys(self.prefixes))

    def __repr__(self) -> str:
        """Say what it is; credentials have no place in a log."""
        return "<Opening>"


def open_group(place: Any, options: Mapping[str, Any]) -> Dataset | DataTree:
    """Open a group in xarray; one that holds nothing but other groups as the tree of these."""
    import xarray as xr

    if not isinstance(options.get("cache", True), bool | None):
        raise InvalidInputError(
            "cache is xarray's own option, for values in memory: True or False",
            do="To keep chunks of servers in a directory, pass chunk_cache=DIR.",
        )
    dataset = xr.open_dataset(place, engine="icevirt", **options)
    if dataset.variables or options.get("eras") or options.get("drop_variables"):
        return dataset
    tree = xr.open_datatree(place, engine="icevirt", **options)
    return tree if any(node.variables for node in tree.subtree) else dataset


def holds_groups_only(group: str, arrays: Iterable[str]) -> bool:
    """Say whether a group has arrays in groups below it, and none of its own; given their paths."""
    above = group.rstrip("/") + "/"
    below = [path.removeprefix(above) for path in arrays if path.startswith(above)]
    return bool(below) and all("/" in path for path in below)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BuildReport(Pictured):
    """The outcome of `icevirt.build`."""

    repo: str  # URL
    branch: str
    group: str
    snapshot_id: str
    build_id: str
    already_built: bool  # the branch held this very build before; nothing was written
    files_scanned: int  # in this run
    files_reused: int  # from parts that an earlier, interrupted run had finished
    bad_files: tuple[BadFile, ...]
    arrays: tuple[ArraySummary, ...]
    manifests: int
    manifest_bytes: int
    containers: tuple[str | tuple[str, str], ...]  # to authorize on reading: url prefixes, with
    # the endpoint where the container names one
    findings: tuple[str, ...]  # decisions worth knowing, a line each
    eras: int = 1  # groups that files of other decoding lie in; 1: the group is the dataset
    opens_as_one: bool = True  # whether the engine can show these groups as one dataset
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"; "": there were none
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order
    opening: Opening = field(default_factory=Opening, compare=False)  # neither shown nor written

    @property
    def references(self) -> ReferenceCounts:
        """References of all arrays."""
        return sum((array.references for array in self.arrays), ReferenceCounts())

    def open(self, **options: Any) -> Dataset | DataTree:
        """Open the dataset in xarray, as this build committed it.

        Where the group holds no variables but groups, as eras that are not one dataset, it is a
        tree.

        Only url prefixes of files that the call named, or an earlier one of this user, are
        authorized, as far as they are in `containers`. They are read with the credentials that
        the call was given; where the report was pickled, with what the environment has.

        Args:
            options: Arguments of ``xarray.open_dataset`` with ``engine="icevirt"`` in place of
                the build's, like ``chunks={}`` or ``authorize_virtual_chunk_access={...}``
                with credentials.
        """
        known: dict[str, Any] = {
            "group": self.group,
            "snapshot_id": self.snapshot_id,
            "authorize_virtual_chunk_access": self.opening.authorization or list(self.opens_below),
            **({"eras": "concat"} if self.eras > 1 and self.opens_as_one else {}),
        }
        return open_group(self.opening.place(self.repo), {**known, **options})

    @property
    def opens_below(self) -> tuple[str | tuple[str, str], ...]:
        """Which of the containers `open` authorizes: a repository may name others."""
        return self.containers if self.opening.authorization is None else self.opening.prefixes

    @property
    def is_tree(self) -> bool:
        """Whether `open` returns a tree of groups."""
        if self.eras > 1 and self.opens_as_one:
            return False
        return holds_groups_only(self.group, (array.path for array in self.arrays))

    def __repr__(self) -> str:
        files = self.files_scanned + self.files_reused
        bad = f" ({len(self.bad_files):,} bad)" if self.bad_files else ""
        notes = f"  {plural(len(self.findings), 'note')}" if self.findings else ""
        return (
            f"<BuildReport {escape_line(self.branch)}@{self.snapshot_id[:6]}"
            f"  {plural(files, 'file')}{bad}"
            f"  {plural(len(self.arrays), 'array')}"
            f"  {plural(self.references.total, 'reference')}{notes}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AppendReport(BuildReport):
    """The outcome of `icevirt.append`.

    Where nothing was new, nothing was committed: ``already_built`` is true, ``snapshot_id`` is the
    tip of the branch ("" without a repository), and ``arrays`` and ``manifests`` are empty. Where
    an append was ``flat``, references and manifests are those that it wrote; where it was not, a
    finding says why.
    """

    files_appended: int  # that the dataset did not hold
    files_replaced: int  # that it held as they were before, and that were scanned again
    files_known: int  # that it holds as they are
    flat: bool = False  # whether nothing but the end of the dataset was planned and written
    files_excluded: int = 0  # that must not be added: withdrawn, say, or before the window

    def __repr__(self) -> str:
        replaced = f", {self.files_replaced:,} replaced" if self.files_replaced else ""
        notes = f"  {plural(len(self.findings), 'note')}" if self.findings else ""
        return (
            f"<AppendReport {escape_line(self.branch)}@{self.snapshot_id[:6] or 'nothing'}"
            f"  {self.files_appended:,} appended{replaced}, {self.files_known:,} known{notes}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One group as ``icevirt info`` shows it."""

    path: str
    attributes: dict[str, JSON]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RepositorySummary(Pictured):
    """The contents of one snapshot, as ``icevirt info`` shows them."""

    repo: str  # URL
    spec_version: int  # 0: of a format generation before V1
    branches: dict[str, str]  # name -> snapshot id
    tags: dict[str, str]
    snapshot_id: str
    message: str
    written_at: str  # ISO 8601, UTC
    snapshots: int  # in the ancestry of the one shown
    containers: tuple[str | tuple[str, str], ...]  # to authorize on reading: url prefixes, with
    # the endpoint where the container names one
    groups: tuple[GroupSummary, ...]
    arrays: tuple[ArraySummary, ...]
    generation: str = ""  # before V1: which, what may be missing, and how to upgrade
    twins: dict[str, bool] = field(default_factory=dict)  # by path: whether it is in step
    priced: tuple[TwinAdvice, ...] = ()  # what twins take of chunks that were named

    def __repr__(self) -> str:
        total = sum(array.references.total for array in self.arrays)
        return (
            f"<RepositorySummary {escape_line(self.repo)}@{self.snapshot_id[:6]}"
            f"  {plural(len(self.arrays), 'array')}  {plural(total, 'reference')}"
            f"  {plural(self.snapshots, 'snapshot')}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A step of a long phase: ``done`` of ``total`` units, or 0 of 0 while unknown."""

    phase: str  # "list", "scan", "plan", "write", "commit"
    done: int
    total: int
    unit: str = "tasks"
    files: int = 0  # source files behind what is done
    references: int = 0  # behind what is done; 0 where a phase does not know
    bytes: int = 0  # of the source files behind what is done
    found: int = 0  # of what is done, what was done before the clock began
    seconds: float = 0.0  # since the phase began

    @property
    def amounts(self) -> dict[str, JSON]:
        """All of it but the phase, as logs hold it: amounts that are not known are left out."""
        left, share = self.seconds_left, self.per_second / self.done if self.done else 0.0
        amounts: dict[str, JSON] = {"done": self.done, "total": self.total, "unit": self.unit}
        amounts |= {"seconds": round(self.seconds, 1), "per_second": round(self.per_second, 1)}
        if left is not None:
            amounts["seconds_left"] = round(left, 1)
        for name in ("found", "files", "references", "bytes"):
            if amount := getattr(self, name):
                amounts[name] = amount
        if self.references:
            amounts["references_per_second"] = round(self.references * share, 1)
        return amounts

    @property
    def per_second(self) -> float:
        """Units done in a second; what an earlier run left does not count. 0 while unknown."""
        return (self.done - self.found) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate, None while there is nothing to estimate from."""
        if not self.per_second or self.done > self.total:
            return None
        return (self.total - self.done) / self.per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """What reading one thing takes: at most so many requests, fewer where chunks are neighbours."""

    chunks: int
    manifests: int
    bytes: int  # as stored, of the mean chunk

    @property
    def requests(self) -> int:
        """Of chunks and manifests."""
        return self.chunks + self.manifests

    @property
    def seconds(self) -> float:
        """As long as that takes at 30 ms a request, 16 of them at once, and 100 MB a second."""
        return 0.03 * -(-self.requests // 16) + self.bytes / 1e8


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCost:
    """What reading an array takes in chunks of some lengths."""

    chunk_shape: tuple[int, ...]
    map: ReadCost  # of one step
    series: ReadCost  # of one point over all steps
    bytes: int  # of the array, as stored


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinAdvice:
    """What a twin takes, and the variable beside it."""

    path: str  # of the variable
    chunks: Mapping[str, int]  # that are proposed, or were named, by dimension
    own: LayoutCost
    twin: LayoutCost


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayCost:
    """What reading one array takes."""

    path: str
    bytes_per_chunk: int  # mean of the chunks that are referenced, as stored; 0: there are none
    points: int  # values in one step
    map: ReadCost | None  # one step of all; None where files do not lie along any of its dimensions
    series: ReadCost | None  # one point over all steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """What executing a plan takes, and reading its dataset afterwards.

    Memory is an estimate in bytes beside what the processes have when they start.
    """

    files: int
    arrays: int
    references: ReferenceCounts
    windows: int  # parts of arrays that become manifests; small ones share a manifest
    route: str  # of references to tasks: "direct" from the catalog, or by a "shuffle"
    route_description: str  # with the reason
    bytes_stored: int  # native and inline, in the repository; before they are compressed
    scan_tasks: int  # parts of a catalog
    write_tasks: int  # at most: of manifests, one or more in each
    task_memory: int  # of the largest window
    driver_memory: int
    of_arrays: tuple[ArrayCost, ...]
    warnings: tuple[str, ...]

    @property
    def map(self) -> ArrayCost | None:
        """The array of which one step takes most requests; among equals, has most values."""
        known = (each for each in self.of_arrays if each.map)
        return max(known, key=lambda e: (e.map.requests if e.map else 0, e.points), default=None)

    @property
    def series(self) -> ArrayCost | None:
        """The array of which one point over all steps takes most requests, as of `map`."""
        known = (each for each in self.of_arrays if each.series)
        return max(
            known, key=lambda e: (e.series.requests if e.series else 0, e.points), default=None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGap:
    """Labels between which steps are missing."""

    after: str
    before: str
    missing: int  # steps


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSummary:
    """The labels of a dimension along which files are concatenated, from first to last."""

    dimension: str
    steps: int
    first: str = ""  # label; "" where there are none
    last: str = ""
    calendar: str = ""  # of times, where it is not the standard one
    every: str = ""  # like "day", "6 hours", "3 months", "0.25"; "" where that differs
    spacing: str = ""  # the same as the option of that name takes it; "" where it cannot
    shortest: str = ""  # between labels next to each other, where there is no one step
    longest: str = ""
    gaps: int = 0  # places where steps are missing
    missing: int = 0  # steps in all gaps
    examples: tuple[StepGap, ...] = ()  # the first of them

    def __str__(self) -> str:
        steps = count_exactly(self.steps, "step")
        ends = f"{self.first} → {self.last}" if self.first and self.steps > 1 else self.first
        calendar = f" ({self.calendar} calendar)" if self.calendar else ""
        parts = [steps, f"{ends}{calendar}" if ends else ""]
        if self.every:
            parts.append(f"every {self.every}")
        elif self.longest:
            parts.append(f"{self.shortest} to {self.longest} apart")
        if self.every and self.gaps:
            missing = count_exactly(self.missing, "step")
            parts.append(f"{count_exactly(self.gaps, 'gap')} ({missing} missing)")
        return ", ".join(filter(None, parts))


OTHERS = "work of others"
"""The kind of a change that undoes what another commit than that of a build did."""

GROWN = "grown"
"""The kind of a change that makes arrays longer along time, because their files became longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One difference."""

    what: str  # in words, like "/tos: data type int16 → float32"
    stops: bool  # something is lost, or reads as other values: a person must confirm it
    kind: str = ""  # "steps" of a concatenated dimension, the "fill value" of missing ones, OTHERS,
    # GROWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference(Pictured):
    """All differences, those that stop a build first."""

    snapshot_id: str  # of the last build of the group; "" where there was none
    changes: tuple[PlanChange, ...]
    kept: tuple[str, ...] = ()  # paths that stay: the last build of the group did not make them
    replaced: tuple[str, ...] = ()  # paths that the build makes anew
    deleted: tuple[str, ...] = ()  # paths that are no longer there after the build

    @property
    def stopping(self) -> tuple[str, ...]:
        """What a build asks for permission to do."""
        return tuple(change.what for change in self.changes if change.stops)

    def stopping_but(self, expected: Collection[str]) -> tuple[str, ...]:
        """Return what a build asks for permission to do beside changes of expected kinds."""
        return tuple(each.what for each in self.changes if each.stops and each.kind not in expected)
