"""icechunk's names of storage."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from enum import Enum
from functools import wraps
from http.client import HTTPException
from typing import Any, Self, cast
from urllib.error import HTTPError
from urllib.parse import parse_qs, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from icevirt.connect.credentials.common import Anonymous, Credentials, FromEnv
from icevirt.connect.options import TIGRIS, TIGRIS_HEADERS
from icevirt.errors import InvalidInputError, RedirectError
from icevirt.icechunk._shims.classes import guard
from icevirt.icechunk._shims.configuration import (
    ObjectStoreConfig,
    S3Options,
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
    azure_store,
    gcs_store,
    http_store,
    local_filesystem_store,
    s3_store,
)
from icevirt.icechunk._shims.storages import (
    NamedStorage,
    OnDisk,
    local_filesystem_storage,
    name_storage,
)
from icevirt.model.chunks import ChunkType
from icevirt.model.config.containers import ObjectStoreConfig as AnyObjectStoreConfig
from icevirt.redaction import without_secrets
from icevirt.storage import constructors, memory, object_store, web_server
from icevirt.storage.protocol import NOTHING, LostRace, Version, Written

__all__ = [
    "AnyObjectStoreConfig",
    "ChecksumAlgorithm",
    "ChunkType",
    "ObjectStoreConfig",
    "S3Options",
    "Storage",
    "StorageConcurrencySettings",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "azure_storage",
    "azure_store",
    "gcs_storage",
    "gcs_store",
    "hf_storage",
    "http_storage",
    "http_store",
    "in_memory_storage",
    "local_filesystem_storage",
    "local_filesystem_store",
    "r2_storage",
    "redirect_storage",
    "s3_object_store_storage",
    "s3_storage",
    "s3_store",
    "tigris_storage",
]


class ChecksumAlgorithm(Enum):
    """The checksum of what is written to S3."""

    Crc32 = "crc32"
    Crc32c = "crc32c"
    Crc64Nvme = "crc64nvme"
    Sha1 = "sha1"
    Sha256 = "sha256"


type Options = Mapping[str, Any]

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOST_REDIRECTS = 10
_PATIENCE = 60  # seconds
_SHOWN = (
    *("region", "endpoint_url", "anonymous", "allow_http", "force_path_style", "requester_pays"),
)


def _keep_signature(make: Any) -> Any:
    """Return a function that makes icevirt's storage, with icechunk's arguments."""

    @wraps(make)
    def storage(
        *args: Any,
        headers: Mapping[str, str] | None = None,
        read_headers: Mapping[str, str] | None = None,
        write_headers: Mapping[str, str] | None = None,
        legacy_rooted_keys: bool | None = None,
        **given: Any,
    ) -> Storage:
        if legacy_rooted_keys:
            raise InvalidInputError(
                "legacy_rooted_keys is for an empty prefix, whose keys begin with '/', and which"
                " icevirt cannot name",
                do="Copy them below a prefix, such as by `aws s3 cp --recursive s3://BUCKET//"
                " s3://BUCKET/PREFIX/`, and pass that prefix, or use the official client.",
                prefix=given.get("prefix"),
            )
        if isinstance(checksum := given.get("checksum_algorithm"), ChecksumAlgorithm):
            given["checksum_algorithm"] = checksum.value
        reading = _check({**(headers or {}), **(read_headers or {})})
        writing = _check({**(headers or {}), **(write_headers or {})})
        made = make(*args, **given)
        named = _name(made.with_headers(reading) if reading else made)
        if isinstance(named, _InBucket) and reading != writing:
            named.writer = made.with_headers(writing)
        return named

    own = inspect.signature(storage, follow_wrapped=False).parameters
    known = inspect.signature(make).parameters
    arguments = {name: own[name] for name in own if name not in ("args", "given")} | dict(known)
    ordered = sorted(arguments.values(), key=lambda each: each.kind)
    vars(storage)["__signature__"] = inspect.Signature(ordered)
    return guard(storage)


def _check(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or not value.isprintable():
            raise InvalidInputError(
                f"invalid HTTP header {name!r}", do="A name has letters, digits and -."
            )
    return tuple(headers.items())


def _in_s3(
    config: Options,
    bucket: str,
    prefix: str | None,
    credentials: Credentials | None,
    endpoint: str | None = None,
) -> object_store.ObjectStorage:
    """Return a storage, at an endpoint unless the options name another."""
    options = {name: value for name, value in config.items() if value is not None}
    if endpoint is not None:
        options["endpoint_url"] = options.get("endpoint_url") or endpoint
        options["region"] = options.get("region") or "auto"
    if isinstance(checksum := options.get("checksum_algorithm"), Enum):
        options["checksum_algorithm"] = checksum.value
    if credentials is None:
        credentials = Anonymous("s3") if options.get("anonymous") else FromEnv("s3")
    return constructors.in_bucket("s3", bucket, options, credentials, prefix)


class _Kind(type):
    """Say that every storage of icevirt is a `Storage`, if none of a class below it."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls.__bases__ != (NamedStorage,):
            return super().__instancecheck__(instance)
        return hasattr(instance, "get_versioned") and hasattr(instance, "url")


