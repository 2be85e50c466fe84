"""Texts as logs may show them: without passwords in URLs and without signed queries."""

from __future__ import annotations

import re

# an account stands before the @ of Azure's addresses, which is no secret
_USER = re.compile(r"\b(?!abfss?:|wasbs?:)([a-z][a-z0-9+.-]*://)[^\s/@'\"]*@", re.IGNORECASE)
_QUERY = re.compile(r"\b(https?://[^\s?'\"<>]*)\?[^\s'\"<>]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return a text whose URLs have no user names, passwords and queries."""
    return _QUERY.sub(r"\1?...", _USER.sub(r"\1", text))
