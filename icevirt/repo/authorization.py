"""What a caller passes as ``authorize_virtual_chunk_access``, in one form.

Only the form is made here; `icevirt.objects` decides about every location that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from icevirt.connect import urls
from icevirt.errors import InvalidInputError

type Authorization = Mapping[str, Any] | Iterable[str] | None
"""Prefixes, or prefixes with the credentials to use below each (None: none are needed)."""


def authorized(given: Authorization) -> Mapping[str, Any]:
    """Return credentials by prefix, each ending in ``/``; local paths become ``file://`` URLs.

    Raises:
        InvalidInputError: It is a single string, or a prefix is empty.
    """
    if isinstance(given, str):
        raise InvalidInputError(
            "authorize_virtual_chunk_access takes several prefixes",
            do=f"Pass a list: authorize_virtual_chunk_access=[{given!r}].",
        )
    pairs = given.items() if isinstance(given, Mapping) else ((p, None) for p in given or ())
    return {_normalised(prefix): credentials for prefix, credentials in pairs}


def _normalised(prefix: str) -> str:
    if not prefix:
        raise InvalidInputError(
            "an empty prefix would authorise everything",
            do="Pass the url_prefix of a virtual chunk container.",
        )
    url = prefix if urls.is_url(prefix) else urls.file_url(prefix)
    return url if url.endswith("/") else url + "/"
