"""Define the options of object stores under icechunk's names, and translate them to obstore's.

Configs of virtual chunk containers are persisted in repositories, where every reader sees them:
they take no secrets. Options that a config leaves open come from the environment:
``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ALLOW_HTTP``, ``AZURE_STORAGE_ACCOUNT_NAME`` and so on;
obstore reads most of them itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from icevirt.connect.credentials.common import Secret, profile_region
from icevirt.connect.urls import Address, destination
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig

type Pairs = tuple[tuple[str, Any], ...]

CHECKSUMS = ("sha256", "crc64nvme")  # that obstore can make
_TIMEOUT = 60  # seconds without a byte
_WHOLE = "1h"  # for a request in all; slow lines move large objects slowly
TIGRIS = "https://t3.storage.dev"
TIGRIS_HEADERS = (("x-tigris-consistent", "true"),)  # reads see writes, in every region
_KINDS = {
    "s3": ("s3", "s3_compatible", "tigris"),
    "gcs": ("gcs",),
    "azure": ("azure",),
    "http": ("http",),
}
_CLIENT = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_S3 = frozenset(
    {
        "region",
        "endpoint_url",
        "anonymous",
        "allow_http",
        "force_path_style",
        "network_stream_timeout_seconds",
        "requester_pays",
        "checksum_algorithm",
    }
)
QUOTA_PROJECT = "GOOGLE_CLOUD_QUOTA_PROJECT"
"""The variable of Google's libraries for the project that pays for requests."""
_PAYER = "x-goog-user-project"

_SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization")
_SECRET = ("proxy_url", "key", "token", "secret", "sas", "password", "credential")


# -- options of containers, as persisted ----------------------------------------------------------


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
            raise _secret_error(name)
    sent = {"headers": dict(headers)} if headers else {}
    return ObjectStoreConfig("http", _public(opts) | sent)


def config_of(address: Address, options: StoreOptions) -> ObjectStoreConfig:
    """Return the config of a container that is reached as a store is, without secrets.

    What the environment said is in it: readers may have another one.
    """
    store, allow_http = dict(options.store), dict(options.client).get("allow_http") is True
    named = {"allow_http": "true"} if allow_http else {}
    match address.provider:
        case "s3":
            endpoint = store.get("aws_endpoint_url_s3")
            return s3_store(
                region=store["region"],
                endpoint_url=endpoint,
                allow_http=allow_http,
                anonymous=options.anonymous,
                s3_compatible=endpoint is not None,
                force_path_style=not store["virtual_hosted_style_request"],
                requester_pays="request_payer" in store,
            )
        case "gcs":
            if base_url := store.get("base_url"):
                named["google_base_url"] = base_url
            return gcs_store(named)
        case "azure":
            account = store.get("account_name", "devstoreaccount1")
            endpoint = destination(address, store)
            if endpoint == f"https://{account}.blob.core.windows.net":
                return azure_store(account=account)
            prefixed = {f"azure_{name}": value for name, value in named.items()}
            return azure_store(
                account=account, config={**prefixed, "azure_storage_endpoint": endpoint}
            )
        case _:
            return http_store(named)


def _public(options: Mapping[str, str] | None) -> dict[str, Any]:
    for name in options or {}:
        if is_secret(name):
            raise _secret_error(name)
    return dict(options or {})


def _secret_error(name: str) -> InvalidInputError:
    return InvalidInputError(
        "the config of a container is persisted, so it must not contain secrets",
        do="Pass it as credentials: authorize_virtual_chunk_access={prefix: credentials}.",
        option=name,
    )


# -- options of obstore ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Options as obstore takes them."""

    store: Pairs = ()
    client: Pairs = ()
    headers: tuple[tuple[str, str | Secret], ...] = ()
    anonymous: bool = False


