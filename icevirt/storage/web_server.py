"""Read a repository from a directory of a web server, which can neither be listed nor written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Never
from urllib.parse import urlsplit

from icevirt.connect.credentials.common import Credentials, Refreshable
from icevirt.connect.credentials.http import FromNetrc, HttpCredentials
from icevirt.connect.library import ask, obstore
from icevirt.connect.stores import bucket_of
from icevirt.connect.urls import Address
from icevirt.errors import (
    InvalidInputError,
    NotListableError,
    ObjectNotFoundError,
    ReadOnlyStorageError,
)
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.storage.object_reading import ObjectReading
from icevirt.storage.protocol import ObjectInfo


class HttpStorage(ObjectReading):
    """The root is a directory of a web server. It is never written and cannot be listed."""

    def exists(self) -> bool:
        """Say whether there is a repository at the root; a server shows nothing else."""
        key = self._key("repo")
        try:
            ask(self.url, lambda: obstore().head(self._bucket.store(), key))
        except ObjectNotFoundError:
            return False
        return True

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Raise ``NotListableError``."""
        raise NotListableError(
            "this operation lists files, which is not possible over HTTP",
            do="Use the storage behind the server, or a copy.",
            url=self.url,
            prefix=prefix or after,
        )

    def refuse_writes(self, *_args: object, **_options: object) -> Never:
        """Raise ``ReadOnlyError``."""
        raise ReadOnlyStorageError(
            "a repository on a web server can only be read",
            do="Write to the storage behind the server.",
            url=self.url,
        )

    put = put_if = delete = delete_many = delete_below = refuse_writes


def http_storage(
    base_url: str,
    opts: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    credentials: Credentials | None = None,
) -> HttpStorage:
    """Return a storage that reads a repository from a web server.

    Args:
        base_url: URL of the directory that holds ``repo``.
        opts: Options of the client, like ``{"timeout": "30s"}``.
        headers: Sent with each request; never shown. If the server redirects to another host,
            only ``authorization`` and ``cookie`` are withheld from it.
        credentials: Of `http_credentials`, instead of headers.

    Raises:
        InvalidInputError: The URL or an option is not valid, or the credentials change.
    """
    if "?" in base_url or "#" in base_url:
        raise InvalidInputError(
            "the URL of a repository must not have a query or fragment",
            do="Remove it, and pass the secret separately: "
            "credentials=icevirt.http_credentials(...).",
            url=base_url,
        )
    config = ObjectStoreConfig("http", dict(opts or {}))
    given = credentials if credentials is not None else HttpCredentials(headers or {})
    if isinstance(given, FromNetrc):
        given = given.of_host(urlsplit(base_url).hostname or "")
    if isinstance(given, Refreshable):
        raise InvalidInputError(
            "a repository on a web server needs credentials that do not change",
            do="Pass the value that the function returns.",
            url=Address.parse(base_url).url,
        )
    return HttpStorage(bucket_of(base_url, config, given), Address.parse(base_url).key)
