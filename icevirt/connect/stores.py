"""Open an obstore store from the address of a bucket, options and credentials.

A `Bucket` is a value: it compares, pickles and shows no secret. Its store is opened once per
process. Keys count from the root of the bucket, so all prefixes below it share connections.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from icevirt.connect.credentials.common import (
    Anonymous,
    Credentials,
    FromEnv,
    NoCredentials,
    Refreshable,
    Secret,
)
from icevirt.connect.credentials.object_stores import PROFILE, from_profile
from icevirt.connect.library import obstore, open_store
from icevirt.connect.options import StoreOptions, charge_quota_project, options_of
from icevirt.connect.urls import Address, destination
from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.model.config.containers import ObjectStoreConfig

_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")
_STORES = {"s3": "S3Store", "gcs": "GCSStore", "azure": "AzureStore"}
_BUCKET = {"s3": "bucket", "gcs": "bucket", "azure": "container_name"}
_MOST = 64  # stores open at once; each holds a pool of connections
_IN_VAIN = 60.0  # seconds in which refusals are not taken for the end of new credentials
_RETRIES = {  # over what breaks by chance; `icevirt.connect.library` is for the rest
    "max_retries": 5,
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        # a pause is random between the first and this times the last: with 2 they would not grow
        "base": 3,
    },
    "retry_timeout": timedelta(minutes=3),
}
_NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(minutes=3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket, container or web server, and how it is reached."""

    address: Address  # with an empty key
    options: StoreOptions
    credentials: Credentials
    retries: bool = True  # False: a failed request fails, so that the caller knows what was sent
    # endpoints that credentials may go to, None: all; a store of equal options is shared
    only: frozenset[str] | None = field(default=None, compare=False)

    @property
    def url(self) -> str:
        """The root as a URL, without secrets."""
        return self.address.url

    @property
    def provider(self) -> str:
        """``s3``, ``gcs``, ``azure`` or ``http``."""
        return self.address.provider

    @property
    def endpoint(self) -> str:
        """Where requests go: by options and environment; "" where credentials decide."""
        return destination(self.address, dict(self.options.store))

    def once(self) -> Bucket:
        """Return the bucket, with each request sent only once."""
        return replace(self, retries=False)

    def store(self) -> Any:
        """Return the obstore store, opened on first use in this process.

        Raises:
            InvalidInputError: The options or credentials do not make a store.
            UnauthorizedError: Its requests would go where credentials may not be sent.
        """
        return self._open_allowed().store

    def _open_allowed(self) -> _Store:
        """Return the open store, whose requests go where they may.

        Options were checked before. This is the one place where credentials and a server meet, so
        the server of the open store is checked again, whatever the store was made of.
        """
        found = _stores.get(self)
        if self.only is not None and found.endpoint not in self.only:
            raise UnauthorizedError(
                "the requests of a container would go to a server that was not authorized",
                do="If you trust that server with these credentials, open the repository with"
                f" authorize_virtual_chunk_access=[(url_prefix, {found.endpoint!r})].",
                url=self.url,
                endpoint=found.endpoint,
            )
        return found

    def secrets_in_use(self) -> Mapping[str, Any] | None:
        """Return the secrets that are in use, by names of the library.

        None where it finds them by itself: the environment's. They are in the clear.

        Raises:
            InvalidInputError, UnauthorizedError: As `store` does.
            StorageError: The function that returns them failed.
        """
        provider = self._open_allowed().provider
        return None if provider is None else provider()

    def renew(self, refused: Any) -> bool:
        """Open the store again, because its credentials were refused, unless another thread did.

        Returns:
            False if that does not help: they do not change, or did lately and are refused.
        """
        return isinstance(self.credentials, Refreshable) and _stores.renew(self, refused)

    def note_vain_renewal(self) -> None:
        """Remember that new credentials were refused: it may be about the object."""
        _stores.note_vain_renewal(self)


def bucket_of(
    url: str,
    config: ObjectStoreConfig | None = None,
    credentials: Credentials | None = None,
    only: frozenset[str] | None = None,
) -> Bucket:
    """Return the bucket of a URL.

    Args:
        url: Like ``s3://bucket/any/key``; ``s3``, ``gs``, ``gcs``, ``az``, ``azure``, ``abfs``,
            ``abfss``, ``tigris``, ``http`` and ``https``.
        config: The kind of store and its options; None: what the environment says.
        credentials: None: the environment's, or none where ``config`` says anonymous.
        only: Endpoints that credentials may be sent to, where another person wrote ``config``; a
            store with another one is not opened.

    Raises:
        InvalidInputError: The URL is not well-formed or of another kind than the store or the
            credentials, or an option is unknown.
    """
    address = Address.parse(url)
    options = options_of(address, config)
    given: Credentials = FromEnv(address.provider) if credentials is None else credentials
    if options.anonymous and isinstance(given, FromEnv):
        given = Anonymous(address.provider)
    if given.provider != address.provider:
        raise InvalidInputError(
            "these credentials are for another kind of store",
            do=f"Pass icevirt.{address.provider}_credentials(...).",
            url=address.root.url,
            credentials_for=given.provider,
        )
    if address.provider == "gcs" and not _is_anonymous(options, given):
        options = charge_quota_project(options)
    return Bucket(address=address.root, options=options, credentials=given, only=only)


