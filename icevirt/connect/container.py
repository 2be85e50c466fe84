"""Read the options of a virtual chunk container: a closed set of names, a rule for each value.

The author of a repository chooses these options, and requests carry the credentials of its reader.
So options are read here, once, before any other code uses them: each spelling that an Icechunk
client accepts becomes one canonical name or is refused. Unknown names are refused too, because a
library below could know them. Opening and saving a repository does not come here: the document of
its configuration stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from icevirt.connect.options import TIGRIS
from icevirt.connect.urls import HOST_AND_PORT, Address, endpoint
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer

type _Rule = Callable[[Any], Any]

_REGION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", re.ASCII)
_DURATION = re.compile(r"(?:[0-9]{1,9} ?[a-z]{1,7} ?){1,4}", re.ASCII)
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_PRINTED = re.compile(r"[\x20-\x7e]{1,256}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
# Amazon's own regional endpoints: the same buckets under another name
_AMAZON = re.compile(
    r"https://s3(-fips)?([.-](dualstack\.)?[a-z]{2}(-[a-z]+)+-\d)?\.amazonaws\.com(\.cn)?"
)
_GOOGLE = "https://storage.googleapis.com"
# Requests carry the reader's credentials. A header chosen by another person could change what an
# authenticated request does, who gets it, or where one request ends and the next begins.
_ALLOWED_HEADERS = frozenset(
    {
        "accept",
        "accept-language",
        "cache-control",
        "from",
        "pragma",
        "referer",
        "user-agent",
        "x-api-key",  # of the repository; one that the reader passes replaces it
    }
)
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,1024}")


def _text(pattern: re.Pattern[str]) -> _Rule:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError
        return value

    return read


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return _FLAGS[value.lower()]


def _number(value: Any) -> int:
    found = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 31:
        raise ValueError
    return found


def _hosts(value: Any) -> str:
    hosts = [host.strip(" ") for host in value.split(",")]
    if not all(re.fullmatch(HOST_AND_PORT, host) for host in hosts if host):
        raise ValueError
    return ",".join(host for host in hosts if host)


def _headers(value: object) -> dict[str, str]:
    """Return the headers of a container, their names in lower case.

    Raises:
        InvalidInputError: They are no mapping, one is not in the list or is given twice, or a value
            has a line end or a character beyond ASCII.
    """
    if not isinstance(value, Mapping):
        raise InvalidInputError("not a mapping of headers")
    found: dict[str, str] = {}
    for given, text in value.items():
        name = given.lower() if isinstance(given, str) and given.isascii() else ""
        if name not in _ALLOWED_HEADERS or name in found:
            raise InvalidInputError(
                "a header is given twice or is not allowed; allowed are "
                f"{', '.join(sorted(_ALLOWED_HEADERS))}"
            )
        if not isinstance(text, str) or not _HEADER_VALUE.fullmatch(text):
            raise InvalidInputError("the value of a header is not printable ASCII")
        found[name] = text
    return found


_CLIENT: dict[str, _Rule] = {  # nothing of proxies and certificates
    "allow_http": _flag,
    "connect_timeout": _text(_DURATION),
    "default_content_type": _text(_PRINTED),
    "http1_only": _flag,
    "http2_keep_alive_interval": _text(_DURATION),
    "http2_keep_alive_timeout": _text(_DURATION),
    "http2_keep_alive_while_idle": _flag,
    "http2_max_frame_size": _number,
    "http2_only": _flag,
    "pool_idle_timeout": _text(_DURATION),
    "pool_max_idle_per_host": _number,
    "randomize_addresses": _flag,
    "read_timeout": _text(_DURATION),
    "timeout": _text(_DURATION),
    "user_agent": _text(_PRINTED),
}
_S3: dict[str, _Rule] = {
    "region": _text(_REGION),
    "endpoint_url": endpoint,
    "anonymous": _flag,
    "allow_http": _flag,
    "force_path_style": _flag,
    "network_stream_timeout_seconds": _number,
    "requester_pays": _flag,
    "checksum_algorithm": _text(_WORD),
}
_GCS: dict[str, _Rule] = {"base_url": endpoint, "skip_signature": _flag, "bucket": _text(_PRINTED)}
_AZURE: dict[str, _Rule] = {
    "account_name": _text(_ACCOUNT),
    "endpoint": endpoint,
    "skip_signature": _flag,
    "container_name": _text(_PRINTED),
}
_HTTP: dict[str, _Rule] = {"redirect_hosts": _hosts, "headers": _headers}
_RULES: dict[str, dict[str, _Rule]] = {
    # a struct with fixed names in the official client: there are no other spellings
    "s3": _S3,
    "s3_compatible": _S3,
    "tigris": _S3,
    "gcs": _GCS | _CLIENT,
    "azure": _AZURE | _CLIENT,
    "http": _HTTP | _CLIENT,
}
_FAMILY = {"gcs": "google_", "azure": "azure_"}
_ALIASES: dict[str, dict[str, str]] = {
    "gcs": {
        "gcs_base_url": "base_url",
        "endpoint": "base_url",
        "bucket_name": "bucket",
    },
    "azure": {
        "account": "account_name",
        "storage_account": "account_name",
        "storage_account_name": "account_name",
        "storage_endpoint": "endpoint",
    },
}
_BUCKET = ("bucket", "container_name")


def canonical(container: VirtualChunkContainer) -> ObjectStoreConfig:
    """Return how a container's objects are reached, in canonical names and with valid values.

    Raises:
        InvalidInputError: An option is not known, is given twice, or has a value that is not valid.
    """
    return canonical_store(container.store, container.url_prefix, is_foreign=container.is_foreign)


def canonical_store(
    store: ObjectStoreConfig, prefix: str, *, is_foreign: bool = False
) -> ObjectStoreConfig:
    """Do what `canonical` does with the store of a container of some prefix."""
    options = store.options
    if store.kind == "local_file_system":
        if options and not isinstance(options, str):
            raise _refusal(prefix, "local_file_system", "not the path of a directory")
        return ObjectStoreConfig(store.kind, options or "")
    if options is not None and options != "" and not isinstance(options, Mapping):
        raise _refusal(prefix, store.kind, "not a mapping of options")
    rules = {"fsspec": _text(_WORD)} if is_foreign else _RULES.get(store.kind, {})
    found: dict[str, Any] = {}
    for given, value in (options or {}).items():
        if value is None:
            continue
        name = given if is_foreign else _name_of(store.kind, given)
        if name not in rules:
            raise InvalidInputError(
                "a virtual chunk container has an option that is unknown, or that only the reader"
                " may set",
                do="Remove it from the container with repo.config.set_virtual_chunk_container(...)"
                " and repo.save_config(). If you need the option, set it in your environment.",
                container=prefix,
                option=str(given)[:100],
                known=sorted(rules),
            )
        read = _read(rules[name], value, prefix, name)
        if name in found and found[name] != read:
            raise _refusal(prefix, name, "given twice, with different values")
        found[name] = read
    for name in _BUCKET:  # which the prefix names, and which has to be the same
        if name in found and found.pop(name) != Address.parse(prefix).bucket:
            raise _refusal(prefix, name, "not the bucket of the url_prefix")
    return ObjectStoreConfig(store.kind, found)


def persistable(config: ObjectStoreConfig | None, prefix: str) -> ObjectStoreConfig | None:
    """Return what a container may say of a store: nothing secret, nothing that readers refuse.

    None stands for nothing.

    Raises:
        InvalidInputError: What is left has a value that is not valid.
    """
    if config is None or not isinstance(config.options, Mapping):
        return None
    kept = {
        name: value
        for name, value in config.options.items()
        if _name_of(config.kind, name) in _RULES.get(config.kind, {})
    }
    if not any(kept.values()):
        return None
    found = ObjectStoreConfig(config.kind, kept)
    canonical_store(found, prefix)
    return found


def endpoint_of(container: VirtualChunkContainer) -> str | None:
    """Return the server that has to be authorized beside the prefix; None if there is none.

    An Azure account counts as one: it is an option, and everyone can have one.

    Raises:
        InvalidInputError: The options are not valid.
    """
    store = canonical(container)
    options: Mapping[str, Any] = store.options
    match store.kind:
        case "s3" | "s3_compatible":
            named = options.get("endpoint_url")
            return None if named is None or _AMAZON.fullmatch(named) else named
        case "tigris":
            named = options.get("endpoint_url", TIGRIS)
            is_own = container.url_prefix.startswith("tigris://") and named == TIGRIS
            return None if is_own else named
        case "gcs":
            named = options.get("base_url")
            return None if named == _GOOGLE else named
        case "azure":
            own = Address.parse(container.url_prefix).account
            account = own or options.get("account_name")
            default = None if account is None else f"https://{account}.blob.core.windows.net"
            named = options.get("endpoint", default)
            return None if own is not None and named == default else named
        case _:
            return None


def without_server(container: VirtualChunkContainer) -> ObjectStoreConfig:
    """Return how the objects would be reached if the container named no server and no account.

    Raises:
        InvalidInputError: The options are not valid.
    """
    store = canonical(container)
    left = {name: value for name, value in store.options.items() if name not in _SERVERS}
    is_tigris = container.url_prefix.startswith("tigris://")
    kind = "s3" if store.kind == "tigris" and not is_tigris else store.kind
    named = store.options.get("endpoint_url")
    if named is not None and _AMAZON.fullmatch(named):
        left["endpoint_url"] = named
    return ObjectStoreConfig(kind, left)


_SERVERS = ("endpoint_url", "base_url", "endpoint", "account_name")


def _name_of(kind: str, given: object) -> str:
    """Return the canonical name of an option in any spelling."""
    if not isinstance(given, str) or not given.isascii():  # lower() makes "k" of a Kelvin sign
        return ""
    if kind not in ("gcs", "azure", "http"):
        return given
    name = given.lower().removeprefix(_FAMILY.get(kind, "\0"))
    return _ALIASES.get(kind, {}).get(name, name)


def _read(rule: _Rule, value: Any, prefix: str, name: str) -> Any:
    try:
        return rule(value)
    except InvalidInputError as error:
        raise _refusal(prefix, name, error.what) from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _refusal(prefix, name, "not valid for this option") from error


def _refusal(prefix: str, option: str, problem: str) -> InvalidInputError:
    do = (
        "Correct the container, with repo.config.set_virtual_chunk_container(...) and"
        " repo.save_config()."
    )
    if option == "headers":
        do += " Headers of your own are credentials: pass icevirt.http_credentials(headers={...})."
    return InvalidInputError(
        "a virtual chunk container has an option whose value is not valid",
        do=do,
        container=prefix,
        option=option,
        problem=problem,
    )
