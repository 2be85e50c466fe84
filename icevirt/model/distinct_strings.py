"""Prove that strings of a column all differ, by bytes near their ends, without hashing any.

URLs of an archive differ in numbers before an ending that all have. Equal strings have equal bytes
there, so bytes that all differ are a proof; equal bytes prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from icevirt.model.strings import Strings, bytes_at

_ROWS_AT_ONCE = 1 << 14
_SAMPLE = 64  # strings that show which ending all have
_WORD = 8  # bytes
_WINDOWS = (2 * _WORD, _WORD)  # bytes that are looked at
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)

type _Word = NDArray[np.uint64]


def surely_differ(strings: Strings) -> bool:
    """Say whether bytes near their ends prove that no two strings are equal."""
    count, lengths = len(strings), strings.lengths
    if count < 2:
        return True
    skipped, shortest = _common_ending(strings), int(lengths.min())
    size = next((size for size in _WINDOWS if size + skipped <= shortest), 0)
    if not size:
        return False
    return _all_ascend(strings, skipped, size) or _keys_differ(strings, skipped, size)


def _common_ending(strings: Strings) -> int:
    """Return the size of the ending that some of the strings have in common, in bytes."""
    rows = np.unique(np.linspace(0, len(strings) - 1, _SAMPLE).astype(np.int64))
    some = strings[rows]
    raw, starts = some.data.tobytes(), some.starts.tolist()
    backwards = [raw[low:high][::-1] for low, high in pairwise(starts)]
    first, last = min(backwards), max(backwards)
    differ = (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(differ, min(len(first), len(last)))


def _all_ascend(strings: Strings, skipped: int, size: int) -> bool:
    """Say whether the bytes of each string are larger than those of the one before."""
    last: tuple[_Word, ...] | None = None
    for words in _blocks(strings, skipped, size):
        if not _ascend(words) or (last is not None and not _ascend(_row_pair(last, words))):
            return False
        last = tuple(word[-1:] for word in words)
    return True


def _keys_differ(strings: Strings, skipped: int, size: int) -> bool:
    """Say whether numbers made of the bytes and the length of each string all differ."""
    keys = strings.lengths.view(np.uint64) * _FACTORS[-1]
    low = 0
    for words in _blocks(strings, skipped, size):
        rows = keys[low : low + len(words[0])]
        for word, factor in zip(words, _FACTORS, strict=False):
            rows += word * factor
        low += len(rows)
    keys.sort()
    return not bool((keys[1:] == keys[:-1]).any())


def _blocks(strings: Strings, skipped: int, size: int) -> Iterator[tuple[_Word, ...]]:
    """Yield ``size`` bytes of strings, as words that compare as the bytes do."""
    data, starts, first = strings.data, strings.starts, skipped + size
    for low in range(1, len(strings) + 1, _ROWS_AT_ONCE):
        words = bytes_at(data, starts[low : low + _ROWS_AT_ONCE] - first, size).view(">u8")
        yield tuple(words[:, axis].astype(np.uint64) for axis in range(words.shape[1]))


def _row_pair(last: tuple[_Word, ...], words: tuple[_Word, ...]) -> tuple[_Word, ...]:
    return tuple(np.concatenate([a, b[:1]]) for a, b in zip(last, words, strict=True))


def _ascend(words: tuple[_Word, ...]) -> bool:
    """Say whether each row is larger than the one before."""
    larger = np.zeros(len(words[0]) - 1, np.bool_)
    equal = ~larger
    for word in words:
        larger |= equal & (word[1:] > word[:-1])
        equal &= word[1:] == word[:-1]
    return bool(larger.all())
