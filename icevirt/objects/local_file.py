"""What a build records about a file of this machine."""

from __future__ import annotations

import os
import shlex

from icevirt.archive.scanned import SourceFile
from icevirt.errors import InvalidInputError
from icevirt.model.chunks import END_SECOND


def local_file(url: str, path: str, status: os.stat_result) -> SourceFile:
    """Return what is recorded about a file.

    Raises:
        InvalidInputError: A reference cannot carry its time: it is of 2106 or later.
    """
    file = SourceFile.of_status(url, status)
    if file.last_modified_seconds >= END_SECOND:
        raise InvalidInputError(
            "the modification time of a source cannot be stored (only times before 2106 can), so "
            "changes of the file would go unnoticed",
            do=f"Set it to now: touch {shlex.quote(path)}. Where that cannot be written, build from"
            " a copy.",
            path=path,
            seconds_since_1970=file.last_modified_seconds,
        )
    return file
