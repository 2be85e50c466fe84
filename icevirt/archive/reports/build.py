"""Define the report of a build and the summary of a repository, for text, JSON and tests."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from icevirt.archive.reports.card import plural
from icevirt.archive.reports.opening import Opening, holds_groups_only, opened
from icevirt.errors import Fix
from icevirt.escaping import Pictured, escape_line
from icevirt.model.json import JSON
from icevirt.model.snapshot import Extent

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
    for named in (f"file={url!r}, ", f" (file={url!r})"):
        error = error.replace(named, "")
    return error


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
    "timeout": 'scan_options={"file_timeout": seconds} gives it more time',
    "oom": 'scan_options={"file_memory": "8GiB"} gives it more memory',
    "unsupported": 'scan_options={"variable_policy": "skip"} leaves the variable out',
    "storage": "make the file readable, and scan again",
}


class BadFiles(Pictured, tuple[BadFile, ...]):
    """Files that could not be scanned, as a table."""

    __slots__ = ()

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the columns ``url``, ``code``, ``error`` and ``remedy`` of every file."""
        return [(bad.url, bad.code, bad.error, bad.remedy) for bad in self]

    def __repr__(self) -> str:
        """Return a line for each file, of many the first."""
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

    def __add__(self, other: ReferenceCounts) -> ReferenceCounts:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return ReferenceCounts(**sums)

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
        return opened(self.opening.place(self.repo), {**known, **options})

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
        """Return what was built, in one line."""
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
        """Return what was appended, in one line."""
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

    def __repr__(self) -> str:
        """Return what it holds, in one line."""
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
