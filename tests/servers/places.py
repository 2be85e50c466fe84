"""Fresh places for a repository, each on its kind of storage, as both clients and obstore see it.

A place pickles, so that other processes can write there.
"""

import base64
import hashlib
import hmac
import http.client
import json
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from servers import azurite

if (
    TYPE_CHECKING
):  # processes that race use one client each; importing all would be most of the time
    import icechunk
    import obstore.store

BUCKET = "icevirt"
_PLAIN = {"allow_http": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlace:
    """A directory. Official and icevirt writers together are unsafe here."""

    path: str
    kind = "local"

    @property
    def url(self) -> str:
        return self.path

    def icevirt(self):
        """The storage for icevirt."""
        from icevirt import local_filesystem_storage

        return local_filesystem_storage(self.path)

    def official(self) -> "icechunk.Storage":
        """The storage for the official client."""
        import icechunk

        return icechunk.local_filesystem_storage(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    endpoint: str
    prefix: str

    def at(self, endpoint: str) -> "_Place":
        """Return the same place behind another endpoint, a proxy."""
        return replace(self, endpoint=endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Place(_Place):
    """A prefix of a bucket on an S3 server."""

    kind = "s3"

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of ``s3_storage`` of both clients."""
        return {
            "bucket": BUCKET,
            "prefix": self.prefix,
            "region": "us-east-1",
            "endpoint_url": self.endpoint,
            "allow_http": True,
            "force_path_style": True,
            "access_key_id": "test",
            "secret_access_key": "test",
        }

    def icevirt(self):
        """The storage for icevirt."""
        from icevirt import s3_storage

        return s3_storage(**self.options)

    def official(self) -> "icechunk.Storage":
        """The storage for the official client."""
        import icechunk

        return icechunk.s3_storage(**self.options)

    def store(self) -> "obstore.store.S3Store":
        """The bare store, at the prefix."""
        import obstore.store

        return obstore.store.S3Store(
            BUCKET,
            prefix=self.prefix,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
            virtual_hosted_style_request=False,
            client_options=_PLAIN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AzurePlace(_Place):
    """A prefix of a container on Azurite."""

    kind = "azure"

    @property
    def url(self) -> str:
        return f"az://{BUCKET}/{self.prefix}"

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of ``azure_storage`` of both clients."""
        return {
            "account": azurite.ACCOUNT,
            "container": BUCKET,
            "prefix": self.prefix,
            "access_key": azurite.KEY,
            "config": {"azure_storage_endpoint": self.endpoint, "azure_allow_http": "true"},
        }

    def icevirt(self):
        """The storage for icevirt."""
        from icevirt import azure_storage

        return azure_storage(**self.options)

    def official(self) -> "icechunk.Storage":
        """The storage for the official client."""
        import icechunk

        return icechunk.azure_storage(**self.options)

    def store(self) -> "obstore.store.AzureStore":
        """The bare store, at the prefix."""
        import obstore.store

        return obstore.store.AzureStore(
            BUCKET,
            prefix=self.prefix,
            account_name=azurite.ACCOUNT,
            account_key=azurite.KEY,
            endpoint=self.endpoint,
            client_options=_PLAIN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsPlace(_Place):
    """A prefix of a bucket on the fake of Google's storage."""

    kind = "gcs"

    @property
    def url(self) -> str:
        return f"gs://{BUCKET}/{self.prefix}"

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of ``gcs_storage`` of both clients; the key says where the server is."""
        key = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {
            "bucket": BUCKET,
            "prefix": self.prefix,
            "service_account_key": json.dumps(key),
        }

    def icevirt(self):
        """The storage for icevirt."""
        from icevirt import gcs_storage

        return gcs_storage(**self.options, config={"allow_http": "true"})

    def official(self) -> "icechunk.Storage":
        """The storage for the official client."""
        import icechunk

        return icechunk.gcs_storage(**self.options, config={"allow_http": "true"})

    def store(self) -> "obstore.store.GCSStore":
        """The bare store, at the prefix."""
        import obstore.store

        key = self.options["service_account_key"]
        return obstore.store.GCSStore(
            BUCKET, prefix=self.prefix, service_account_key=key, client_options=_PLAIN
        )


type Place = LocalPlace | S3Place | AzurePlace | GcsPlace


def make_s3_bucket(endpoint: str) -> None:
    """Make the bucket, which no client of object stores can."""
    _put(f"{endpoint}/{BUCKET}", {})


def make_azure_container(endpoint: str) -> None:
    """Make the container, by a signed request."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{azurite.ACCOUNT}/{azurite.ACCOUNT}/{BUCKET}\nrestype:container"
    signed = "PUT\n" + "\n" * 11 + named + resource
    digest = hmac.digest(base64.b64decode(azurite.KEY), signed.encode(), hashlib.sha256)
    signature = base64.b64encode(digest).decode()
    output = {"Authorization": f"SharedKey {azurite.ACCOUNT}:{signature}", **headers}
    _put(f"{endpoint}/{BUCKET}?restype=container", output)


def _put(url: str, headers: dict[str, str]) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    connection.request("PUT", f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    connection.close()
    if answer.status not in (200, 201):
        raise RuntimeError(f"cannot make the bucket: {answer.status} {answer.reason}")
