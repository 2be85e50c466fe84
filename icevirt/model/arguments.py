"""Check callers' arguments before using them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError


def check[T](name: str, value: object, kind: type[T], do: str = "") -> T:
    """Return an argument, made sure that it is of its kind.

    The value itself stays out of the message: it may be a secret, or large.

    Raises:
        InvalidInputError: It is not.
    """
    if isinstance(value, kind):
        if isinstance(value, str):
            refuse_no_text(name, value)
        return value
    raise InvalidInputError(
        f"{name} is not a {kind.__name__}",
        do=do or f"Pass a {kind.__name__}.",
        found=type(value).__name__,
    )


def refuse_other(name: str, value: object, kind: type[Any]) -> None:
    """Check that a setting is of its kind, or None.

    Raises:
        InvalidInputError: It is of another, or a negative number.
    """
    fits = value is None or isinstance(value, kind)
    if isinstance(value, bool):  # which is an int too
        fits = kind is bool
    elif isinstance(value, int):
        fits = fits and value >= 0
    if not fits:
        wanted = "a non-negative integer" if kind is int else f"a {kind.__name__}"
        raise InvalidInputError(
            f"{name} has the wrong type", do=f"Pass {wanted}, or None for the default.", found=value
        )


def refuse_no_text(name: str, value: str) -> None:
    """Refuse a text that cannot be stored. Raises ``InvalidInputError``."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{name} holds half a letter, which UTF-8 cannot encode",
            do="Remove the surrogates: text.encode(errors='ignore').decode().",
            value=value,
        ) from error


def index_row(name: str, value: Sequence[int], ndim: int, path: str) -> NDArray[np.int64]:
    """Return one number for each dimension of an array as a row, shape (1, ndim).

    Raises:
        InvalidInputError: There are more or fewer, or something else.
    """
    try:
        row = np.asarray(value)
    except ValueError:
        row = np.empty(0, np.object_)
    is_integer = row.dtype.kind in "iu" or not row.size
    if row.shape != (ndim,) or not is_integer:
        raise InvalidInputError(
            f"{name} must have one integer per dimension",
            do=f"Pass {ndim} numbers.",
            path=path,
            found=value,
        )
    return row.astype(np.int64).reshape(1, ndim)
