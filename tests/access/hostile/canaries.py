"""Credentials that are looked for by name, and the servers that may or may not get them."""

import base64
import re
from dataclasses import dataclass

import icevirt
from icevirt.connect import retry
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.objects import fetch
from icevirt.objects.authorize import Authorizer, RemoteGrant
from icevirt.objects.backends import reach_for_grant
from icevirt.repo.authorization import authorize
from servers.listeners import Listener

BODY = b"the values of a chunk"
PASSWORD = base64.b64encode(b"name:CANARYpassword")
CANARIES = re.compile(rb"CANARY|" + re.escape(PASSWORD), re.IGNORECASE)
CLOUDS = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")
PREFIXES = {
    "s3": "s3://bucket/data/",
    "s3_compatible": "s3://bucket/data/",
    "tigris": "tigris://bucket/data/",
    "gcs": "gs://bucket/data/",
    "azure": "az://bucket/data/",
}
# what prefixes and valid regions lead to by themselves
OWN = re.compile(
    rb"((bucket\.)?s3\.[a-z0-9-]+\.amazonaws\.com|t3\.storage\.dev|storage\.googleapis\.com)(:443)?"
    rb"|http://(metadata\.google\.internal|169\.254\.169\.254)/computeMetadata/\S*"  # where machines of Google get their token
)
CREDENTIALS = {
    "s3": icevirt.s3_credentials(
        access_key_id="CANARYkeyid", secret_access_key="CANARYsecret", session_token="CANARYtoken"
    ),
    "gcs": icevirt.gcs_credentials(bearer_token="CANARYbearer"),
    "azure": icevirt.azure_credentials(sas_token="sv=2020&sp=r&sig=CANARYsignature"),
}
CREDENTIALS |= {"s3_compatible": CREDENTIALS["s3"], "tigris": CREDENTIALS["s3"]}
OTHERS = {
    "s3, of the environment": ("s3", icevirt.s3_credentials(from_env=True)),
    "s3, refreshed": ("s3", icevirt.s3_credentials(get_credentials=lambda: CREDENTIALS["s3"])),
    "azure, an account key": (
        "azure",
        icevirt.azure_credentials(access_key=base64.b64encode(b"CANARYkey").decode()),
    ),
    "azure, a bearer token": ("azure", icevirt.azure_credentials(bearer_token="CANARYbearer")),
    "azure, refreshed": (
        "azure",
        icevirt.azure_credentials(get_credentials=lambda: CREDENTIALS["azure"]),
    ),
    "azure, of the environment": ("azure", icevirt.azure_credentials(from_env=True)),
}
EVERY = {kind: (kind, CREDENTIALS[kind]) for kind in PREFIXES} | OTHERS
HEADERS = {
    "a bearer token": icevirt.http_credentials(bearer_token="CANARYbearer"),
    "a password": icevirt.http_credentials(headers={"Authorization": f"Basic {PASSWORD.decode()}"}),
    "a header of its own": icevirt.http_credentials(headers={"x-secret": "CANARYheader"}),
    "a cookie": icevirt.http_credentials(headers={"cookie": "session=CANARYcookie"}),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Who listens where."""

    good: Listener
    good_tls: Listener
    evil: Listener
    evil_tls: Listener
    wall: Listener

    def forget(self) -> None:
        for each in (self.good, self.good_tls, self.evil, self.evil_tls, self.wall):
            each.forget()
            each.redirect = ""
        retry.SERVERS.clear()

    def leaked(self) -> list[bytes]:
        """Return what the servers that nobody authorized got of credentials."""
        got = (self.evil.received, self.evil_tls.received, self.wall.received)
        return [found for each in got for found in CANARIES.findall(each)]


SPELLINGS = {
    "s3": ["endpoint_url"],
    "s3_compatible": ["endpoint_url"],
    "tigris": ["endpoint_url"],
    "gcs": ["base_url", "google_base_url", "GOOGLE_BASE_URL", "Base_Url", "gcs_base_url"],
    "azure": ["endpoint", "azure_endpoint", "AZURE_STORAGE_ENDPOINT", "Storage_Endpoint"],
}


def read(container, credentials, *endpoints):
    """Read a chunk as a session does that authorized the prefix, and perhaps endpoints."""
    prefix = container.url_prefix
    entries = [(prefix, each) for each in endpoints] or [prefix]
    access = authorize(dict.fromkeys(entries, credentials))
    grant = Authorizer({prefix: container}, access).grant(prefix + "a.bin")
    return bytes(fetch.read(grant, offset=4, length=6))


def attached(container, credentials):
    """Read a chunk past the authorizer: as if a check before had been forgotten."""
    reach = reach_for_grant(RemoteGrant("", "", container, credentials))
    return bytes(reach.get("data/a.bin", 4, 10, lambda _: None).body)


def container_of(kind, options, prefix=None):
    return VirtualChunkContainer(prefix or PREFIXES[kind], ObjectStoreConfig(kind, options))


def reaching(kind, name, url):
    """Return the options of a container that names a server."""
    plain = "true" if kind in ("gcs", "azure") else True
    return {name: url, "allow_http": plain} | ({"account": "trusted"} if kind == "azure" else {})
