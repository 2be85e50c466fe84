"""Give classes and functions what icechunk's have: its errors, ``_async`` twins, a class by kind.

A twin is the method, in a thread. Classes by kind of value stand where icevirt has functions.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any

from icevirt.errors import IcevirtError
from icevirt.threads import run_in_thread


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
            setattr(kind, name, _guard(inspect.getattr_static(kind, name), reading=reading))
    return kind


def _guard(member: Any, *, reading: bool) -> Any:
    """Return what stands in a class, with its errors turned."""
    match member:
        case classmethod() | staticmethod():
            return type(member)(guard(member.__func__, reading=reading))
        case property(fget=FunctionType() as read, fset=write):
            return property(
                guard(read, reading=reading),
                write and guard(write, reading=reading),
                doc=member.__doc__,
            )
        case FunctionType():
            return guard(member, reading=reading)
        case _:
            return member


def guard(function: Callable[..., Any], *, reading: bool = False) -> Callable[..., Any]:
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

        async def wait(*args: Any, **kwargs: Any) -> Any:
            with icechunks_errors(reading=reading):
                return await function(*args, **kwargs)

        return wraps(function)(wait)

    def call(*args: Any, **kwargs: Any) -> Any:
        with icechunks_errors(reading=reading):
            found = function(*args, **kwargs)
            is_lazy = inspect.isgenerator(found) or isinstance(found, map)
            return _each(found, reading=reading) if is_lazy else found

    return wraps(function)(call)


def _each(values: Iterator[Any], *, reading: bool) -> Iterator[Any]:
    with icechunks_errors(reading=reading):
        yield from values


class AsyncTwin:
    """The twin of a method of the same class: awaited, it runs the method in a thread.

    Args:
        name: Of the method; it may be a class method or a static one.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Callable[..., Awaitable[Any]]:
        """Return the function that takes the method's arguments."""
        method = getattr(owner if instance is None else instance, self._name)

        async def twin(*args: Any, **kwargs: Any) -> Any:
            return await run_in_thread(method, *args, **kwargs)

        return twin


async def each[T](make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield what an iterator yields, which a thread makes and exhausts."""
    for value in await run_in_thread(lambda: list(make())):
        yield value


class MadeKind(type):
    """The type of such a class: a call makes icevirt's value, and that is an instance of it."""

    _make: Callable[..., Any]
    _is: Callable[[Any], bool]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return icevirt's value."""
        return cls._make(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        """Say whether a value is of this kind."""
        return cls._is(instance)


def kind(
    name: str, make: Callable[..., Any], is_one: Callable[[Any], bool], **attributes: Any
) -> MadeKind:
    """Return a class of this name.

    Args:
        name: As icechunk has it.
        make: Returns the value.
        is_one: Says whether a value is of this kind.
        **attributes: Of the class.
    """
    doc = (make.__doc__ or "").partition("\n")[0] or f"icechunk's {name}."
    body = {"_make": staticmethod(make), "_is": staticmethod(is_one), "__doc__": doc, **attributes}
    return MadeKind(name, (), body)
