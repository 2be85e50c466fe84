"""Open what a path or URL names as a byte source: a file here or on a server, or a store."""

from __future__ import annotations

import os

from icevirt.connect import urls
from icevirt.connect.urls import is_url, spell
from icevirt.objects.source import LocalSource, OpenedSource, RemoteSource, is_store, metadata_of
from icevirt.objects.stores import StoreSource


def open_source(url: str | os.PathLike[str]) -> OpenedSource:
    """Open a path or URL as a byte source; on servers, with the credentials of the environment.

    Raises:
        InvalidInputError: The URL has a scheme that is not supported.
        NotFoundError: There is no such file.
        ScanError: It cannot be read.
        StorageError: A server refused, or did not answer.
    """
    found = _open_file(os.fspath(url))
    if is_store(found.file.url):
        return StoreSource(found)
    return found


def _open_file(text: str) -> OpenedSource:
    if not text.startswith("file:///"):
        text = spell(text)
        if is_url(text) and not text.startswith("file://"):
            return RemoteSource(text)
    return LocalSource(metadata_of(urls.as_local_path(text)))
