"""A writer on a local disk that is killed at each of its steps in turn.

This runs in a process that is small: forks of one that has imported all tests take longer.
"""

import os
from collections.abc import Callable
from pathlib import Path

from icevirt.storage import durable, local
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Written

VERBS = ("put new", "put over", "create", "update")


class Deadly:
    """Stands in for the module ``os`` and dies at the n-th call of something that changes a disk.

    What a death after a call leaves is what one before the next call leaves.
    """

    CALLS = frozenset({"open", "write", "fsync", "link", "rename", "unlink", "mkdir", "close"})

    def __init__(self, at: int) -> None:
        self.left = at

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in self.CALLS:
            return real

        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                os._exit(9)
            if name == "write":  # a torn write: half of it reaches the file
                args = (args[0], memoryview(args[1])[: max(1, len(args[1]) // 2)])
            return real(*args, **kwargs)

        return call


def forked(act: Callable[[], object]) -> int:
    """Call ``act`` in a child that does nothing else; return the child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return child


def status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _dying(action, at: int, *, unnamed: bool = True) -> int:
    """Run ``action`` in a child that is killed at its n-th step; return its exit code."""

    def act():
        durable.os = local.os = Deadly(at)
        if not unnamed:
            durable._has_unnamed = lambda: False
        action()

    return status(forked(act))


def strike_writers(folder: str) -> int:
    """Kill each kind of writer at each step; return how often it happened."""
    kinds = [(verb, unnamed) for verb in VERBS for unnamed in (True, False)]
    return sum(_strike(Path(folder, f"{number}"), *kind) for number, kind in enumerate(kinds))


def _strike(folder: Path, verb: str, unnamed: bool) -> int:
    """The old bytes are there, or the new; and whoever comes next can write."""
    old, new = b"old bytes", b"the new bytes"
    for at in range(1, 100):
        storage, version = LocalStorage(folder / f"{at}"), None
        if verb in ("put over", "update"):
            version = storage.put_if("d/repo", old, was=None).version

        def act(storage=storage, version=version):
            if verb.startswith("put"):
                storage.put("d/repo", new)
            else:
                storage.put_if("d/repo", new, was=version)

        code = _dying(act, at, unnamed=unnamed)
        found = {info.path: storage.get(info.path) for info in storage.list()}
        allowed = [{"d/repo": new}, {"d/repo": old} if version else {}]
        assert found in allowed, (verb, unnamed, at, found)
        storage.put("d/repo", b"whoever comes next")
        current = storage.get_versioned("d/repo")[1]
        assert isinstance(storage.put_if("d/repo", b"and next", was=current), Written)
        if code == 0:
            assert at > 4, (verb, unnamed)
            return at
    raise AssertionError(f"{verb} never finished")


def strike_creators(folder: str) -> int:
    """Kill who creates an object at each step: no stray file is left at all."""
    for at in range(1, 30):
        root = Path(folder, f"{at}")
        root.mkdir()
        code = _dying(lambda root=root: LocalStorage(root).put_if("repo", b"new", was=None), at)
        assert os.listdir(root) in ([], ["repo"]), at
        if code == 0:
            return at
    raise AssertionError("the creator never finished")
