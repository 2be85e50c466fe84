"""Define what a scanner is: a class that recognizes files by their first bytes.

Third parties plug in through the entry-point group ``icevirt.scanners``; a scanner sees only
`icevirt.scan`, `icevirt.archive`, `icevirt.model` and `icevirt.errors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from icevirt.archive.roles import coordinates_of
from icevirt.archive.scanned import ScannedFile, SourceFile
from icevirt.archive.shares import Share, Weight
from icevirt.model import paths
from icevirt.planning.combine.data_vars import gets
from icevirt.scan.policy import Policy, fits, is_name, policy_of


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


def prefetch(source: ByteSource, ranges: Sequence[tuple[int, int]], *, page: int = 0) -> None:
    """Tell a source of ranges (begin, end) that will be read soon.

    Those on servers fetch what they lack side by side, and what follows it in the same ``page``
    where a file is divided into pages of so many bytes; for all others this does nothing.
    """
    ahead = getattr(source, "prefetch", None)
    if ahead is not None:
        ahead(ranges, page=page)


_COMPARED = 64 * 1024  # bytes of an array that is compared though it is stacked


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerOptions:
    """The options of a scan.

    Args:
        concat_dim: The dimension, or the dimensions, along which the file will be placed beside
            others. Labels of them are read; arrays that lack one get a digest, because they must be
            equal in all files that differ only along it.
        group: Scan only below this group of the file, which becomes the root.
        variables: Names or absolute paths of the only variables to take, coordinates included;
            empty for all.
        drop_variables: Names or absolute paths of variables to leave out.
        max_native_bytes: How many bytes of values may be read and stored because they cannot be
            referenced, in this file.
        scanner: The scanner to use, whatever the file looks like: see `icevirt.scan.registry`.
        allow_references_to: Directories and URL prefixes into which references of the file may
            lead, beside its own directory.
        stack: Files will be stacked along a dimension that they do not have. Large arrays that get
            it need no digest then.
        data_vars: Words and names of variables by dimension, which decide what gets a dimension if
            files are stacked; see `icevirt.planning.combine.data_vars`.
        pad: Dimensions whose lengths may differ between files, and will be padded.
        label_variables: Names or absolute paths of variables with one value, which says where the
            file lies along a dimension that it does not have.
        policy: Patterns of variables and their policies; see `icevirt.scan.policy`.
        rename: Names in the file, and the names of dimensions in ``concat_dim`` and ``pad`` that
            they will get.
        tolerant: Names or absolute paths of variables without a dimension in ``concat_dim`` whose
            values are kept, to be compared with other files; ``"*"`` for the coordinates
            of dimensions.
        share: The share of the file to scan, if several tasks share it. Only a `Divisible` scanner
            gets one.
    """

    concat_dim: str | tuple[str, ...] | None = None
    group: str = "/"
    variables: tuple[str, ...] = ()
    drop_variables: tuple[str, ...] = ()
    max_native_bytes: int = 256 * 1024 * 1024
    scanner: str = ""
    allow_references_to: tuple[str, ...] = ()
    stack: bool = False
    pad: tuple[str, ...] = ()
    label_variables: tuple[str, ...] = ()
    policy: tuple[tuple[str, str], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    tolerant: tuple[str, ...] = ()
    data_vars: tuple[tuple[str, tuple[str, ...]], ...] = ()
    share: Share | None = None

    def policy_of(self, path: str) -> Policy:
        """Return the policy of a variable."""
        return policy_of(path, self.policy)

    @property
    def concat_dims(self) -> tuple[str, ...]:
        """``concat_dim`` as names; none where nothing is concatenated."""
        if self.concat_dim is None:
            return ()
        return (self.concat_dim,) if isinstance(self.concat_dim, str) else self.concat_dim

    def _called(self, names: Sequence[str | None]) -> tuple[str | None, ...]:
        """Return dimensions as they will be called."""
        if not self.rename:
            return tuple(names)
        told = dict(self.rename)
        return tuple(None if name is None else told.get(name, name) for name in names)

    def joined_axes(self, names: Sequence[str | None]) -> tuple[int, ...]:
        """Return the axes of an array, given its dimensions, whose length is not the dataset's."""
        joined = {*self.concat_dims, *self.pad}
        return tuple(axis for axis, name in enumerate(self._called(names)) if name in joined)

    def orders(self, path: str, names: Sequence[str | None]) -> bool:
        """Say whether a variable is the coordinate of a dimension along which files are placed."""
        called = self._called(names)
        return called == self._called((paths.name(path),)) and called[0] in self.concat_dims

    def compares(self, names: Sequence[str | None]) -> bool:
        """Say whether files hold an array of these dimensions again that must be equal."""
        return any(name not in self._called(names) for name in self.concat_dims)

    def wants_digest(
        self, names: Sequence[str | None], *, is_coordinate: bool, nbytes: int
    ) -> bool:
        """Say whether an array of these dimensions, whose values are not stored, gets a digest."""
        if not self.compares(names):
            return False
        return not self.stack or is_coordinate or nbytes <= _COMPARED

    def equal_in_files(
        self,
        variables: Iterable[tuple[str, Sequence[str | None], Mapping[str, Any]]],
        groups: Iterable[tuple[str, Mapping[str, Any]]] = (),
    ) -> frozenset[str]:
        """Return the paths of arrays that lack a dimension, and will not get it: they are compared.

        Args:
            variables: Path, dimensions and attributes of all variables of the file.
            groups: Path and attributes of its groups.
        """
        if not self.stack:
            return frozenset()
        known = [(path, self._called(names), attributes) for path, names, attributes in variables]
        there = {name for _, names, _ in known for name in names}
        coordinates = coordinates_of(known, groups)
        rules = dict(self.data_vars)
        return frozenset(
            path
            for path, names, _ in known
            for dimension in self.concat_dims
            if dimension not in names
            and not gets(
                rules,
                dimension,
                path,
                is_new=dimension not in there,
                is_coordinate=path in coordinates,
            )
        )

    def is_label(self, path: str) -> bool:
        """Say whether a variable was named in ``label_variables``."""
        return any(name in (path, paths.name(path)) for name in self.label_variables)

    def keeps_values(self, path: str, names: Sequence[str | None]) -> bool:
        """Say whether the values of a variable are compared with a tolerance."""
        if not self.tolerant or not self.compares(names) or self.joined_axes(names):
            return False
        is_coordinate = tuple(names) == (paths.name(path),)
        return _is_named(path, self.tolerant) or ("*" in self.tolerant and is_coordinate)

    def wants(self, path: str) -> bool:
        """Return whether a variable is selected: named itself, or below a named group."""
        if self.variables and not _is_named(path, self.variables):
            return False
        if self.share is not None and not self.share.covers(path):
            return False
        return not _is_named(path, self.drop_variables)

    def run_of(self, path: str) -> tuple[int, int] | None:
        """Return the only run of a variable's chunks to scan; None: all of them."""
        return None if self.share is None else self.share.runs.get(path)

    def unknown(self, present: Iterable[str]) -> tuple[str, ...]:
        """Return the names given that fit none of the variables that are there."""
        there = tuple(present)
        named = tuple(
            name
            for name in dict.fromkeys((*self.variables, *self.drop_variables))
            if not any(_is_named(path, (name,)) for path in there)
        )
        return named + tuple(
            pattern
            for pattern, _ in self.policy
            if is_name(pattern) and not any(fits(path, pattern) for path in there)
        )


def _is_named(path: str, names: tuple[str, ...]) -> bool:
    return any(
        path == name or path.startswith(name.rstrip("/") + "/")
        if name.startswith("/")
        else paths.name(path) == name
        for name in names
    )


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
