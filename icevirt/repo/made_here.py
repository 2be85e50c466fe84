"""Remember what this user made, so that an update or a look at one's own dataset asks for nothing.

A small file in the user's state directory says which recipe was made for which repository, which
directories the user named as sources, and which prefixes the user's builds referred to. It is never
required, and never written where it cannot be: then an update asks for the digest, and a reader for
the prefixes. ``ICEVIRT_REMEMBER=0`` switches it off. ``repo`` is what `identify` returns.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icevirt.objects.authorize import Prefix
    from icevirt.repo.authorization import Authorization
    from icevirt.storage.protocol import Storage

_NAME = "icevirt/recipes.jsonl"
_MOST = 1 << 24  # bytes that are read
_MOST_PLACES = 10_000  # of a list of files; its directories are named again where there are more


def _file() -> str | None:
    """Return where the file lies; None where nothing is to be remembered."""
    if os.environ.get("ICEVIRT_REMEMBER", "1").strip().lower() in ("0", "false", "no", "off"):
        return None
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, _NAME) if os.path.isabs(home) else None


def identify(storage: Storage) -> str:
    """Return what a repository is remembered by: its URL, and in a bucket the server.

    A bucket of the same name on another server is somebody else's.
    """
    server = getattr(storage, "server", "")  # of those that ask one
    is_said = not server or storage.url.startswith(server)
    return storage.url if is_said else f"{storage.url} at {server}"


def remember(repo: str, digest: str) -> None:
    """Note that this user made a recipe for a repository."""
    if not is_remembered(repo, digest):
        _add({"repo": repo, "recipe": digest})


def remember_containers(repo: str, containers: Iterable[Prefix]) -> None:
    """Note that a build of this user referred to files below these prefixes."""
    known = set(read_containers(repo))
    new = [each for each in containers if each not in known]
    if new:
        _add({"repo": repo, "containers": new})


def read_containers(repo: str) -> tuple[Prefix, ...]:
    """Return the prefixes that builds of this user referred to, on this machine, in their order."""
    found: dict[Prefix, None] = {}
    for line in _lines(repo):
        if isinstance(line.get("containers"), list):
            found |= dict.fromkeys(_entries(line["containers"]))
    return tuple(found)


def own_or(given: Authorization, repo: str) -> Authorization:
    """Return what a caller authorizes for a repository: where nothing is said, what is their own.

    This is the one rule of all calls that read files: what builds of this user on this machine
    referred to needs no word, and everything else does. An empty list authorizes nothing.
    """
    return (read_containers(repo) or None) if given is None else given


def remember_places(repo: str, places: Iterable[str]) -> None:
    """Note that this user named these directories of files for a repository."""
    known = read_places(repo)
    new = [each for each in dict.fromkeys(places) if not each.startswith(known)]
    if 0 < len(new) <= _MOST_PLACES:
        _add({"repo": repo, "places": new})


def read_places(repo: str) -> tuple[str, ...]:
    """Return the directories that this user named, on this machine, as URLs with a slash behind."""
    said = (line["places"] for line in _lines(repo) if "places" in line)
    found = (each for some in said if isinstance(some, list) for each in some)
    return tuple(each for each in found if isinstance(each, str) and each.endswith("/"))


def _entries(given: list[Any]) -> Iterator[Prefix]:
    for each in given:
        match each:
            case str():
                yield each
            case [str(prefix), str(endpoint)]:
                yield prefix, endpoint
            case _:
                pass


def _add(line: dict[str, Any]) -> None:
    path = _file()
    if path is None:
        return
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "ab", buffering=0) as file:
            if _is_private(file.fileno()):
                file.write(
                    json.dumps(line).encode() + b"\n"
                )  # one write: others may add lines at the same time


def is_remembered(repo: str, digest: str) -> bool:
    """Say whether this user made a recipe for a repository, on this machine."""
    return any(each.get("recipe") == digest for each in _lines(repo))


def _lines(repo: str) -> Iterator[dict[str, Any]]:
    """Yield what the file says of a repository; damaged lines are passed over."""
    path = _file()
    if path is None:
        return
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            raw = file.read(_MOST) if _is_private(file.fileno()) else b""
    except OSError:
        return
    name = json.dumps(repo).encode()  # as `_add` writes it; nearly all lines are about others
    end = 0
    while (at := raw.find(name, end)) >= 0:
        begin, end = raw.rfind(b"\n", end, at) + 1 or end, raw.find(b"\n", at)
        end = len(raw) if end < 0 else end
        with contextlib.suppress(ValueError):
            found = json.loads(raw[begin:end])
            if isinstance(found, dict) and found.get("repo") == repo:
                yield found


def _is_private(number: int) -> bool:
    """Say whether nobody but this user can have written a file."""
    facts = os.fstat(number)
    return (
        stat.S_ISREG(facts.st_mode)
        and facts.st_uid == os.geteuid()
        and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
