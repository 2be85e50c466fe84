"""Start child processes by forking a server process that has imported what they need.

One server serves all of a process; it starts with the first child, and starts anew where the
environment, the import path or the working directory changed, since libraries read these when they
are imported. It has one thread and does no work: it forks, reports how children ended, and kills
them, since only a parent knows that a process id still belongs to its child. Children die with the
process that uses them, even where that is killed.

`Apart` gives children work about files, one at a time. A worker that hangs in a library is ended,
so that its task is tried again, and one that wants too much memory gets a MemoryError; a process of
the user's own that runs a stage is never ended. A system alarm does it, with a handler outside
Python, which a library that never returns blocks: a thread per file, which the clock of
`faulthandler` needs, would cost as much as a small file. Memory is limited on Linux only, where a
process can see how much it has.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import multiprocessing
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn, Self

from icevirt.archive.scanned import DEFAULT, ScanLimits
from icevirt.errors import (
    BuildError,
    IcevirtError,
    ScanCrashError,
    ScanMemoryError,
    ScanTimeoutError,
)
from icevirt.import_path import command, environment
from icevirt.remedy_notation import write_option, write_remedy

_STATM = Path("/proc/self/statm")
_STDERR = 2
_AT_ONCE = 1e-6  # seconds; 0 would mean never
_IS_WORKER = [False]


@contextmanager
def hold_to(limits: ScanLimits) -> Iterator[None]:
    """Run the block within the limits, in a Spark worker; too much time ends the process."""
    if not in_worker():
        yield
        return
    with _alarm_after(limits.seconds), limit_memory(limits.memory):
        yield


@contextmanager
def _alarm_after(seconds: float) -> Iterator[None]:
    """End this process, with its traceback, where the block takes longer.

    Spark uses a worker again for other functions of its user, who may have an alarm of their own:
    its handler and what is left of its time are put back.
    """
    handler = signal.getsignal(signal.SIGALRM)
    is_main = threading.current_thread() is threading.main_thread()
    may_replace = is_main and handler is not None  # else it is as it is by default, or of C
    if may_replace:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=_STDERR, chain=True)
    begin = time.monotonic()
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
        if may_replace:
            signal.signal(signal.SIGALRM, handler)
        if left:  # one that is due rings now, in its own handler
            took = time.monotonic() - begin
            signal.setitimer(signal.ITIMER_REAL, max(left - took, _AT_ONCE), again)


def become_worker() -> None:
    """Note that this process runs tasks and nothing else."""
    _IS_WORKER[0] = True


def in_worker() -> bool:
    """Say whether this process runs tasks for Spark or for another driver."""
    module = sys.modules.get("pyspark.taskcontext")
    return _IS_WORKER[0] or (module is not None and module.TaskContext.get() is not None)


@contextmanager
def limit_memory(memory: int) -> Iterator[None]:
    """Let this process take no more than ``memory`` bytes beside what it has, in the block."""
    if not _STATM.exists():
        yield
        return
    held = int(_STATM.read_bytes().split(maxsplit=1)[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    known = (each for each in (soft, hard) if each != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (min([held + memory, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


STAGES = (
    "icevirt.tasks.scan",
    "icevirt.tasks.shuffle",
    "icevirt.tasks.source_values",
    "icevirt.tasks.write_manifests",
    "icevirt_scanners.hdf5.scanner",
    "icevirt_scanners.kerchunk.scanner",
    "icevirt_scanners.netcdf3.scanner",
    "importlib.metadata",  # which finds scanners
)
"""What tasks need; scanners of others may start threads, and are imported when they are used.
These start none, once Arrow is configured; `tests/execution/test_daemon.py` checks it."""

SCANNERS = tuple(
    f"icevirt_scanners.{name}.scanner"
    for name in ("dmrpp", "grib", "icechunk", "tiff", "virtualizarr", "zarr")
)
"""The other scanners of this package, which a task tries when it looks what a file is: each child
that imported them itself took 0.05 s for it. Libraries they import when they meet such a file."""

_PATIENCE = 0.5  # seconds
_MOST = 3  # descriptors that a child is given
_OBJECTS, _YOUNG = 50_000, 20
"""How seldom a child looks for garbage in circles, of which tasks leave little: looking at what a
scan holds, each 2,000 objects, took a tenth of its time."""


class Child:
    """A process that does one piece of work after the other.

    Args:
        module: Of the work, which the server imports once; it must not start threads.
        output: Descriptor of the file that takes what the child writes to stdout and stderr. By
            default the first goes nowhere, and the second where this process's does.
    """

    def __init__(self, module: str, output: int | None = None) -> None:
        self._lock = threading.Lock()
        self._code: int | None = None
        self._line: Connection[Any, Any]
        self._status: Connection[Any, Any]
        self._line, line = multiprocessing.Pipe()
        self._status, status = multiprocessing.Pipe()
        given = [line.fileno(), status.fileno(), *([] if output is None else [output])]
        self._line.send(module)
        with line, status:
            for _ in range(2):
                self._server = server()
                try:
                    socket.send_fds(self._server.requests, [b"f"], given)
                    break
                except ConnectionError:  # it was killed
                    _server.cache_clear()

    def ask[**P, R](
        self, seconds: float | None, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Do the work in the child.

        Args:
            seconds: How long to wait; None is for ever.
            work: A function of a module.
            args: For it; they pickle, like the result.
            kwargs: The same.

        Raises:
            TimeoutError: It takes longer.
            ConnectionError: The child had ended before it took the work.
            EOFError: The child ended; or another OSError.
        """
        # `send` of an object leaves a view of a BytesIO in the traceback of an error, and the two
        # cannot be collected in any order
        self._line.send_bytes(pickle.dumps((work, args, kwargs)))
        if not self._line.poll(seconds):
            raise TimeoutError
        found: R = pickle.loads(self._line.recv_bytes())  # noqa: S301  # of our own child
        return found

    def has_ended(self) -> bool:
        """Return whether the child has ended, or its server, which would notice."""
        return self._status.poll()

    def end(self, patience: float = _PATIENCE) -> int:
        """End the child, and return its exit code; a dead one keeps its own.

        Args:
            patience: Seconds in which an idle child leaves by itself.
        """
        self._line.close()
        with self._lock:
            if self._code is not None:
                return self._code
            with self._status:
                try:
                    if not self._status.poll(patience):
                        with suppress(OSError):  # it ended meanwhile
                            self._status.send(None)  # kills it
                    self._code = int(self._status.recv())
                except (EOFError, OSError):  # its server is gone
                    self._code = self._server.process.wait()
            return self._code


