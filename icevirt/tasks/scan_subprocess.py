"""Scan files in a child process, where a crash, a hang or memory use costs only one file.

Damaged files can make libhdf5 crash or run forever. Files suspected of having killed a process are
scanned in a child, and all comparisons run in one: a child reads file after file, and another
starts only if it dies. See `icevirt.tasks.forkserver`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from icevirt.archive.scanned import ScanOutcome, SourceFile
from icevirt.archive.shares import DEFAULT, ScanLimits
from icevirt.errors import (
    BuildError,
    IcevirtError,
    ScanCrashError,
    ScanMemoryError,
    ScanTimeoutError,
)
from icevirt.objects.source_access import SourceAccess, granted, in_force
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import scanners
from icevirt.tasks.forkserver import Child, how
from icevirt.tasks.limit_enforcement import held_to
from icevirt.tasks.scan_file import attempt

_START = 120.0  # seconds for Python and the scanners to come up on a busy machine
_GRACE = 5.0  # seconds in which the parent's deadline comes before the child's


class Apart:
    """Child processes that do work about files, one at a time; a context that ends them."""

    def __init__(self, limits: ScanLimits = DEFAULT) -> None:
        self._limits = limits
        self._child: Child | None = None

    def call[**P, R](self, url: str, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do the work about a file in a child; start one if there is none.

        Args:
            url: Of the file, for errors.
            work: A function of a module.
            args: For it; they pickle.
            kwargs: The same.

        Raises:
            IcevirtError: The one that the work raised.
            ScanCrashError: The child died, `ScanTimeoutError` if it took too long,
                `ScanMemoryError` if the system ended it.
        """
        try:
            found = self._asked(work, args, kwargs)
        except TimeoutError:
            raise self._too_slow(url) from None
        except (EOFError, OSError):
            raise self._crashed(url) from None
        if isinstance(found, IcevirtError):
            raise found
        return found

    def _asked[R](
        self, work: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R | IcevirtError:
        """Ask a child, and another one where the first ended while it waited: no file did that."""

        def ask() -> R | IcevirtError:
            child = self._ready(work.__module__)
            return child.ask(self._limits.seconds, _limited, self._limits, work, args, kwargs)

        try:
            return ask()
        except ConnectionError:
            self._stop()
            return ask()

    def _ready(self, module: str) -> Child:
        """Return a child that waits for a file."""
        if self._child is not None and not self._child.has_ended():
            return self._child
        self._stop()
        self._child = Child(module)
        try:
            self._child.ask(_START, _come_up)
        except (EOFError, OSError):
            raise BuildError(
                "the child process that scans suspicious files does not start",
                do="Its output is in the log of the worker.",
                exit_code=self._stop(),
            ) from None
        return self._child

    def _too_slow(self, url: str) -> IcevirtError:
        self._stop(patience=0)
        return ScanTimeoutError(
            "the scan of the file took longer than its limit",
            do="Leave it out, or raise file_timeout (--file-timeout).",
            file=url,
            seconds=self._limits.seconds,
        )

    def _crashed(self, url: str) -> IcevirtError:
        code = self._stop()
        if code == -signal.SIGALRM:  # its own deadline came first
            return self._too_slow(url)
        if code == -signal.SIGKILL:  # only the system sends it
            return ScanMemoryError(
                "the system ended the process that scans the file, because memory ran out",
                do="Leave it out, or scan it on a machine with more memory.",
                file=url,
            )
        return ScanCrashError(
            "the scan of the file crashes its process",
            do="The file is damaged in a way that crashes its library: leave it out.",
            file=url,
            cause=how(code),
        )

    def _stop(self, patience: float = 1.0) -> int:
        """End the child, if there is one, and return its exit code; a dead one keeps its own."""
        child, self._child = self._child, None
        return 0 if child is None else child.end(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()


class Containment(Apart):
    """Scans files in children."""

    def __init__(self, options: ScannerOptions, limits: ScanLimits) -> None:
        super().__init__(limits)
        self._options = options

    def attempt(self, file: SourceFile, piece: tuple[int, int] | None = None) -> ScanOutcome:
        """Scan a file, or a share of it, in a child."""
        begin = time.perf_counter()
        try:
            return self.call(file.url, attempt_as, in_force(), file, self._options, piece)
        except (ScanCrashError, ScanTimeoutError, ScanMemoryError) as error:
            seconds = time.perf_counter() - begin
            return ScanOutcome(file=file, scanned=None, error=error, seconds=seconds)


def attempt_as(
    access: SourceAccess,
    file: SourceFile,
    options: ScannerOptions,
    piece: tuple[int, int] | None = None,
) -> ScanOutcome:
    """Scan a file with the access of the parent."""
    with granted(access):
        return attempt(file, options, piece=piece)


def _come_up() -> int:
    """Import the scanners, so that the time it takes does not count for the first file."""
    scanners()
    return os.getpid()


def _limited[R](
    limits: ScanLimits, work: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> R | IcevirtError:
    """Return the result or error of work in a child; an alarm ends what its parent does not."""
    with held_to(replace(limits, seconds=limits.seconds + _GRACE)):
        try:
            return work(*args, **kwargs)
        except IcevirtError as error:
            return error
