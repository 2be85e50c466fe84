"""Functions of scripts and notebooks, carried to processes that cannot import them.

They travel as code, and compare by it, so that all that came of one function counts as one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Carried:
    """A function as code."""

    name: str
    code: bytes = field(repr=False)

    def __call__(self) -> Any:
        """Call the function."""
        return _loaded(self.code)()


@cache
def _loaded(code: bytes) -> Callable[[], Any]:
    function: Callable[[], Any] = pickle.loads(code)  # noqa: S301  # made by `carried`
    return function


def carried(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return what pickles in the place of a function that is defined in a script or a function.

    Everything else stays as it is, and so does that where Spark, which has the means, is missing.
    """
    name = str(getattr(function, "__qualname__", ""))
    if getattr(function, "__module__", "") != "__main__" and "<" not in name:
        return function
    try:
        from pyspark import cloudpickle
    except ImportError:
        return function
    return Carried(name or type(function).__name__, cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
