"""Remove secrets from text that people may see: user names, passwords and queries of URLs.

Errors call this when they are made and log records when they are written, so no other code has to
remember it. Tokens inside paths stay: nothing marks them as secrets. A key such as ``s3://b/x?.nc``
stays too, because a question mark without ``name=`` is a glob in the URLs of buckets.
"""

from __future__ import annotations

import os
import re
from typing import Any

# patterns are compiled when a text is the first one to need them
# a path that was made of a URL has lost a slash; no scheme is longer, and others may write the text
_START = r"(?:[a-z][a-z0-9+.-]{0,30}://|(?<![a-z0-9])(?:https?|s3a?|gc?s|az(?:ure)?|abfss?|wasbs?|tigris):/)"
_URL = rf"(?i){_START}[^\s'\"<>]*"
_WHOLE = rf"(?is)\s*{_START}.*"
_CHAINED = rf"(?i)::(?={_START})"  # as fsspec has it
_SCHEME = r"(?s)(\s*[^:]*)(:/{1,2})(.*)"
_NO_SCHEME = r"((?<![\w:/])//)[^\s/@:'\"<>]*:[^\s/@'\"<>]*@"
_QUERY_OF_PATH = r"(?<=[^\s?])([?#])[\w.%~-]+=[^\s'\"<>]*"
CAUSE: Any = BaseException.__cause__  # the slots themselves, which a class may hide
CONTEXT: Any = BaseException.__context__
_NESTED = 8  # URLs within each other; what is deeper is cut off
_ACCOUNTS = ("abfs", "abfss", "wasb", "wasbs")  # URLs with the container before the @
_AZURE = ("az", "azure")  # the same, if the host is an account


def without_secrets(text: str) -> str:
    """Return a text whose URLs have no user names, passwords and queries."""
    return _without_secrets(text, _NESTED)


def _without_secrets(text: str, depth: int) -> str:
    if not any(sign in text for sign in "@?#"):
        return text
    if re.fullmatch(_WHOLE, text):  # quotes and blanks are part of it
        return _of_chain(text, depth)
    text = re.sub(_URL, lambda found: _of_chain(found[0], depth), text)
    return re.sub(_QUERY_OF_PATH, r"\1...", re.sub(_NO_SCHEME, r"\1", text))


def _of_chain(urls: str, depth: int) -> str:
    return "::".join(_of_url(url, depth) for url in re.split(_CHAINED, urls))


def _of_url(url: str, depth: int) -> str:
    """Return one URL without its secrets; a URL inside its path loses its own."""
    found = re.fullmatch(_SCHEME, url)
    assert found is not None, "it was found as a URL"
    scheme, slashes, rest = found.groups()
    kind = scheme.strip().lower()
    if kind in ("http", "https"):  # clients skip slashes that are too many
        host_at = len(rest) - len(rest.lstrip("/"))
        slashes, rest = slashes + rest[:host_at], rest[host_at:]
    at = rest.find("?")
    if at >= 0 and kind in ("http", "https") and rest[at:] != "?...":
        rest = f"{rest[:at]}?..."
    authority, slash, path = rest.partition("/")
    user, named, host = authority.rpartition("@")
    is_account = kind in _AZURE and host.lower().endswith(".core.windows.net")
    if named and (kind in _ACCOUNTS or is_account):
        authority = f"{user.partition(':')[0]}@{host}"
    elif named:
        authority = host
    elif "@" in path and not authority.startswith("[") and not _has_port(authority):
        authority, slash, path = path.rpartition("@")[2].partition("/")  # a slash in a password
    if not re.search(_URL, path):
        path = re.sub(_QUERY_OF_PATH, r"\1...", f"/{path}")[1:]
    else:
        path = _without_secrets(path, depth - 1) if depth else "..."
    return f"{scheme}{slashes}{authority}{slash}{path}"


def _has_port(authority: str) -> bool:
    return re.fullmatch(r"\d*", authority.partition(":")[2]) is not None


def redact(value: Any) -> Any:
    """Return a value without the secrets of the texts in it; other values stay as they are."""
    if isinstance(value, str):
        return without_secrets(value) if type(value) is str else _if_other(value, str(value))
    if isinstance(value, bytes):
        return _if_other(value, value.decode(errors="backslashreplace"))
    if isinstance(value, os.PathLike | BaseException):
        return _if_other(value, str(value))
    if isinstance(value, dict):
        return {redact(name): redact(each) for name, each in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(redact(each) for each in value)
    return value


def _if_other(value: Any, text: str) -> Any:
    """Return the text in the place of a value that holds a secret."""
    safe = without_secrets(text)
    return value if safe == text else safe


def replace_secrets(error: BaseException, slot: Any) -> BaseException | None:
    """Return what is in a slot of an error; what quotes a secret is replaced there for good.

    What stands in for an error of a library has its name, its traceback and its words, less the
    secret.

    Args:
        error: The error.
        slot: `CAUSE` or `CONTEXT`.
    """
    held: BaseException | None = slot.__get__(error)
    safe = _presentable(held, {})
    if safe is not held:
        slot.__set__(error, safe)
    return safe


def _presentable(
    error: BaseException | None, known: dict[int, BaseException | None]
) -> BaseException | None:
    kind: Any = type(error)
    if error is None or kind.__cause__ is not CAUSE:  # ours look after theirs
        return error
    if id(error) in known:
        return known[id(error)]
    known[id(error)] = None  # a chain that comes back to it ends there
    chain = CAUSE.__get__(error), CONTEXT.__get__(error)
    cause, context = (_presentable(each, known) for each in chain)
    if _tells(error) or (cause, context) != chain:
        known[id(error)] = _stand_in(error, cause, context)
    else:
        known[id(error)] = error
    return known[id(error)]


def _stand_in(
    error: BaseException, cause: BaseException | None, context: BaseException | None
) -> BaseException:
    name, home = type(error).__name__, type(error).__module__
    kind = type(name, (Exception,), {"__module__": home})
    other: BaseException = kind(without_secrets(str(error)))
    other.__cause__, other.__context__ = cause, context
    other.__suppress_context__ = error.__suppress_context__
    return other.with_traceback(error.__traceback__)


def _tells(error: BaseException) -> bool:
    try:
        words = str(error), repr(error)
    except Exception:  # noqa: BLE001  # those of Java ask a JVM, which may be gone
        return False
    return any(without_secrets(text) != text for text in words)
