"""Describe virtual chunk containers: prefixes of URLs, and how to reach what lies below them.

Spec: config, ``virtual_chunk_containers``. Spellings are the official client's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from icevirt.errors import InvalidInputError
from icevirt.redaction import without_secrets

if TYPE_CHECKING:
    from icevirt.model.json import JSONObject
    from icevirt.model.strings import Strings

SCHEMES = {
    "file": ("local_file_system",),
    "s3": ("s3", "s3_compatible", "tigris"),
    "tigris": ("tigris",),
    "gs": ("gcs",),
    "gcs": ("gcs",),
    "az": ("azure",),
    "azure": ("azure",),
    "abfs": ("azure",),
    "http": ("http",),
    "https": ("http",),
}
"""Kinds of stores by the scheme of URLs that they serve, the usual kind first."""

_OF_HADOOP = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
"""Names of these by which Spark knows them, which no client stores."""

_ON_S3 = ("s3", "s3_compatible", "tigris")


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """How the objects of a container are reached: a kind of store and its options, no secrets."""

    kind: str  # "local_file_system", "s3", "s3_compatible", "tigris", "gcs", "azure", "http"
    options: Any  # the path for a local file system, a mapping of options otherwise

    def to_document(self) -> JSONObject:
        """Return the persisted form, including the keys that the official client requires."""
        if self.kind in _ON_S3 and isinstance(self.options, Mapping):
            return {self.kind: {"anonymous": False, "allow_http": False, **self.options}}
        return {self.kind: self.options}

    @property
    def is_complete(self) -> bool:
        """Whether the official client accepts it as it is."""
        return self.to_document() == {self.kind: self.options}

    @classmethod
    def from_document(cls, document: object) -> ObjectStoreConfig:
        """Read the persisted form. Raises ``InvalidInputError``."""
        if isinstance(document, str):
            return cls(document, {})
        if isinstance(document, Mapping) and len(document) == 1:
            ((kind, options),) = document.items()
            return cls(kind, options)
        raise InvalidInputError("not an object store config", found=document)


def local_filesystem_store(path: str) -> ObjectStoreConfig:
    """Return the config of a container on local disk; ``path`` is the directory of its prefix."""
    return ObjectStoreConfig("local_file_system", path)


def fsspec_store() -> ObjectStoreConfig:
    """Return the config of a container for an fsspec file system, which the reader passes.

    It is stored as an option of ``http``: the official client keeps such a container and does not
    use it, while a kind of store that it does not know would keep it from opening the repository.
    """
    return ObjectStoreConfig("http", {"fsspec": "true"})


@dataclass(frozen=True, slots=True)
class VirtualChunkContainer:
    """A URL prefix below which virtual chunks may lie, and how to reach it."""

    url_prefix: str
    store: ObjectStoreConfig
    name: str | None = None

    def __post_init__(self) -> None:
        scheme, separator, rest = self.url_prefix.partition("://")
        if not separator or not rest or not self.url_prefix.endswith("/"):
            raise InvalidInputError(
                "a container's url_prefix must be a URL that ends in '/'",
                do="Write it like 'file:///data/archive/' or 's3://bucket/prefix/'.",
                url_prefix=self.url_prefix,
            )
        if without_secrets(self.url_prefix) != self.url_prefix:
            raise InvalidInputError(
                "a container's url_prefix has a user, password or query, which would be persisted",
                do="Leave these parts out. Readers pass secrets with"
                " authorize_virtual_chunk_access.",
                url_prefix=self.url_prefix,
            )
        if not self.is_foreign and self.store.kind not in SCHEMES.get(scheme, ()):
            raise InvalidInputError(
                "this kind of store cannot serve this URL scheme",
                do=f"Write {_OF_HADOOP[scheme]}:// in the place of {scheme}://."
                if scheme in _OF_HADOOP
                else f"For {scheme}:// use one of {SCHEMES.get(scheme, ())}.",
                url_prefix=self.url_prefix,
                store=self.store.kind,
            )
        text = self.name is None or isinstance(self.name, str)
        if not text or self.name == "" or "/" in (self.name or ""):
            raise InvalidInputError(
                "a container's name must not be empty or contain '/'",
                do="Choose another.",
                name=self.name,
            )

    @property
    def is_foreign(self) -> bool:
        """Whether an fsspec file system serves it; see `fsspec_store`."""
        return isinstance(self.store.options, Mapping) and "fsspec" in self.store.options

    def to_document(self) -> JSONObject:
        """Return the persisted form."""
        return {
            "name": self.name,
            "url_prefix": self.url_prefix,
            "store": self.store.to_document(),
        }


def prefixes_of(containers: Iterable[VirtualChunkContainer]) -> tuple[str, ...]:
    """Return every beginning of a location that some container covers."""
    found = []
    for container in containers:
        found.append(container.url_prefix)
        if container.name is not None:
            found.append(f"vcc://{container.name}/")
    return tuple(found)


def find_used(
    urls: Strings, containers: Iterable[VirtualChunkContainer]
) -> Iterator[VirtualChunkContainer]:
    """Yield the containers that locations lie in: of several, the one with the longest prefix."""
    left = np.ones(len(urls), np.bool_)
    for container in sorted(containers, key=lambda each: -len(each.url_prefix)):
        is_used = False
        for prefix in prefixes_of([container]):
            rows = np.flatnonzero(left)
            inside = urls.begin_with(prefix.encode(), rows)
            left[rows] = ~inside
            is_used |= bool(inside.any())
        if is_used:
            yield container


def first_uncovered(urls: Strings, prefixes: Iterable[str]) -> str | None:
    """Return the first location that begins with none of the prefixes, or None."""
    uncovered = np.ones(len(urls), np.bool_)
    for prefix in prefixes:
        rows = np.flatnonzero(uncovered)
        uncovered[rows] = ~urls.begin_with(prefix.encode(), rows)
    return urls[int(uncovered.argmax())] if uncovered.any() else None


def containers_of(entries: Mapping[str, Any]) -> dict[str, VirtualChunkContainer]:
    """Return containers by url_prefix; entries that no reader can use are left out."""
    found = {}
    for key, entry in entries.items():
        if not isinstance(entry, Mapping):
            continue
        prefix = str(entry.get("url_prefix") or key)
        prefix = prefix if prefix.endswith("/") else prefix + "/"
        try:
            store = ObjectStoreConfig.from_document(entry.get("store"))
            found[prefix] = VirtualChunkContainer(prefix, store, entry.get("name"))
        except InvalidInputError:
            continue
    return found
