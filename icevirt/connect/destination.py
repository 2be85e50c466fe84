"""Compute where a store's requests go, from its final options. Pure.

The rules are those of obstore. `tests/access/test_credentials.py` compares them with the URLs that
obstore signs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from icevirt.connect.address import Address
from icevirt.connect.endpoint import plain

_EMULATOR = "http://127.0.0.1:10000"


def destination(address: Address, options: Mapping[str, Any]) -> str:
    """Return the endpoint of a store.

    Args:
        address: Of the bucket.
        options: Of the store, by names of the library with or without those of their family.

    Returns:
        An endpoint in the spelling of `plain`; "" where only credentials name one, as service
        accounts of Google do.
    """
    said = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    match address.provider:
        case "s3":
            return _s3(said)
        case "gcs":
            return plain(str(said.get("base_url") or ""))
        case "azure":
            return _azure(said)
        case _:
            return plain(f"{address.scheme}://{address.bucket}")


def _s3(said: Mapping[str, Any]) -> str:
    if named := said.get("endpoint_url_s3") or said.get("endpoint"):
        return plain(str(named))
    # with a bucket before it, or not: Amazon's names of one server
    return plain(f"https://s3.{said.get('region')}.amazonaws.com")


def _azure(said: Mapping[str, Any]) -> str:
    if str(said.get("use_emulator")).lower() in ("true", "1"):
        return plain(os.environ.get("AZURITE_BLOB_STORAGE_URL") or _EMULATOR)
    return plain(str(said.get("endpoint")))
