"""Find the first difference between one variable's values in two files, for the error."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.scanned import SourceFile
from icevirt.errors import IcevirtError
from icevirt.planning.equality import first_difference
from icevirt.tasks.scan_subprocess import Apart
from icevirt.tasks.source_values import Reading, read_apart

_AT_ONCE = 1 << 22  # values
_MOST = 1 << 24  # values that are looked at for the sake of a message


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
            except Exception:  # noqa: BLE001 - whatever it is, it must not hide the refusal
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
            if (found := first_difference(left, right)) is not None:
                if shape:
                    found["index"][0] += low
                return found
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
