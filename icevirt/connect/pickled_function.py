"""Pickle functions of scripts and notebooks for processes that cannot import them.

They travel as code and compare by it, so all copies of one function are equal.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from icevirt.import_path import is_trusted, working_directory


@dataclass(frozen=True, slots=True)
class PickledFunction:
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
    """Return what pickles in the place of a function that other processes cannot import.

    It is defined in a script, in a notebook or a module beside one, or inside of a function.

    Everything else stays as it is, and so does that where Spark, which has the means, is missing.
    """
    name = str(getattr(function, "__qualname__", ""))
    home = str(getattr(function, "__module__", ""))
    beside = _beside(home)
    if home != "__main__" and "<" not in name and beside is None:
        return function
    try:
        from pyspark import cloudpickle
    except ImportError:
        return function
    try:
        with _by_value(beside, cloudpickle):
            code = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    except Exception:
        if beside is None:
            raise
        return function  # it uses what is no code; where it is installed, others import it
    return PickledFunction(name or type(function).__name__, code)


def _beside(name: str) -> ModuleType | None:
    """Return the module or package, if no other process imports it: it lies beside a notebook."""
    top = name.partition(".")[0]
    module, here = sys.modules.get(top), working_directory()
    if module is None or here is None or top == __name__.partition(".")[0]:
        return None
    file = getattr(module, "__file__", None)
    if not file or is_trusted(here):
        return None
    home = os.path.dirname(file)
    if hasattr(module, "__path__"):  # a package
        home = os.path.dirname(home)
    return module if os.path.realpath(home) == os.path.realpath(here) else None


@contextmanager
def _by_value(module: ModuleType | None, pickler: ModuleType) -> Iterator[None]:
    """Let what a module defines travel as code while the block runs."""
    if module is None:
        yield
        return
    pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        pickler.unregister_pickle_by_value(module)
