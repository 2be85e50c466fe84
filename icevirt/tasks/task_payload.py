"""Pack items for the way to an executor, as small as possible.

Rows of the catalog and positions of files nearly always ascend in equal steps, so their differences
compress a thousand to one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.archive.plan import ManifestTask

_FEW = 64  # numbers that are not worth it


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTasks:
    """Items of the same files, packed."""

    numbers: tuple[int, ...]  # of the items
    payload: bytes

    @classmethod
    def of(cls, items: Sequence[ManifestTask]) -> PackedTasks:
        """Pack items; what they share is packed once, and shared again when it is unpacked."""
        raw = io.BytesIO()
        _Pickler(raw).dump(tuple(items))
        packed = zstandard.ZstdCompressor(level=1).compress(raw.getbuffer())
        # a copy: what the compressor returns keeps the room that it might have needed
        return cls(numbers=tuple(item.number for item in items), payload=bytes(memoryview(packed)))

    def unpack(self) -> tuple[ManifestTask, ...]:
        """Return the items."""
        raw = zstandard.ZstdDecompressor().decompress(self.payload)
        items: tuple[ManifestTask, ...] = pickle.loads(raw)  # noqa: S301  # made by `of`
        return items


class _Pickler(pickle.Pickler):
    """Writes columns of whole numbers as differences, and what is alike everywhere once."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or len(value.shape) == 0 or len(value) < _FEW:
            return NotImplemented
        if value.dtype.kind not in "iub" or not value.dtype.isnative:
            return NotImplemented
        told = value[:1].tobytes(), value.dtype.str, value.shape
        signed = value.view(f"i{value.itemsize}")
        steps = signed[1:] - signed[:-1]
        if not steps.any():
            return _repeated, told
        narrow = _narrowed(steps)
        return _summed, (*told, narrow.tobytes(), narrow.dtype.str)


def _narrowed(steps: NDArray[np.signedinteger]) -> NDArray[np.integer]:
    ends = (np.min_scalar_type(int(end)) for end in (steps.min(), steps.max()))
    kind = np.promote_types(*ends)
    return steps.astype(kind) if kind.kind in "iu" and kind.itemsize < steps.itemsize else steps


def _repeated(first: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a column of equal rows, which takes the memory of one."""
    return np.broadcast_to(np.frombuffer(first, dtype).reshape(1, *shape[1:]), shape)


def _summed(
    first: bytes, dtype: str, shape: tuple[int, ...], steps: bytes, narrow: str
) -> NDArray[Any]:
    """Undo the differences; sums wrap as these did."""
    column = np.empty(shape, f"i{np.dtype(dtype).itemsize}")
    column[0] = np.frombuffer(first, column.dtype).reshape(shape[1:])
    column[1:] = np.frombuffer(steps, narrow).reshape(shape[0] - 1, *shape[1:])
    return np.cumsum(column, axis=0, dtype=column.dtype, out=column).view(dtype)
