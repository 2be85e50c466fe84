"""Turn panics of codecs that are written in Rust into errors.

pyo3 raises them beside `Exception`, like the wish of a user to stop, so that nobody who handles
errors sees them. It does not export their class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class PanicError(Exception):
    """A codec gave up."""


@contextmanager
def raise_panics() -> Iterator[None]:
    """Raise a panic as `PanicError`, from where it was raised; nothing else is changed."""
    try:
        yield
    except BaseException as error:
        kind = type(error)
        if (kind.__module__, kind.__name__) != ("pyo3_runtime", "PanicException"):
            raise
        raise PanicError(str(error)).with_traceback(error.__traceback__) from None
