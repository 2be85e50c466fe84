"""Make and format object and node ids: their bytes and Crockford base32 names.

Spec: "Common Types". Random ids come from ``os.urandom``, so forked processes never repeat an id;
ids of content are BLAKE2b digests, so equal content has equal names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import ClassVar, Self

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {letter: value for value, letter in enumerate(ALPHABET)} | {
    letter.lower(): value for value, letter in enumerate(ALPHABET)
}


_PAIRS = [one + other for one in ALPHABET for other in ALPHABET]


@lru_cache(1024)  # walks of the history name each snapshot twice
def base32(raw: bytes) -> str:
    """Encode bytes in uppercase Crockford base32, zero bits on the right, no padding."""
    letters = -(-len(raw) * 8 // 5)
    number = int.from_bytes(raw) << (letters * 5 - len(raw) * 8)
    pairs = [_PAIRS[number >> at & 1023] for at in range((letters - 1) // 2 * 10, -1, -10)]
    return "".join(pairs)[-letters:] if letters else ""


def unbase32(text: str, size: int) -> bytes:
    """Decode ``size`` bytes from Crockford base32, upper or lower case.

    Raises:
        ValueError: The length is wrong, a letter is foreign, or the spare bits are not zero.
    """
    spare = -size * 8 % 5
    if len(text) != (size * 8 + spare) // 5 or any(letter not in _VALUES for letter in text):
        raise ValueError(f"not the base32 of {size} bytes: {text!r}")
    number = 0
    for letter in text:
        number = number << 5 | _VALUES[letter]
    if number & (1 << spare) - 1:
        raise ValueError(f"not the base32 of {size} bytes: {text!r}")
    return (number >> spare).to_bytes(size)


class _Id(bytes):
    """Bytes of one fixed size that print as their base32 name."""

    SIZE: ClassVar[int]

    def __new__(cls, raw: bytes) -> Self:
        if len(raw) != cls.SIZE:
            raise ValueError(f"{cls.__name__} is {cls.SIZE} bytes, not {len(raw)}")
        return super().__new__(cls, raw)

    @classmethod
    def random(cls) -> Self:
        """Make a new id from the operating system's randomness."""
        return cls(os.urandom(cls.SIZE))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id from its base32 name. Raises ``ValueError``."""
        return cls(unbase32(text, cls.SIZE))

    @classmethod
    def of_content(cls, *parts: bytes | Sequence[bytes]) -> Self:
        """Make the id that covers these parts, in order, lengths included; a part may be pieces."""
        digest = hashlib.blake2b(digest_size=cls.SIZE)
        for part in parts:
            pieces = [part] if isinstance(part, bytes) else part
            digest.update(sum(map(len, pieces)).to_bytes(8, "little"))
            for piece in pieces:
                digest.update(piece)
        return cls(digest.digest())

    @classmethod
    def of_pieces(cls, length: int, pieces: Iterable[bytes]) -> Self:
        """Make the id that `of_content` makes of one part, which comes in pieces."""
        digest = hashlib.blake2b(length.to_bytes(8, "little"), digest_size=cls.SIZE)
        for piece in pieces:
            digest.update(piece)
        return cls(digest.digest())

    def __str__(self) -> str:
        return base32(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({base32(self)})"


class ObjectId12(_Id):
    """Id of a snapshot, manifest or chunk; 20 letters in file names."""

    SIZE = 12


class ObjectId8(_Id):
    """Id of a node; it stays with the node for its lifetime."""

    SIZE = 8


INITIAL_SNAPSHOT_ID = ObjectId12(bytes.fromhex("0b1cc8d6787580f0e33a6534"))