class Storage(NamedStorage, metaclass=_Kind):
    """The root of a repository; functions make one."""

    @staticmethod
    @_keep_signature
    def new_s3(
        config: Options, bucket: str, prefix: str | None, credentials: Credentials | None = None
    ) -> object_store.ObjectStorage:
        """Return a storage in S3 or a compatible store, by `S3Options` and credentials."""
        return _in_s3(config, bucket, prefix, credentials)

    new_s3_object_store = new_s3

    @staticmethod
    @_keep_signature
    def new_tigris(
        config: Options,
        bucket: str,
        prefix: str | None,
        use_weak_consistency: bool,
        credentials: Credentials | None = None,
    ) -> object_store.ObjectStorage:
        """Return a storage in Tigris."""
        made = _in_s3(config, bucket, prefix, credentials, TIGRIS)
        return made if use_weak_consistency else made.with_headers(TIGRIS_HEADERS)

    @staticmethod
    @_keep_signature
    def new_r2(
        config: Options,
        bucket: str | None = None,
        prefix: str | None = None,
        account_id: str | None = None,
        credentials: Credentials | None = None,
    ) -> object_store.ObjectStorage:
        """Return a storage in Cloudflare R2; the prefix may begin with the bucket."""
        if bucket is None:
            bucket, _, prefix = (prefix or "").strip("/").partition("/")
        endpoint = constructors.r2_endpoint(account_id)
        return _in_s3(config, bucket, prefix, credentials, endpoint)

    @staticmethod
    @_keep_signature
    def new_hf(
        config: Options,
        bucket: str,
        prefix: str | None,
        namespace: str,
        credentials: Credentials | None = None,
    ) -> object_store.ObjectStorage:
        """Return a storage in a bucket of Hugging Face."""
        options = {**config, "force_path_style": True}
        endpoint = f"{constructors.HUGGING_FACE}/{namespace}"
        return _in_s3(options, bucket, prefix, credentials, endpoint)

    @staticmethod
    @_keep_signature
    def new_gcs(
        bucket: str,
        prefix: str | None,
        credentials: Credentials | None = None,
        *,
        config: Options | None = None,
    ) -> object_store.ObjectStorage:
        """Return a storage in Google Cloud Storage."""
        known = credentials or FromEnv("gcs")
        return constructors.in_bucket("gcs", bucket, config or {}, known, prefix)

    @staticmethod
    @_keep_signature
    def new_azure_blob(
        account: str,
        container: str,
        prefix: str,
        credentials: Credentials | None = None,
        *,
        config: Options | None = None,
    ) -> object_store.ObjectStorage:
        """Return a storage in Azure Blob Storage."""
        options, known = {"account": account, **(config or {})}, credentials or FromEnv("azure")
        return constructors.in_bucket("azure", container, options, known, prefix)

    @staticmethod
    def new_redirect(base_url: str) -> Storage:
        """Return the storage that a web server redirects to, to read from."""
        found: Storage = redirect_storage(base_url)
        return found

    @staticmethod
    def new_in_memory() -> Storage:
        """Return a storage in the memory of this process."""
        return in_memory_storage()

    @staticmethod
    def new_local_filesystem(path: str) -> Storage:
        """Return a storage on local disk."""
        return cast("Storage", local_filesystem_storage(path))

    @staticmethod
    def new_http(
        base_url: str, config: Mapping[str, str] | None = None, headers: Any = None
    ) -> Storage:
        """Return a storage on a web server, to read from."""
        return http_storage(base_url, config, headers)


class _InMemory(NamedStorage, memory.MemoryStorage):
    _type = "in-memory"

    def default_settings(self) -> StorageSettings:
        """Return icechunk's settings of such a storage, to change and put into a configuration."""
        return StorageSettings(
            concurrency=StorageConcurrencySettings(5, 1), retries=StorageRetriesSettings(1, 0, 0)
        )


