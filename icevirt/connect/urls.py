"""Convert paths and URLs that users type to canonical absolute URLs, and back.

``file://`` URLs are percent-encoded the way the WHATWG rules and the official client write them.
"""

from __future__ import annotations

import os
from urllib.parse import quote, unquote, urlsplit

from icevirt.errors import InvalidInputError

# what WHATWG's path percent-encode set leaves alone, beyond letters, digits and "-._~"; without the
# backslash, which it takes for a slash
_SAFE = "/!$&'()*+,;=:@[]|"


def is_url(text: str) -> bool:
    """Say whether ``text`` has a scheme; ``C:/x`` and plain paths have none."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and len(scheme) > 1 and scheme.replace("+", "").isalnum()


def file_url(path: str | os.PathLike[str]) -> str:
    """Return the ``file://`` URL of a local path; symbolic links are followed.

    Raises:
        InvalidInputError: The name is not valid UTF-8, so no URL can say it.
    """
    real = os.path.realpath(os.fspath(path))
    try:
        return "file://" + quote(real, safe=_SAFE, errors="strict")
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "a file name that is not UTF-8 cannot be part of a URL", do="Rename it.", path=real
        ) from error


def local_path(url: str) -> str:
    """Return the local path of a ``file://`` URL.

    Raises:
        InvalidInputError: It is no file URL, names another host, has a query or fragment, or a
            ``.`` or ``..`` segment, or is not well-formed.
    """
    try:
        parts = urlsplit(url)
        path = unquote(parts.path, errors="strict")
    except ValueError as error:
        raise InvalidInputError("not a well-formed URL", url=url) from error
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise InvalidInputError("not the URL of a local file", url=url)
    if parts.query or parts.fragment or "\0" in path:
        raise InvalidInputError("a file URL has no query or fragment", url=url)
    if any(segment in (".", "..") for segment in path.split("/")):
        raise InvalidInputError("a file URL has no '.' or '..' segments", url=url)
    return path


def as_local_path(text: str | os.PathLike[str]) -> str:
    """Return the absolute local path of a path or ``file://`` URL that a person typed.

    Raises:
        InvalidInputError: The URL has another scheme.
    """
    text = os.fspath(text)
    if not is_url(text):
        return os.path.abspath(os.path.expanduser(text))
    if not text.startswith("file://"):
        raise InvalidInputError(
            "only local paths and file:// URLs are supported here",
            do="Copy or mount it locally.",
            url=text,
        )
    return local_path(text)
