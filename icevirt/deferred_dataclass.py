"""Make dataclasses whose methods are compiled one by one, when they are used often enough.

`dataclasses.dataclass` compiles the methods of a class when it is defined, which takes half a
millisecond each time, and a program uses few of the classes that it imports, most of them a few
times. This decorator makes the same classes, for modules that every reader imports.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - type checkers know this one

_DEFAULTS = {"init": True, "repr": True, "eq": True, "frozen": False}


_SPECIAL = re.compile("ClassVar|InitVar|KW_ONLY")
_USES = 6  # without compiling; each takes some microseconds more


class _Deferred:
    """Stands in for a method; what looks it up often enough puts the method in its place."""

    __slots__ = ("cls", "fields", "how", "left", "name")

    def __init__(self, cls: Any, name: str, how: dict[str, bool]) -> None:
        self.cls, self.name, self.how = cls, name, how
        self.fields = dataclasses.fields(cls)
        self.left = 0 if name == "__repr__" else _USES

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self.left > 0 and isinstance(instance, self.cls):  # `inspect` passes the class itself
            self.left -= 1
            return partial(self.initialize if self.name == "__init__" else self.equal, instance)
        return self.method().__get__(instance, owner)

    def method(self) -> Any:
        """Return the compiled method, which stands in the class from now on."""
        method = _compiled(self.cls, self.name, self.how)
        setattr(self.cls, self.name, method)
        return method

    def initialize(self, instance: Any, /, *args: Any, **named: Any) -> None:
        """Do what the compiled ``__init__`` does, which itself refuses wrong arguments."""
        values = _bound(self.fields, args, named)
        if values is None:
            self.method()(instance, *args, **named)
            return
        assign = object.__setattr__ if self.how["frozen"] else setattr
        for name, value in values.items():
            assign(instance, name, value)
        if hasattr(self.cls, "__post_init__"):
            instance.__post_init__()

    def equal(self, instance: object, other: object, /) -> Any:
        """Do what the compiled ``__eq__`` does."""
        if other is instance:
            return True
        if other.__class__ is not instance.__class__:
            return NotImplemented
        names = [each.name for each in self.fields if each.compare]
        return all(getattr(instance, name) == getattr(other, name) for name in names)


def _bound(
    fields: Sequence[dataclasses.Field[Any]], args: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the value of each field, or None if the arguments are wrong."""
    places = [each.name for each in fields if each.init and not each.kw_only]
    given = dict(zip(places, args, strict=False))
    if len(args) > len(places) or not given.keys().isdisjoint(named):
        return None
    given |= named
    values: dict[str, Any] = {}
    for each in fields:
        if each.init and each.name in given:
            values[each.name] = given.pop(each.name)
        elif each.default is not dataclasses.MISSING:
            values[each.name] = each.default
        elif each.default_factory is not dataclasses.MISSING:
            values[each.name] = each.default_factory()
        else:
            return None
    return None if given else values


def _hash_of(cls: type) -> Callable[[Any], int]:
    """Return the method that hashes all fields which are compared."""
    fields = dataclasses.fields(cls)
    names = [each.name for each in fields if (each.compare if each.hash is None else each.hash)]

    def __hash__(self: Any) -> int:  # noqa: N807 - it becomes this method
        return hash(tuple([getattr(self, name) for name in names]))

    return __hash__


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
    types = own.get("__annotations__", {})
    # text is searched for `ClassVar` by regular expressions, several for each field
    cls.__annotations__ = {
        name: each if _SPECIAL.search(str(each)) else object for name, each in types.items()
    }
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=is_frozen and inherits, slots=slots,
        kw_only=kw_only,
    )(cls)  # fmt: skip
    made.__annotations__ = types
    for name in types.keys() & made.__dataclass_fields__.keys():
        made.__dataclass_fields__[name].type = types[name]
    deferred = [f"__{name}__" for name in ("init", "repr", "eq") if how[name]]
    for name in deferred:
        if name not in own:
            setattr(made, name, _Deferred(made, name, how))
    # a class with a method for equality and none for hashes gets None for it from Python
    if how["eq"] and (own.get("__hash__") is None and ("__eq__" in own or "__hash__" not in own)):
        made.__hash__ = _hash_of(made) if is_frozen else None
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
    wanted["eq"] = name == "__eq__"
    wanted["frozen"] = how["frozen"] and name == "__init__"  # initialized otherwise
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
