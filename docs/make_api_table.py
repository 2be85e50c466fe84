"""Compare every public name of the installed icechunk wheel with icevirt's, and write two pages.

``api-table.md`` compares `icevirt`, and ``icechunk-programs.md`` below its mark
`icevirt.icechunk`. Run it after a change of the public interface: ``python
docs/make_api_table.py``. It refuses to write while a difference has no reason in
``api_reasons.py`` or ``icechunk_reasons.py``, or a reason has no difference.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import icechunk
import icechunk.dask
import icechunk.distributed
import icechunk.xarray

import icevirt
import icevirt.dask
import icevirt.icechunk
import icevirt.icechunk.dask
import icevirt.icechunk.distributed
import icevirt.icechunk.xarray
import icevirt.xarray

sys.path.insert(0, str(Path(__file__).parent))

import api_reasons
import icechunk_reasons

PAGES = {
    "api-table.md": (icevirt, api_reasons),
    "icechunk-programs.md": (icevirt.icechunk, icechunk_reasons),
}
MODULES = {"xarray": icechunk.xarray, "dask": icechunk.dask, "distributed": icechunk.distributed}
BASES = (object, BaseException, KeyError, str, enum.Enum, enum.IntEnum, enum.StrEnum)
MARK = "<!-- written by docs/make_api_table.py -->\n"
ORDER = ("Repository", "Session", "ForkSession", "IcechunkStore", "RepositoryConfig")


@dataclass(frozen=True, slots=True)
class Row:
    """One public name of icechunk's."""

    name: str
    verdict: str  # same, renamed, differs, absent
    here: str = ""  # where it was renamed
    why: str = ""


@dataclass(slots=True)
class Comparison:
    """What was found, and what is wrong with the reasons."""

    home: ModuleType
    reasons: Any  # a module like `api_reasons`
    rows: list[Row] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def reason[T](self, table: Mapping[str, T], name: str) -> T | None:
        """Return what a table says about a name; its keys are patterns."""
        for pattern, note in table.items():
            if re.fullmatch(pattern, name):
                self.used.add(pattern)
                return note
        return None

    def stale(self) -> list[str]:
        """Return patterns of reasons that explain nothing."""
        tables = self.reasons
        given = {*tables.ABSENT, *tables.RENAMED, *tables.DIFFERS}
        return sorted(given - self.used)

    def problems(self) -> list[str]:
        """Return what keeps the page from being true."""
        return [
            *(f"no reason in {self.reasons.__name__}.py: {what}" for what in self.unexplained),
            *(
                f"explains nothing, remove it from {self.reasons.__name__}.py: {what}"
                for what in self.stale()
            ),
        ]


def compare(which: str) -> Comparison:
    """Compare all public names, for one of `PAGES`."""
    found = Comparison(*PAGES[which])
    names = [n for n in dir(icechunk) if _is_public(n) and not _is_module(getattr(icechunk, n))]
    for name in [*ORDER, *sorted({*names, *icechunk.__all__} - {*ORDER, "__version__"})]:
        _compare_name(found, name, getattr(icechunk, name), found.home)
    for module, theirs in MODULES.items():
        for name in _own_functions(theirs):
            here = getattr(found.home, module, None)
            _compare_name(found, f"{module}.{name}", getattr(theirs, name), here)
    return found


def _compare_name(found: Comparison, name: str, theirs: Any, home: Any) -> None:
    reasons = found.reasons
    renamed = found.reason(reasons.RENAMED, name)
    ours = _member(home, renamed[0] if renamed else name.rpartition(".")[2])
    if ours is None:
        why = found.reason(reasons.ABSENT, name)
        if why is None:
            found.unexplained.append(f"{name} is absent")
        else:
            found.rows.append(Row(name, "absent", why=why))
        return
    _add(found, name, _differing(found, name, theirs, ours), renamed)
    if inspect.isclass(theirs):
        for attribute in _attributes(theirs):
            below = f"{name}.{attribute}"
            here = found.reason(reasons.RENAMED, below) or (attribute, "")
            if not _is_inherited(theirs, attribute, ours, here[0]):
                _compare_name(found, below, getattr(theirs, attribute), ours)


