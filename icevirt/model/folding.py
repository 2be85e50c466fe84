"""Compress columns of strings while they are not in use."""

from __future__ import annotations

from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.model.strings import Strings


class FoldingStrings(Strings):
    """Strings that can be folded: compressed where they are, until somebody reads them again.

    Everybody who shares the column shares what folding it saves; names of files of an archive
    take a tenth or less.
    """

    _rows: int
    _open: Strings | None
    _folded: tuple[bytes, bytes] | None  # lengths as int32, and the bytes of all strings

    def __init__(self, strings: Strings) -> None:
        # past those who keep the class frozen
        vars(self).update(_rows=len(strings), _open=strings, _folded=None)

    def fold(self) -> None:
        """Let go of the strings, but for what they can be made of again."""
        if self._open is None:
            return
        if self._folded is None:
            lengths = self._open.lengths.astype(np.int32)
            vars(self)["_folded"] = _compressed(lengths), _compressed(self._open.data)
        vars(self)["_open"] = None

    @property
    def data(self) -> NDArray[np.uint8]:
        """All strings end to end."""
        return self._strings.data

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each string begins in `data`."""
        return self._strings.starts

    @property
    def nbytes(self) -> int:
        """Memory held."""
        folded = 0 if self._folded is None else sum(map(len, self._folded))
        return folded + (0 if self._open is None else self._open.nbytes)

    def __len__(self) -> int:
        return self._rows

    def __reduce__(self) -> tuple[Any, ...]:
        return FoldingStrings, (self._strings,)

    @property
    def _strings(self) -> Strings:
        found = self._open
        if found is None:
            assert self._folded is not None
            lengths, data = map(zstandard.ZstdDecompressor().decompress, self._folded)
            starts = np.zeros(self._rows + 1, np.int64)
            np.cumsum(np.frombuffer(lengths, np.int32), out=starts[1:])
            found = Strings(np.frombuffer(data, np.uint8), starts)
            vars(self)["_open"] = found
        return found


def _compressed(column: NDArray[Any]) -> bytes:
    packed = zstandard.ZstdCompressor(level=1).compress(np.ascontiguousarray(column).data)
    # a copy: what the compressor returns keeps the room that it might have needed
    return bytes(memoryview(packed))