class _InBucket(NamedStorage, object_store.ObjectStorage):
    _type = "{scheme}"
    writer: object_store.ObjectStorage | None = None  # with the headers of writes

    def _show_fields(self) -> Mapping[str, Any]:
        options = self.config.options if self._bucket.provider == "s3" else {}
        shown = {name: options.get(name) for name in _SHOWN}
        return {**super()._show_fields(), **{name: each for name, each in shown.items() if each}}

    @property
    def is_bucket_root(self) -> bool:
        """Whether objects would lie at the root of a bucket."""
        return not self._prefix

    def with_settings(self, *settings: Any) -> Self:
        """Return the storage, which writes objects of some storage classes."""
        made = super().with_settings(*settings)
        if self.writer is not None:
            made.writer = self.writer.with_settings(*settings)
        return made

    def put(self, path: str, body: bytes) -> None:
        """Write an object."""
        if self.writer is not None:
            self.writer.put(path, body)
        else:
            super().put(path, body)

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        was: Version | None,
        after: Mapping[str, bytes] = NOTHING,
    ) -> Written | LostRace:
        """Write an object if it is still at a version."""
        if self.writer is not None:
            return self.writer.put_if(path, body, was=was, after=after)
        return super().put_if(path, body, was=was, after=after)


class _OnServer(NamedStorage, web_server.HttpStorage):
    _type = "HTTP"


def _name(storage: Any) -> Storage:
    """Return icevirt's storage as icechunk's."""
    return cast("Storage", name_storage(storage, OnDisk, _InMemory, _OnServer, _InBucket))


def in_memory_storage() -> Storage:
    """Return a storage in the memory of this process."""
    return _name(memory.in_memory_storage())


def http_storage(
    base_url: str, opts: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> Storage:
    """Return a storage on a web server, to read from."""
    return _name(web_server.http_storage(base_url, opts, headers))


s3_storage = _keep_signature(constructors.s3_storage)
s3_object_store_storage = s3_storage
r2_storage = _keep_signature(constructors.r2_storage)
tigris_storage = _keep_signature(constructors.tigris_storage)
gcs_storage = _keep_signature(constructors.gcs_storage)
azure_storage = _keep_signature(constructors.azure_storage)
hf_storage = _keep_signature(constructors.hf_storage)


@guard
def redirect_storage(base_url: str) -> Storage:
    """Return the storage that a web server redirects to, to read from without credentials.

    The server is asked when the storage is used first.

    Raises:
        InvalidInputError: It is not a URL, or has a user name.
    """
    if "://" not in base_url:
        raise InvalidInputError(
            "this is not a URL", do="Write it like https://host/repository.", url=base_url
        )
    if "@" in re.split("[/?#]", base_url.partition("://")[2])[0]:
        raise InvalidInputError(
            "the URL of a redirect must not contain a user name or password",
            do="Remove it: the server is asked without credentials.",
            url=base_url,
        )
    return cast("Storage", _Redirect(base_url))


class _Redirect(NamedStorage):
    _type = "redirect"

    def __init__(self, url: str) -> None:
        self._asked = url
        self._found: Storage | None = None

    def _show_fields(self) -> Mapping[str, Any]:
        return {"type": self._type, "url": without_secrets(self._asked)}

    def resolve(self) -> Storage:
        """Return the storage that the server names now, the first time."""
        if self._found is None:
            self._found = _follow(self._asked)
        return self._found

    def get_versioned(self, path: str) -> tuple[bytes, Version]:
        """Return an object and its version."""
        found: tuple[bytes, Version] = cast("Any", self.resolve()).get_versioned(path)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.resolve(), name)


def _follow(base_url: str) -> Storage:
    """Return the storage that a web server redirects to. Raises ``StorageError``."""
    url = base_url
    for _ in range(_MOST_REDIRECTS):
        if urlsplit(url).scheme not in ("http", "https"):
            break
        url = urljoin(url, _location(url))
    at = urlsplit(url)
    if at.scheme not in ("s3", "gs", "gcs"):
        raise RedirectError(
            "this server redirects to no storage that can be read",
            do="Open the storage that it leads to by its own URL.",
            url=base_url,
            found=url,
        )
    known = {name: values[-1] for name, values in parse_qs(at.query).items() if name == "region"}
    place = at._replace(query="", fragment="").geturl()
    return _name(constructors.storage_of(place, {**known, "anonymous": True}))


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Follow none."""


def _location(url: str) -> str:
    """Return where a server redirects to."""
    try:
        build_opener(_NoRedirect).open(url, timeout=_PATIENCE).close()
    except HTTPError as error:
        if location := error.headers.get("Location"):
            return str(location)
    except (HTTPException, ValueError) as error:  # ValueError: of the port
        raise RedirectError(
            "a request to this URL is not possible, or its answer is not HTTP",
            do="Check the URL.",
            url=url,
        ) from error
    except OSError as error:
        raise RedirectError("the server does not answer", do="Try again.", url=url) from error
    raise RedirectError("this server does not redirect to a storage", do="Check the URL.", url=url)
