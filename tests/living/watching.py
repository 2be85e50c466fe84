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
        self.links: list[str] = []  # that were looked at themselves, and not what they lead to

    def below(self, *places: object) -> list[str]:
        """Return what lies at, or below, some places; servers are named ``host:port``."""
        begin = tuple(map(str, places))
        return [each for each in (*self.names, *self.links) if each.startswith(begin)]


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _watch and event in _EVENTS:
        _note(args[_EVENTS[event]], _watch[-1].names)


def _note(what: object, into: list[str]) -> None:
    if isinstance(what, tuple):
        what = ":".join(map(str, what[:2]))
    if isinstance(what, str | bytes | os.PathLike):
        into.append(os.fsdecode(what))


def _looking(function):
    def look(path, *args, **named):
        if _watch:
            is_link = function.__name__ in ("lstat", "readlink")
            _note(path, _watch[-1].links if is_link else _watch[-1].names)
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
