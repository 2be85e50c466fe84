"""Order the times of snapshots and ops-log entries: after predecessors, never in the future.

Every reader compares these times, and the official client refuses to write to a repository whose
newest entry lies in the future, so a wrong clock must stop the writer that has it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from icevirt.errors import ClockError, check_time

MOST_AHEAD = 120_000_000
"""Microseconds that a stamp may be ahead of this machine's clock; readers tolerate 600 seconds."""

_SECOND = 1_000_000
_COARSE = 50_000  # microseconds


def stamp(now: int, *, parent: int = 0, top: int = 0) -> int:
    """Return the time of something new that follows its parent and the top of the ops log.

    All are microseconds, ``now`` by this machine's clock.

    Raises:
        StorageError: What it follows is dated too far in the future.
    """
    stamped = max(now, parent + 1, top + 1)
    if stamped - now > MOST_AHEAD:
        raise ClockError(
            "the repository's newest entry is in the future of this machine's clock",
            do="Correct the clock of this machine. If it is correct, the last writer's clock was "
            "wrong: wait until that time has passed, then write.",
            newest=show(stamped - 1),
            now=show(now),
        )
    return stamped


def refuse_ahead(now: int, written: int) -> None:
    """Check this machine's clock by the time that the storage gave to an object written just then.

    ``now`` was this machine's clock before that, in microseconds; the storage's may be cut off to
    seconds.

    Raises:
        StorageError: This machine's clock is far ahead.
    """
    if now - written > MOST_AHEAD:
        raise ClockError(
            "the clock of this machine is ahead of the storage's, so other writers could not "
            "commit until that time",
            do="Correct the clock of this machine or of the storage.",
            now=show(now),
            storage=show(written),
        )


def lag(now: int, written: int) -> int:
    """Return how far the storage's clock may be behind this machine's; arguments as above.

    Nothing where they agree to within what a file system's coarse clock differs from the fine one.
    """
    cut = 0 if written % _SECOND else _SECOND
    return now - written if now - written - cut > _COARSE else 0


def show(at: int) -> str:
    """Return microseconds since 1970 as ISO 8601, UTC."""
    return moment(at).isoformat()


def moment(at: int) -> datetime:
    """Return microseconds since 1970 as a date."""
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)


def micros(at: datetime) -> int:
    """Return a date as microseconds since 1970.

    Raises:
        NaiveTimeError: It is no date, or has no time zone.
    """
    check_time("a time", at)
    whole = at.astimezone(UTC).replace(microsecond=0)
    return round(whole.timestamp()) * 1_000_000 + at.microsecond


def is_old(last_modified: int, older_than: int) -> bool:
    """Say whether an object was surely written before a time; both in microseconds.

    A time in whole seconds was cut off: the object may be almost a second younger.
    """
    cut = 0 if last_modified % _SECOND else _SECOND
    return last_modified + cut < older_than