def _is_anonymous(options: StoreOptions, credentials: Credentials) -> bool:
    """Say whether requests are not signed; credentials that were passed sign them in any case."""
    if isinstance(credentials, FromEnv | NoCredentials):
        return bool(dict(options.store).get("skip_signature"))
    return isinstance(credentials, Anonymous)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """An open store, where its requests go, and the function that it gets secrets from, if any."""

    store: Any = field(repr=False)
    endpoint: str
    provider: Callable[[], Mapping[str, Any]] | None = field(repr=False)


class _Stores:
    """The open stores of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[Bucket, int], _Store] = OrderedDict()
        self._in_vain: dict[Bucket, float] = {}  # until when nothing is renewed

    def get(self, bucket: Bucket) -> _Store:
        """Return the store of a bucket; if there are many, close the one that was idle longest."""
        key = bucket, 0
        if isinstance(bucket.credentials, FromEnv):  # it changes with the variables for clouds
            named = (each for each in os.environ.items() if each[0].startswith(_CLOUDS))
            key = bucket, hash(frozenset(named))
        with self._lock:
            if key not in self._open:
                self._open[key] = _open(bucket)
                if len(self._open) > _MOST:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
            return self._open[key]

    def renew(self, bucket: Bucket, refused: Any) -> bool:
        """Replace a store by one with new credentials."""
        with self._lock:
            known = self._open.get((bucket, 0))
            if known is None or known.store is not refused:
                return True
            if time.monotonic() < self._in_vain.get(bucket, 0):
                return False
            assert isinstance(bucket.credentials, Refreshable), "other credentials do not change"
            fresh = replace(bucket.credentials, current=None)
            self._open[bucket, 0] = _open(replace(bucket, credentials=fresh))
            return True

    def note_vain_renewal(self, bucket: Bucket) -> None:
        """Renew nothing for a while."""
        with self._lock:
            self._in_vain[bucket] = time.monotonic() + _IN_VAIN

    def forget(self) -> None:
        """Start anew: in a forked child, the stores and perhaps the lock are the parent's.

        The parent's stores stay alive: their end can wait for threads that the child lacks.
        """
        _inherited.append(self._open)
        self.__init__()  # type: ignore[misc]


_inherited: list[object] = []
_stores = _Stores()
os.register_at_fork(after_in_child=_stores.forget)


def _open(bucket: Bucket) -> _Store:
    arguments, stores = _arguments(bucket), obstore().store
    kind = _STORES.get(bucket.provider)
    constructor = stores.HTTPStore.from_url if kind is None else getattr(stores, kind)
    store = open_store(bucket.url, lambda: constructor(**arguments))
    return _Store(
        store=store,
        endpoint=destination(bucket.address, getattr(store, "config", {})),
        provider=arguments.get("credential_provider"),
    )


def _arguments(bucket: Bucket) -> dict[str, Any]:
    credentials = bucket.credentials
    granted = {} if isinstance(credentials, NoCredentials) else credentials.arguments()
    is_of_s3 = isinstance(credentials, FromEnv) and credentials.provider == "s3"
    if is_of_s3 and from_profile() is not None:
        granted |= PROFILE.arguments()
    client = {name: _reveal(value) for name, value in bucket.options.client}
    headers = {name: _reveal(value) for name, value in bucket.options.headers}
    headers |= granted.pop("default_headers", {})
    if headers:
        client["default_headers"] = headers
    arguments: dict[str, Any] = {
        "client_options": client,
        "retry_config": _RETRIES if bucket.retries else _NO_RETRIES,
    }
    if bucket.provider == "http":
        if isinstance(credentials, Anonymous):
            granted = {}
        return arguments | granted | {"url": bucket.url}
    provider = granted.pop("credential_provider", None)
    if provider is not None:
        arguments["credential_provider"] = provider
    options = {name: _reveal(value) for name, value in bucket.options.store}
    arguments["config"] = options | granted
    return arguments | {_BUCKET[bucket.provider]: bucket.address.bucket}


def _reveal(value: Any) -> Any:
    return value.reveal() if isinstance(value, Secret) else value
