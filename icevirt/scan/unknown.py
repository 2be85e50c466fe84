"""Describe a file that no scanner reads, and what to do about it."""

from __future__ import annotations

from icevirt.errors import ScanError

# first bytes, what they are, what to do
_KINDS = (
    (b"\x89HDF", "an HDF5 file cut off in its signature", "again"),
    (b"\x0e\x03\x13\x01", "HDF4", ""),
    (b"GRIB", "GRIB", ""),
    (b"SIMPLE  =", "FITS", ""),
    (b"II*\0", "TIFF", ""),
    (b"MM\0*", "TIFF", ""),
    (b"PK\x03\x04", "a ZIP archive", "unpack"),
    (b"\x1f\x8b", "gzip-compressed", "unpack"),
    (b"BZh", "bzip2-compressed", "unpack"),
    (b"\xfd7zXZ", "xz-compressed", "unpack"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack"),
    (b"%PDF", "a PDF document", ""),
)
_SHOWN = 16  # bytes
_REMEDIES = {
    "": "Leave it out.",
    "again": "Fetch it again, or leave it out.",
    "unpack": "Unpack it first, or leave it out.",
}


def refusal(head: bytes, url: str) -> ScanError:
    """Make the error for a file that begins with ``head``."""
    if not head:
        return ScanError("the file is empty", do=_REMEDIES["again"], file=url)
    for magic, kind, remedy in _KINDS:
        if head.startswith(magic):
            what = f"{kind} is not supported yet" if remedy != "again" else f"this is {kind}"
            return ScanError(what, do=_REMEDIES[remedy], file=url)
    if b"://" in head[:_SHOWN] and _guess(head) == "text":  # a password may follow
        return ScanError(
            "no scanner reads this file; it looks like a list of URLs",
            do="Put an @ before the name of a list, like @list.txt.",
            file=url,
        )
    return ScanError(
        f"no scanner reads this file; it looks like {_guess(head)}",
        do=_REMEDIES["again"],
        file=url,
        first_bytes=head[:_SHOWN],
    )


def _guess(head: bytes) -> str:
    start = head.lstrip()[:64].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, such as the error page of a server"
    if start.startswith((b"<?xml", b"<error")):
        return "XML, such as the error message of an object store"
    if start.startswith((b"{", b"[")):
        return "JSON"
    if not head.strip(b"\0"):
        return "a file of zeros, such as an unfinished download"
    if _is_text(head):
        return "text"
    return "binary data of an unknown kind"


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # a character cut off at the end is fine
            return False
        text = head[: error.start].decode()
    return all(character.isprintable() or character in "\r\n\t\f" for character in text)
