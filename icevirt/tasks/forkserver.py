"""Start child processes by forking a server process that has imported what they need.

One server serves all of a process; it starts with the first child, and starts anew where the
environment, the import path or the working directory changed, since libraries read these when they
are imported. It has one thread and does no work: it forks, reports how children ended, and kills
them, since only a parent knows that a process id still belongs to its child. Children die with the
process that uses them, even where that is killed.
"""

from __future__ import annotations

import atexit
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
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from icevirt.import_path import command, environment
from icevirt.tasks.limit_enforcement import become_worker

STAGES = (
    "icevirt.tasks.scan",
    "icevirt.tasks.shuffle",
    "icevirt.tasks.source_values",
    "icevirt.tasks.recheck_targets",
    "icevirt.tasks.write_manifests",
    "icevirt_scanners.hdf5.scanner",
    "icevirt_scanners.kerchunk.scanner",
    "icevirt_scanners.netcdf3.scanner",
    "importlib.metadata",  # which finds scanners
)
"""What tasks need; scanners of others may start threads, and are imported when they are used.
These start none, once Arrow is configured; `tests/execution/test_daemon.py` checks it."""

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
            if self._code is None:
                self._code = self._ended(patience)
            return self._code

    def _ended(self, patience: float) -> int:
        with self._status:
            try:
                if not self._status.poll(patience):
                    with suppress(OSError):  # it ended meanwhile
                        self._status.send(None)  # kills it
                return int(self._status.recv())
            except (EOFError, OSError):  # its server is gone
                return self._server.process.wait()


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


def prepare(names: Sequence[str] = STAGES) -> None:
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
