"""Construct storages in buckets under icechunk's names, and from paths and URLs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from icevirt.connect.urls import is_url, spell
from icevirt.errors import InvalidInputError
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Storage

if TYPE_CHECKING:  # what speaks to servers is imported with the first bucket
    from icevirt.connect.credentials.common import Credentials
    from icevirt.storage.object_store import ObjectStorage

HUGGING_FACE = "https://s3.hf.co"

type StorageLike = Storage | str | os.PathLike[str]


def storage_of(root: StorageLike, options: Mapping[str, Any] | None = None) -> Storage:
    """Return the storage that a path, a URL or a storage stands for.

    Args:
        root: A path, a URL like ``s3://bucket/prefix``, or a storage.
        options: Arguments of the storage's constructor beyond what the URL says; what they leave
            open, the environment says.

    Raises:
        InvalidInputError: It is empty, or a URL of a kind that is not supported, or options do
            not fit.
    """
    if isinstance(root, str | os.PathLike):
        text = os.fspath(root)
        if not text:
            raise InvalidInputError("a repository's path is empty", do="Pass a path or a URL.")
        text = spell(text)
        if is_url(text) and not text.startswith("file://"):
            return _storage_at(text, options or {})
        root = LocalStorage(text)
    root = root.resolve() if hasattr(root, "resolve") else root  # a server knows which it is
    if not hasattr(root, "get_versioned"):
        raise InvalidInputError(
            "this is not a storage",
            do="Pass a path, a URL, or a storage from `s3_storage` or a similar function.",
            found=type(root).__name__,
        )
    if options:
        raise InvalidInputError(
            "storage_options work only for URLs of object stores",
            do="Leave them out, or pass them to the storage's constructor.",
            options=sorted(options),
        )
    return root


def _storage_at(url: str, options: Mapping[str, Any]) -> Storage:
    import inspect

    from icevirt.connect.urls import Address

    if "?" in url or "#" in url:
        raise InvalidInputError(
            "the URL of a repository must not have a query or fragment",
            do="Write %3F for a question mark in its name, and %23 for a hash.",
            url=url.partition("?")[0].partition("#")[0],
        )
    at = Address.parse(url)
    if at.provider == "http":
        from icevirt.storage.web_server import http_storage

        constructor: Callable[..., Storage] = http_storage
    else:
        constructor = _CONSTRUCTORS[at.scheme if at.scheme == "tigris" else at.provider]
    arguments: dict[str, Any] = {"bucket": at.bucket, "prefix": at.key}
    if at.provider == "azure":
        arguments = {"container": at.bucket, "prefix": at.key, "account": at.account}
    elif at.provider == "http":
        arguments = {"base_url": at.url}
    arguments |= options
    try:
        inspect.signature(constructor).bind(**arguments)
    except TypeError as error:
        raise InvalidInputError(
            f"these options do not fit this kind of storage: {error}",
            do=f"Pass arguments of icevirt.{constructor.__name__}.",
            url=at.url,
        ) from error
    return constructor(**arguments)


def s3_storage(
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int = 60,
    requester_pays: bool = False,
    checksum_algorithm: str | None = None,
) -> ObjectStorage:
    """Return a storage in S3 or a compatible store.

    Args:
        bucket: Must exist.
        prefix: Root of the repository in the bucket.
        region: The bucket's region; None: from the environment.
        endpoint_url: Endpoint of a store other than Amazon's; None: from the environment.
        allow_http: Allow an ``http://`` endpoint.
        access_key_id: See `s3_credentials`, also for the next arguments.
        secret_access_key: Never shown.
        session_token: Never shown.
        expires_after: When these three expire.
        anonymous: Requests are not signed.
        from_env: Each process takes credentials from its environment; the default.
        get_credentials: Returns credentials; called again before they expire.
        scatter_initial_credentials: Call it now, and send the result to other processes.
        force_path_style: The bucket is part of the path and not of the host.
        network_stream_timeout_seconds: Fail a request after so many seconds without data; 0: never.
        requester_pays: The reader pays for requests.
        checksum_algorithm: ``sha256`` or ``crc64nvme``, for what is written.

    Raises:
        InvalidInputError: Arguments contradict each other, or are not valid.
        StorageError: ``get_credentials`` was called now and failed.
    """
    from icevirt.connect.credentials.object_stores import s3_credentials
    from icevirt.connect.options import CHECKSUMS

    if checksum_algorithm is not None and checksum_algorithm.lower() not in CHECKSUMS:
        raise InvalidInputError(
            "this checksum algorithm is not supported",
            do=f"Use one of {', '.join(CHECKSUMS)}, or leave it to the server.",
            checksum_algorithm=checksum_algorithm,
        )
    credentials = s3_credentials(
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
        anonymous=anonymous,
        from_env=from_env,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    options = {
        "region": region,
        "endpoint_url": endpoint_url,
        "allow_http": allow_http,
        "anonymous": bool(anonymous),
        "force_path_style": force_path_style,
        "network_stream_timeout_seconds": network_stream_timeout_seconds,
        "requester_pays": requester_pays,
        "checksum_algorithm": checksum_algorithm,
    }
    return in_bucket("s3", bucket, options, credentials, prefix)


def tigris_storage(
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    use_weak_consistency: bool = False,
    **options: Any,
) -> ObjectStorage:
    """Return a storage in Tigris, which is read and written consistently in all regions.

    ``use_weak_consistency`` reads the nearest region, which may be behind; never write so. Takes
    the arguments of `s3_storage`, and raises as it does.
    """
    from icevirt.connect.options import TIGRIS, TIGRIS_HEADERS

    made = s3_storage(
        bucket=bucket,
        prefix=prefix,
        region=region or "auto",
        endpoint_url=endpoint_url or TIGRIS,
        **options,
    )
    return made if use_weak_consistency else made.with_headers(TIGRIS_HEADERS)


def hf_storage(*, bucket: str, prefix: str | None, namespace: str, **options: Any) -> ObjectStorage:
    """Return a storage in a bucket of Hugging Face, through its gateway for S3.

    It was never tried with the service itself. The gateway keeps no metadata of objects, so after
    a lost answer a commit may report a conflict that did not happen.

    Args:
        bucket: Without the namespace.
        prefix: Root of the repository in the bucket.
        namespace: The user or organization that owns the bucket.
        options: As for `s3_storage`; the access key begins with ``HFAK``.

    Raises:
        InvalidInputError: As `s3_storage`.
    """
    defaults: dict[str, Any] = {
        "endpoint_url": f"{HUGGING_FACE}/{namespace}",
        "region": "us-east-1",
        "force_path_style": True,
    }
    return s3_storage(bucket=bucket, prefix=prefix, **(defaults | options))


def r2_storage(
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    **options: Any,
) -> ObjectStorage:
    """Return a storage in Cloudflare R2.

    Args:
        bucket: None: the first part of ``prefix``.
        prefix: Root of the repository in the bucket.
        account_id: The account's id; not needed with an endpoint.
        endpoint_url: None: the account's endpoint.
        region: None: ``auto``.
        options: As for `s3_storage`.

    Raises:
        InvalidInputError: The bucket, or both account and endpoint, are missing; else as
            `s3_storage`.
    """
    if bucket is None:
        bucket, _, prefix = (prefix or "").strip("/").partition("/")
    if not bucket or not (account_id or endpoint_url):
        raise InvalidInputError(
            "a repository on R2 needs a bucket, and an account or an endpoint",
            do="Pass bucket=... and account_id=...",
        )
    return s3_storage(
        bucket=bucket,
        prefix=prefix,
        region=region or "auto",
        endpoint_url=endpoint_url or r2_endpoint(account_id),
        **options,
    )


def r2_endpoint(account_id: str | None) -> str:
    """Return where an account of R2 is reached."""
    return f"https://{account_id}.r2.cloudflarestorage.com"


def gcs_storage(
    *,
    bucket: str,
    prefix: str | None,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    config: Mapping[str, str] | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
) -> ObjectStorage:
    """Return a storage in Google Cloud Storage.

    The bucket must exist; ``prefix`` is the root of the repository in it. ``config`` has further
    options of the store or its client, by obstore's names. For the other
    arguments see `gcs_credentials`; raises as `s3_storage`.
    """
    from icevirt.connect.credentials.object_stores import gcs_credentials

    credentials = gcs_credentials(
        service_account_file=service_account_file,
        service_account_key=service_account_key,
        application_credentials=application_credentials,
        bearer_token=bearer_token,
        anonymous=anonymous,
        from_env=from_env,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    return in_bucket("gcs", bucket, dict(config or {}), credentials, prefix)


def azure_storage(
    *,
    account: str | None,
    container: str,
    prefix: str | None,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    config: Mapping[str, str] | None = None,
    get_credentials: Callable[[], Any] | None = None,
    scatter_initial_credentials: bool = False,
) -> ObjectStorage:
    """Return a storage in Azure Blob Storage.

    The container must exist; ``prefix`` is the root of the repository in it. ``account`` is the
    storage account, by default the environment's, and ``config`` has further options of the store
    or its client, by obstore's names. For the other arguments see `azure_credentials`; raises as
    `s3_storage`.
    """
    from icevirt.connect.credentials.object_stores import azure_credentials

    credentials = azure_credentials(
        access_key=access_key,
        sas_token=sas_token,
        bearer_token=bearer_token,
        from_env=from_env,
        anonymous=anonymous,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    options = {"account": account, **(config or {})}
    return in_bucket("azure", container, options, credentials, prefix)


def in_bucket(
    provider: str,
    bucket: str,
    options: Mapping[str, Any],
    credentials: Credentials,
    prefix: str | None,
) -> ObjectStorage:
    """Return a storage in a bucket or container of ``s3``, ``gcs`` or ``azure``.

    Raises:
        InvalidInputError: The name or an option is not valid.
    """
    from icevirt.model.config.containers import ObjectStoreConfig

    if not bucket or set(bucket) & set("/@:?#% "):
        raise InvalidInputError(
            "this is not a bucket name", do="Pass the name without a URL.", name=bucket
        )
    from icevirt.connect.stores import bucket_of
    from icevirt.storage.object_store import ObjectStorage

    config = ObjectStoreConfig(provider, dict(options))
    return ObjectStorage(bucket_of(f"{_SCHEMES[provider]}://{bucket}", config, credentials), prefix)


_SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "az"}


_CONSTRUCTORS: dict[str, Callable[..., Storage]] = {
    "s3": s3_storage,
    "tigris": tigris_storage,
    "gcs": gcs_storage,
    "azure": azure_storage,
}
