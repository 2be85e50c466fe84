"""Prepare a process that runs commands: its signals and its log."""

from __future__ import annotations

import logging
import signal
import sys
from typing import NoReturn


def prepare() -> None:
    """Log to stderr, and end by SIGTERM as by Ctrl-C."""
    if not logging.getLogger("icevirt").handlers:
        _log_to_stderr()
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, _frame: object) -> NoReturn:
    """End the program as Ctrl-C does: code that started other processes ends them."""
    sys.exit(128 + number)


class _LeftBySignal(logging.Formatter):
    """Say what a signal leaves, in words."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        kept = getattr(record, "fields", {})["kept"]
        return f"icevirt: what is finished stays in {kept}; run the same command again to go on"


def _leaves_something(record: logging.LogRecord) -> bool:
    is_by_signal = str(getattr(record, "event", "")).endswith("-interrupted")
    return is_by_signal and "kept" in getattr(record, "fields", {})


def _log_to_stderr() -> None:
    """Show what libraries warn about, less Spark's bridge to Java: its errors are raised too."""
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: "py4j" not in record.pathname)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    own = logging.getLogger("icevirt")
    own.propagate = False  # answers and errors say it already, but for what a signal leaves
    left = logging.StreamHandler()
    left.addFilter(_leaves_something)
    left.setFormatter(_LeftBySignal())
    own.addHandler(left)
