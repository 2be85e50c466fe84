"""Decide how a reader handles source files that changed after the scan, and count them.

A changed file stops the read unless the user chose otherwise; changed files are counted in any
case.
"""

from __future__ import annotations

import os
import threading
import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args
from weakref import WeakSet

from icevirt.errors import InvalidInputError, StorageError

type OnStale = Literal["raise", "warn", "ignore"]

_CHOICES = get_args(OnStale.__value__)
_all: WeakSet[Staleness] = WeakSet()


class StaleReferenceWarning(UserWarning):
    """A source file changed after it was scanned, and its bytes are shown nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How the virtual chunks that were asked for so far are known to be those of the scan."""

    verifiable: int = 0  # carried a strong etag or a modification time, which was compared
    unverifiable: int = 0  # carried neither, or a weak etag alone: a change may go unnoticed
    stale: int = 0  # were found changed


class Staleness:
    """One reader's policy, and its counts. Safe in threads.

    Args:
        on_stale: ``raise``: a changed file is an error. ``warn``: it is read, with a
            `StaleReferenceWarning` for each file. ``ignore``: it is read.

    Raises:
        InvalidInputError: It is none of the three.
    """

    def __init__(self, on_stale: OnStale = "raise") -> None:
        if on_stale not in _CHOICES:
            raise InvalidInputError(
                "unknown value for on_stale",
                do=f"Pass one of {', '.join(map(repr, _CHOICES))}.",
                on_stale=on_stale,
            )
        self.on_stale: OnStale = on_stale
        self.unlock()
        self._verifiable = self._unverifiable = self._stale = 0
        self._reported: set[object] = set()
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Staleness, (self.on_stale,)

    def unlock(self) -> None:
        """Take a new lock: in a forked child, another thread may have held the old one."""
        self._lock = threading.Lock()

    @property
    def seen(self) -> Verification:
        """What was seen so far."""
        return Verification(
            verifiable=self._verifiable, unverifiable=self._unverifiable, stale=self._stale
        )

    def count(self, *, is_verifiable: bool) -> None:
        """Count a chunk whose reference was looked at."""
        with self._lock:
            self._verifiable += is_verifiable
            self._unverifiable += not is_verifiable

    def found(self, change: StorageError) -> None:
        """Treat a file that is not what was scanned.

        Raises:
            StorageError: The change, where that is the policy.
        """
        location = change.facts.get("location")
        with self._lock:
            self._stale += 1
            is_news = location not in self._reported
            self._reported.add(location)
        if self.on_stale == "raise":
            raise change
        if self.on_stale == "warn" and is_news:
            warnings.warn(str(change), StaleReferenceWarning, stacklevel=2)


def refuse(change: StorageError) -> None:
    """Treat a changed file as an error."""
    raise change


def _unlock_in_child() -> None:
    for staleness in list(_all):
        staleness.unlock()


os.register_at_fork(after_in_child=_unlock_in_child)
