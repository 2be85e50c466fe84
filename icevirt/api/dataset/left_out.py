"""Keep which files a dataset leaves out: those that must not come back, and those held back.

Notes of exclusions are immutable objects, named by what they say; all count together. Lists of
files that an update held back are objects that snapshots name; each update tries these again.
Every writer of the repository can change both, so they can only leave files out.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.api.dataset.records import digest_of
from icevirt.archive.reports.upkeep import FileHeldBack
from icevirt.catalog.parquet import open_parquet, telling_damage
from icevirt.errors import ObjectNotFoundError
from icevirt.model.json import loads
from icevirt.repo.layout import WORK
from icevirt.storage.protocol import Storage

type Why = Literal["withdrawn", "window", "excluded"]

FOLDER = f"{WORK[0]}/excluded"
_ABOUT = b"icevirt_excluded"
_SCHEMA = pa.schema([("url", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionNote:
    """Files that stay out of a dataset."""

    why: Why
    branch: str | None  # None: of all
    group: str | None  # None: of all
    urls: tuple[str, ...]

    def concerns(self, branch: str, group: str) -> bool:
        """Say whether it is about a dataset."""
        return self.branch in (None, branch) and self.group in (None, group)


def exclude(
    storage: Storage, urls: Iterable[str], *, why: Why, branch: str | None, group: str | None
) -> str:
    """Write down that files stay out of a dataset; return the path of the note.

    Args:
        storage: The root of the repository.
        urls: Of the files.
        why: The reason.
        branch: Of the dataset; None: of all.
        group: Of the dataset; None: of all.
    """
    about = {"why": why, "branch": branch, "group": group}
    rows = sorted(set(urls))
    schema = _SCHEMA.with_metadata({_ABOUT: json.dumps(about).encode()})
    sink = io.BytesIO()
    table = pa.table({"url": pa.array(rows, pa.string())}, schema=schema)
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    name = hashlib.blake2b(json.dumps([about, rows]).encode(), digest_size=10).hexdigest()
    path = f"{FOLDER}/{name}.parquet"
    storage.put(path, sink.getvalue())
    return path


def exclusions(storage: Storage) -> Iterator[tuple[str, ExclusionNote]]:
    """Yield the notes, with their paths.

    Raises:
        FormatError: One is damaged.
    """
    for info in storage.list(f"{FOLDER}/"):
        if not info.path.endswith(".parquet"):
            continue
        with telling_damage(info.path):
            file = open_parquet(storage.get(info.path))
            about = json.loads((file.schema_arrow.metadata or {})[_ABOUT])
            urls = tuple(map(str, file.read(columns=["url"])["url"].to_pylist()))
            note = ExclusionNote(
                why=about["why"], branch=about["branch"], group=about["group"], urls=urls
            )
        yield info.path, note


def find_excluded(storage: Storage, *, branch: str, group: str) -> frozenset[str]:
    """Return the URLs of files that must not be added to a dataset.

    Raises:
        FormatError: A note is damaged.
    """
    notes = (note for _, note in exclusions(storage) if note.concerns(branch, group))
    return frozenset(url for note in notes for url in note.urls)


def readmit(storage: Storage, urls: Iterable[str]) -> int:
    """Let files be added again, to any dataset; return how many were excluded.

    Raises:
        FormatError: A note is damaged.
    """
    wanted, found = frozenset(urls), set[str]()
    for path, note in [*exclusions(storage)]:
        if here := wanted.intersection(note.urls):
            found |= here
            if rest := [url for url in note.urls if url not in here]:
                exclude(storage, rest, why=note.why, branch=note.branch, group=note.group)
            storage.delete(path)
    return len(found)


_FOLDER = f"{WORK[0]}/held"
_LARGE = 1 << 26


def keep_held(storage: Storage, files: Iterable[FileHeldBack]) -> str:
    """Write which files are held back; return the name that a snapshot says."""
    rows = [asdict(each) for each in sorted(files, key=lambda each: each.url)]
    name = digest_of(rows)
    storage.put(_path(name), json.dumps({"version": 1, "files": rows}, indent=1).encode())
    return name


def read_held(storage: Storage, name: str) -> tuple[FileHeldBack, ...]:
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


def _path(name: str) -> str:
    return f"{_FOLDER}/{name}.json"
