"""Describe how a file differs from its state when it was listed."""

from __future__ import annotations

from icevirt.archive.scanned import SourceFile
from icevirt.objects.answers import opaque

GONE = "it is gone"


def change(now: SourceFile | None, then: SourceFile) -> str | None:
    """Say how a file changed; None if it did not. Etags, where both have one, outweigh times.

    Of a file that is known by a reference to it, ``then`` has size -1, and whole seconds.
    """
    if now is None:
        return GONE
    if now.size != then.size >= 0:
        return f"it has {now.size} bytes instead of {then.size}"
    if now.etag and then.etag:  # listings leave out the quotes at Azure
        is_same = opaque(now.etag) == opaque(then.etag)
        return None if is_same else "it was rewritten: its etag changed"
    seconds = now.last_modified_seconds == then.last_modified_seconds
    if now.last_modified == then.last_modified or (then.size < 0 and seconds):
        return None
    return "it was rewritten or touched: its modification time changed"
