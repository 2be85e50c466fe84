"""Declare option objects once, each choice with its type, default, sentence and check.

A field of a subclass of `Options` is annotated with an `Option`. Python, the command line, recipes
and what a snapshot records of a build are derived from that declaration.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields
from functools import cache
from numbers import Integral
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAliasType,
    get_args,
    get_origin,
    get_type_hints,
)

from icevirt.amounts import parse_size, size_of
from icevirt.errors import InvalidInputError
from icevirt.remedy_notation import flag_of

type Names = str | Iterable[str]
"""One name, or several."""

type Check = Callable[[Any], Any]
"""Returns the value that the object holds, or raises ``InvalidInputError``."""


@dataclass(frozen=True, slots=True)
class Option:
    """What an option is, beside its name, type and default."""

    doc: str
    """A sentence or two for Python and the command line, without the notation of either."""

    check: Check | None = None
    """By default the check that the type implies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredOption:
    """An option with all that its class says about it."""

    name: str
    kind: Any  # the type, without its annotation
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return flag_of(self.name)

    @property
    def check(self) -> Check:
        """What checks a value, and returns the one that the object holds."""
        return self.option.check or check_of(self.kind)


type Spelling = Callable[[type["Options"], DeclaredOption], str]

_SPELLING: ContextVar[Spelling | None] = ContextVar("spelling", default=None)


@contextmanager
def spell_options(spelling: Spelling) -> Iterator[None]:
    """Let errors name options in the words of another surface than Python."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


class Options:
    """Base of the option objects: frozen, and checked when they are made.

    Subclasses are frozen dataclasses whose fields are annotated with an `Option` each.
    """

    __slots__ = ()
    KEYWORD: ClassVar[str]
    """What functions call a parameter of this type."""

    def __post_init__(self) -> None:
        """Check every option.

        Raises:
            InvalidInputError: A value is not valid for its option.
        """
        for each in declare(type(self)):
            given = getattr(self, each.name)
            try:
                held = each.check(given)
            except InvalidInputError as error:
                facts = {name: fact for name, fact in error.facts.items() if fact is not given}
                what = error.what.removeprefix(f"{each.name} ")  # the caller's spelling precedes it
                raise InvalidInputError(
                    f"{self.word(each)}={given!r}: {what}", do=error.do, **facts
                ) from None
            object.__setattr__(self, each.name, held)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self.list_chosen().items())
        return f"{type(self).__name__}({chosen})"

    @classmethod
    def word(cls, each: DeclaredOption) -> str:
        """Return the name of an option as the caller writes it."""
        spelling = _SPELLING.get()
        return each.name if spelling is None else spelling(cls, each)

    @classmethod
    def of(cls, given: Self | Mapping[str, Any] | None) -> Self:
        """Return options from an object, a mapping, or nothing.

        Raises:
            InvalidInputError: It is something else, or a name or value is unknown.
        """
        if given is None:
            if cls not in _DEFAULTS:
                _DEFAULTS[cls] = cls()
            default: Self = _DEFAULTS[cls]
            return default
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise InvalidInputError(
                f"{cls.KEYWORD} must be {cls.__name__} or a mapping, not {type(given).__name__}",
                do=f'Pass {cls.KEYWORD}=icevirt.{cls.__name__}(...), or a mapping like {{"name":'
                " value}.",
            )
        known = [each.name for each in declare(cls)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                raise InvalidInputError(
                    f"{cls.KEYWORD} has no option {name!r}",
                    do=f"Did you mean {near[0]!r}?" if near else f"Use {', '.join(known)}.",
                )
        return cls(**given)

    def list_chosen(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        return {
            each.name: value
            for each in declare(type(self))
            if (value := getattr(self, each.name)) != each.default
        }


_DEFAULTS: dict[type[Options], Any] = {}
_DECLARED: dict[type[Options], tuple[DeclaredOption, ...]] = {}


def declare(options: type[Options]) -> tuple[DeclaredOption, ...]:
    """Return the options of a class, in their order."""
    if options not in _DECLARED:
        hints = get_type_hints(options, include_extras=True)
        made = []
        for each in fields(options):  # type: ignore[arg-type]  # subclasses are dataclasses
            hint = hints[each.name]
            assert get_origin(hint) is Annotated, f"{each.name} has no Option annotation"
            assert each.default is not MISSING, f"{each.name} has no default"
            kind, option = get_args(hint)
            made.append(
                DeclaredOption(name=each.name, kind=kind, default=each.default, option=option)
            )
        _DECLARED[options] = tuple(made)
    return _DECLARED[options]


# -- checks --------------------------------------------------------------------------------------


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the words of a type that is a choice of some, else nothing."""
    meant = kind.__value__ if isinstance(kind, TypeAliasType) else kind
    return get_args(meant) if get_origin(meant) is Literal else ()


@cache
def check_of(kind: Any) -> Check:
    """Return the check that a type implies."""
    if words := choices_of(kind):
        return lambda given: one_of(words, given)
    if kind is Names:
        return names
    parts = get_args(kind) or (kind,)
    assert all(part in (str, bool, int, NoneType) for part in parts), f"{kind} needs a check"
    return lambda given: _check_type(parts, given)


def one_of(words: tuple[str, ...], given: Any) -> Any:
    """Return one of some words. Raises ``InvalidInputError``."""
    if given not in words:
        raise InvalidInputError("unknown value", do=f"Use one of {', '.join(words)}.", given=given)
    return given


def names(given: Any) -> tuple[str, ...]:
    """Return names as a tuple; one may stand without a list around it.

    Raises:
        InvalidInputError: Something is no name.
    """
    listed = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    found: tuple[Any, ...] = tuple(listed)
    if not all(isinstance(name, str) for name in found):
        raise InvalidInputError("must be a name or several names", do="Pass strings.", given=given)
    return found


def _check_type(kinds: tuple[Any, ...], given: Any) -> Any:
    if type(given) not in kinds:
        wanted = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise InvalidInputError(
            f"must be {wanted}, not {type(given).__name__}", do="Correct the call.", given=given
        )
    return given


def count(given: Any) -> int | None:
    """Return a number of things, 0 or more, or None. Raises ``InvalidInputError``."""
    if given is None:
        return None
    is_whole = isinstance(given, Integral) and not isinstance(given, bool)
    if not is_whole or given < 0:
        raise InvalidInputError("must be an integer of 0 or more", do="Correct it.", given=given)
    return int(given)


def size(given: Any, least: int, most: int) -> int | str | None:
    """Return a number of bytes, or a text that says one, as it is, or None.

    Raises:
        InvalidInputError: It is neither, or not within the limits.
    """
    if given is not None and not least <= parse_size(given) <= most:
        limits = "above 0" if least == 1 else f"from {size_of(least)} to {size_of(most)}"
        raise InvalidInputError(
            f"not a number of bytes {limits}", do='Pass a number of bytes, or text like "1MiB".'
        )
    held: int | str | None = given
    return held


def mapping(given: Any) -> dict[str, Any] | None:
    """Return a copy of a mapping whose keys are texts, or None. Raises ``InvalidInputError``."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInputError("must be a mapping of names", do="Correct the call.", given=given)
    return dict(given)
