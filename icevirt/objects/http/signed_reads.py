"""Read objects by signed URLs where a redirect could leak a secret.

obstore follows redirects by itself. It removes ``authorization`` from requests to another server,
but repeats two secrets that travel elsewhere: the session token of S3, which is a header, and the
shared access signature of Azure, which ``referer`` quotes. The servers of a provider redirect only
among themselves. Any other server gets a signed URL through the client for web servers, which
follows no redirect out of the folder.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from icevirt.connect.credentials.common import Anonymous
from icevirt.connect.library import asked, obstore
from icevirt.connect.stores import Bucket
from icevirt.errors import StorageError
from icevirt.objects.answers import Check, ObjectBytes
from icevirt.objects.http.client import site_of

# not all of amazonaws.com: anybody has load balancers there
_OWN = re.compile(
    r"https://(s3(-fips)?([.-](dualstack\.)?[a-z0-9-]+)?\.amazonaws\.com(\.cn)?|t3\.storage\.dev"
    r"|[a-z0-9]+\.blob\.(core\.windows\.net|fabric\.microsoft\.com))"
)
_GOOD_FOR = timedelta(minutes=15)
_SAFE = "/!$&'()*+,;=:@~"  # of a path, as `icevirt.objects.http.client` writes it
_TOKENS = ("AWS_SESSION_TOKEN", "AWS_TOKEN")
_SHARED = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_REFUSED = ("400", "401", "403")


def repeats_secrets(bucket: Bucket) -> bool:
    """Say whether obstore would repeat a secret to a server that this one redirects to.

    Raises:
        InvalidInputError: The bucket's options or credentials do not make a store.
        StorageError: A function was asked for the credentials and failed.
    """
    if isinstance(bucket.credentials, Anonymous) or _OWN.fullmatch(bucket.endpoint):
        return False
    match bucket.provider:
        case "s3":
            return _has_token(bucket)
        case "azure":
            return bool(_shared_access(bucket))
        case _:
            return False


@dataclass(frozen=True, slots=True)
class SignedReach:
    """The objects of one bucket, each asked for by a signed URL."""

    bucket: Bucket
    prefix: str  # that was authorized

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""
        return self.bucket.url

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of an object.

        Raises:
            ObjectNotFoundError: There is no such object.
            UnauthorizedError: It is redirected to another server.
            StorageError: The store refuses, or keeps failing; or ``check`` raises it.
        """
        store = self.bucket.store()
        try:
            return self._get(key, begin, end, check)
        except StorageError as error:
            refused = str(error.facts.get("reason")).startswith(_REFUSED)
            if not refused or not self.bucket.renew(store):
                raise
        return self._get(key, begin, end, check)

    def _get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        signed = self._signed(key) if self.bucket.provider == "s3" else self._shared(key)
        url, _, query = signed.partition("?")
        folder = url.rpartition("/")[0] + "/"
        return site_of(folder).get_at(url, begin, end, check, f"?{query}")

    def _signed(self, key: str) -> str:
        store = self.bucket.store()
        url = f"{self.bucket.url}/{key}"
        found: str = asked(url, lambda: obstore().sign(store, "GET", key, _GOOD_FOR))
        return found

    def _shared(self, key: str) -> str:
        path = quote(f"{self.bucket.address.bucket}/{key}", safe=_SAFE)
        return f"{self.bucket.endpoint}/{path}?{_shared_access(self.bucket)}"


def _has_token(bucket: Bucket) -> bool:
    """Say whether credentials of S3 come with a session token."""
    if (granted := bucket.granted()) is not None:
        return bool(granted.get("token"))
    # what roles and machines get from Amazon has one, keys of the environment perhaps
    is_key = "AWS_ACCESS_KEY_ID" in os.environ
    return not is_key or any(os.environ.get(name) for name in _TOKENS)


def _shared_access(bucket: Bucket) -> str:
    """Return the shared access signature of a bucket of Azure; "" where it is another secret."""
    if (granted := bucket.granted()) is not None:
        return str(granted.get("sas_token") or "")
    found = next((os.environ[name] for name in _SHARED if os.environ.get(name)), "")
    return found.removeprefix("?")