def how(code: int) -> str:
    """Return how a process ended, as text, from its exit code."""
    return str(signal.strsignal(-code)) if code < 0 else f"exit code {code}"


@dataclass
class _ForkServer:
    """The server as its parent sees it; it ends when nothing refers to it."""

    requests: socket.socket
    process: subprocess.Popen[bytes]


def server() -> _ForkServer:
    """Return the server that suits this process as it is now; one that starts imports meanwhile."""
    here = os.stat(".")
    known = frozenset(environment(OMP_NUM_THREADS="1").items())  # no threads to fork
    return _server(known, (here.st_dev, here.st_ino))


@lru_cache(maxsize=1)
def _server(variables: frozenset[tuple[str, str]], directory: tuple[int, int]) -> _ForkServer:
    del directory  # it is inherited
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603  # this interpreter, a module of ours
            command(__name__, str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=dict(variables),
        )
    made = _ForkServer(ours, process)
    weakref.finalize(made, _end, ours, process).atexit = False
    atexit.register(_server.cache_clear)  # runs before `finalize` stops to work
    return made


def _end(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    try:
        process.wait(_PATIENCE)  # returns at once in a fork of the parent
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


os.register_at_fork(after_in_child=_server.cache_clear)


def prepare(names: Sequence[str] = (*STAGES, *SCANNERS)) -> None:
    """Import what processes need, before they are forked: they share its memory."""
    # for Arrow's allocator, which reads it once; a thread that cleans up would not be forked
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    gc.disable()  # what is imported stays
    for name in names:
        with suppress(ImportError):  # h5py is an extra: a scan that needs it says so
            importlib.import_module(name)
    gc.freeze()  # looking for garbage writes to pages that are shared
    gc.set_threshold(_OBJECTS, _YOUNG, _YOUNG)
    gc.enable()


def main(fileno: str) -> None:
    """Serve the parent at the other end of ``fileno``, until it is gone and all children ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends its children
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prepare()
    requests = socket.socket(fileno=int(fileno))
    children = _Children()
    is_open = True
    while is_open or children.lives:
        for ready in wait([*([requests] if is_open else []), *children.lives, *children.pids]):
            if ready is requests:
                _, given, _, _ = socket.recv_fds(requests, 1, _MOST)
                is_open = bool(given)
                if is_open:
                    children.fork(given, requests)
            elif ready in children.lives:
                children.reap(ready)
            elif ready in children.pids:  # its parent kills it, or is gone
                os.kill(children.pids.pop(ready), signal.SIGKILL)


class _Children:
    """The children of the server, which alone knows their process ids."""

    def __init__(self) -> None:
        self.lives: dict[Any, tuple[int, Any]] = {}  # what is at its end when a child is
        self.pids: dict[Any, int] = {}  # by the status, a line to the parent

    def fork(self, given: list[int], requests: socket.socket) -> None:
        line: Connection[Any, Any] = Connection(given[0])
        status: Connection[Any, Any] = Connection(given[1])
        prepare([line.recv()])
        life, held = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            for other in (requests, status, life, *self.lives, *self.pids):
                other.close()
            _serve(line, given[2:])
        line.close()
        held.close()
        for output in given[2:]:
            os.close(output)
        self.lives[life], self.pids[status] = (pid, status), pid

    def reap(self, life: Any) -> None:
        pid, status = self.lives.pop(life)
        self.pids.pop(status, None)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with life, status, suppress(OSError):
            status.send(code)


def _serve(line: Connection[Any, Any], output: Sequence[int]) -> NoReturn:
    """Do one piece of work after the other until the parent is gone."""
    become_worker()
    code = 1
    try:
        os.set_inheritable(line.fileno(), False)
        for each in output:
            os.dup2(each, 1)
            os.dup2(each, 2)
            os.close(each)
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                work, args, kwargs = pickle.loads(line.recv_bytes())  # noqa: S301  # of the parent
                line.send_bytes(pickle.dumps(work(*args, **kwargs)))
        code = 0
    except BaseException:  # noqa: BLE001  # nothing of the process that forked it may run here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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

        def ask() -> R | IcevirtError:
            child = self._ready(work.__module__)
            return child.ask(self._limits.seconds, _limit, self._limits, work, args, kwargs)

        try:
            try:
                found = ask()
            except ConnectionError:  # the child ended while it waited: no file did that
                self._stop()
                found = ask()
        except TimeoutError:
            raise self._too_slow(url) from None
        except (EOFError, OSError):
            raise self._crash_of(url) from None
        if isinstance(found, IcevirtError):
            raise found
        return found

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
            do=write_remedy("Leave it out, or raise ", write_option("file_timeout"), "."),
            file=url,
            seconds=self._limits.seconds,
        )

    def _crash_of(self, url: str) -> IcevirtError:
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop(1.0 if kind is None else 0.0)  # it may be at work that nobody wants


def _come_up() -> int:
    """Import the scanners, so that the time it takes does not count for the first file."""
    from icevirt.scan.registry import scanners

    scanners()
    return os.getpid()


def _limit[R](
    limits: ScanLimits, work: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> R | IcevirtError:
    """Return the result or error of work in a child; an alarm ends what its parent does not."""
    with hold_to(replace(limits, seconds=limits.seconds + _GRACE)):
        try:
            return work(*args, **kwargs)
        except IcevirtError as error:
            return error
