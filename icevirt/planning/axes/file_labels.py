"""Read labels of files from their names and their global attributes.

Numbers are whole or not as all files have it; dates are dates in all files or the plan is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.errors import CombineError, InvalidInputError
from icevirt.planning.axes.date_formats import Dates, captured, dated, iso_dates, same_texts
from icevirt.planning.axes.name_patterns import NamePattern, is_pattern, with_dates

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
    if is_pattern(labels):
        return _by_pattern(facts, labels, dimension, calendar)
    kind, _, what = labels.partition(":")
    if kind == "regex":
        return _by_regex(facts, what, dimension, calendar)
    if kind != "attribute" or not what:
        raise InvalidInputError(
            "labels are missing: neither a list nor a source of labels was given",
            do="Pass a list, a pattern of names like '{member}_{time:%Y%m}.nc', 'regex:PATTERN'"
            " with one group, 'attribute:NAME' or 'variable:NAME'.",
            labels=labels,
        )
    return _by_attribute(facts, what, dimension, calendar)


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
    if directives:
        found = captured(facts.files.url, named)
        columns: dict[str, Any] = {}
        again = np.ones(len(facts.files), np.bool_)
        for group, directive in directives.items():
            if directive in columns:
                again &= same_texts(found[group], columns[directive])
            columns.setdefault(directive, found[group])
        dates = dated(columns, len(facts.files), calendar=calendar)
        why = f"its name does not match {pattern!r}"
        _refuse_none(facts, dates.there & again, dimension, why)
        return dates
    return _typed(_matched(facts, pattern, dimension))


def _matched(facts: CatalogFacts, pattern: str, dimension: str) -> list[str]:
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
            raise refuse_unlabelled(facts, row, dimension, f"its name does not match {pattern!r}")
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
    if formatted is not None:
        return _formatted(facts, texts, (name, formatted["format"]), dimension, calendar)
    dates = iso_dates(texts, calendar=calendar)
    if not dates.there.any():
        return _typed(texts)
    row = int(np.argmin(dates.there))
    why = f"its attribute {name!r}, {texts[row]!r}, is not a date as in other files"
    _refuse_none(facts, dates.there, dimension, why)
    return dates


def _formatted(
    facts: CatalogFacts,
    texts: Sequence[str],
    source: tuple[str, str],
    dimension: str,
    calendar: str,
) -> Dates:
    name, text = source
    pattern = NamePattern.of_date(dimension, text)
    found = pattern.read(texts, dimension, calendar=calendar, begin="^")
    assert isinstance(found.values, Dates)
    row = int(np.argmin(found.there))
    why = f"its attribute {name!r}, {texts[row]!r}, is not a date like {text!r}"
    _refuse_none(facts, found.there, dimension, why)
    return found.values


def _refuse_none(facts: CatalogFacts, there: NDArray[np.bool_], dimension: str, why: str) -> None:
    if not there.all():
        raise refuse_unlabelled(facts, int(np.argmin(there)), dimension, why)


def _typed(texts: Sequence[str]) -> NDArray[Any]:
    """Return numbers where all labels are some; a leading zero makes no other number of one."""
    if all(map(_FLOAT.fullmatch, texts)):
        if not all(map(_WHOLE.fullmatch, texts)):
            return np.array(texts, float)
        with suppress(OverflowError):  # so many digits are a name
            return np.array([int(text) for text in texts], np.int64)
    return np.array(texts, str)
