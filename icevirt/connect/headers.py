"""Restrict the headers that a container may add to its reader's requests to a short list.

Requests carry the reader's credentials. A header chosen by another person could change what an
authenticated request does, whom it is for, or where one request ends and the next begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from icevirt.errors import InvalidInputError

ALLOWED = frozenset(
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
"""Names of the headers that a container may have."""

_VALUE = re.compile(r"[\x20-\x7e]{1,1024}")


def container_headers(value: object) -> dict[str, str]:
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
        if name not in ALLOWED or name in found:
            raise InvalidInputError(
                "a header is given twice or is not allowed; allowed are "
                f"{', '.join(sorted(ALLOWED))}"
            )
        if not isinstance(text, str) or not _VALUE.fullmatch(text):
            raise InvalidInputError("the value of a header is not printable ASCII")
        found[name] = text
    return found
