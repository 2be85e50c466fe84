"""Run calls that wait for the disk beside one another, in threads that stay for a moment.

Starting a thread takes longer than what a sync asks of the processor, and commits follow one
another: a thread takes what comes next, and ends when nothing has come for a quarter of a second,
so that a process that forks later has no threads of this.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable

_IDLE = 0.25  # seconds


class SyncCall:
    """A call that is made in a thread."""

    __slots__ = ("_act", "_done", "_error")

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()

    def run(self) -> None:
        """Make the call."""
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self._error = error
        finally:
            self._done.release()

    def wait(self) -> None:
        """Wait for its end; raise what it raised."""
        self._done.acquire()
        if self._error is not None:
            raise self._error


class _SyncThread:
    """A thread that makes one call after the other."""

    __slots__ = ("call", "go")

    def __init__(self, call: SyncCall) -> None:
        self.call = call
        self.go = _thread.allocate_lock()  # free where there is another call
        self.go.acquire()


class SyncThreads:
    """As many threads as calls that ran at a time, a moment ago.

    A signal may interrupt a caller anywhere: then a thread may stay that nobody gives a call to,
    but no call waits for a thread that does not come.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked child has to: it has none of its parent's threads."""
        self._idle: list[_SyncThread] = []

    def start(self, act: Callable[[], None]) -> SyncCall | None:
        """Make a call beside the caller; None where there can be no further thread."""
        if sys.is_finalizing():  # threads do not go on then
            return None
        call = SyncCall(act)
        try:
            thread = self._idle.pop()
        except IndexError:
            pass
        else:
            thread.call = call
            thread.go.release()
            return call
        try:
            # `threading.Thread` waits for each thread to begin
            _thread.start_new_thread(self._run, (_SyncThread(call),))
        except RuntimeError:  # there are as many as there may be
            return None
        return call

    def _run(self, thread: _SyncThread) -> None:
        idle = self._idle
        while True:
            thread.call.run()
            idle.append(thread)
            if not thread.go.acquire(timeout=_IDLE):
                try:
                    idle.remove(thread)
                except ValueError:  # it was taken meanwhile, and its call comes
                    thread.go.acquire()
                else:
                    return


_OF_PROCESS = SyncThreads()
os.register_at_fork(after_in_child=_OF_PROCESS.forget)


def start(act: Callable[[], None]) -> SyncCall | None:
    """Make a call in a thread of this process; see `SyncThreads.start`."""
    return _OF_PROCESS.start(act)
