"""Read labels of files from their names and their global attributes.

A pattern like ``{member}_{time:%Y%m}.nc`` describes the end of a file's path, whole names of
folders and files. ``*`` stands for any text without a slash, ``?`` for one character; ``{name}`` is
the text that labels the file along a dimension, ``{name:d}`` a whole number (``{name:3d}`` of three
digits), ``{name:f}`` a number, and ``{name:%Y%m%d}`` a date. Several dates of one name add up, as
in ``{time:%Y}/{time:%m%d}.nc``. ``{{`` and ``}}`` are braces.

What a label is follows from the pattern, never from what the files are called. A name that fits in
two ways is refused. Numbers of attributes are whole or not as all files have it; dates are dates in
all files or the plan is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.sources import REPOSITORY, STORES, source_of_url
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model.strings import Strings
from icevirt.planning.axes.dates import (
    DIRECTIVES,
    Column,
    DateFormat,
    Dates,
    capture,
    computing,
    expression_of,
    iso_dates,
    read_dates,
    refuse_incomplete,
    same_texts,
)

type Labels = Sequence[str | int | float | date] | str


_TOKENS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|\*+|\?|[^{}*?]+", re.DOTALL)
_FIELD = re.compile(r"\{\{|\}\}|(\{[^{}]*\})", re.DOTALL)
_NUMBER = re.compile(r"0?([1-9][0-9]*)?d")
_CAPTURING = re.compile(r"\((?:\?P?<[A-Za-z_]\w*>|(?!\?))")
_PREFIXES = ("regex:", "attribute:", "variable:")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a pattern: literal text, a wildcard, or what labels a file."""

    kind: str  # "literal", "*", "?", "text", "whole", "float", "date"
    text: str  # literal text; of dates the directive; of numbers the digits, if they are given
    name: str = ""  # of the dimension

    @property
    def is_digits(self) -> bool:
        """Whether digits belong to it that stand at either end."""
        return self.kind in ("whole", "float") or (self.kind == "date" and self.text not in "bB")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """What names of files look like, and which parts of them are labels."""

    text: str
    pieces: tuple[_Piece, ...]

    @classmethod
    def of(cls, text: str) -> NamePattern:
        """Read a pattern.

        Raises:
            InvalidInputError: It is not one.
        """
        pieces: list[_Piece] = []
        for found in _TOKENS.finditer(text):
            token = found[0]
            if found[1] is not None:
                pieces += _field(found[1], text)
            elif token in ("{", "}"):
                raise _wrong(text, "has a brace without its other one")
            elif token[0] in "*?":
                pieces.append(_Piece(token[0], ""))
            else:
                pieces.append(_Piece("literal", token[0] if token in ("{{", "}}") else token))
        return _check(cls(text, tuple(_join(pieces))))

    @classmethod
    def of_date(cls, name: str, text: str) -> NamePattern:
        """Read a date format that a whole text has."""
        return _check(cls(text, tuple(_join(_dates(name, text)))))

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions that it labels, in the order of the pattern."""
        return tuple(dict.fromkeys(piece.name for piece in self.pieces if piece.name))

    def labels(self, urls: Sequence[str] | Strings, name: str, *, calendar: str) -> FoundLabels:
        """Return the labels of files along a dimension.

        Raises:
            InvalidInputError: The pattern cannot be used.
        """
        return self.read(readable_paths(urls), name, calendar=calendar)

    def read(
        self, texts: Sequence[str] | Strings, name: str, *, calendar: str, begin: str = "(?:^|/)"
    ) -> FoundLabels:
        """Return the labels in texts which the pattern describes, from where they ``begin``."""
        patterns = (self._regex(lazy=lazy, begin=begin) for lazy in (True, False))
        first, last = (capture(texts, pattern) for pattern in patterns)
        mine = [at for at, piece in enumerate(self.pieces) if piece.name == name]
        there = np.asarray(first[f"p{mine[0]}"].is_valid())
        two_ways = np.zeros(len(there), np.bool_)
        for at in mine:
            two_ways |= ~same_texts(first[f"p{at}"], last[f"p{at}"])
        kind = self.pieces[mine[0]].kind
        if kind != "date":
            return FoundLabels(_values(first[f"p{mine[0]}"], kind), there, two_ways)
        columns: dict[str, Column] = {}
        for at in mine:  # a directive may come twice: a year in the folder and in the name, say
            text = columns.setdefault(self.pieces[at].text, first[f"p{at}"])
            there &= same_texts(text, first[f"p{at}"])
        dates = read_dates(columns, len(there), calendar=calendar)
        return FoundLabels(dates, there & dates.there, two_ways)

    def _regex(self, *, lazy: bool, begin: str) -> str:
        more = "?" if lazy else ""
        found = (
            _spell(piece, f"p{at}", more, self._beside(at, -1), self._beside(at, 1))
            for at, piece in enumerate(self.pieces)
        )
        return f"{begin}{''.join(found)}$"

    def _beside(self, at: int, way: int) -> _Piece | None:
        return self.pieces[at + way] if 0 <= at + way < len(self.pieces) else None


@dataclass(frozen=True, slots=True, eq=False)
class FoundLabels:
    """Labels of files along one dimension."""

    values: NDArray[Any] | Dates
    there: NDArray[np.bool_]  # whether the file has one
    two_ways: NDArray[np.bool_]  # whether its name fits in two ways


def is_pattern(labels: object) -> bool:
    """Say whether labels are given by a pattern of names."""
    if not isinstance(labels, str) or labels.startswith(_PREFIXES):
        return False
    return any(found[1] for found in _FIELD.finditer(labels))


def _check(made: NamePattern) -> NamePattern:
    if not made.names:
        raise _wrong(made.text, "has no label")
    for name in made.names:
        mine = [piece for piece in made.pieces if piece.name == name]
        if {piece.kind for piece in mine} == {"date"}:
            refuse_incomplete([piece.text for piece in mine], made.text)
        elif len(mine) > 1:
            raise _wrong(made.text, f"has the label {name!r} twice")
    return made


def _field(text: str, pattern: str) -> list[_Piece]:
    name, colon, spec = text.partition(":")
    if not name:
        raise _wrong(pattern, "has a label without a name")
    if not colon:
        return [_Piece("text", "", name)]
    if "%" in spec:
        return _dates(name, spec)
    if found := _NUMBER.fullmatch(spec):
        return [_Piece("whole", found[1] or "", name)]
    if spec == "f":
        return [_Piece("float", "", name)]
    raise _wrong(pattern, f"has a label of an unknown kind, {spec!r}")


def _dates(name: str, text: str) -> list[_Piece]:
    parts = DateFormat.of(text).parts
    return [_Piece("date", each, name) if each else _Piece("literal", t) for each, t in parts]


def _wrong(text: str, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"the pattern of the labels {what}",
        do="Write it like {member}_{time:%Y%m%d}.nc: {member} is a text, {member:d} a whole number,"
        " {level:f} a number, * any text without a slash, {{ and }} are braces.",
        pattern=text,
    )


def _join(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Join literal texts that follow one another."""
    made: list[_Piece] = []
    for piece in pieces:
        if made and piece.kind == made[-1].kind == "literal":
            made[-1] = _Piece("literal", made[-1].text + piece.text)
        else:
            made.append(piece)
    return made


