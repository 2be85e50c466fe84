"""Compare this machine's clock with the storage's before publishing its time.

A time in the future stops every other writer until it has passed, and only the storage's clock
shows which clock is wrong.
"""

from __future__ import annotations

import time

from icevirt.storage.protocol import Storage
from icevirt.versioning.history.timestamps import MOST_AHEAD, lag, refuse_ahead

_OFTEN = 300.0  # seconds between two looks


class ClockCheck:
    """Remembers when the two clocks were last compared, so that not every commit has to ask."""

    def __init__(self) -> None:
        self.lag = 0
        """Microseconds that the storage's clock was behind this machine's."""
        self._looked: float | None = None  # by a clock that nobody sets
        self._now = 0

    def check(self, storage: Storage, path: str, now: int) -> None:
        """Compare the clocks by an object just written, unless that was done lately.

        Args:
            storage: Whose clock it is.
            path: The object.
            now: This machine's clock, microseconds, before the object was written.

        Raises:
            StorageError: This machine's clock is far ahead of the storage's.
        """
        looking = time.monotonic()
        if not self._is_due(looking, now):
            return
        for info in storage.list(path):
            refuse_ahead(now, info.last_modified)
            self.lag = lag(now, info.last_modified)
        self._looked, self._now = looking, now

    def _is_due(self, looking: float, now: int) -> bool:
        """Say whether it is time again, or the clock was set since."""
        if self._looked is None or looking - self._looked > _OFTEN:
            return True
        passed = (looking - self._looked) * 1_000_000
        return abs(now - self._now - passed) > MOST_AHEAD / 2
