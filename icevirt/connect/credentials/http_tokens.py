"""Renew the headers of web servers by calling a function, once at a time per process.

The function is called again before its answer expires, and when a server refuses the answer. A
server may also refuse one file to every user, so a refusal that persists after a renewal no longer
counts as an expired token.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime

from icevirt.connect.credentials.common import Refreshable, refreshed
from icevirt.connect.credentials.http import HttpCredentials

_MARGIN = 60.0  # seconds before the end at which others are fetched; half of a shorter life
_MOST = 64  # functions whose answers are remembered


@dataclass(slots=True, eq=False)
class Token:
    """An answer of the function."""

    headers: dict[str, str] = field(repr=False)
    until: float  # on the monotonic clock
    because: int = 0  # status of the answer that refused the one before
    worked: bool = False  # some server accepted it
    forbids: bool = False  # it is new, and was refused with 403: that says something of a file

    @property
    def is_over(self) -> bool:
        """Whether it is about to expire."""
        return time.monotonic() >= self.until


class Tokens:
    """The answers of one function, shared by all threads."""

    def __init__(self, credentials: Refreshable) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._current: Token | None = None

    def current(self) -> Token:
        """Return what to send.

        Raises:
            StorageError: The function failed.
        """
        with self._lock:
            if self._current is None:
                scattered = self._credentials.current
                self._current = self._asked() if scattered is None else _token(scattered)
            if self._current.is_over:
                self._current = self._asked()
            return self._current

    def renew(self, refused: Token, status: int) -> bool:
        """Take a refusal for the end of a token, and fetch another unless somebody did.

        Returns:
            False where another one is of no use.

        Raises:
            StorageError: The function failed.
        """
        with self._lock:
            if self._current is not refused:
                return True
            if refused.forbids and status == 403:
                return False
            if refused.because and not refused.worked:
                refused.forbids = status == 403
                return False
            self._current = self._asked(because=status)
            return True

    def _asked(self, because: int = 0) -> Token:
        return _token(refreshed(self._credentials), because)


def _token(answer: object, because: int = 0) -> Token:
    assert isinstance(answer, HttpCredentials), "what functions return was checked"
    until = float("inf")
    if answer.expires_after is not None:
        left = (answer.expires_after - datetime.now(UTC)).total_seconds()
        until = time.monotonic() + left - min(_MARGIN, left / 2)
    return Token(headers=answer.sent(), until=until, because=because)


class _All:
    """The answers of all functions of this process."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget them, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._known: OrderedDict[Refreshable, Tokens] = OrderedDict()

    def of(self, credentials: Refreshable) -> Tokens:
        """Return the answers of the function of some credentials."""
        with self._lock:
            found = self._known.setdefault(credentials, Tokens(credentials))
            self._known.move_to_end(credentials)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
            return found


TOKENS = _All()
