"""Keep which files an update left out, and why, for the next update and for those who watch.

The list is an immutable object that snapshots name: that of a build, or one that changes nothing
else. Each update tries these files again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from urllib.parse import unquote

from icevirt.api.pipeline.commit import publish_rewrite
from icevirt.api.pipeline.provenance import BUILD_ID, HOLDING, provenance_of
from icevirt.api.pipeline.target import Target, digest_of
from icevirt.archive.reports.card import plural
from icevirt.archive.reports.update import FileHeldBack
from icevirt.errors import ObjectNotFoundError
from icevirt.model.json import JSON, loads
from icevirt.repo.assets import Assets
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.layout import WORK
from icevirt.storage.protocol import Storage
from icevirt.versioning import lookup

_FOLDER = f"{WORK[0]}/held"
_TRIED = "tried"  # of what a build records
_LARGE = 1 << 26


def keep_held(storage: Storage, files: Iterable[FileHeldBack]) -> str:
    """Write which files are held back; return the name that a snapshot says."""
    rows = [asdict(each) for each in sorted(files, key=lambda each: each.url)]
    name = digest_of(rows)
    storage.put(_path(name), json.dumps({"version": 1, "files": rows}, indent=1).encode())
    return name


def name_of(target: Target) -> str:
    """Return the name of the list that holds for a branch; "" where no file is held back."""
    if target.info is None:
        return ""
    for each in lookup.ancestry(target.info, target.tip):
        said = each.metadata.get(HOLDING)
        if isinstance(said, dict) and said.get("group") == target.group:
            return _sound(said.get("held"))
        if (record := provenance_of(each, target.group)) is not None:
            return _sound(record.get("held"))
    return ""


def recorded(storage: Storage, files: Sequence[FileHeldBack]) -> dict[str, JSON]:
    """Write which files are held back; return what a build says of them that tried them."""
    return {"held": keep_held(storage, files), _TRIED: True}


def are_tried(target: Target) -> bool:
    """Say whether nobody changed a dataset since its files that are held back were tried."""
    if target.info is None:
        return False
    for each in lookup.ancestry(target.info, target.tip):
        said = each.metadata.get(HOLDING)
        if isinstance(said, dict) and said.get("group") == target.group:
            return True
        if (record := provenance_of(each, target.group)) is not None:
            return record.get(_TRIED) is True
    return False


def held_files(storage: Storage, name: str) -> tuple[FileHeldBack, ...]:
    """Return the files of a list; none where it cannot be read: they are found again."""
    if not name:
        return ()
    known = {each.name: each.type for each in fields(FileHeldBack)}
    try:
        raw = storage.get(_path(name))
        rows = loads(raw)["files"] if len(raw) <= _LARGE else []
        found = tuple(FileHeldBack(**{key: row[key] for key in known}) for row in rows)
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return ()
    is_sound = all(
        isinstance(getattr(each, key), int if kind == "int" else str)
        for each in found
        for key, kind in known.items()
    )
    return found if is_sound else ()


def lists_naming(storage: Storage, urls: Iterable[str]) -> list[str]:
    """Return the objects of lists that name one of some files, as held back or in an error."""
    says = _naming(urls)
    found = []
    for info in storage.list(_FOLDER):
        raw = storage.get(info.path)
        try:
            text = json.dumps(loads(raw), ensure_ascii=False)  # as people read it
        except ValueError:
            text = raw.decode(errors="replace")
        if says(text):
            found.append(info.path)
    return found


def without(held: Sequence[FileHeldBack], urls: Iterable[str]) -> tuple[FileHeldBack, ...]:
    """Return a list that does not name some files.

    What is left out beside them, because its error names one of them, is found again.
    """
    says = _naming(urls)
    return tuple(each for each in held if not (says(each.url) or says(each.error)))


def _naming(urls: Iterable[str]) -> Callable[[str], bool]:
    """Return what says whether a text names a file, by its URL, path or name."""
    spelled = {each for url in urls for each in (url, url.rpartition("/")[2])}
    words = tuple(filter(None, spelled | {unquote(each) for each in spelled}))
    return lambda text: any(word in text for word in words)


def commit_held(target: Target, files: Sequence[FileHeldBack]) -> str:
    """Commit which files are held back, and nothing else; return the id of the snapshot.

    Raises:
        ConflictError: Others changed the dataset meanwhile.
    """
    base, held = target.snapshot(), keep_held(target.storage, files) if files else ""
    rewrite = PendingCommit(
        base=base,
        branch=target.branch,
        message=f"Hold back {plural(len(files), 'file')}",
        nodes=base.nodes,
        written={},
        metadata={HOLDING: {"group": target.group, "held": held}},
    )
    return publish_rewrite(target, Assets(target.storage), rewrite, own=(), containers=())


def _sound(name: object) -> str:
    return name if isinstance(name, str) and BUILD_ID.fullmatch(name) else ""


def _path(name: str) -> str:
    return f"{_FOLDER}/{name}.json"