def options_of(address: Address, config: ObjectStoreConfig | None) -> StoreOptions:
    """Return the options of the store at an address.

    Raises:
        InvalidInputError: The config is of another kind of store, or has unknown options.
    """
    if config is None:
        is_tigris = address.scheme == "tigris"
        config = ObjectStoreConfig("tigris" if is_tigris else _KINDS[address.provider][0], {})
    if config.kind not in _KINDS[address.provider]:
        raise InvalidInputError(
            "this kind of store cannot serve this URL scheme",
            do=f"Use one of {_KINDS[address.provider]}.",
            url=address.root.url,
            store=config.kind,
        )
    given = config.options if isinstance(config.options, Mapping) else {}
    return _BUILDERS[address.provider](address, config.kind, given)


def charge_quota_project(options: StoreOptions) -> StoreOptions:
    """Return the options of signed requests to Google, for which the environment's project pays.

    A project that the options name comes first. Unsigned requests name no project: nobody pays for
    them, and a public server learns nothing about the user.
    """
    payer = _env(QUOTA_PROJECT)
    named = any(name == _PAYER for name, _ in options.headers)
    if payer is None or named:
        return options
    return replace(options, headers=(*options.headers, (_PAYER, payer)))


def is_secret(name: str) -> bool:
    """Say whether an option of this name holds a secret."""
    return any(part in name.lower() for part in _SECRET)


def _s3(address: Address, kind: str, given: Mapping[str, Any]) -> StoreOptions:
    _refuse_unknown(given, _S3)
    endpoint = given.get("endpoint_url") or (TIGRIS if kind == "tigris" else None)
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or _env("AWS_ENDPOINT")
    region = given.get("region") or _env("AWS_REGION") or _env("AWS_DEFAULT_REGION")
    allow_http = _allow_http(given, "AWS_ALLOW_HTTP") and is_plain_http(endpoint)
    # the bucket is part of the host at AWS, where no dot in its name, which fits no certificate,
    # forbids it, and where the endpoint says it itself
    is_hosted = "." not in address.bucket
    if endpoint:
        is_hosted = (urlsplit(endpoint).hostname or "").startswith(address.bucket + ".")
    store: dict[str, Any] = {
        "region": region or profile_region() or ("auto" if kind == "tigris" else "us-east-1"),
        "virtual_hosted_style_request": is_hosted and not given.get("force_path_style"),
    }
    if endpoint:
        _check_endpoint(endpoint, allow_http)
        store["aws_endpoint_url_s3"] = endpoint
    if given.get("requester_pays"):
        store["request_payer"] = True
    checksum = str(given.get("checksum_algorithm")).lower()
    if checksum in CHECKSUMS:  # others that a container may name are of no use to readers
        store["checksum_algorithm"] = checksum
    headers = TIGRIS_HEADERS if kind == "tigris" else ()
    timeout = given.get("network_stream_timeout_seconds")
    return StoreOptions(
        store=_pairs(store),
        client=_client({"allow_http": allow_http}, timeout),
        headers=headers,
        anonymous=bool(given.get("anonymous")),
    )


def _gcs(_address: Address, _kind: str, given: Mapping[str, Any]) -> StoreOptions:
    store, client = _divide(given, "google_")
    if base_url := store.get("base_url") or _env("GOOGLE_BASE_URL"):
        store["base_url"] = base_url
        if not is_plain_http(str(base_url)):
            client["allow_http"] = False
    payer = store.pop("user_project", None)
    return StoreOptions(
        store=_pairs(store),
        client=_client(client),
        headers=((_PAYER, str(payer)),) if payer else (),
    )


def _azure(address: Address, _kind: str, given: Mapping[str, Any]) -> StoreOptions:
    store, client = _divide(given, "azure_", "storage_")
    account = address.account or store.pop("account", None) or store.pop("account_name", None)
    account = account or _env("AZURE_STORAGE_ACCOUNT_NAME") or _env("AZURE_STORAGE_ACCOUNT")
    emulated = _is_true(store.get("use_emulator", _env("AZURE_STORAGE_USE_EMULATOR")))
    if account is None and not emulated:
        raise InvalidInputError(
            "the storage account is not known",
            do="Pass account=..., or set AZURE_STORAGE_ACCOUNT_NAME.",
            url=address.root.url,
        )
    allow_http = _allow_http(client, "AZURE_ALLOW_HTTP")
    endpoint = store.get("endpoint") or azure_endpoint_of_environment()
    if endpoint:
        _check_endpoint(endpoint, allow_http)
    if emulated:
        store["use_emulator"] = "true"
    else:  # explicit, so that no library decides
        is_fabric = _is_true(store.get("use_fabric_endpoint", _env("AZURE_USE_FABRIC_ENDPOINT")))
        domain = "fabric.microsoft.com" if is_fabric else "core.windows.net"
        store["endpoint"] = endpoint or f"https://{account}.blob.{domain}"
    allow_http = allow_http and (emulated or is_plain_http(endpoint))
    if account is not None:
        store["account_name"] = account
    return StoreOptions(store=_pairs(store), client=_client(client | {"allow_http": allow_http}))


