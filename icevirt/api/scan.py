"""Scan one file by hand, without Spark and without a repository."""

from __future__ import annotations

import os
from collections.abc import Sequence

from icevirt.archive.scanned import ScannedFile
from icevirt.objects.source import open_source
from icevirt.scan import registry
from icevirt.scan.contract import ScanOptions


def scan_file(
    url: str | os.PathLike[str],
    *,
    concat_dim: str | None = None,
    group: str = "/",
    drop_variables: Sequence[str] = (),
    max_native_bytes: int = ScanOptions().max_native_bytes,
) -> ScannedFile:
    """Describe a file: its groups, arrays, chunk references and what was decided about them.

    Args:
        url: Local path or ``file://`` URL.
        concat_dim: Dimension along which the file will be concatenated with others.
        group: Scan only below this group of the file, which becomes the root.
        drop_variables: Names or absolute paths of variables to leave out.
        max_native_bytes: How many bytes of values may be read and stored because they cannot be
            referenced.

    Raises:
        NotFoundError: There is no such file.
        ScanError: No scanner reads it, or it is damaged.
        UnsupportedError: Something in it has no exact representation.
    """
    options = ScanOptions(
        concat_dim=concat_dim,
        group=group,
        drop_variables=tuple(drop_variables),
        max_native_bytes=max_native_bytes,
    )
    with open_source(url) as source:
        return registry.scan(source, options)
