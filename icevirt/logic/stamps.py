"""Times of snapshots and ops-log entries: never before what they follow, never far in the future.

Every reader compares these times, and the official client refuses to write to a repository whose
newest entry lies in the future, so that a clock that went wrong must stop the writer that has it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from icevirt.errors import StorageError

MOST_AHEAD = 120_000_000
"""Microseconds that a stamp may be ahead of this machine's clock; readers tolerate 600 seconds."""


def stamp(now: int, *, parent: int = 0, top: int = 0) -> int:
    """Return the time of something new that follows ``parent`` and ``top``, in microseconds.

    Args:
        now: This machine's clock.
        parent: When the parent snapshot was flushed.
        top: The newest entry of the ops log.

    Raises:
        StorageError: What it follows is dated too far in the future.
    """
    stamped = max(now, parent + 1, top + 1)
    if stamped - now > MOST_AHEAD:
        raise StorageError(
            "the repository's newest entry is dated in the future by this machine's clock",
            do="Set the clock of this machine right; if it is, the last writer's was wrong: wait"
            " until the time has passed, then write.",
            newest=shown(stamped - 1),
            now=shown(now),
        )
    return stamped


def shown(at: int) -> str:
    """Return microseconds since 1970 as ISO 8601, UTC."""
    return moment(at).isoformat()


def moment(at: int) -> datetime:
    """Return microseconds since 1970 as a date."""
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)


def micros(at: datetime) -> int:
    """Return a date as microseconds since 1970; one without a zone is local time."""
    whole = at.astimezone(UTC).replace(microsecond=0)
    return round(whole.timestamp()) * 1_000_000 + at.microsecond
