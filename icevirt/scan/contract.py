"""Define what a scanner is: a class that recognizes files by their first bytes.

Third parties plug in through the entry-point group ``icevirt.scanners``; a scanner sees only
`icevirt.scan`, `icevirt.archive`, `icevirt.model` and `icevirt.errors`.

By default a variable is referenced if a reader of its chunks sees what the file's own library
reads, else stored within the budget, else the scan of the file stops. A policy changes that for
variables by name, path or pattern; the first matching pattern counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import ScannedArray, ScannedFile, Share, Weight
from icevirt.archive.sources import SourceFile
from icevirt.archive.store_objects import StoreObjects
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.planning.combine.hints import CombineHints, Recorded, is_named
from icevirt.remedy_notation import write_code, write_remedy

MAIN = "branch=main"  # the version of a repository that is taken by default
EVERY = "*"  # the pattern of all variables


class Policy(StrEnum):
    """How to treat a variable."""

    fail = "fail"  # as is best; what cannot be represented stops the scan of the file
    skip = "skip"  # as is best; what cannot be represented is left out, with a warning
    reference = "reference"  # referenced, or an error
    native = "native"  # read and stored, in chunks
    inline = "inline"  # read and stored, in one chunk


class SidecarUse(StrEnum):
    """Whether a file that lists what is in another one is read in its place."""

    usual = "usual"  # lists of GRIB where there are some; documents of NetCDF never
    auto = "auto"  # where there is one
    require = "require"  # a file without one is an error
    ignore = "ignore"


class GridUse(StrEnum):
    """What grids of one file become."""

    one = "one"  # a dataset on one of them; variables on others are refused
    groups = "groups"  # a group of each


class CodecPackage(StrEnum):
    """A package of codecs that readers may have beside zarr's."""

    imagecodecs = "imagecodecs"


type PolicyLike = str | Mapping[str, str]


def rules_of(given: Any) -> tuple[tuple[str, str], ...]:
    """Return the given policies as pairs of pattern and policy; the first that fits counts.

    Raises:
        InvalidInputError: It is no policy, or no mapping of patterns to policies.
    """
    if isinstance(given, str):
        given = {EVERY: given}
    known = [each.value for each in Policy]
    if not isinstance(given, Mapping) or not all(
        isinstance(pattern, str) and pattern and what in known for pattern, what in given.items()
    ):
        raise InvalidInputError(
            "not a policy for variables",
            do=write_remedy(
                f"Pass one of {', '.join(known)}, or a mapping of variables to them: ",
                write_code('{"/raw/*": "skip"}', "--variable-policy '/raw/*=skip'"),
                ".",
            ),
            given=given,
        )
    rules = tuple((pattern, str(what)) for pattern, what in given.items())
    return () if rules == ((EVERY, Policy.fail.value),) else rules


def policy_of(path: str, rules: Collection[tuple[str, str]]) -> Policy:
    """Return the policy for the variable at a path."""
    if not rules:
        return Policy.fail
    return next((Policy(what) for pattern, what in rules if fits(path, pattern)), Policy.fail)


def fits(path: str, pattern: str) -> bool:
    """Say whether a pattern means a variable: by path where it begins with a slash, or by name."""
    return fnmatchcase(path if pattern.startswith("/") else paths.name(path), pattern)


def is_name(pattern: str) -> bool:
    """Say whether a pattern names one variable, which should be there then."""
    return not any(sign in pattern for sign in "*?[")


def enforce(scanned: ScannedFile, rules: tuple[tuple[str, str], ...]) -> None:
    """Check that a scanner treated the variables as their policies require.

    Raises:
        UnsupportedError: One that must be referenced is stored, or the other way round.
    """
    if not rules:
        return
    for array in scanned.arrays:
        policy = policy_of(array.path, rules)
        if policy is Policy.reference and array.references.count(ChunkType.inline):
            codes = ("stored-natively", "chunks-stored")
            causes = (
                finding.message
                for finding in scanned.findings
                if finding.path == array.path and finding.code in codes
            )
            raise UnsupportedError(
                "a variable with the policy 'reference' cannot be referenced",
                do='Use the policy "native" or "inline", or leave it out with drop_variables.',
                file=scanned.source.url,
                variable=array.path,
                cause=next(causes, "its values are strings, compact, or order the files"),
            )
        stored = policy in (Policy.native, Policy.inline)
        if stored and array.references.count(ChunkType.virtual):
            raise UnsupportedError(
                f"scanner {scanned.scanner!r} cannot store the values of variables that can be "
                "referenced",
                do="Remove its policy, or leave the variable out with drop_variables.",
                file=scanned.source.url,
                variable=array.path,
                policy=policy.value,
            )


