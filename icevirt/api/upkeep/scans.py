"""Implement `icevirt.forget_scans`, `exclude` and `excluded`: what of files is kept, and is not."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from shlex import quote

import numpy as np

from icevirt.api.dataset import left_out
from icevirt.archive import catalog as schema
from icevirt.archive.reports.upkeep import ExcludedFiles
from icevirt.catalog.facts_reader import Chosen
from icevirt.catalog.lookup import forget, parts_with, rows_forgotten
from icevirt.catalog.parquet import read_tables
from icevirt.catalog.part_index import FOLDER as INDEXES
from icevirt.catalog.parts import check_mark
from icevirt.connect.urls import Address, as_local_path, file_url, is_url, spell
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Storage

FOLDERS = ("files", "more", "arrays", "refs")
"""The tables of a part, in the order in which they go."""


def source_urls(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return files as lists of files spell them; they need not be there any more.

    Raises:
        InvalidInputError: One is no path and no URL.
    """
    many = [files] if isinstance(files, str | os.PathLike) else [*files]
    if not many or not all(map(os.fspath, many)):
        raise InvalidInputError("no file is named", do="Pass paths or URLs of files.")
    return [_url(os.fspath(each)) for each in many]


def _url(given: str) -> str:
    text = spell(given)
    if is_url(text) and not text.startswith("file://"):
        return Address.parse(text).url
    return file_url(as_local_path(text))


def forget_scans(
    catalog: StorageLike, files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
) -> int:
    """Let files be scanned again by the next scan, though the catalog describes them.

    Args:
        catalog: Directory or URL of the catalog.
        files: Paths or URLs of files, as they were scanned.

    Returns:
        How many scans are forgotten; a file has one for each way in which it was scanned.

    Raises:
        NotFoundError: There is no catalog, or it holds no scan of one of the files.
        FormatError: The catalog is damaged, or of another version.
    """
    storage, urls = storage_of(catalog), source_urls(files)
    check_mark(storage)
    done = {each for note in rows_forgotten(storage) for each in note}
    rows = [each for each in rows_of_files(storage, urls) if each[:2] not in done]
    if missing := sorted({*urls} - {url for *_, url in rows}):
        raise NotFoundError(
            "the catalog holds no scan of this file",
            do="Name the file as it was scanned; the names are in the table of"
            f" `icevirt catalog {quote(storage.url)} --table files --to files.parquet`.",
            catalog=storage.url,
            files=missing[:5],
        )
    names = sorted({part for part, *_ in rows})
    numbers = {name: at for at, name in enumerate(names)}
    chosen = Chosen(
        part=np.array([numbers[part] for part, *_ in rows], np.int32),
        row=np.array([row for _, row, _ in rows], np.int32),
    )
    forget(storage, names, chosen)
    return len(rows)


def rows_of_files(storage: Storage, urls: Collection[str]) -> Iterator[tuple[str, int, str]]:
    """Yield part, row and URL of the scans of files."""
    wanted = frozenset(urls)
    parts = parts_with(storage, wanted)
    tables = read_tables(storage, (schema.path_of("files", part) for part in parts), ["url", "row"])
    for part, table in zip(parts, tables, strict=True):
        for url, row in zip(table["url"].to_pylist(), table["row"].to_pylist(), strict=True):
            if url in wanted:
                yield part, int(row), str(url)


def objects_of_parts(storage: Storage, parts: Collection[str]) -> list[str]:
    """Return the objects of parts of a catalog, in the order in which they are deleted.

    Parts that share tables with them go, too.
    """
    found = [info.path for info in storage.list(INDEXES)] if parts else []
    tables = {*map(schema.tables_of, parts)}
    for folder in FOLDERS:
        paths = [info.path for info in storage.list(folder)]
        found += [path for path in paths if tables_with(path) in tables]
    return found


def tables_with(path: str) -> str:
    """Return the part with whose tables an object of a catalog goes."""
    folder, _, name = path.partition("/")
    part = name.removesuffix(".parquet")
    return schema.tables_of(schema.run_of(part) if folder == "more" else part)


type Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def exclude(
    files: Files,
    repo: StorageLike,
    *,
    branch: str | None = None,
    group: str | None = None,
    readmit: bool = False,
) -> ExcludedFiles:
    """Let appends and updates leave files out, or let them be added again.

    What a dataset holds stays in it; see `icevirt.withdraw`.

    Args:
        files: Paths or URLs of files.
        repo: Path or URL of the repository.
        branch: Only of datasets on this branch.
        group: Only of datasets in this group.
        readmit: Remove the files from the list instead, whatever put them there, for all datasets.

    Raises:
        RepositoryNotFoundError: There is no repository.
        ReadOnlyError: It is read-only.
        FormatError: A note on excluded files is damaged.
    """
    storage, urls = storage_of(repo), source_urls(files)
    refuse_read_only(RepoInfoFile(storage).read().info)
    if readmit:
        changed = left_out.readmit(storage, urls)
    else:
        changed = len(urls)
        left_out.exclude(storage, urls, why="excluded", branch=branch, group=group)
    return _list(storage_of(repo), changed)


def excluded(repo: StorageLike) -> ExcludedFiles:
    """Return the files that appends and updates leave out, and why.

    Raises:
        RepositoryNotFoundError: There is no repository.
        FormatError: A note is damaged.
    """
    storage = storage_of(repo)
    RepoInfoFile(storage).read()
    return _list(storage, 0)


def _list(storage: Storage, changed: int) -> ExcludedFiles:
    notes = [note for _, note in left_out.exclusions(storage)]
    return ExcludedFiles(
        repo=storage.url,
        notes=tuple((note.why, note.branch or "", note.group or "", note.urls) for note in notes),
        changed=changed,
    )
