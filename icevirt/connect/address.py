"""Parse the URL of an object into kind of store, bucket and key.

Keys are percent-decoded, without query and fragment, as the official client reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlsplit

from icevirt.errors import InvalidInputError

PROVIDERS = {
    "s3": "s3",
    "s3a": "s3",
    "tigris": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "azure": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "http": "http",
    "https": "http",
}
_SAFE = "/!$&'()*+,;=:@[]|~"
# a bucket may become part of the name of a host, where libraries read other characters differently
_BUCKET = re.compile(r"\$?[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
_HOST = re.compile(r"[^\x00-\x20\x7f\\%\"<>^`{|}]+")
_ACCOUNT = re.compile(r"([a-z0-9]{3,24})\.(?:dfs|blob)\.core\.windows\.net", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The parts of an object's URL."""

    scheme: str
    bucket: str  # bucket or container; host and port of a web server
    key: str = ""
    account: str | None = None  # of ``abfss://container@account.dfs.core.windows.net/key``

    @property
    def provider(self) -> str:
        """``s3``, ``gcs``, ``azure`` or ``http``."""
        return PROVIDERS[self.scheme]

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"{self.bucket}@{self.account}.dfs.core.windows.net" if self.account else self.bucket
        path = quote(self.key, safe=_SAFE)
        return f"{self.scheme}://{host}/{path}" if path else f"{self.scheme}://{host}"

    @property
    def root(self) -> Address:
        """The bucket itself."""
        return replace(self, key="")

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL.

        Raises:
            InvalidInputError: It is not well-formed, names no bucket, holds a user name or
                password, or is of a kind that no object store serves.
        """
        scheme, separator, _ = url.partition("://")
        if not separator or scheme.lower() not in PROVIDERS:
            raise InvalidInputError(
                "this is not the URL of an object store",
                do=f"Use one of {', '.join(f'{known}://' for known in PROVIDERS)}.",
                scheme=scheme if separator else "",
            )
        try:
            parts = urlsplit(url)
            key = unquote(parts.path, errors="strict").removeprefix("/")
        except ValueError:
            key, parts = "", urlsplit("x://")
        account, host = _account(parts.netloc)
        is_azure = PROVIDERS[scheme.lower()] == "azure"
        allowed = _HOST if PROVIDERS[scheme.lower()] == "http" else _BUCKET
        dropped = any(each in url for each in "\t\r\n")  # which urlsplit leaves out
        if (
            dropped
            or not allowed.fullmatch(host)
            or "\0" in key
            or (account is not None and not is_azure)
        ):
            raise InvalidInputError(
                "this is not the URL of an object in a bucket",
                do="Write it like s3://bucket/prefix, without a password.",
                url=f"{scheme}://{parts.netloc.rpartition('@')[2]}",
            )
        return cls(scheme=scheme.lower(), bucket=host, key=key, account=account)


def _account(netloc: str) -> tuple[str | None, str]:
    """Split what precedes an ``@`` off the host; of Azure's addresses, it is the container."""
    before, at, host = netloc.rpartition("@")
    if not at:
        return None, netloc
    account = _ACCOUNT.fullmatch(host)
    # requests go to this domain, whatever another one says
    return (account[1], before) if account else ("", "")