class ByteSource(Protocol):
    """One source file, opened: size and checksum are captured once, when it was opened."""

    @property
    def file(self) -> SourceFile:
        """The file's URL, size and checksum."""

    @property
    def local_path(self) -> str | None:
        """The path on local disk, None for a remote file."""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, fewer only at the end of the file."""

    def check_unchanged(self) -> None:
        """Compare the file with what it was when it was opened.

        Raises:
            StaleReferenceError: It was rewritten or replaced since.
        """


class ChunkReader(Protocol):
    """What reads bytes of the objects that references lead to."""

    def readable(self, locations: Locations) -> bool:
        """Say whether `read` can read all of these."""

    def read(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of an object."""


@runtime_checkable
class StoreByteSource(ByteSource, Protocol):
    """A store of objects, listed and opened as one file: its bytes are those of a document of it.

    A scanner that describes such files has an attribute ``reads_stores`` that is true.
    """

    @property
    def objects(self) -> StoreObjects:
        """All objects of the store, as one listing found them."""

    @property
    def document(self) -> str:
        """The name of the document at its root."""

    def references(self, index: NDArray[np.int64], rows: NDArray[np.integer]) -> ChunkTable:
        """Return references to objects, in their order: chunks of these indices, (n, ndim)."""

    def read_objects(self, rows: Sequence[int]) -> list[bytes]:
        """Return the bytes of some objects, those of servers read side by side.

        Raises:
            StaleReferenceError: One changed since it was listed.
        """

    def read_url(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of an object. Raises as `read_objects` does."""

    def chunks(self, rows: NDArray[np.int64]) -> ChunkReader:
        """Return what reads the chunks of an array, given their rows."""

    def open_zarr(self) -> Any:
        """Return the store as zarr-python reads it, to compare values."""


@runtime_checkable
class ListedStore(StoreByteSource, Protocol):
    """A store that can be listed folder by folder, to scan a share of it."""

    def hold(self, objects: StoreObjects) -> None:
        """Take these for all objects: a share of the store is scanned."""

    def list_folder(self, folder: str) -> tuple[StoreObjects, list[str]]:
        """Return the objects in a folder, and the paths of the folders in it."""

    def list_below(self, folders: Sequence[str]) -> StoreObjects:
        """Return the objects below some folders, which need not be there."""

    def find_objects(self, keys: Sequence[str]) -> StoreObjects:
        """Return those of some objects that are there, in their order."""


def prefetch(source: ByteSource, ranges: Sequence[tuple[int, int]], *, page: int = 0) -> None:
    """Tell a source of ranges (begin, end) that will be read soon.

    Those on servers fetch what they lack side by side, and what follows it in the same ``page``
    where a file is divided into pages of so many bytes; for all others this does nothing.
    """
    ahead = getattr(source, "prefetch", None)
    if ahead is not None:
        ahead(ranges, page=page)


def read_sparsely(source: ByteSource) -> None:
    """Tell a source that small pieces of it will be read that are far apart.

    Those on servers fetch no more than these from then on; for all others this does nothing.
    """
    if (sparsely := getattr(source, "read_sparsely", None)) is not None:
        sparsely()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerOptions(CombineHints):
    """The options of a scan.

    The hints say which facts are taken beside the description of the file, because the plan that
    combines the files will need them. They change nothing of the description.

    Args:
        group: Scan only below this group of the file, which becomes the root.
        variables: Names or absolute paths of the only variables to take, coordinates included;
            empty for all.
        drop_variables: Names or absolute paths of variables to leave out.
        max_native_bytes: How many bytes of values may be read and stored because they cannot be
            referenced, in this file.
        scanner: The scanner to use, whatever the file looks like: see `icevirt.scan.registry`.
        allow_references_to: Directories and URL prefixes into which references of the file may
            lead, beside its own directory.
        policy: Patterns of variables and their policies; see `icevirt.scan.contract`.
        sidecar: Whether the list of messages beside a file of GRIB, or the DMR++ document beside
            one of NetCDF, is used, a `SidecarUse`.
        grids: What several grids of a file of GRIB become, a `GridUse`.
        codecs: Packages of codecs that readers will have beside zarr's.
        source_version: Which version of a repository of Icechunk is taken, like ``tag=v1``.
        share: The share of the file to scan, if several tasks share it. Only a `Divisible` scanner
            gets one.
    """

    group: str = "/"
    variables: tuple[str, ...] = ()
    drop_variables: tuple[str, ...] = ()
    max_native_bytes: int = 256 * 1024 * 1024
    scanner: str = ""
    allow_references_to: tuple[str, ...] = ()
    policy: tuple[tuple[str, str], ...] = ()
    sidecar: str = SidecarUse.usual.value
    grids: str = GridUse.one.value
    codecs: tuple[str, ...] = ()
    source_version: str = MAIN
    share: Share | None = field(default=None, hash=False)

    def policy_of(self, path: str) -> Policy:
        """Return the policy of a variable."""
        return policy_of(path, self.policy)

    def wanted_of(self, array: ScannedArray, equal: Collection[str]) -> Fact:
        """Return the facts that are needed of an array, given the paths of those that are equal."""
        recorded = Recorded.of(array.path, array.shape, array.chunk_shape, array)
        known = _facts_wanted(self)
        key = recorded, array.path in equal
        found = known.get(key)
        if found is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            found = known[key] = self.choose_facts(
                recorded,
                is_equal=array.path in equal,
                is_referenced=self.policy_of(array.path) is Policy.reference,
                affordable=self.max_native_bytes,
            )
        return found

    def wants(self, path: str) -> bool:
        """Return whether a variable is selected, and in the share of the scan."""
        return self.selects(path) and (self.share is None or self.share.covers(path))

    def selects(self, path: str) -> bool:
        """Return whether a variable is selected: named itself, or below a named group."""
        if self.variables and not is_named(path, self.variables):
            return False
        return not is_named(path, self.drop_variables)

    def run_of(self, path: str) -> tuple[int, int] | None:
        """Return the only run of a variable's chunks to scan; None: all of them."""
        return None if self.share is None else self.share.runs.get(path)

    def unknown(self, present: Iterable[str]) -> tuple[str, ...]:
        """Return the names given that fit none of the variables that are there."""
        there = tuple(present)
        named = tuple(
            name
            for name in dict.fromkeys((*self.variables, *self.drop_variables))
            if not any(is_named(path, (name,)) for path in there)
        )
        return named + tuple(
            pattern
            for pattern, _ in self.policy
            if is_name(pattern) and not any(fits(path, pattern) for path in there)
        )


type _Wanted = dict[tuple[Recorded, bool], Fact]

_REMEMBERED = 1024
_latest: tuple[ScannerOptions, _Wanted] = (ScannerOptions(), {})


def _facts_wanted(options: ScannerOptions) -> _Wanted:
    """Return what was found for these options, by identity: to hash them takes long."""
    global _latest  # noqa: PLW0603 - one value, which threads replace as a whole
    last, known = _latest
    if last is not options:
        known = {}
        _latest = options, known
    return known


@runtime_checkable
class Scanner(Protocol):
    """Describes files of one format."""

    name: str
    version: str  # changes whenever the same file would be described differently

    def accepts(self, head: bytes) -> bool:
        """Say whether a file that begins with ``head`` (at least 4 KiB of it) is of this format."""

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The file is damaged.
            UnsupportedError: The file holds something that cannot be represented correctly.
        """


@runtime_checkable
class Divisible(Protocol):
    """A scanner that can scan shares of a file.

    What it makes of a variable must not depend on the share, but for what adds up in `ScannedFile`
    as ``tally``.
    """

    def outline(self, source: ByteSource, options: ScannerOptions) -> tuple[Weight, ...]:
        """Return the variables that are wanted and what each takes, from headers alone.

        Raises:
            ScanError: The file is damaged.
            UnsupportedError: The file holds something that cannot be represented correctly.
        """


@runtime_checkable
class Oracle(Protocol):
    """A scanner that can also read values with its format's reference library.

    Verification compares a repository with it, so it shares nothing with the references that the
    scanner makes: it opens the file as any user of h5py or netCDF4 would.
    """

    def read_values(
        self, source: ByteSource, path: str, region: tuple[slice, ...]
    ) -> np.ndarray[Any, Any]:
        """Return the undecoded values of a variable in a box.

        Args:
            source: The file.
            path: Of the variable, absolute.
            region: A slice with start and stop for each dimension.

        Raises:
            ScanError: The variable cannot be read.
        """