def _member(home: Any, name: str) -> Any:
    """Return a public name of a module or class, or None."""
    if home is None or (isinstance(home, ModuleType) and name not in home.__all__):
        return None
    annotated = inspect.isclass(home) and any(
        name in inspect.get_annotations(base) for base in home.__mro__
    )
    return getattr(home, name, name if annotated else None)


def _add(
    found: Comparison, name: str, differing: list[str], renamed: tuple[str, str] | None
) -> None:
    """Add the row of a name that exists on both sides."""
    why = found.reason(found.reasons.DIFFERS, name) or ""
    unsaid = [each for each in differing if not _is_said(found, each, why)]
    if unsaid:
        found.unexplained.append(f"{name} differs in {', '.join(unsaid)}")
    here, note = renamed or ("", "")
    verdict = "renamed" if here else "differs" if why or differing else "same"
    texts = [text for text in (note, why, _general(found, differing)) if text]
    found.rows.append(Row(name, verdict, here, "; ".join(texts)))


def _is_said(found: Comparison, parameter: str, why: str) -> bool:
    """Say whether a reason mentions a parameter, or a general one covers it."""
    plain = parameter.strip("*+=")
    return f"`{plain}`" in why or parameter.endswith("*") or plain in found.reasons.PARAMETERS


def _general(found: Comparison, differing: list[str]) -> str:
    reasons = found.reasons
    note = sorted(
        {reasons.PARAMETERS[p] for p in differing if p in reasons.PARAMETERS}
        | ({reasons.BY_KEYWORD.format(p.strip("*")) for p in differing if p.endswith("*")})
    )
    return "; ".join(note)


def _differing(found: Comparison, name: str, theirs: Any, ours: Any) -> list[str]:
    """Return parameters that differ, marked by how.

    ``x`` is absent here, ``+x`` has to be given here, ``x*`` goes by keyword only here, ``x=`` has
    another default.
    """
    mine, other = _accepted(ours), _accepted(theirs)
    if mine is None or other is None or _is_made_elsewhere(found, name, theirs):
        return []
    keyword = inspect.Parameter.KEYWORD_ONLY
    takes_all = any(p.kind is p.VAR_KEYWORD for p in mine.values())
    return [
        *(each for each in other if each not in mine and not takes_all),
        *(f"+{each}" for each, p in mine.items() if each not in other and _is_needed(p)),
        *(
            f"{each}*"
            for each, p in other.items()
            if each in mine and mine[each].kind is keyword and p.kind is not keyword
        ),
        *(f"{each}=" for each, p in other.items() if each in mine and _is_other(p, mine[each])),
    ]


def _is_other(theirs: inspect.Parameter, ours: inspect.Parameter) -> bool:
    """Say whether a parameter that may be left out means something else then."""
    plain = (bool, int, str, type(None))
    return isinstance(theirs.default, plain) and repr(theirs.default) != repr(ours.default)


