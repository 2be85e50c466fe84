"""What a scanner is: a class that recognises files by their first bytes and describes them.

Third parties plug in through the entry-point group ``icevirt.scanners``; a scanner sees only
`icevirt.scan`, `icevirt.archive`, `icevirt.model` and `icevirt.errors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from icevirt.archive.scanned import ScannedFile, SourceFile
from icevirt.model import paths


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


_COMPARED = 64 * 1024  # bytes of an array that is compared before it is stacked


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """What a scan is asked for.

    Args:
        concat_dim: The dimension along which the file will be concatenated with others. Labels of
            it are read; arrays without it get a digest, because they must be equal in all files.
        group: Scan only below this group of the file, which becomes the root.
        variables: Names or absolute paths of the only variables to take, coordinates included;
            empty for all.
        drop_variables: Names or absolute paths of variables to leave out.
        max_native_bytes: How many bytes of values may be read and stored because they cannot be
            referenced, in this file.
        scanner: The scanner to use, whatever the file looks like: see `icevirt.scan.registry`.
        allow_references_to: Directories and URL prefixes into which references of the file may
            lead, beside its own directory.
        stack: ``concat_dim`` is a dimension that the files do not have. Large arrays get no digest
            then, because they will be stacked whatever they hold.
    """

    concat_dim: str | None = None
    group: str = "/"
    variables: tuple[str, ...] = ()
    drop_variables: tuple[str, ...] = ()
    max_native_bytes: int = 256 * 1024 * 1024
    scanner: str = ""
    allow_references_to: tuple[str, ...] = ()
    stack: bool = False

    def wants_digest(self, *, is_coordinate: bool, nbytes: int) -> bool:
        """Say whether an array without the concatenated dimension gets a digest."""
        if self.concat_dim is None:
            return False
        return not self.stack or is_coordinate or nbytes <= _COMPARED

    def wants(self, path: str) -> bool:
        """Say whether a variable was asked for: it is, or lies below, what is named."""
        if self.variables and not _is_named(path, self.variables):
            return False
        return not _is_named(path, self.drop_variables)

    def unknown(self, present: Iterable[str]) -> tuple[str, ...]:
        """Return the names given that fit none of the variables that are there."""
        there = tuple(present)
        return tuple(
            name
            for name in dict.fromkeys((*self.variables, *self.drop_variables))
            if not any(_is_named(path, (name,)) for path in there)
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

    def scan(self, source: ByteSource, options: ScanOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The file is damaged.
            UnsupportedError: The file holds something that cannot be represented correctly.
        """
