"""Read values with the format's reference library, to compare a repository with its sources.

An oracle shares nothing with the references that a scanner makes: it opens the file as any user of
h5py or netCDF4 would. A scanner has an oracle if it has ``read_values``.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from icevirt.errors import UnsupportedError
from icevirt.scan.contract import ByteSource
from icevirt.scan.registry import scanner_for


@runtime_checkable
class Oracle(Protocol):
    """A scanner that can also read values with its format's reference library."""

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


def oracle_for(source: ByteSource) -> Oracle:
    """Return the oracle for a file.

    Raises:
        ScanError: No scanner reads the file.
        UnsupportedError: Its scanner has none.
    """
    scanner = scanner_for(source)
    if isinstance(scanner, Oracle):
        return scanner
    raise UnsupportedError(
        "the scanner of this format cannot read values to compare with",
        do="Check the references only (--references).",
        file=source.file.url,
        scanner=scanner.name,
    )
