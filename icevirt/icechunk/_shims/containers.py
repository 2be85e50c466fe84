"""Containers of virtual chunks, and the kinds of stores that they lie in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar

from icevirt.connect import options
from icevirt.icechunk._shims.kinds import MadeKind, kind
from icevirt.icechunk._shims.shown import Shown, plain
from icevirt.model.config import containers


class S3Options(Shown, dict[str, Any]):
    """How an S3 store is reached; for `ObjectStoreConfig.S3` and its kind."""

    _home: ClassVar[str] = "icechunk.storage"
    _is_expression: ClassVar[bool] = True

    region: str | None
    endpoint_url: str | None
    allow_http: bool
    anonymous: bool
    force_path_style: bool
    network_stream_timeout_seconds: int | None
    requester_pays: bool
    checksum_algorithm: Any

    def __init__(  # noqa: PLR0917 - icechunk's arguments
        self,
        region: str | None = None,
        endpoint_url: str | None = None,
        allow_http: bool = False,
        anonymous: bool = False,
        force_path_style: bool = False,
        network_stream_timeout_seconds: int | None = None,
        requester_pays: bool = False,
        checksum_algorithm: Any = None,
    ) -> None:
        super().__init__(
            region=region,
            endpoint_url=endpoint_url,
            allow_http=allow_http,
            anonymous=anonymous,
            force_path_style=force_path_style,
            network_stream_timeout_seconds=network_stream_timeout_seconds,
            requester_pays=requester_pays,
            checksum_algorithm=checksum_algorithm,
        )

    def __getattr__(self, name: str) -> Any:
        """Return an option."""
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __setattr__(self, name: str, value: Any) -> None:
        """Change an option."""
        if name not in self:
            raise AttributeError(name)
        self[name] = value

    def _shown(self) -> Mapping[str, Any]:
        return dict(self)


_WORDS = {
    "InMemory": "in_memory",
    "LocalFileSystem": "local_file_system",
    "S3": "s3",
    "S3Compatible": "s3_compatible",
    "Tigris": "tigris",
    "Gcs": "gcs",
    "Azure": "azure",
    "Http": "http",
}
_ON_S3 = ("s3", "s3_compatible", "tigris")


def _of_word(name: str) -> MadeKind:
    """Return the class of one kind of store, whose values are `ObjectStoreConfig`."""
    word = _WORDS[name]

    def made(given: Any = None, headers: Any = None) -> ObjectStoreConfig:
        if word == "local_file_system":
            return ObjectStoreConfig(word, str(given))
        if word == "http":
            return ObjectStoreConfig.of(options.http_store(given, headers))
        found = {name: value for name, value in (given or {}).items() if value is not None}
        found.pop("checksum_algorithm", None)  # of writes, and containers are read
        return ObjectStoreConfig(word, found)

    return kind(
        name, made, lambda x: isinstance(x, containers.ObjectStoreConfig) and x.kind == word
    )


class ObjectStoreConfig(Shown, containers.ObjectStoreConfig):
    """How the objects of a container are reached, by the kind of store."""

    _home = "icechunk.config"
    _is_expression = True

    InMemory, LocalFileSystem, S3, S3Compatible, Tigris, Gcs, Azure, Http = map(_of_word, _WORDS)

    def _title(self) -> str:
        name = next((name for name, word in _WORDS.items() if word == self.kind), self.kind)
        return f"{self._home}.ObjectStoreConfig.{name}"

    def _shown(self) -> Mapping[str, Any]:
        if self.kind in _ON_S3:
            return S3Options(**self.options)
        return self.options if isinstance(self.options, Mapping) else {"path": self.options}

    def _expression(self) -> str:
        shown = self._shown()
        text = plain(shown) if self.options else ""
        return f"{self._title()}({repr(self.options) if isinstance(self.options, str) else text})"


class VirtualChunkContainer(Shown, containers.VirtualChunkContainer):
    """A URL prefix below which virtual chunks may lie, and how to reach it."""

    _home = "icechunk.virtual"
    _is_expression = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", ObjectStoreConfig.of(self.store))
        if self.store.kind != "in_memory":  # which no reader can share
            containers.VirtualChunkContainer.__post_init__(self)

    def _shown(self) -> Mapping[str, Any]:
        return {"name": self.name, "url_prefix": self.url_prefix, "store": self.store}


def _stored(make: Callable[..., containers.ObjectStoreConfig]) -> Callable[..., ObjectStoreConfig]:
    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> ObjectStoreConfig:
        return ObjectStoreConfig.of(make(*args, **kwargs))

    return made


azure_store = _stored(options.azure_store)
gcs_store = _stored(options.gcs_store)
http_store = _stored(options.http_store)
local_filesystem_store = _stored(containers.local_filesystem_store)
s3_store = _stored(options.s3_store)
