"""Decide by filters which manifests are read. Pure.

A filter is known by the name of its class and by its attributes, as Spark 4.1 and newer make them
of the conditions of a query. What is not understood keeps everything: Spark applies all filters
again to the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from icevirt.tasks.tables.shares import ManifestPiece, PieceArray

type _Test = Callable[[ManifestPiece, PieceArray], bool]


class Pushed:
    """The filters of a query, all of which a row has to pass."""

    def __init__(self) -> None:
        self._tests: list[_Test] = []

    def is_empty(self) -> bool:
        """Say whether nothing is known of the rows."""
        return not self._tests

    def add(self, condition: Any) -> None:
        """Take one more filter."""
        test = _test(condition)
        if test is not None:
            self._tests.append(test)

    def keeps(self, piece: ManifestPiece, array: PieceArray) -> bool:
        """Say whether rows of an array in a manifest can pass."""
        return all(test(piece, array) for test in self._tests)


def _test(condition: Any) -> _Test | None:
    column = ".".join(getattr(condition, "attribute", ()))
    kind, value = type(condition).__name__, getattr(condition, "value", None)
    if column in ("path", "manifest_id") and value is not None:
        return _text_test(column, kind, value)
    if column == "index" and isinstance(value, Sequence) and value:
        return _index_test(kind, value[0])
    return None


def _text_test(column: str, kind: str, value: Any) -> _Test | None:
    def text(piece: ManifestPiece, array: PieceArray) -> str:
        return array.path if column == "path" else str(piece.manifest)

    match kind:
        case "EqualTo" | "EqualNullSafe":
            return lambda piece, array: text(piece, array) == value
        case "In":
            return lambda piece, array: text(piece, array) in value
        case "StringStartsWith":
            return lambda piece, array: text(piece, array).startswith(value)
        case "StringEndsWith":
            return lambda piece, array: text(piece, array).endswith(value)
        case "StringContains":
            return lambda piece, array: value in text(piece, array)
        case _:
            return None


def _index_test(kind: str, first: Any) -> _Test | None:
    """Compare the first axis, which decides the order of arrays unless it is equal."""
    if not isinstance(first, int):
        return None

    def ends(array: PieceArray) -> tuple[int, int]:
        return array.extents[0] if array.extents else (0, 1 << 32)

    match kind:
        case "EqualTo" | "EqualNullSafe":
            return lambda _, array: ends(array)[0] <= first < ends(array)[1]
        case "GreaterThan" | "GreaterThanOrEqual":
            return lambda _, array: ends(array)[1] > first
        case "LessThan" | "LessThanOrEqual":
            return lambda _, array: ends(array)[0] <= first
        case _:
            return None
