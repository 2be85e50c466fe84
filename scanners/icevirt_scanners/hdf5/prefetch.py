"""Announce the byte ranges that a scan of a remote file will read, to save round trips."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from icevirt_scanners.hdf5.context import FileContext
from icevirt_scanners.hdf5.hierarchy.walk import FoundDataset
from icevirt_scanners.hdf5.index.layout import layout_of
from icevirt_scanners.hdf5.raw.attributes import heaps_of
from icevirt_scanners.hdf5.raw.dataset import placed
from icevirt_scanners.hdf5.raw.fields import NotUnderstoodError
from icevirt_scanners.hdf5.raw.file import ObjectHeader
from icevirt_scanners.hdf5.raw.header import layout_message
from icevirt_scanners.hdf5.raw.space import Space
from icevirt_scanners.hdf5.types.attributes import UNREAD

_INDEX = 4096  # bytes that hold the root of most chunk indices
_HEAP = 4096  # bytes of most heaps
_SMALL = 64 * 1024  # bytes of values that a scan may want


def announce(datasets: list[FoundDataset], context: FileContext) -> None:
    """Announce chunk indices, heaps of attributes, and values that are few."""
    raw = context.raw
    if raw is None or raw.space.announce is None:
        return
    headers = (context.header(found.address) for found in datasets)
    raw.space.soon(place for header in headers if header for place in _places(header, raw.space))


def _places(header: ObjectHeader, space: Space) -> Iterator[tuple[int, int]]:
    with suppress(NotUnderstoodError):
        yield from ((heap, _HEAP) for heap in set(heaps_of(header.messages, UNREAD)))
    with suppress(NotUnderstoodError):
        message = layout_message(header.messages)
        with suppress(NotUnderstoodError):
            layout = layout_of(message, space)
            if layout.address is not None:
                yield layout.address, _INDEX
            return
        values = placed(message, space)
        if values.address is not None and values.nbytes <= _SMALL:
            yield values.address, values.nbytes
