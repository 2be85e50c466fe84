"""What builds and plans are asked for, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from icevirt.api.target import digest_of
from icevirt.archive.scanned import SourceFile
from icevirt.errors import InvalidInputError
from icevirt.scan.contract import ScanOptions
from icevirt.scan.registry import scanners
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Storage
from icevirt.storage.resolve import StorageLike, storage_of

MAX_NATIVE_BYTES = 256 * 1024 * 1024
"""Of values per file that may be stored because they cannot be referenced, by default."""


def scan_options(
    concat_dim: str | None, drop_variables: str | Iterable[str], max_native_bytes: int
) -> ScanOptions:
    """Return the options of a scan; one variable may be named without a list around it."""
    dropped = (drop_variables,) if isinstance(drop_variables, str) else tuple(drop_variables)
    return ScanOptions(
        concat_dim=concat_dim, drop_variables=dropped, max_native_bytes=max_native_bytes
    )


def identity_of(options: ScanOptions) -> str:
    """Return a digest of what decides how a file is described: options and scanners."""
    return digest_of(asdict(options), [(each.name, each.version) for each in scanners()])


def listed(files: Iterable[SourceFile]) -> list[list[str | int]]:
    """Return what identifies the files, for a digest."""
    return [[file.url, file.size, file.etag, file.last_modified] for file in files]


def shared(root: StorageLike) -> Storage:
    """Return a storage that Spark's workers reach as well.

    Raises:
        InvalidInputError: It is this process's memory.
    """
    storage = storage_of(root)
    if isinstance(storage, MemoryStorage):
        raise InvalidInputError(
            "a build needs a storage that all Spark workers reach",
            do="Use a directory; memory belongs to one process.",
            storage=storage.url,
        )
    return storage
