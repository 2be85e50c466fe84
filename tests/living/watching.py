"""See what this process opens, looks at and connects to while a call runs."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_EVENTS = {"open": 0, "os.listdir": 0, "os.scandir": 0, "socket.connect": 1}
_LOOKS = ("stat", "lstat", "readlink", "access")

_watch: list["Seen"] = []


class Seen:
    """What was opened, looked at and connected to."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def below(self, *places: object) -> list[str]:
        """Return what lies at, or below, some places; servers are named ``host:port``."""
        return [each for each in self.names if each.startswith(tuple(map(str, places)))]


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _watch and event in _EVENTS:
        _note(args[_EVENTS[event]])


def _note(what: object) -> None:
    if isinstance(what, tuple):
        what = ":".join(map(str, what[:2]))
    if isinstance(what, str | bytes | os.PathLike):
        _watch[-1].names.append(os.fsdecode(what))


def _looking(function):
    def look(path, *args, **named):
        if _watch:
            _note(path)
        return function(path, *args, **named)

    return look


@contextmanager
def watching(monkeypatch) -> Iterator[Seen]:
    """Note each path and server that Python code names; libraries of others are seen by servers."""
    if not getattr(sys, "_icevirt_watching", False):
        sys.addaudithook(_hook)  # which stays, and costs nothing where nobody watches
        sys._icevirt_watching = True
    seen = Seen()
    with monkeypatch.context() as patch:
        for name in _LOOKS:
            patch.setattr(os, name, _looking(getattr(os, name)))
        _watch.append(seen)
        try:
            yield seen
        finally:
            _watch.pop()
