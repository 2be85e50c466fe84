"""Say what a file is that no scanner reads, from its first bytes, and what to do about it.

Archives hold what servers sent in the place of a file (login pages, errors of object stores), what
tools left there (pointers of Git LFS), and files that are packed. Only codes and names of kinds are
shown of a text: it may hold a password or a token.
"""

from __future__ import annotations

import re
import zlib
from contextlib import suppress

from icevirt.errors import ScanError

_LEAVE = "Leave it out."
_AGAIN = "Fetch it again, or leave it out."
_UNPACK = "Unpack it first, or leave it out."
_SHOWN = 16  # bytes
_UNPACKED = 1024  # bytes
_MEMORY = 64 * 1024 * 1024  # of a decompressor: files may ask for any

# first bytes, what they are, what to do
_KINDS = (
    (b"\x89HDF", "an HDF5 file cut off in its signature", _AGAIN),
    (b"\x0e\x03\x13\x01", "HDF4", _LEAVE),
    (
        b"MATLAB 5.0 MAT-file",
        "a MATLAB file of a version before 7.3",
        "Write it again in MATLAB with save('FILE.mat', '-v7.3'), which is HDF5, or leave it out.",
    ),
    (b"BUFR", "BUFR", _LEAVE),
    (b"SIMPLE  =", "FITS", _LEAVE),
    (b"\x1f\x8b", "gzip-compressed", _UNPACK),
    (b"BZh", "bzip2-compressed", _UNPACK),
    (b"\xfd7zXZ", "xz-compressed", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", _UNPACK),
    (b"%PDF", "a PDF document", _LEAVE),
    (
        b"netcdf ",
        "CDL, the text of a NetCDF file",
        "Make a file of it with ncgen, or leave it out.",
    ),
)

# what stands in the place of a file: a pattern of its text, what it is, what to do
_POINTERS = (
    (
        rb"version https://git-lfs\.github\.com/spec/",
        "a Git LFS pointer",
        "Fetch the file with `git lfs pull`, or leave it out.",
    ),
    (
        rb"\S*/annex/objects/\S+\s*\Z",
        "a git-annex pointer",
        "Fetch the file with `git annex get`, or leave it out.",
    ),
)
_INSIDE = ((b"\x89HDF", "HDF5 or NetCDF-4"), (b"CDF", "NetCDF-3"))
_ZEROS = "a file of zeros, such as an unfinished download"
_LOGIN = re.compile(rb"(?i)log ?[io]n|sign ?in|password|oauth|single sign")
_CODE = re.compile(rb"<Error>.*?<Code>([A-Za-z]{1,60})</Code>", re.DOTALL)


def refuse_unread(head: bytes, url: str) -> ScanError:
    """Return the error for a file that begins with ``head``, and that no scanner reads."""
    if not head:
        return ScanError("the file is empty", do=_AGAIN, file=url)
    for pattern, kind, remedy in _POINTERS:
        if re.match(pattern, head):
            return ScanError(f"this is {kind} in the place of the file", do=remedy, file=url)
    for magic, kind, remedy in _KINDS:
        if head.startswith(magic):
            inside = f" (it holds {held})" if (held := _held_in(head)) else ""
            what = f"{kind}{inside} is not supported yet"
            return ScanError(f"this is {kind}" if remedy is _AGAIN else what, do=remedy, file=url)
    guess, remedy = guess_kind(head)
    if b"://" in head[:_SHOWN] and guess == "text":  # a password may follow
        guess, remedy = "a list of URLs", "Put an @ before the name of a list, like @list.txt."
        return ScanError(f"no scanner reads this file; it looks like {guess}", do=remedy, file=url)
    return ScanError(
        f"no scanner reads this file; it looks like {guess}",
        do=remedy,
        file=url,
        **({} if guess == _ZEROS else {"first_bytes": head[:_SHOWN]}),
    )


def guess_kind(head: bytes) -> tuple[str, str]:
    """Return what bytes look like, and what to do."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1024].lower()
    if re.match(rb"(?:<!--.*?-->\s*)*<(?:!doctype\s+)?html", start, re.DOTALL):
        if _LOGIN.search(head):
            return (
                "an HTML page that asks for a login",
                "Log in, and fetch it again, or leave it out.",
            )
        return "an HTML page, such as the error page of a server", _AGAIN
    if start.startswith((b"<?xml", b"<error")):
        if code := _CODE.search(head):
            return f"an error message of an object store: {code[1].decode()}", _AGAIN
        return "XML, such as the error message of an object store", _AGAIN
    if start.startswith((b"{", b"[")):
        return "JSON", _AGAIN
    unknown = "text" if _is_text(head) else "binary data of an unknown kind"
    return (unknown if head.strip(b"\0") else _ZEROS), _AGAIN


def _held_in(head: bytes) -> str:
    """Return what is packed in compressed bytes; "" where it cannot be said."""
    start = b""
    with suppress(zlib.error, OSError, EOFError, ValueError):
        start = _unpack(head)
    for magic, kind in _INSIDE:
        if start.startswith(magic):
            return kind
    return guess_kind(start)[0] if start.lstrip()[:1] in (b"<", b"{") else ""


def _unpack(head: bytes) -> bytes:
    """Return the first bytes of what is packed, however little that is."""
    if head.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(wbits=31).decompress(head, _UNPACKED)
    if head.startswith(b"BZh"):
        import bz2

        return bz2.BZ2Decompressor().decompress(head, _UNPACKED)
    if head.startswith(b"\xfd7zXZ"):
        import lzma

        return lzma.LZMADecompressor(memlimit=_MEMORY).decompress(head, _UNPACKED)
    return b""


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # a character cut off at the end is fine
            return False
        text = head[: error.start].decode()
    return all(character.isprintable() or character in "\r\n\t\f" for character in text)