def azure_endpoint_of_environment() -> str | None:
    """Return the server of Azure that the environment names, if it names one."""
    return _env("AZURE_STORAGE_ENDPOINT") or _env("AZURE_ENDPOINT")


def _http(address: Address, _kind: str, given: Mapping[str, Any]) -> StoreOptions:
    headers = given.get("headers") or {}
    store, client = _divide({k: v for k, v in given.items() if k != "headers"})
    _refuse_unknown(store, frozenset())
    pairs = tuple(sorted((str(name).lower(), Secret(str(v))) for name, v in headers.items()))
    # a URL with http:// is permission
    client = {"allow_http": address.scheme == "http"} | client
    return StoreOptions(client=_client(client), headers=pairs)


_BUILDERS: dict[str, Callable[[Address, str, Mapping[str, Any]], StoreOptions]] = {
    "s3": _s3,
    "gcs": _gcs,
    "azure": _azure,
    "http": _http,
}


def _divide(given: Mapping[str, Any], *starts: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options of the store and of its client, both without their family's name."""
    store: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for name, value in given.items():
        short = name.lower()
        for start in starts:
            short = short.removeprefix(start)
        (client if short in _CLIENT else store)[short] = value
    return store, client


def _client(given: Mapping[str, Any], seconds: Any = None) -> Pairs:
    seconds = _TIMEOUT if seconds is None else int(seconds)
    options: dict[str, Any] = {"connect_timeout": "10s", "timeout": _WHOLE}
    if seconds:
        options["read_timeout"] = f"{seconds}s"
    options |= {name: _parse(value) for name, value in given.items()}
    return _pairs(options)


def _allow_http(given: Mapping[str, Any], variable: str) -> bool:
    value = given.get("allow_http")
    return bool(_parse(value)) if value else _is_true(_env(variable))


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "1")


def _parse(value: Any) -> Any:
    """Return what a string stands for, since options are persisted as strings."""
    return {"true": True, "false": False}.get(str(value).lower(), value)


def is_plain_http(endpoint: str | None) -> bool:
    """Say whether requests are not encrypted; where they are, no redirect may undo that."""
    return endpoint is not None and endpoint.lower().startswith("http:")


def _check_endpoint(endpoint: str, allow_http: bool) -> None:
    parts = urlsplit(endpoint)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
    if "@" in parts.netloc:
        raise InvalidInputError(
            "an endpoint URL must not contain a user name or password",
            do="Pass credentials.",
            endpoint=shown,
        )
    if parts.scheme == "http" and not allow_http:
        raise InvalidInputError(
            "the endpoint is not encrypted",
            do="If you mean it, pass allow_http=True or set AWS_ALLOW_HTTP=true"
            " (AZURE_ALLOW_HTTP=true).",
            endpoint=shown,
        )


def _refuse_unknown(given: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(set(given) - known):
        raise InvalidInputError(
            "unknown options of a store",
            do=f"Known are: {', '.join(sorted(known or _CLIENT))}.",
            unknown=unknown,
        )


def _env(name: str) -> str | None:
    found = os.environ.get(name)
    if found is None and name == "AWS_ENDPOINT":
        found = os.environ.get("AWS_ENDPOINT_URL")
    return found or None


def _pairs(options: Mapping[str, Any]) -> Pairs:
    return tuple(
        (name, Secret(str(value)) if is_secret(name) else value)
        for name, value in sorted(options.items())
    )
