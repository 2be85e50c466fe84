"""Define how the objects of a virtual chunk container are reached, under icechunk's names.

These configs are persisted in repositories, where every reader sees them: they take no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.connect.options import is_secret
from icevirt.errors import InvalidInputError
from icevirt.model.config.document import ObjectStoreConfig

_SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization")


def s3_store(  # noqa: PLR0917 - icechunk's signature
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    anonymous: bool = False,
    s3_compatible: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int = 60,
    requester_pays: bool = False,
    checksum_algorithm: str | None = None,
) -> ObjectStoreConfig:
    """Return the config of a container on S3 or a compatible store.

    Args:
        region: The bucket's region.
        endpoint_url: Endpoint of a store other than Amazon's.
        allow_http: Allow an ``http://`` endpoint.
        anonymous: Requests are not signed.
        s3_compatible: The store is not Amazon's.
        force_path_style: The bucket is part of the path and not of the host.
        network_stream_timeout_seconds: Fail a request after so many seconds without data; 0: never.
        requester_pays: The reader pays for requests.
        checksum_algorithm: For what is written.
    """
    options = {
        "region": region,
        "endpoint_url": endpoint_url,
        "anonymous": anonymous,
        "allow_http": allow_http,
        "force_path_style": force_path_style,
        "network_stream_timeout_seconds": network_stream_timeout_seconds,
        "requester_pays": requester_pays,
        "checksum_algorithm": checksum_algorithm,
    }
    return ObjectStoreConfig("s3_compatible" if s3_compatible else "s3", options)


def gcs_store(opts: Mapping[str, str] | None = None) -> ObjectStoreConfig:
    """Return the config of a container on Google Cloud Storage. Raises ``InvalidInputError``."""
    return ObjectStoreConfig("gcs", _public(opts))


def azure_store(*, account: str, config: Mapping[str, str] | None = None) -> ObjectStoreConfig:
    """Return the config of a container on Azure Blob Storage. Raises ``InvalidInputError``."""
    return ObjectStoreConfig("azure", {"account": account} | _public(config))


def http_store(
    opts: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> ObjectStoreConfig:
    """Return the config of a container on a web server.

    Args:
        opts: Options of the client, like ``{"timeout": "30s"}``.
        headers: Sent with each request of every reader.

    Raises:
        InvalidInputError: An option or a header is a secret.
    """
    for name in headers or {}:
        if name.lower() in _SECRET_HEADERS or is_secret(name):
            raise _persisted(name)
    sent = {"headers": dict(headers)} if headers else {}
    return ObjectStoreConfig("http", _public(opts) | sent)


def _public(options: Mapping[str, str] | None) -> dict[str, Any]:
    for name in options or {}:
        if is_secret(name):
            raise _persisted(name)
    return dict(options or {})


def _persisted(name: str) -> InvalidInputError:
    return InvalidInputError(
        "the config of a container is persisted, so it must not contain secrets",
        do="Pass it as credentials: authorize_virtual_chunk_access={prefix: credentials}.",
        option=name,
    )
