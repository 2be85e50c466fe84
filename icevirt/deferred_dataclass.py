"""Make dataclasses whose methods are compiled one by one, when they are used often enough.

`dataclasses.dataclass` compiles the methods of a class when it is defined, which takes half a
millisecond each time, and a program uses few of the classes that it imports, most of them a few
times. This decorator makes the same classes, for modules that every reader imports.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - type checkers know this one

_DEFAULTS = {"init": True, "repr": True, "eq": True, "frozen": False}


_SPECIAL = ("ClassVar", "InitVar", "KW_ONLY")
_REPLACE: Any = getattr(  # of Python 3.13, for `copy.replace`
    dataclasses.dataclass(init=False, repr=False, eq=False)(type("Any", (), {"__doc__": "Any."})),
    "__replace__",
    None,
)
_OF_PYTHON = ("__dict__", "__weakref__")  # in the namespace of a class that has no slots
_USES = 60  # without compiling, which takes as long as so many; each takes microseconds more


type _Fields = Callable[[], Sequence[dataclasses.Field[Any]]]


class _Deferred:
    """Stands in for a method; what looks it up often enough puts the method in its place."""

    __slots__ = ("cls", "fields", "how", "left", "name")

    def __init__(self, name: str, how: dict[str, bool], fields: _Fields) -> None:
        self.name, self.how, self.fields = name, how, fields
        self.cls: Any = None  # the class that is made with it
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
        values = _bound(self.fields(), args, named)
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
        names = [each.name for each in self.fields() if each.compare]
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


def _hash_of(fields: _Fields) -> Callable[[Any], int]:
    """Return the method that hashes all fields which are compared."""
    names: list[str] = []

    def __hash__(self: Any) -> int:  # noqa: N807 - it becomes this method
        if not names:
            names.extend(_hashed(fields()))
        return hash(tuple([getattr(self, name) for name in names]))

    return __hash__


def _hashed(fields: Sequence[dataclasses.Field[Any]]) -> Iterator[str]:
    for each in fields:
        if each.compare if each.hash is None else each.hash:
            yield each.name


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
    types: dict[str, Any] = own.get("__annotations__", {})
    given = {"slots": slots, "kw_only": kw_only, "frozen": how["frozen"]}
    inherits = hasattr(cls, "__dataclass_fields__")
    made: Any
    if inherits or not cls.__doc__ or _has_special(" ".join(map(str, types.values()))):
        made = _general(cls, types, given, inherits=inherits)
        protects = how["frozen"] and not inherits
        methods = _methods(own, how, partial(dataclasses.fields, made), slots, protects)
        for name, method in methods.items():
            setattr(made, name, method)
    else:
        described = _Described(types, {name: own[name] for name in types if name in own}, given)
        methods = _methods(own, how, described.fields, slots, how["frozen"])
        made = described.made = _simple(cls, own, described, methods)
    for method in methods.values():
        if isinstance(method, _Deferred):
            method.cls = made
    return made  # type: ignore[no-any-return]


def _methods(
    own: dict[str, Any], how: dict[str, bool], fields: _Fields, slots: bool, protects: bool
) -> dict[str, Any]:
    """Return what a class gets beside its own; where it ``protects``, values cannot be changed."""
    found: dict[str, Any] = {}
    for name in ("init", "repr", "eq"):
        if how[name] and f"__{name}__" not in own:
            found[f"__{name}__"] = _Deferred(f"__{name}__", how, fields)
    # a class with a method for equality and none for hashes gets None for it from Python
    if how["eq"] and (own.get("__hash__") is None and ("__eq__" in own or "__hash__" not in own)):
        found["__hash__"] = _hash_of(fields) if how["frozen"] else None
    if protects:
        found |= {"__setattr__": _set, "__delattr__": _delete}
        if slots:
            found["__getstate__"] = own.get("__getstate__", _state)
            found["__setstate__"] = own.get("__setstate__", _set_state)
    return found


def _simple(cls: type, own: dict[str, Any], described: _Described, methods: dict[str, Any]) -> Any:
    """Make a class whose fields, all its own, are described when somebody looks at them."""
    types, defaults, given = described.types, described.defaults, described.given
    added = dict(methods)
    if "__match_args__" not in own:
        added["__match_args__"] = _positional(types, defaults, given["kw_only"])
    if _REPLACE is not None:
        added["__replace__"] = _REPLACE
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        added[name] = _Later(described, name)
    if given["slots"]:
        inside = {**own, **added, "__slots__": tuple(types), "__qualname__": cls.__qualname__}
        for name in (*defaults, *_OF_PYTHON):
            inside.pop(name, None)
        return type(cls)(cls.__name__, cls.__bases__, inside)
    for name, value in defaults.items():
        if isinstance(value, dataclasses.Field):
            if value.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
    for name, value in added.items():  # of a class that is there, each costs more
        setattr(cls, name, value)
    return cls


def _positional(types: dict[str, Any], defaults: dict[str, Any], kw_only: bool) -> tuple[str, ...]:
    if not any(isinstance(default, dataclasses.Field) for default in defaults.values()):
        return () if kw_only else tuple(types)
    return tuple(name for name in types if _is_positional(defaults.get(name), kw_only))


def _is_positional(default: Any, kw_only: bool) -> bool:
    if not isinstance(default, dataclasses.Field):
        return not kw_only
    return default.init and not (
        kw_only if default.kw_only is dataclasses.MISSING else default.kw_only
    )


class _Described:
    """What the standard library says of a class: found when it is looked up."""

    __slots__ = ("defaults", "found", "given", "made", "types")

    def __init__(
        self, types: dict[str, Any], defaults: dict[str, Any], given: dict[str, bool]
    ) -> None:
        self.types, self.defaults, self.given = types, defaults, given
        self.made: Any = None  # the class
        self.found: list[dataclasses.Field[Any]] | None = None

    def fields(self) -> Sequence[dataclasses.Field[Any]]:
        """Return the fields, as far as this module needs them."""
        if self.found is None:
            self.found = [self._field(name) for name in self.types]
        return self.found

    def _field(self, name: str) -> dataclasses.Field[Any]:
        default = self.defaults.get(name, dataclasses.MISSING)
        if isinstance(default, dataclasses.Field):
            found = copy.copy(default)
        else:
            found = dataclasses.field(default=default)
        found.name = name
        if found.kw_only is dataclasses.MISSING:
            found.kw_only = self.given["kw_only"]
        return found

    def put(self) -> None:
        """Let the standard library describe the class, and keep what it says."""
        inside = {**self.defaults, "__annotations__": dict.fromkeys(self.types, object)}
        inside |= {"__module__": self.made.__module__, "__doc__": self.made.__doc__}
        same: Any = type(self.made.__name__, (), inside)
        same = _described(same, self.types, {"kw_only": self.given["kw_only"]})
        same.__dataclass_params__.frozen = self.given["frozen"]
        self.made.__dataclass_fields__ = same.__dataclass_fields__
        self.made.__dataclass_params__ = same.__dataclass_params__


class _Later:
    """Stands in for an attribute of a class that is looked up rarely."""

    __slots__ = ("described", "name")

    def __init__(self, described: _Described, name: str) -> None:
        self.described, self.name = described, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self.described.put()
        return getattr(self.described.made, self.name)


def _has_special(annotations: str) -> bool:
    """Say whether annotations name what is no field, or a rule for fields."""
    return any(word in annotations for word in _SPECIAL)


def _general(cls: type, types: dict[str, Any], given: dict[str, bool], *, inherits: bool) -> Any:
    """Make a class with fields of other classes, or with annotations that are no fields."""
    # text is searched for `ClassVar` by regular expressions, several for each field
    cls.__annotations__ = {
        name: each if _has_special(str(each)) else object for name, each in types.items()
    }
    # what makes a class frozen is compiled at once; only with a base is it checked, too
    made = _described(cls, types, {**given, "frozen": given["frozen"] and inherits})
    if given["frozen"]:
        made.__dataclass_params__.frozen = True
    return made


def _described(cls: type, types: dict[str, Any], given: dict[str, bool]) -> Any:
    """Return the class with descriptions of its fields, and without methods."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **given)(cls)
    made.__annotations__ = types
    for name in types.keys() & made.__dataclass_fields__.keys():
        made.__dataclass_fields__[name].type = types[name]
    return made


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
    if name == "__init__":  # which sets frozen fields otherwise, and defaults only where slots are
        wanted |= {"frozen": how["frozen"], "slots": "__slots__" in vars(cls)}
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
