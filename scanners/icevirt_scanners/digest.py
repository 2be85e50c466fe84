"""Digest values that must be equal in all files: their type, shape and decoded values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from icevirt.model.json import JSON

PIECE = 32 * 1024 * 1024  # bytes of values read at a time where they are only looked at


def hashed(data_type: JSON, shape: tuple[int, ...], pieces: Iterable[Any]) -> str:
    """Hash the values, given in pieces as little-endian buffers, under their type and shape."""
    total = hashlib.blake2b(digest_size=16)
    total.update(repr((data_type, shape)).encode())
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()
