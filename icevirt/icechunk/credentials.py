"""icechunk's names of credentials; the values are icevirt's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from icevirt.connect.credentials import common, object_stores
from icevirt.connect.credentials.common import (
    Anonymous,
    FromEnv,
    HttpAccess,
    LocalFileSystemAccess,
    Refreshable,
    StaticCredentials,
)
from icevirt.connect.credentials.common import (
    Credentials as AnyCredential,
)
from icevirt.connect.credentials.object_stores import (
    AzureRefreshableCredential,
    GcsBearerCredential,
    S3StaticCredentials,
)
from icevirt.icechunk._shims.classes import MadeKind, guard, kind

__all__ = [
    "AnyAzureCredential",
    "AnyAzureStaticCredential",
    "AnyCredential",
    "AnyGcsCredential",
    "AnyGcsStaticCredential",
    "AnyS3Credential",
    "AzureCredentials",
    "AzureRefreshableCredential",
    "AzureStaticCredentials",
    "Credentials",
    "GcsBearerCredential",
    "GcsCredentials",
    "GcsStaticCredentials",
    "HttpAccess",
    "LocalFileSystemAccess",
    "S3Credentials",
    "S3StaticCredentials",
    "azure_anonymous_credentials",
    "azure_credentials",
    "azure_from_env_credentials",
    "azure_refreshable_credentials",
    "azure_static_credentials",
    "containers_credentials",
    "gcs_anonymous_credentials",
    "gcs_credentials",
    "gcs_from_env_credentials",
    "gcs_refreshable_credentials",
    "gcs_static_credentials",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
]

containers_credentials = guard(common.containers_credentials)
azure_anonymous_credentials = guard(object_stores.azure_anonymous_credentials)
azure_credentials = guard(object_stores.azure_credentials)
azure_from_env_credentials = guard(object_stores.azure_from_env_credentials)
azure_refreshable_credentials = guard(object_stores.azure_refreshable_credentials)
azure_static_credentials = guard(object_stores.azure_static_credentials)
gcs_anonymous_credentials = guard(object_stores.gcs_anonymous_credentials)
gcs_credentials = guard(object_stores.gcs_credentials)
gcs_from_env_credentials = guard(object_stores.gcs_from_env_credentials)
gcs_refreshable_credentials = guard(object_stores.gcs_refreshable_credentials)
gcs_static_credentials = guard(object_stores.gcs_static_credentials)
s3_anonymous_credentials = guard(object_stores.s3_anonymous_credentials)
s3_credentials = guard(object_stores.s3_credentials)
s3_from_env_credentials = guard(object_stores.s3_from_env_credentials)
s3_refreshable_credentials = guard(object_stores.s3_refreshable_credentials)
s3_static_credentials = guard(object_stores.s3_static_credentials)

AnyS3Credential = AnyGcsCredential = AnyAzureCredential = AnyCredential
AnyGcsStaticCredential = AnyAzureStaticCredential = AnyCredential


def _credentials(provider: str) -> tuple[MadeKind, MadeKind, MadeKind, MadeKind]:
    """Return the kinds of credentials of a provider: anonymous, environment, static, refreshed."""

    def kinds(name: str, make: Callable[..., Any], of: type[Any]) -> MadeKind:
        return kind(name, make, lambda x: isinstance(x, of) and x.provider == provider)

    return (
        kinds("Anonymous", lambda: Anonymous(provider), Anonymous),
        kinds("FromEnv", lambda: FromEnv(provider), FromEnv),
        kinds("Static", _itself, StaticCredentials),
        kinds("Refreshable", _REFRESHABLE[provider], Refreshable),
    )


def _itself(credentials: Any) -> Any:
    """Return what it is given: here a static credential is a credential."""
    return credentials


_REFRESHABLE = {
    "s3": s3_refreshable_credentials,
    "gcs": gcs_refreshable_credentials,
    "azure": azure_refreshable_credentials,
}


class S3Credentials:
    """Credentials of S3, by kind."""

    Anonymous, FromEnv, Static, Refreshable = _credentials("s3")


class GcsCredentials:
    """Credentials of Google Cloud Storage, by kind."""

    Anonymous, FromEnv, Static, Refreshable = _credentials("gcs")


class AzureCredentials:
    """Credentials of Azure, by kind."""

    Anonymous, FromEnv, Static, Refreshable = _credentials("azure")


def _static(provider: str, make: Callable[..., Any], **names: str) -> list[MadeKind]:
    """Return kinds of static credentials: names of icechunk, and arguments of the function."""

    def one(name: str, argument: str) -> MadeKind:
        def construct(value: Any) -> Any:
            return make(**{argument: value})

        return kind(
            name, construct, lambda x: isinstance(x, StaticCredentials) and x.provider == provider
        )

    return [one(name, argument) for name, argument in names.items()]


class GcsStaticCredentials:
    """Credentials of Google Cloud Storage that do not change, by kind."""

    ServiceAccount, ServiceAccountKey, ApplicationCredentials, BearerToken = _static(
        "gcs",
        gcs_static_credentials,
        ServiceAccount="service_account_file",
        ServiceAccountKey="service_account_key",
        ApplicationCredentials="application_credentials",
        BearerToken="bearer_token",
    )


class AzureStaticCredentials:
    """Credentials of Azure that do not change, by kind."""

    AccessKey, SasToken, BearerToken = _static(
        "azure",
        azure_static_credentials,
        AccessKey="access_key",
        SasToken="sas_token",
        BearerToken="bearer_token",
    )


def _kind_of(name: str) -> MadeKind:
    return kind(name, _itself, lambda x: getattr(x, "provider", None) == name.lower())


class Credentials:
    """Credentials of containers, by the kind of store."""

    S3, Gcs, Azure = map(_kind_of, ("S3", "Gcs", "Azure"))
    LocalFileSystemAccess = kind(
        "LocalFileSystemAccess",
        lambda: LocalFileSystemAccess,
        lambda x: x is LocalFileSystemAccess,
    )
    HttpAccess = kind("HttpAccess", lambda: HttpAccess, lambda x: x is HttpAccess)