def _spell(
    piece: _Piece, group: str, more: str, before: _Piece | None, after: _Piece | None
) -> str:
    match piece.kind:
        case "literal":
            return re.escape(piece.text)
        case "?":
            return "[^/]"
        case "*" if after is not None and after.is_digits:  # digits of a label belong to it
            return f"(?:[^/]*{more}[^/0-9])?{more}"
        case "*":
            return f"[^/]*{more}"
        case "text":
            inside = f"[^/]+{more}"
        case "whole":
            inside = f"[0-9]{{{piece.text}}}" if piece.text else f"[0-9]+{more}"
        case "float":
            inside = rf"[0-9]+{more}(?:\.[0-9]+{more})?{more}"
        case _:
            apart = all(_is_apart(each, way) for each, way in ((before, -1), (after, 0)))
            inside = expression_of(piece.text, apart=apart)
    return f"(?P<{group}>{inside})"


def _is_apart(piece: _Piece | None, way: int) -> bool:
    """Say whether what stands beside a number ends or begins with something else than a digit."""
    if piece is None or piece.kind == "*":
        return piece is None or way == -1
    return piece.kind == "literal" and not piece.text[way].isdigit()


def _values(texts: Column, kind: str) -> NDArray[Any]:
    import pyarrow as pa

    pc = computing()

    if kind == "text":
        codes = pc.fill_null(texts, "").dictionary_encode()
        named: NDArray[Any] = np.array(codes.dictionary.to_pylist(), str)
        return named[np.asarray(codes.indices)]
    wanted = pa.int64() if kind == "whole" else pa.float64()
    try:
        return np.asarray(pc.cast(pc.fill_null(texts, "0"), wanted))
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "a label has too many digits for a whole number",
            do="Take it as a text: {name} in the place of {name:d}.",
        ) from error


