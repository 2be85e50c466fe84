"""Scan one file by hand, without Spark and without a repository."""

from __future__ import annotations

import os
from collections.abc import Iterable

from icevirt.api.request import MAX_NATIVE_BYTES, scan_options
from icevirt.archive.scanned import ScannedFile
from icevirt.objects.source import open_source
from icevirt.scan import registry


def scan_file(
    url: str | os.PathLike[str],
    *,
    concat_dim: str | None = None,
    group: str = "/",
    variables: str | Iterable[str] = (),
    drop_variables: str | Iterable[str] = (),
    max_native_bytes: int = MAX_NATIVE_BYTES,
    scanner: str = "",
    allow_references_to: str | Iterable[str] = (),
) -> ScannedFile:
    """Describe a file: its groups, arrays, chunk references and what was decided about them.

    Args:
        url: Local path or ``file://`` URL.
        concat_dim: Dimension along which the file will be concatenated with others.
        group: Scan only below this group of the file, which becomes the root.
        variables: Names or absolute paths of the only variables to take; all by default.
        drop_variables: Names or absolute paths of variables to leave out.
        max_native_bytes: How many bytes of values may be read and stored because they cannot be
            referenced.
        scanner: The scanner to use, like ``virtualizarr:FITSParser``; chosen by the file's content
            by default.
        allow_references_to: Directories and URL prefixes into which references of the file may
            lead, beside its own directory. Only files of references have any.

    Raises:
        InvalidInputError: The file has none of the variables named, or there is no such scanner.
        NotFoundError: There is no such file.
        ScanError: No scanner reads it, or it is damaged.
        UnsupportedError: Something in it has no exact representation.
    """
    options = scan_options(
        concat_dim=concat_dim,
        group=group,
        variables=variables,
        drop_variables=drop_variables,
        max_native_bytes=max_native_bytes,
        scanner=scanner,
        allow_references_to=allow_references_to,
    )
    with open_source(url) as source:
        scanned = registry.scan(source, options)
    registry.refuse_unknown(options, scanned)
    return scanned
