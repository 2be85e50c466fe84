"""Constructors of storages from options and credentials, as `Storage.new_s3` and its kind.

Each returns icevirt's storage, from which `icevirt.icechunk.storage` makes icechunk's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from icevirt.connect.credentials.common import Anonymous, Credentials, FromEnv
from icevirt.connect.options import TIGRIS, TIGRIS_HEADERS
from icevirt.storage.constructors import HUGGING_FACE, in_bucket, r2_endpoint
from icevirt.storage.object_store import ObjectStorage

type Options = Mapping[str, Any]


def new_s3(
    config: Options, bucket: str, prefix: str | None, credentials: Credentials | None = None
) -> ObjectStorage:
    """Return a storage in S3 or a compatible store, by `S3Options` and credentials."""
    options = {k: v for k, v in config.items() if v is not None}
    if isinstance(checksum := options.get("checksum_algorithm"), Enum):
        options["checksum_algorithm"] = checksum.value
    if credentials is None:
        credentials = Anonymous("s3") if options.get("anonymous") else FromEnv("s3")
    return in_bucket("s3", bucket, options, credentials, prefix)


def new_tigris(
    config: Options,
    bucket: str,
    prefix: str | None,
    use_weak_consistency: bool,
    credentials: Credentials | None = None,
) -> ObjectStorage:
    """Return a storage in Tigris."""
    made = new_s3(_reached(config, TIGRIS), bucket, prefix, credentials)
    return made if use_weak_consistency else made.with_headers(TIGRIS_HEADERS)


def new_r2(
    config: Options,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    credentials: Credentials | None = None,
) -> ObjectStorage:
    """Return a storage in Cloudflare R2; without a bucket it is the first part of the prefix."""
    if bucket is None:
        bucket, _, prefix = (prefix or "").strip("/").partition("/")
    return new_s3(_reached(config, r2_endpoint(account_id)), bucket, prefix, credentials)


def new_hf(
    config: Options,
    bucket: str,
    prefix: str | None,
    namespace: str,
    credentials: Credentials | None = None,
) -> ObjectStorage:
    """Return a storage in a bucket of Hugging Face."""
    options = {**_reached(config, f"{HUGGING_FACE}/{namespace}"), "force_path_style": True}
    return new_s3(options, bucket, prefix, credentials)


def new_gcs(
    bucket: str,
    prefix: str | None,
    credentials: Credentials | None = None,
    *,
    config: Options | None = None,
) -> ObjectStorage:
    """Return a storage in Google Cloud Storage."""
    return in_bucket("gcs", bucket, config or {}, credentials or FromEnv("gcs"), prefix)


def new_azure_blob(
    account: str,
    container: str,
    prefix: str,
    credentials: Credentials | None = None,
    *,
    config: Options | None = None,
) -> ObjectStorage:
    """Return a storage in Azure Blob Storage."""
    options = {"account": account, **(config or {})}
    return in_bucket("azure", container, options, credentials or FromEnv("azure"), prefix)


def _reached(config: Options, endpoint: str) -> Options:
    """Return options with an endpoint and a region, where they name none."""
    return {
        **config,
        "endpoint_url": config.get("endpoint_url") or endpoint,
        "region": config.get("region") or "auto",
    }
