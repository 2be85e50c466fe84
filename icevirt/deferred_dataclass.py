"""Make dataclasses whose methods are compiled one by one, when they are first used.

`dataclasses.dataclass` compiles the methods of a class when it is defined, which takes half a
millisecond each time, and a program uses few of the classes that it imports. This decorator makes
the same classes, for modules that every reader imports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - type checkers know this one

_DEFAULTS = {"init": True, "repr": True, "eq": True, "frozen": False}


class _Deferred:
    """Stands in for a method; to look it up puts the method in its place."""

    __slots__ = ("cls", "how", "name")

    def __init__(self, cls: type, name: str, how: dict[str, bool]) -> None:
        self.cls, self.name, self.how = cls, name, how

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = _compiled(self.cls, self.name, self.how)
        setattr(self.cls, self.name, method)
        return method.__get__(instance, owner)


def _dataclass(
    cls: type | None = None, /, *, slots: bool = False, kw_only: bool = False, **given: bool
) -> Any:
    """Do what `dataclasses.dataclass` does with these options, and with no other ones."""
    if unknown := given.keys() - _DEFAULTS:
        raise TypeError(f"use dataclasses.dataclass for {', '.join(sorted(unknown))}")
    how = _DEFAULTS | given

    def made(cls: type) -> type:
        return _made(cls, how, slots=slots, kw_only=kw_only)

    return made if cls is None else made(cls)


def _made(cls: type, how: dict[str, bool], *, slots: bool, kw_only: bool) -> type:
    own = dict(vars(cls))
    is_frozen = how["frozen"]
    # what makes a class frozen is compiled at once; only with a base is it checked, too
    inherits = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=is_frozen and inherits, slots=slots,
        kw_only=kw_only,
    )(cls)  # fmt: skip
    deferred = [f"__{name}__" for name in ("init", "repr", "eq") if how[name]]
    for name in deferred:
        if name not in own:
            setattr(made, name, _Deferred(made, name, how))
    # a class with a method for equality and none for hashes gets None for it from Python
    if how["eq"] and (own.get("__hash__") is None and ("__eq__" in own or "__hash__" not in own)):
        made.__hash__ = _Deferred(made, "__hash__", how) if is_frozen else None
    if is_frozen and not inherits:
        made.__dataclass_params__.frozen = True
        made.__setattr__, made.__delattr__ = _set, _delete
        if slots:
            made.__getstate__ = own.get("__getstate__", _state)
            made.__setstate__ = own.get("__setstate__", _set_state)
    return made  # type: ignore[no-any-return]


def _compiled(cls: type, name: str, how: dict[str, bool]) -> Any:
    """Let the standard library compile a method, for a class that has the same fields."""
    found = dataclasses.fields(cls)
    inside: dict[str, Any] = {each.name: each for each in found}
    inside["__annotations__"] = {each.name: each.type for each in found}
    inside |= {"__module__": cls.__module__, "__doc__": cls.__doc__ or cls.__name__}
    if hasattr(cls, "__post_init__"):
        inside["__post_init__"] = None
    wanted = {"init": name == "__init__", "repr": name == "__repr__"}
    wanted["eq"] = name in ("__eq__", "__hash__")
    wanted["frozen"] = how["frozen"] and name != "__repr__"  # initialized and hashed otherwise
    same: Any = type(cls.__name__, (), inside)
    method = vars(dataclasses.dataclass(**wanted)(same))[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


def _set(self: Any, name: str, value: object) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(self: Any, name: str) -> bool:
    """Say whether it is about a field, or about a class that is no mere subclass of one."""
    return name in self.__dataclass_fields__ or "__dataclass_fields__" in vars(type(self))


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)  # the class refuses it


if not TYPE_CHECKING:
    dataclass = _dataclass
