"""Parse remote locations of virtual chunks strictly: each names exactly one object.

The author of a repository writes its locations. A location that icevirt and a server or library
could read in two ways is refused: dots, backslashes, encoded slashes, user names, queries.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from icevirt.errors import InvalidInputError

_HTTP = ("http", "https")
_RENAME = "Rename the object: readers disagree about which object such a URL names."
_DO = "Refer to the object by its plain percent-encoded URL."
_DO_APART = (
    "Name it without user, password and query: references are stored and published. Pass what opens"
    ' it apart: access={"https://host/": icevirt.http_credentials(...)} to a build (--access on the'
    " command line), authorize_virtual_chunk_access to a reader. For a presigned URL or SAS token,"
    " name the object as s3://, gs:// or az:// and pass the credentials of its bucket."
)


def object_key(url: str, *, has_bucket: bool) -> str:
    """Return the percent-decoded key of an object: below its bucket, or with all that follows //.

    Args:
        url: The location, with the name of a container resolved.
        has_bucket: Whether a host or bucket comes first that is not part of the key.

    Raises:
        InvalidInputError: It is not the plain URL of one object.
    """
    scheme, _, rest = url.partition("://")
    if any(ord(character) < 0x20 or character in "\\\x7f" for character in url):
        raise _refused("it has a backslash or control character", url)
    if "?" in url or "#" in url:
        raise _refused("it has a query or fragment", url, _DO_APART)
    try:
        authority = urlsplit(url).netloc
        decoded = unquote(rest.partition("/")[2] if has_bucket else rest, errors="strict")
    except ValueError as error:
        raise _refused("it is malformed", url) from error
    named = "@" in authority and not scheme.startswith("abfs")  # there it parts container, account
    if has_bucket and named:
        raise _refused("it has a user name", url, _DO_APART)
    if has_bucket and (not authority or "%" in authority):
        raise _refused("it has no host or bucket, or an encoded one", url)
    if scheme in _HTTP and "%2f" in rest.lower():
        raise _refused("it has an encoded slash", url)
    if not has_bucket and "::" in decoded:
        raise _refused("it is a chain of URLs", url)
    _check_segments(decoded, url)
    return decoded


def _check_segments(decoded: str, url: str) -> None:
    if any(segment in ("", ".", "..") for segment in decoded.split("/")):
        raise _refused("a part of its path is empty, '.' or '..'", url, _RENAME)
    if any(ord(character) < 0x20 or character in "\\\x7f" for character in decoded):
        raise _refused("it has an encoded backslash or control character", url, _RENAME)


def _refused(why: str, url: str, do: str = _DO) -> InvalidInputError:
    return InvalidInputError(
        f"the location of a virtual chunk is not a plain object URL: {why}",
        do=do,
        location=url,
    )
