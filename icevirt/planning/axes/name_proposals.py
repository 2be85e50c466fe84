"""Guess from names of files which parts of them are dates or members, as patterns.

What is guessed is only proposed. A caller checks each pattern on all names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from icevirt.planning.axes.date_formats import DateFormat, spelled

_DAYS = (
    "%Y%m%d",
    "%Y-%m-%d",
    "%Y_%m_%d",
    "%Y.%m.%d",
    "%Y/%m/%d",
    "%Y%j",
    "%Y-%j",
    "%Y.%j",
    "%Y/%j",
)
_CLOCKS = (
    *("%H%M%S%f", "%H%M%S", "%H%M", "%H", "T%H%M%S%f", "T%H%M%S", "T%H%M", "T%H", "_t%H%M%S%f"),
    *("-S%H%M%S", "_%H%M%S", "_%H%M", "_%H", "-%H%M%S", "-%H%M", ".%H%M", "/%H%M", "/%H"),
    *("T%H-%M-%S", "T%H:%M:%S", "_%H-%M-%S", "_%H:%M:%S", "T%H_%M_%S", "_%H_%M_%S", "T%H-%M"),
)
_FORMS = (
    *(day + clock for day in _DAYS for clock in ("", *_CLOCKS)),
    *("%d%b%Y", "%d-%b-%Y", "%Y%b%d", "%Y-%b-%d", "%b%Y", "%b_%Y", "%b-%Y", "%B%Y", "%B_%Y"),
    *("%Y%b", "%Y_%b", "%Y-%b", "%Y-%m", "%Y_%m", "%Y.%m", "%Y/%m", "%Y%m", "%Y"),
)
_FOLDERS = (  # a year above the rest of the date, with other text between
    (r"(?<![0-9])(?P<Y>Y)/(?P<m>M)/(?P<x>[^/]*?)(?<![0-9])(?P<d>D)(?![0-9])", "%Y/%m/%d"),
    (r"(?<![0-9])(?P<Y>Y)/(?P<x>[^/]*?)(?<![0-9])(?P<m>M)(?P<d>D)(?![0-9])", "%Y/%m%d"),
    (r"(?<![0-9])(?P<Y>Y)/(?P<x>[^/]*?)(?<![0-9])(?P<j>J)(?![0-9])", "%Y/%j"),
)
_YEARS = "(?:1[89]|2[01])[0-9]{2}"
_LATER = re.compile(
    r"(^|[^a-z])(c|p|e|v|ver|version|created?|prod(uced)?|proc(essed)?|rev)$", re.IGNORECASE
)
_SEPARATORS = re.compile(r"([_\-./ ~+\0])")
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)
_MEMBERS = frozenset(
    ("m", "mem", "memb", "member", "r", "e", "ens", "ensemble", "real", "realization", "n")
)
_RIPF = re.compile(r"r[0-9]+i[0-9]+p[0-9]+(f[0-9]+)?")
_MOST = 3  # parts of a name beside the date that may be labels


@dataclass(frozen=True, slots=True)
class _Span:
    """A date in the first name."""

    form: str
    start: int
    end: int

    def key(self, name: str) -> tuple[bool, int, int, bool]:
        """What puts the likeliest first: when things happened, before when files were made."""
        before = re.split(r"[_\-./ ]", name[: self.start])[-1]
        is_other = ("%j" in self.form) != (before.lower() in {"s", "a"})
        return bool(_LATER.search(before)), self.start, -self.end, is_other


def relative(names: Sequence[str], above: int = 0) -> list[str]:
    """Return names from the first folder on in which they differ, and some folders above it."""
    least, most = min(names), max(names)
    common = 0
    for one, other in zip(least, most, strict=False):
        if one != other:
            break
        common += 1
    folder = least.rfind("/", 0, common) + 1
    for _ in range(above):
        folder = least.rfind("/", 0, max(0, folder - 1)) + 1
    return [each[folder:] for each in names]


def date_patterns(names: Sequence[str], dimension: str) -> Iterator[tuple[list[str], str]]:
    """Yield patterns for each date in the first name, the shortest first, and its format."""
    first = names[0]
    spans = [
        _Span(form, found.start(), found.end())
        for form in _FORMS
        for found in _regex(form).finditer(first)
        if not _is_constant_hour(form, names)
    ]
    for text, form in _FOLDERS:
        found = re.search(_spelled_folder(text), first)
        if found is not None:
            yield [_with_folders(first, found, form, dimension)], form
    for span in sorted(spans, key=lambda each: each.key(first)):
        yield [_short(first, span, dimension, near=near) for near in (True, False)], span.form


def _is_constant_hour(form: str, names: Sequence[str]) -> bool:
    """Say whether two digits apart from a date, taken for an hour, are the same everywhere."""
    if form[-3:-2] not in {"_", "-", "/", "."} or not form.endswith("%H"):
        return False
    found = (_regex(form).search(each) for each in names)
    return len({each and each[0][-2:] for each in found}) == 1


def _regex(form: str) -> re.Pattern[str]:
    found = "".join(
        (_YEARS if directive == "Y" else spelled(directive, apart=False))
        if directive
        else re.escape(literal)
        for directive, literal in DateFormat.of(form).parts
    )
    return re.compile(f"(?<![0-9]){found}(?![0-9])")


def _spelled_folder(text: str) -> str:
    for letter, what in (("Y", _YEARS), ("M", "m"), ("D", "d"), ("J", "j")):
        way = what if letter == "Y" else spelled(what, apart=False)
        text = text.replace(f">{letter})", f">{way})")
    return text


def _short(name: str, span: _Span, dimension: str, *, near: bool) -> str:
    """Return a pattern with the text before a date, or what is right before it and a wildcard."""
    folder = name.rfind("/", 0, span.start) + 1
    before = name[folder : span.start]
    found = re.search(r"(^|[_\-. ])[^_\-. ]{0,12}$", before)
    text = (found[0] if found else before[-1:]) if near else before
    far = "*" if len(text) < len(before) else ""
    return f"{far}{_literal(text)}{{{dimension}:{span.form}}}{_behind(name[span.end :])}"


def _behind(text: str) -> str:
    """Return what follows a date: an extension as it is, other text as a wildcard."""
    here, *folders = text.split("/")
    if folders:
        return (_literal(here[:1]) + "*" if here else "") + "/*" * len(folders)
    if re.fullmatch(r"\.[A-Za-z][A-Za-z0-9]{0,4}", here) or not here:
        return _literal(here)
    return _literal(here[:1]) + "*"


def _with_folders(name: str, found: re.Match[str], form: str, dimension: str) -> str:
    year, *rest = form.split("/")
    parts = [f"{{{dimension}:{year}}}", *(f"{{{dimension}:{each}}}" for each in rest)]
    between = found["x"]
    near = re.search(r"[^A-Za-z]?[A-Za-z]*$|$", between)
    text = (near[0] if near else "") if between else ""
    far = "*" if len(text) < len(between) else ""
    folder = name.rfind("/", 0, found.start()) + 1
    before = name[folder : found.start()]
    head = ("*" + _literal(before[-1:])) if before else ""
    folders = "/".join(parts[:-1])
    return f"{head}{folders}/{far}{_literal(text)}{parts[-1]}{_behind(name[found.end() :])}"


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


# -- other parts ---------------------------------------------------------------------------------


def field_patterns(
    names: Sequence[str], form: str | None, dimension: str, taken: Collection[str]
) -> Iterator[str]:
    """Yield patterns with labels of parts that differ, beside a date where there is one.

    Args:
        names: Of some files.
        form: The format of the date that is the first in each name; None where there is none.
        dimension: What the date labels.
        taken: Names that other dimensions and variables have.
    """
    rests = list(names)
    if form is not None:
        pattern = _regex(form)
        rests = [pattern.sub("\0", each, count=1) for each in names]
    columns = [*zip(*(_SEPARATORS.split(each) for each in rests), strict=False)]
    lengths = {len(_SEPARATORS.split(each)) for each in rests}
    separators = (set(column) for column in columns[1::2])
    if len(lengths) != 1 or any(len(each) != 1 for each in separators):
        return
    varying = [at for at, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) > 8:
        return
    for count in range(1, 1 + min(_MOST - (form is not None), len(varying))):
        for chosen in combinations(varying, count):
            yield _whole(columns, varying, chosen, form, dimension, taken)


def _whole(  # noqa: PLR0917 - parts of names, and what is known of them
    columns: Sequence[tuple[str, ...]],
    varying: Sequence[int],
    chosen: Sequence[int],
    form: str | None,
    dimension: str,
    taken: Collection[str],
) -> str:
    used = {dimension, *taken} if form is not None else set(taken)
    found = []
    for at, column in enumerate(columns):
        if column[0] == "\0":
            found.append(f"{{{dimension}:{form}}}")
        elif at in chosen:
            text, name = _labelled(column, used)
            used.add(name)
            found.append(text)
        elif at in varying:
            found.append("*")
        else:
            found.append(_literal(column[0]))
    return "".join(found)


def _labelled(column: Sequence[str], used: Collection[str]) -> tuple[str, str]:
    """Return a label for a part of the names, and what its dimension is called."""
    numbered = [_NUMBERED.fullmatch(each) for each in column]
    if all(map(_RIPF.fullmatch, column)) or None in numbered:
        return _named("", used, "{%s}")
    around = {(each[1], each[3]) for each in numbered if each is not None}
    if len(around) != 1:
        return _named("", used, "{%s}")
    ((before, after),) = around
    return _named(before, used, f"{_literal(before)}{{%s:d}}{_literal(after)}")


def _named(word: str, used: Collection[str], text: str) -> tuple[str, str]:
    plain = word.lower() if re.fullmatch("[A-Za-z]{3,}", word) else "member"
    name = "member" if plain in _MEMBERS else plain
    free = next(each for each in (name, "member", "case", *map("label_{}".format, range(99)))
                if each not in used)  # fmt: skip
    return text.replace("%s", free), free
