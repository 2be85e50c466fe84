"""Say by the exit status whether the same command may succeed when it is run again."""

from __future__ import annotations

from icevirt.errors import (
    IcevirtError,
    JobsCancelledError,
    NotListableError,
    SparkJobError,
    StaleReferenceError,
    StorageError,
)

REFUSED = 1
"""Files, arguments or the repository do not allow it.

Also where `verify` found differences, and where the reader of stdout went away."""

PLATFORM = 3
"""Spark or a storage failed: the same command goes on where it stopped, once that works."""

CANCELLED = 4
"""The Spark jobs were cancelled: the same command goes on where it stopped."""

BEHIND = 5
"""`status` found that a dataset is further behind than was allowed."""

HELD = 5
"""An update did what it could, and holds files back; only with ``--fail-on-held``."""

BUG = 70
"""An error that icevirt did not foresee, with a traceback; `EX_SOFTWARE` of sysexits.h."""


def status_of(error: IcevirtError) -> int:
    """Return the exit status of an error; 2 is a wrong command line, 130 and 143 are signals."""
    if isinstance(error, JobsCancelledError):
        return CANCELLED
    if isinstance(error, NotListableError | StaleReferenceError):
        return REFUSED
    of_files = "unreadable" in error.facts  # files of which a storage gave no bytes
    if isinstance(error, SparkJobError | StorageError) or of_files:
        return PLATFORM
    return REFUSED