def readable_paths(urls: Sequence[str] | Strings) -> Strings | Sequence[str]:
    """Return what patterns describe: paths as people write them, without a query.

    Of a store it is the path of its folder.
    """
    column = urls if isinstance(urls, Strings) else Strings.of(urls)
    if any(column[row].endswith(_STORES) for row in range(min(len(column), 1))):
        column = Strings.of([source_of_url(url) for url in column])
    if not np.isin(column.data, np.frombuffer(b"%?#", np.uint8)).any():
        return column
    schemes = ("file://", "http://", "https://")
    return [unquote(urlsplit(url).path) if url.startswith(schemes) else url for url in column]


_STORES = tuple(f"/{name}" for name in (*STORES, REPOSITORY))


# -- dates in regular expressions ----------------------------------------------------------------


def with_dates(pattern: str) -> tuple[str, Mapping[str, str]]:
    """Return a regular expression whose group has a date format, and the directive of each group.

    ``_s(%Y%j)`` becomes ``_s(?P<label>(?P<d0>...)(?P<d1>...))``. Without a year in the group
    there are no directives, and the group gets its name alone.

    Raises:
        InvalidInputError: The format does not tell a date.
    """
    span = _span_of_group(pattern)
    if span is None:
        return pattern, {}
    begin, start, end = span
    inside = pattern[start:end]
    found: dict[str, str] = {}

    def directive(match: re.Match[str]) -> str:
        if match[1] not in DIRECTIVES:
            return match[0]
        group = f"d{len(found)}"
        found[group] = match[1]
        return f"(?P<{group}>{expression_of(match[1], apart=False)})"

    if re.search("%[Yy]", inside):
        inside = re.sub("%(.)", directive, inside)
        refuse_incomplete(found.values(), pattern)
    return f"{pattern[:begin]}(?P<label>{inside}){pattern[end + 1 :]}", found


def _span_of_group(pattern: str) -> tuple[int, int, int] | None:
    """Return where the first capturing group begins, its text begins, and it ends."""
    opened: list[int] = []
    first: tuple[int, int] | None = None
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            at += 2 if pattern[at + 1 : at + 2] == "^" else 1
            at += 1  # a bracket that comes first is no end
            while at < len(pattern) and pattern[at] != "]":
                at += 2 if pattern[at] == "\\" else 1
        elif pattern[at] == "(":
            named = _CAPTURING.match(pattern, at)
            if named and first is None:
                first = at, named.end()
            opened.append(at)
        elif pattern[at] == ")" and opened:
            begin = opened.pop()
            if first is not None and begin == first[0]:
                return *first, at
        at += 1
    return None


_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_FLOAT = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_FORMAT = re.compile(r"(?P<name>.+?):(?P<format>[^:]*%.*)", re.DOTALL)


def labels_of_files(
    facts: CatalogFacts, labels: str, dimension: str, *, calendar: str
) -> NDArray[Any] | Dates:
    """Return the label of each file, as its name or an attribute tells it.

    Raises:
        CombineError: A file does not tell it, or its name fits a pattern in two ways.
        InvalidInputError: It is not clear where the labels are, or a pattern is wrong.
    """
    kind, _, what = labels.partition(":")
    if is_pattern(labels):
        return _by_pattern(facts, labels, dimension, calendar)
    if kind == "regex":
        return _by_regex(facts, what, dimension, calendar)
    if kind == "attribute" and what:
        return _by_attribute(facts, what, dimension, calendar)
    raise InvalidInputError(
        "labels are missing: neither a list nor a source of labels was given",
        do="Pass a list, a pattern of names like '{member}_{time:%Y%m}.nc', 'regex:PATTERN'"
        " with one group, 'attribute:NAME' or 'variable:NAME'.",
        labels=labels,
    )


def refuse_unlabelled(facts: CatalogFacts, row: int, dimension: str, why: str) -> CombineError:
    """Return the refusal of a file without a label."""
    return CombineError(
        f"a file has no label along {dimension!r}: {why}",
        do="Leave the file out, or pass a list of labels.",
        file=facts.files.url[row],
    )


