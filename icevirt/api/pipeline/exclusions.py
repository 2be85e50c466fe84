"""Keep which files must not come back to a dataset: withdrawn, before a window, or excluded.

A note is an immutable object, named by what it says; all notes count together. Notes are no
authority: whoever can write the repository can write them, and all that they do is to leave out.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.catalog.parquet import opened, telling_damage
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
    for info in storage.list(FOLDER):
        if not info.path.endswith(".parquet"):
            continue
        with telling_damage(info.path):
            file = opened(storage.get(info.path))
            about = json.loads((file.schema_arrow.metadata or {})[_ABOUT])
            urls = tuple(map(str, file.read(columns=["url"])["url"].to_pylist()))
            note = ExclusionNote(
                why=about["why"], branch=about["branch"], group=about["group"], urls=urls
            )
        yield info.path, note


def excluded_from(storage: Storage, *, branch: str, group: str) -> frozenset[str]:
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
