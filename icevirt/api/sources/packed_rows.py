"""Hold the rows of a list of sources compressed, because a list may have gigabytes."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import batched
from operator import attrgetter

from icevirt.archive.scanned import SourceFile
from icevirt.objects.source_lists.rows import Row

_ROWS = 1 << 12  # that are looked at together


class PackedRows:
    """Rows in compressed pieces of some thousand; each comes with the name of its list."""

    def __init__(self, rows: Iterable[tuple[str, Row | SourceFile]]) -> None:
        self._pieces = [_packed(some) for some in batched(rows, _ROWS)]

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(map(len, self._pieces))

    def pieces(self) -> Iterator[tuple[tuple[str, Row | SourceFile], ...]]:
        """Yield the rows, some thousand at a time."""
        for piece in self._pieces:
            told = pickle.loads(zlib.decompress(piece))  # noqa: S301  # made below
            yield tuple(
                (
                    name,
                    each
                    if isinstance(each, Row)
                    else SourceFile(**dict(zip(_FIELDS, each, strict=True))),
                )
                for name, each in told
            )


_FIELDS = tuple(field.name for field in fields(SourceFile))
_facts = attrgetter(*_FIELDS)


def _packed(rows: Iterable[tuple[str, Row | SourceFile]]) -> bytes:
    told = [(name, _facts(each) if isinstance(each, SourceFile) else each) for name, each in rows]
    return zlib.compress(pickle.dumps(told), 1)  # plain values pickle sooner