def _is_needed(parameter: inspect.Parameter) -> bool:
    variable = (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    return parameter.default is parameter.empty and parameter.kind not in variable


def _accepted(what: Any) -> dict[str, inspect.Parameter] | None:
    if not callable(what):
        return None
    try:
        found = inspect.signature(what).parameters
    except (TypeError, ValueError):
        return None
    return {
        each: p
        for each, p in found.items()
        if each not in {"self", "args", "kwargs"}
        or (p.kind is p.VAR_KEYWORD and what.__module__.startswith("icevirt"))
    }


def _is_made_elsewhere(found: Comparison, name: str, theirs: Any) -> bool:
    """Say whether users never call it: enumerations, and what other calls return."""
    return inspect.isclass(theirs) and (
        issubclass(theirs, (enum.Enum, BaseException)) or name in found.reasons.RETURNED
    )


def _attributes(kind: type) -> Iterator[str]:
    inherited = {name for base in BASES if issubclass(kind, base) for name in dir(base)}
    for name in dir(kind):
        if _is_public(name) and name not in inherited and not _is_nested(kind, name):
            yield name


def _is_inherited(theirs: type, name: str, ours: Any, here: str) -> bool:
    """Say whether both sides have an attribute from a class that is compared by itself."""
    bases = [base for base in theirs.__mro__[1:] if hasattr(icechunk, base.__name__)]
    return (
        inspect.isclass(ours)
        and any(hasattr(base, name) for base in bases)
        and any(_member(base, here) for base in ours.__mro__[1:])
    )


def _is_nested(kind: type, name: str) -> bool:
    """Say whether an attribute is a class of which this one is a case, as in ``A.B.B``."""
    value = getattr(kind, name)
    return (
        inspect.isclass(value)
        and issubclass(kind, value.__mro__[1])
        and kind is not value.__mro__[1]
    )


def _own_functions(module: ModuleType) -> list[str]:
    found = inspect.getmembers(module, inspect.isfunction)
    return [n for n, f in found if _is_public(n) and f.__module__ == module.__name__]


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _is_module(what: Any) -> bool:
    return isinstance(what, ModuleType)


# -- the page --------------------------------------------------------------------------------------


def whole(name: str) -> str:
    """Return the text of a page; what stands above its mark stays."""
    above, mark, _ = (Path(__file__).parent / name).read_text().partition(MARK)
    names = page(compare(name))
    return above + mark + re.sub(r"^#", "##", names, flags=re.MULTILINE) if mark else names


def page(found: Comparison) -> str:
    """Return all names, as a page."""
    parts = [found.reasons.HEAD.format(version=icechunk.__version__, counts=_counts(found.rows))]
    tops = [row for row in found.rows if "." not in row.name]
    single = [row for row in tops if not _below(found.rows, row.name)]
    parts += [
        _section(f"## {top.name}", [top, *below], top.name)
        for top in tops
        if (below := _below(found.rows, top.name))
    ]
    parts.append(_section("## Functions and other names", single, ""))
    for module in MODULES:
        rows = [row for row in found.rows if row.name.startswith(f"{module}.")]
        parts.append(_section(f"## icechunk.{module}", rows, module))
    return "\n".join(parts)


def _below(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row.name.startswith(f"{name}.")]


def _section(title: str, rows: list[Row], prefix: str) -> str:
    """Return a heading, what is the same in one line, and a table of the rest."""
    same = [f"`{_short(row, prefix)}`" for row in rows if row.verdict == "same"]
    rest: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.verdict != "same":
            rest.setdefault((row.verdict, row.here, row.why), []).append(_short(row, prefix))
    lines = [title, ""]
    if same:
        lines += [f"Same: {', '.join(same)}.", ""]
    if rest:
        lines += ["| icechunk | icevirt | why |", "|---|---|---|"]
        for (verdict, here, why), names in rest.items():
            note = f"`{here}`" if here else verdict
            lines.append(f"| {', '.join(f'`{n}`' for n in names)} | {note} | {_cell(why)} |")
        lines.append("")
    return "\n".join(lines)


def _short(row: Row, prefix: str) -> str:
    return row.name.removeprefix(f"{prefix}.") if row.name != prefix else row.name


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _counts(rows: list[Row]) -> str:
    kinds = ("same", "differs", "renamed", "absent")
    return ", ".join(f"{sum(r.verdict == kind for r in rows)} {kind}" for kind in kinds)


def main() -> int:
    """Write the pages; return 1 where a reason is missing or stale."""
    problems = [problem for name in PAGES for problem in compare(name).problems()]
    if problems:
        sys.stderr.write("\n".join(problems) + "\n")
        return 1
    for name in PAGES:
        (Path(__file__).parent / name).write_text(whole(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
