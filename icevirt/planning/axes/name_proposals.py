"""Guess from names of files which parts of them are dates or members, as patterns.

What is guessed is only proposed. A caller checks each pattern on all names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from os.path import commonprefix

from icevirt.planning.axes.dates import DateFormat, expression_of

_DAYS = (
    *("%Y%m%d", "%Y-%m-%d", "%Y_%m_%d", "%Y.%m.%d", "%Y/%m/%d", "%Y%j", "%Y-%j", "%Y.%j", "%Y/%j"),
)
_CLOCKS = (
    *("%H%M%S%f", "%H%M%S", "%H%M", "%H", "T%H%M%S%f", "T%H%M%S", "T%H%M", "T%H", "_t%H%M%S%f"),
    *("-S%H%M%S", "_%H%M%S", "_%H%M", "_%H", "-%H%M%S", "-%H%M", ".%H%M", "/%H%M", "/%H"),
    *("T%H-%M-%S", "T%H:%M:%S", "_%H-%M-%S", "_%H:%M:%S", "T%H_%M_%S", "_%H_%M_%S", "T%H-%M"),
)
_FORMS = (
    *(day + clock for day in _DAYS for clock in ("", *_CLOCKS)),
    *("%d%b%Y", "%d-%b-%Y", "%Y%b%d", "%Y-%b-%d", "%b%Y", "%b_%Y", "%b-%Y", "%B%Y", "%B_%Y"),
    *("%Ym%m%d", "%Ym%m%dt%H%M%S", "%Ym%m%dt%H%M"),  # of Aura and Suomi NPP
    *("%Y%b", "%Y_%b", "%Y-%b", "%Y-%m", "%Y_%m", "%Y.%m", "%Y/%m", "%Y%m", "%Y"),
)
_APART = (  # parts of one date with other text between: years above days, cycles of forecasts
    "<Y>/<~><m>/<~><d>", "<Y>/<~><m>/[^/]*?<d>", "<Y>/<~><m>", "<Y>/[^/]*?<m><d>", "<Y>/[^/]*?<j>",
    r"<Y><m><d>[^0-9].*\bt<H>z",
)  # fmt: skip
_COARSE = ("%Y", "%Y/%m")
_YEARS = "(?:1[89]|2[01])[0-9]{2}"
_LATER = re.compile(
    r"(^|[^a-z])(c|p|e|v|ver|version|created?|prod(uced)?|proc(essed)?|rev)$", re.IGNORECASE
)
_SEPARATORS = re.compile(r"([_\-./ ~+\0])")
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)
_MEMBERS = frozenset(
    ("m", "mem", "memb", "member", "r", "e", "ens", "ensemble", "real", "realization", "n")
)
_STEPS = frozenset(("f", "fh", "fhr", "step", "lead"))
_SCENARIOS = frozenset(("ssp", "rcp"))
_RIPF = re.compile(r"r[0-9]+i[0-9]+p[0-9]+(f[0-9]+)?")
_MOST = 3  # parts of a name beside the date that may be labels


@dataclass(frozen=True, slots=True)
class _Span:
    """A date in the first name."""

    form: str
    start: int
    end: int

    def key(self, name: str) -> tuple[bool, bool, int, int, bool]:
        """What puts the likeliest first: when things happened, before when files were made."""
        before = re.split(r"[_\-./ ]", name[: self.start])[-1]
        is_other = ("%j" in self.form) != (before.lower() in {"s", "a"})
        is_coarse = self.form in _COARSE
        return bool(_LATER.search(before)), is_coarse, self.start, -self.end, is_other


def relative(names: Sequence[str], above: int = 0) -> list[str]:
    """Return names from the first folder on in which they differ, and some folders above it."""
    common = commonprefix(names)  # noqa: RUF071 - the folder is cut at the last slash
    folder = common.rfind("/") + 1
    for _ in range(above):
        folder = common.rfind("/", 0, max(0, folder - 1)) + 1
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
    known = sorted(spans, key=lambda each: each.key(first))
    whole = [each for each in known if each.form not in _COARSE and "/" not in each.form]
    for template in _APART:
        found = _apart(template).search(first)
        if found is not None and (not whole or "<H>" in template):
            yield [_spread(first, found, dimension)], "/"
    for span in known:
        ways = [(True, False), (False, False), (True, True)]
        patterns = [_short(first, span, dimension, near=near, far=far) for near, far in ways]
        yield patterns, span.form


def _is_constant_hour(form: str, names: Sequence[str]) -> bool:
    """Say whether two digits apart from a date, taken for an hour, are the same everywhere."""
    if form[-3:-2] not in {"_", "-", "/", "."} or not form.endswith("%H"):
        return False
    found = (_regex(form).search(each) for each in names)
    return len({each and each[0][-2:] for each in found}) == 1


def _regex(form: str) -> re.Pattern[str]:
    found = "".join(
        (_YEARS if directive == "Y" else expression_of(directive, apart=False))
        if directive
        else re.escape(literal)
        for directive, literal in DateFormat.of(form).parts
    )
    return re.compile(f"(?<![0-9]){found}(?![0-9])")


def _apart(template: str) -> re.Pattern[str]:
    def spell(found: re.Match[str]) -> str:
        letter = found[1]
        if letter == "~":
            return "(?:[A-Za-z]+[=_-]?)?"
        way = _YEARS if letter == "Y" else expression_of(letter, apart=False)
        ends = "" if template[found.end() : found.end() + 2] in {"<m", "<d"} else "(?![0-9])"
        begins = "" if template[: found.start()].endswith(">") else "(?<![0-9])"
        return f"{begins}(?P<{letter}>{way}){ends}"

    return re.compile(re.sub("<(.)>", spell, template))


def _short(name: str, span: _Span, dimension: str, *, near: bool, far: bool) -> str:
    """Return a pattern of a date and the text around it, of which wildcards hold the most.

    Args:
        name: The first name.
        span: The date in it.
        dimension: What it labels.
        near: Whether only the text right before it is kept.
        far: Whether any text may follow it.
    """
    folder = name.rfind("/", 0, span.start) + 1
    before = name[folder : span.start]
    found = re.search(r"(^|[_\-. ])[^_\-. ]{0,12}$", before)
    text = (found[0] if found else before[-1:]) if near else before
    more = "*" if len(text) < len(before) else ""
    behind = "*" if far else _behind(name[span.end :])
    return f"{more}{_literal(text)}{{{dimension}:{span.form}}}{behind}"


def _behind(text: str) -> str:
    """Return what follows a date: an extension as it is, other text as a wildcard."""
    here, *folders = text.split("/")
    if folders:
        return (_literal(here[:1]) + "*" if here else "") + "/*" * len(folders)
    if re.fullmatch(r"\.[A-Za-z][A-Za-z0-9]{0,4}", here) or not here:
        return _literal(here)
    return _literal(here[:1]) + "*"


def _spread(name: str, found: re.Match[str], dimension: str) -> str:
    """Return a pattern of the parts of a date, and the text between them."""
    parts = sorted((found.span(letter), letter) for letter in found.groupdict())
    folder = name.rfind("/", 0, found.start("Y")) + 1
    made, end = "", folder
    for (start, stop), letter in parts:
        between = name[end:start]
        *folders, last = between.split("/")
        near = re.search(r"(?<![A-Za-z])[^A-Za-z0-9]?[A-Za-z]*[=_-]?$", last)
        text = near[0] if near else ""
        kept = [_literal(each) if each.isalpha() or not each else "*" for each in folders]
        last = ("*" if len(text) < len(last) else "") + _literal(text)
        made += "/".join([*kept, last]) + f"{{{dimension}:%{letter}}}"
        end = stop
    made = re.sub(rf"(?<=%[Ymd])}}{{{re.escape(dimension)}:(?=%)", "", made)
    return made + _behind(name[end:])


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
            text, name = _label(column, used)
            used.add(name)
            found.append(text)
        elif at in varying:
            found.append("*")
        else:
            found.append(_literal(column[0]))
    return "".join(found)


def _label(column: Sequence[str], used: Collection[str]) -> tuple[str, str]:
    """Return a label for a part of the names, and what its dimension is called."""
    numbered = [_NUMBERED.fullmatch(each) for each in column]
    around = {(each[1], each[3]) for each in numbered if each is not None}
    if all(map(_RIPF.fullmatch, column)) or None in numbered or len(around) != 1:
        return _name("", used, "{%s}")
    ((before, after),) = around
    if before.lower() in _SCENARIOS:
        return _name("scenario", used, "{%s}")
    return _name(before, used, f"{_literal(before)}{{%s:d}}{_literal(after)}")


def _name(word: str, used: Collection[str], text: str) -> tuple[str, str]:
    plain = word.lower() if re.fullmatch("[A-Za-z]{3,}", word) else "member"
    name = "member" if plain in _MEMBERS else plain
    name = "step" if word.lower() in _STEPS else name
    free = next(each for each in (name, "member", "case", *map("label_{}".format, range(99)))
                if each not in used)  # fmt: skip
    return text.replace("%s", free), free
