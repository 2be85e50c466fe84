"""Where the values of one variable in two files differ first, for the error that refuses them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.scanned import SourceFile
from icevirt.errors import IcevirtError
from icevirt.logic.equality import same_values
from icevirt.spark.containment import Apart
from icevirt.spark.source_values import Reading, read_apart

_AT_ONCE = 1 << 22  # values
_SHOWN = 60  # characters of a text
_MOST = 1 << 26  # values that are looked at for the sake of a message


class Differences:
    """Reads values of two files in a child process, as `icevirt.verify` reads them.

    What cannot be read says nothing: the files are refused all the same.
    """

    def __init__(self, facts: CatalogFacts, how: Reading) -> None:
        self._facts, self._how = facts, how
        self._known: dict[tuple[Any, ...], dict[str, Any] | None] = {}

    def __call__(self, one: tuple[str, str], other: tuple[str, str]) -> dict[str, Any] | None:
        """Return index and values of the first difference, given URL and path in each file."""
        if (one, other) not in self._known:
            try:
                with Apart(self._how.limits) as apart:
                    self._known[one, other] = self._looked_up(apart, one, other)
            except IcevirtError:
                self._known[one, other] = None
        return self._known[one, other]

    def _looked_up(
        self, apart: Apart, one: tuple[str, str], other: tuple[str, str]
    ) -> dict[str, Any] | None:
        shapes = [self._shape(*each) for each in (one, other)]
        if None in shapes or shapes[0] != shapes[1]:
            return None
        (shape, _), seen = shapes, 0
        assert shape is not None
        row = math.prod(shape[1:])
        step = max(1, _AT_ONCE // max(1, row))
        for low in range(0, shape[0] if shape else 1, step):
            high = min(low + step, shape[0]) if shape else 0
            region = tuple(slice(0, length) for length in shape)
            if shape:
                region = (slice(low, high), *region[1:])
            left, right = (self._read(apart, *each, region) for each in (one, other))
            if (found := _first(left, right)) is not None:
                index = [found[0] + low, *found[1:]] if shape else []
                return {
                    "index": index,
                    "first_value": _shown(left[found]),
                    "other_value": _shown(right[found]),
                }
            seen += row * (high - low)
            if seen > _MOST:
                break
        return None

    def _read(self, apart: Apart, url: str, path: str, region: tuple[slice, ...]) -> NDArray[Any]:
        files, row = self._facts.files, self._row(url)
        known = SourceFile(
            url=url,
            size=int(files.size[row]),
            etag=files.etag[row],
            last_modified=int(files.last_modified[row]),
        )
        inside = self._how.group.rstrip("/") + path
        found = apart.call(url, read_apart, known, self._how.access, inside, region)
        if isinstance(found, IcevirtError):
            raise found
        return found

    def _row(self, url: str) -> int:
        return next(row for row, each in enumerate(self._facts.files.url) if each == url)

    def _shape(self, url: str, path: str) -> tuple[int, ...] | None:
        arrays = self._facts.arrays
        mine = arrays.file == self._row(url)
        if path not in arrays.path.values:
            return None
        mine &= arrays.path.codes == arrays.path.values.index(path)
        return tuple(json.loads(arrays.shape[int(np.argmax(mine))])) if mine.any() else None


def _first(one: NDArray[Any], other: NDArray[Any]) -> tuple[int, ...] | None:
    """Return the index of the first value that differs; NaN is equal to itself."""
    if one.shape != other.shape or one.dtype.names != other.dtype.names or same_values(one, other):
        return None
    if one.dtype.names is not None:
        unlike = np.array(
            [a.tobytes() != b.tobytes() for a, b in zip(one.flat, other.flat, strict=True)]
        ).reshape(one.shape)
    else:
        unlike = np.asarray(one != other)
        if one.dtype.kind in "fc":
            unlike &= ~(np.isnan(one) & np.isnan(other))
    if not unlike.any():
        return None
    return tuple(int(at) for at in np.unravel_index(int(np.argmax(unlike)), one.shape))


def _shown(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if isinstance(plain, int | float | complex) else repr(plain)[:_SHOWN]