def _by_pattern(
    facts: CatalogFacts, text: str, dimension: str, calendar: str
) -> NDArray[Any] | Dates:
    pattern = NamePattern.of(text)
    if dimension not in pattern.names:
        raise InvalidInputError(
            f"the pattern of the labels has none along {dimension!r}",
            do=f"Write {{{dimension}}} where the label stands in the names.",
            pattern=text,
        )
    found = pattern.labels(facts.files.url, dimension, calendar=calendar)
    _refuse_none(facts, found.there, dimension, f"its name does not match {text!r}")
    if found.two_ways.any():
        raise CombineError(
            f"the name of a file fits the pattern of the labels in two ways along {dimension!r}",
            do="Write more of the name in the place of * or {...}.",
            file=facts.files.url[int(np.argmax(found.two_ways))],
            pattern=text,
        )
    return found.values


def _by_regex(
    facts: CatalogFacts, pattern: str, dimension: str, calendar: str
) -> NDArray[Any] | Dates:
    named, directives = with_dates(pattern)
    why = f"its name does not match {pattern!r}"
    if not directives:
        return _read_types(_match(facts, pattern, dimension, why))
    found = capture(facts.files.url, named)
    columns: dict[str, Any] = {}
    again = np.ones(len(facts.files), np.bool_)
    for group, directive in directives.items():
        again &= same_texts(found[group], columns.setdefault(directive, found[group]))
    dates = read_dates(columns, len(facts.files), calendar=calendar)
    _refuse_none(facts, dates.there & again, dimension, why)
    return dates


def _match(facts: CatalogFacts, pattern: str, dimension: str, why: str) -> list[str]:
    import re2  # linear in the text

    try:
        compiled: Any = re2.compile(pattern)
    except re2.error:
        compiled = _backtracking(pattern)
    if compiled.groups != 1:
        raise InvalidInputError(
            "the pattern of the labels must have exactly one group",
            do="Put the label part in parentheses.",
            pattern=pattern,
        )
    found = []
    for row, url in enumerate(facts.files.url):
        match = compiled.search(url)
        if match is None or match[1] is None:
            raise refuse_unlabelled(facts, row, dimension, why)
        found.append(match[1])
    return found


def _backtracking(pattern: str) -> re.Pattern[str]:
    """Return a pattern with what RE2 lacks: looking around, and references to groups."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInputError(
            "not a regular expression", do="Correct it.", pattern=pattern, cause=str(error)
        ) from error


def _by_attribute(
    facts: CatalogFacts, what: str, dimension: str, calendar: str
) -> NDArray[Any] | Dates:
    formatted = _FORMAT.fullmatch(what)
    name = what if formatted is None else formatted["name"]
    texts = []
    for row in range(len(facts.files)):
        held = facts.groups_of(row)[0].attributes.values.get(name)
        if not isinstance(held, str | int | float):
            raise refuse_unlabelled(facts, row, dimension, f"it has no global attribute {name!r}")
        texts.append(str(held))
    if formatted is None:
        dates = iso_dates(texts, calendar=calendar)
        there, like = dates.there, "as in other files"
        if not there.any():
            return _read_types(texts)
    else:
        pattern = NamePattern.of_date(dimension, formatted["format"])
        found = pattern.read(texts, dimension, calendar=calendar, begin="^")
        assert isinstance(found.values, Dates)
        dates, there, like = found.values, found.there, f"like {formatted['format']!r}"
    odd = texts[int(np.argmin(there))]
    why = f"its attribute {name!r}, {odd!r}, is not a date {like}"
    _refuse_none(facts, there, dimension, why)
    return dates


def _refuse_none(facts: CatalogFacts, there: NDArray[np.bool_], dimension: str, why: str) -> None:
    if not there.all():
        raise refuse_unlabelled(facts, int(np.argmin(there)), dimension, why)


def _read_types(texts: Sequence[str]) -> NDArray[Any]:
    """Return numbers where all labels are some; a leading zero makes no other number of one."""
    if all(map(_FLOAT.fullmatch, texts)):
        if not all(map(_WHOLE.fullmatch, texts)):
            return np.array(texts, float)
        with suppress(OverflowError):  # so many digits are a name
            return np.array([int(text) for text in texts], np.int64)
    return np.array(texts, str)
