"""Append the files that batches of a stream name: what ``writeStream.foreachBatch`` takes.

A batch that is repeated, after a kill or by a new checkpoint, appends nothing twice: files are
known by the dataset, not by the stream. Which query and batch appended files is recorded in the
metadata of the commit, for people.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import is_pattern, is_url, url_of_absolute
from icevirt.errors import InvalidInputError
from icevirt.objects.source import metadata_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icevirt.api.choices import (
        CombineOptionsLike,
        CommitOptionsLike,
        ConcatDim,
        ScanOptionsLike,
    )
    from icevirt.api.dataset.files_held import OnChanged
    from icevirt.api.sources.reader_urls import Prefixes
    from icevirt.archive.reports.build import Progress
    from icevirt.storage.constructors import StorageLike

BATCH = "icevirt_batch"
"""Key of a commit's metadata under which stands which batch of which query it is of."""

_COLUMNS = ("path", "url")
_LISTED = {"path": "string", "length": "bigint", "etag": "string", "modificationTime": "timestamp"}
_CONTENT = "content"  # of files, in the rows of Spark's binaryFile
_ONE_SLASH = re.compile(r"^file:/(?!/)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesAppender:
    """Appends the files of a batch to a dataset; it pickles, for Spark Connect."""

    repo: StorageLike
    options: Mapping[str, Any] = field(repr=False)  # arguments of `icevirt.append`
    runs_on: Any = None  # the executor; None: the session of the batch

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Append the files that the rows of a batch name; a batch may have none."""
        # Spark imports this package in workers too, which list files and append nothing
        from icevirt.api.append import append
        from icevirt.api.commit_options import CommitOptions
        from icevirt.api.sources.inputs import LateSources

        session = batch.sparkSession
        commit = CommitOptions.of(self.options.get("commit_options")).list_chosen()
        origin = {"query_id": _query_id(session), "batch_id": batch_id}
        metadata = {**(commit.get("metadata") or {}), BATCH: origin}
        with suppress(_EmptyBatchError):
            append(
                LateSources(partial(_name, batch)),
                self.repo,
                executor=session if self.runs_on is None else self.runs_on,
                **{**self.options, "commit_options": {**commit, "metadata": metadata}},
            )


class _EmptyBatchError(Exception):
    """A batch names no files."""


def foreach_batch(
    repo: StorageLike,
    *,
    concat_dim: ConcatDim = None,
    group: str = "/",
    scan_options: ScanOptionsLike = None,
    combine_options: CombineOptionsLike = None,
    commit_options: CommitOptionsLike = None,
    on_changed: OnChanged = "refuse",
    authorize: Prefixes = (),
    catalog: StorageLike | None = None,
    access: Mapping[str, Any] | None = None,
    executor: Any = None,
    progress: Callable[[Progress], None] | None = None,
) -> FilesAppender:
    """Return the function that appends the files of a stream's batches to a dataset.

    ``df.writeStream.foreachBatch(icevirt.spark.foreach_batch(repo))`` appends each file once,
    whatever is killed and whichever checkpoint the query starts from. The rows have a column
    ``path`` or ``url``; other columns are not read. Files are looked at when their batch runs.

    Args:
        repo: As for `icevirt.append`, like all that is not named below.
        concat_dim: Of the first batch, which builds the dataset; then what it recorded holds.
        group: The group of the dataset.
        scan_options: As for `icevirt.append`.
        combine_options: As for `icevirt.append`.
        commit_options: As for `icevirt.append`; query and batch are added to the metadata.
        on_changed: As for `icevirt.append`; "refuse" ends the query.
        authorize: The prefixes that the stream reads: the files of a batch may lie in one
            directory, and other files of the dataset in another.
        catalog: As for `icevirt.append`.
        access: As for `icevirt.append`.
        executor: As for `icevirt.append`; by default the session of the stream.
        progress: As for `icevirt.append`.
    """
    return FilesAppender(
        repo=repo,
        options={
            "concat_dim": concat_dim,
            "group": group,
            "scan_options": scan_options,
            "combine_options": combine_options,
            "commit_options": commit_options,
            "on_changed": on_changed,
            "authorize": authorize,
            "catalog": catalog,
            "access": access,
            "progress": progress,
        },
        runs_on=executor,
    )


def _name(batch: DataFrame) -> tuple[list[str], list[SourceFile]]:
    """Return the files of a batch, and what its rows say of them; see `LateSources`."""
    files = files_of(batch)
    if not files:
        raise _EmptyBatchError
    facts = [file for file in files.values() if file is not None]
    return [*files], facts if len(facts) == len(files) else []


def files_of(batch: DataFrame) -> dict[str, SourceFile | None]:
    """Return the URLs of the files that the rows of a batch name, each once, sorted.

    Rows of icevirt-files say what a listing said of the files of a server, which need no other look
    then: the scan compares them. A row of another source is no more than a name.

    Raises:
        InvalidInputError: No column names files, a column holds their content, or a row names
            something else than one file.
    """
    kinds = dict(batch.dtypes)
    name = next((name for name in _COLUMNS if kinds.get(name) == "string"), None)
    if name is None:
        raise InvalidInputError(
            "the rows of the batch do not name files",
            do="Let the stream have a column path or url of strings.",
            columns=list(kinds),
        )
    if kinds.get(_CONTENT) == "binary":
        raise InvalidInputError(
            "the rows of the batch hold the content of the files, which Spark would read for it",
            do=f'Select what is needed before writeStream: df.select("{name}").writeStream...',
            columns=list(kinds),
        )
    is_listed = kinds == _LISTED
    # to make rows distinct, Spark would exchange them
    rows = (batch if is_listed else batch.select(name)).collect()
    found = {exact_url(source_of(row[0])): row for row in rows if row[0]}
    urls = sorted(found)
    if not is_listed:
        return dict.fromkeys(urls)
    return {url: _as_listed(url, found[url], number) for number, url in enumerate(urls, 1)}


def _as_listed(url: str, row: Any, number: int) -> SourceFile | None:
    """Return what a row of icevirt-files says of a file on a server."""
    from icevirt.api.sources.inputs import as_listed
    from icevirt.objects.source_lists.rows import Row

    _, size, etag, modified = row
    nanoseconds = int(modified.timestamp()) * 1_000_000_000  # Spark's is in this machine's time
    listed = Row(number, url, size, etag, nanoseconds)
    return as_listed(listed, "a batch of icevirt-files") if etag else None


def exact_url(path: str) -> str:
    """Return the URL of the one file that a row names; nothing in it stands for other files.

    Rows are data of others: a list, a folder or a pattern in a row would choose what is read.

    Raises:
        InvalidInputError: It is relative, or a folder.
    """
    if is_url(path) and not path.startswith("file://"):
        url, is_folder = path, path.endswith("/")
    else:
        path = path.removeprefix("file://")
        if not os.path.isabs(path):
            raise _no_file(path, "is neither an absolute path nor a URL")
        folder, name = os.path.split(path)
        here = os.path.join(os.path.realpath(folder), name)  # a link keeps its own name
        url, is_folder = url_of_absolute(here), os.path.isdir(metadata_of(here))
    if is_folder:
        raise _no_file(path, "is a folder")
    kept = "?" if url.startswith("http") else ""  # where a query begins, which is refused
    return "".join(
        quote(each, safe="") if is_pattern(each) and each not in kept else each for each in url
    )


def _no_file(path: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"a row of the batch does not name one file: it {why}",
        do="Let each row of the stream name a file, as the rows of icevirt-files do.",
        path=path,
    )


def source_of(path: str) -> str:
    """Return a path as Spark names it as a path or URL that Python programs open.

    Hadoop writes ``file:/x`` with one slash, and does not encode what it writes.
    """
    if _ONE_SLASH.match(path):
        return path.removeprefix("file:")
    if path.startswith("file://"):
        return unquote("/" + path.removeprefix("file:").lstrip("/"))
    return path


def _query_id(session: Any) -> str | None:
    """Return the id of the query whose batch this is; None where Spark does not tell."""
    with suppress(Exception):  # Spark Connect has no context, and says so in several ways
        found = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        return None if found is None else str(found)
    return None
