"""Make the classes that icechunk has for each kind of a value, where icevirt has functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
