"""Scan files in a child process, where a crash, a hang or memory use costs only one file.

Damaged files can make libhdf5 crash or run forever. Files suspected of having killed a process are
scanned so, and comparisons always run so: one child reads file after file, and another starts only
if it dies. The child runs `icevirt.tasks.scan_subprocess_child`.
"""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from icevirt.archive.limits import DEFAULT, ScanLimits
from icevirt.archive.outcome import ScanOutcome
from icevirt.archive.scanned import SourceFile
from icevirt.errors import (
    BuildError,
    IcevirtError,
    ScanCrashError,
    ScanMemoryError,
    ScanTimeoutError,
)
from icevirt.import_path import command, environment
from icevirt.objects.source_access import SourceAccess, granted, in_force
from icevirt.scan.contract import ScannerOptions
from icevirt.tasks.scan_file import attempt

_START = 120.0  # seconds for Python and the scanners to come up on a busy machine


class Apart:
    """Child processes that do work about files, one at a time; a context that ends them."""

    def __init__(self, limits: ScanLimits = DEFAULT) -> None:
        self._limits = limits
        self._child: subprocess.Popen[bytes] | None = None
        self._line: Connection[Any, Any] | None = None

    def call[**P, R](self, url: str, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do the work about a file in a child, which is started where there is none.

        Args:
            url: Of the file, for errors.
            work: A function of a module, which handles its own errors.
            args: For it; they pickle.
            kwargs: The same.

        Raises:
            ScanCrashError: The child died, `ScanTimeoutError` if it took too long,
                `ScanMemoryError` if the system ended it.
        """
        line = self._ready()
        try:
            line.send((work, args, kwargs))
            if line.poll(self._limits.seconds):
                found: R = line.recv()
                return found
        except (EOFError, OSError):
            raise self._crashed(url) from None
        raise self._too_slow(url)

    def _ready(self) -> Connection[Any, Any]:
        """Return the line to a child that waits for a file."""
        if self._line is not None and self._child is not None and self._child.poll() is None:
            return self._line
        self._stop()
        self._line = self._start()
        try:
            if self._line.poll(_START) and self._line.recv():
                return self._line
        except (EOFError, OSError):
            pass
        raise BuildError(
            "the child process that scans suspicious files does not start",
            do="Its output is in the log of the worker.",
            exit_code=self._stop(),
        )

    def _start(self) -> Connection[Any, Any]:
        ours, theirs = multiprocessing.Pipe()
        arguments = theirs.fileno(), self._limits.memory, self._limits.seconds
        with theirs:
            self._child = subprocess.Popen(  # noqa: S603  # this interpreter, a module of ours
                command("icevirt.tasks.scan_subprocess_child", *map(str, arguments)),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment(),
            )
        return ours

    def _too_slow(self, url: str) -> IcevirtError:
        if self._child is not None:
            self._child.kill()
        self._stop()
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
        if code == -signal.SIGKILL:  # nobody else does that
            return ScanMemoryError(
                "the system ended the process that scans the file, because memory ran out",
                do="Leave it out, or scan it on a machine with more memory.",
                file=url,
            )
        return ScanCrashError(
            "the scan of the file crashes its process",
            do="The file is damaged in a way that crashes its library: leave it out.",
            file=url,
            cause=signal.strsignal(-code) if code < 0 else f"exit code {code}",
        )

    def _stop(self) -> int:
        """End the child, if there is one, and return its exit code; a dead one keeps its own."""
        line, child, self._line, self._child = self._line, self._child, None, None
        if line is not None:
            line.close()
        if child is None:
            return 0
        try:
            return child.wait(timeout=1)  # the line's end makes an idle child leave
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    """Scan a file with the access of somebody else."""
    with granted(access):
        return attempt(file, options, piece=piece)
