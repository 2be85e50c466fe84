"""Let the methods of a class raise icechunk's errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any

from icevirt.errors import IcevirtError


@contextmanager
def icechunks_errors(*, reading: bool = False) -> Iterator[None]:
    """Turn errors of icevirt's into icechunk's; ``reading`` as for `become_icechunks`."""
    try:
        yield
    except IcevirtError as error:
        from icevirt.icechunk._exceptions import become_icechunks

        become_icechunks(error, reading=reading)
        raise


def raises_icechunks[C: type](kind: C, read_by: type | None = None) -> C:
    """Wrap the public methods and properties that a class has from icevirt, inherited ones too.

    Args:
        kind: The class.
        read_by: Methods that this class has are called by zarr, which must not see a `KeyError`.
    """
    for name in dir(kind):
        if name.startswith("_"):
            continue
        home = next(each for each in kind.__mro__ if name in vars(each))
        if home.__module__.startswith("icevirt"):
            reading = read_by is not None and hasattr(read_by, name)
            setattr(kind, name, _guarded(inspect.getattr_static(kind, name), reading=reading))
    return kind


def _guarded(member: Any, *, reading: bool) -> Any:
    """Return what stands in a class, with its errors turned."""
    match member:
        case classmethod() | staticmethod():
            return type(member)(guarded(member.__func__, reading=reading))
        case property(fget=FunctionType() as read, fset=write):
            return property(
                guarded(read, reading=reading),
                write and guarded(write, reading=reading),
                doc=member.__doc__,
            )
        case FunctionType():
            return guarded(member, reading=reading)
        case _:
            return member


def guarded(function: Callable[..., Any], *, reading: bool = False) -> Callable[..., Any]:
    """Return a function that raises icechunk's errors in the place of icevirt's.

    Args:
        function: Of any kind: plain, a generator, or asynchronous.
        reading: As for `become_icechunks`.
    """
    if inspect.isasyncgenfunction(function):

        async def yielding(*args: Any, **kwargs: Any) -> Any:
            with icechunks_errors(reading=reading):
                async for value in function(*args, **kwargs):
                    yield value

        return wraps(function)(yielding)
    if inspect.iscoroutinefunction(function):

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with icechunks_errors(reading=reading):
                return await function(*args, **kwargs)

        return wraps(function)(awaited)

    def called(*args: Any, **kwargs: Any) -> Any:
        with icechunks_errors(reading=reading):
            found = function(*args, **kwargs)
            return _each(found, reading=reading) if inspect.isgenerator(found) else found

    return wraps(function)(called)


def _each(values: Iterator[Any], *, reading: bool) -> Iterator[Any]:
    with icechunks_errors(reading=reading):
        yield from values
