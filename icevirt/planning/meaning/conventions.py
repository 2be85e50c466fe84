"""Look at attributes by which other conventions than CF scale values, or say what values are.

xarray shows the first file's. Where files declare a convention, attributes of it that differ are
refused, unless those that differ are left out. Elsewhere a name alone proves nothing, and a line
names it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icevirt.archive.facts import CatalogFacts, variables_of
from icevirt.archive.schema import DECODING, ScannedGroup
from icevirt.errors import CombineError
from icevirt.planning.combine.combine_attrs import CombineAttrs
from icevirt.planning.meaning.places import PROJECTING
from icevirt.planning.remedies import choose, fix, list_names
from icevirt.remedy_notation import write_code, write_remedy

type _Said = Mapping[str, Any]  # attributes
type _Held = defaultdict[str, dict[str, _Said]]  # by path, and by their text


@dataclass(frozen=True, slots=True)
class _Convention:
    """A way of saying what numbers mean."""

    name: str
    is_declared: Callable[[Sequence[ScannedGroup]], bool]  # by the groups of a file
    deciding: frozenset[str]  # attributes of arrays and groups
    has_groups: bool = True  # attributes of groups are among them


def _at_root(name: str, begins: str = "") -> Callable[[Sequence[ScannedGroup]], bool]:
    def declares(groups: Sequence[ScannedGroup]) -> bool:
        held = groups[0].attributes.values if groups else {}
        return name in held and str(held[name]).startswith(begins)

    return declares


def _anywhere(name: str) -> Callable[[Sequence[ScannedGroup]], bool]:
    return lambda groups: any(name in each.attributes.values for each in groups)


_OF_NWB = frozenset(("conversion", "offset", "unit", "rate"))
_OF_OPENPMD = frozenset(("unitSI", "unitDimension", "gridUnitSI"))
_OF_ODIM = frozenset(("gain", "offset", "nodata", "undetect", "quantity"))
_OF_ANNDATA = frozenset(("encoding-type", "ordered"))
_OF_PANDAS = frozenset(("kind", "index_kind", "tz", "value_type"))
_DECLARED = (
    _Convention("NWB", _at_root("nwb_version"), _OF_NWB, has_groups=False),
    _Convention("openPMD", _at_root("openPMD"), _OF_OPENPMD),
    _Convention("ODIM_H5", _at_root("Conventions", "ODIM_H5"), _OF_ODIM),
    _Convention("AnnData", _anywhere("encoding-type"), _OF_ANNDATA),
    _Convention("pandas", _at_root("PYTABLES_FORMAT_VERSION"), _OF_PANDAS, has_groups=False),
)
_SCALING = frozenset(
    name.lower() for each in _DECLARED for name in each.deciding
) | frozenset((
    *("scale", "scaling", "scaling_factor", "scalefactor", "scale_fac", "factor", "multiplier"),
    *("slope", "intercept", "bias", "add_off", "addoffset", "data_scale", "data_offset"),
    *("conversion_factor", "calibration", "units", "unit_si", "scale_factor", "add_offset"),
    *("missing", "fillvalue", "fill_value", "no_data", "nodata_value", "encoding"),
))  # fmt: skip
"""Attributes, in lower case, that change what numbers mean where a convention says so."""

_OF_DROPPING = (
    "numbers are joined as they are stored, and attributes that differ are left out: readers do not"
    " see what they mean"
)
_LONGEST = 40  # letters of a value
_NAMED = 3  # attributes in a line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlike:
    """An attribute that files do not say alike."""

    path: str
    name: str
    first: Any
    other: Any
    of_group: bool


def describe_conventions(facts: CatalogFacts, policy: CombineAttrs) -> list[str]:
    """Return lines about attributes that may scale values and are not the same in all files.

    Args:
        facts: Of the files.
        policy: How attributes that differ are combined.

    Raises:
        CombineError: Files declare a convention by which they do, and the first file's would be
            shown.
    """
    if len(facts.files) < 2:
        return []
    first = facts.groups_of(0)
    ours = next((each for each in _DECLARED if each.is_declared(first)), None)
    unlike = [*_of_arrays(facts), *_of_groups(facts, ours)]
    for each in unlike:
        if ours is not None and each.name in ours.deciding and policy == "override":
            raise _refusal(ours, each, [one.path for one in unlike if one.name == each.name])
    return [*_lines(unlike, policy)]


def _of_arrays(facts: CatalogFacts) -> Iterator[_Unlike]:
    held: _Held = defaultdict(dict)
    for path, schema in variables_of(facts):
        _keep(held[path], schema.attributes.values, but=DECODING)  # compared elsewhere
    return _find_unlike(held, of_group=False)


def _of_groups(facts: CatalogFacts, ours: _Convention | None) -> Iterator[_Unlike]:
    """Compare groups: of all files where a convention has them, else of the first and the last."""
    last = len(facts.files) - 1
    rows: Iterable[int] = range(last + 1) if ours is not None and ours.has_groups else (0, last)
    held: _Held = defaultdict(dict)
    for row in rows:
        for group in facts.groups_of(row):
            _keep(held[group.path], group.attributes.values, more=PROJECTING)
    return _find_unlike(held, of_group=True)


def _keep(
    held: dict[str, _Said],
    attributes: _Said,
    *,
    but: Collection[str] = (),
    more: frozenset[str] = frozenset(),
) -> None:
    """Keep the attributes that may scale values, equal ones once."""
    wanted = _SCALING | more
    names = [name for name in attributes if name.lower() in wanted and name not in but]
    said = {name: attributes[name] for name in names}
    held.setdefault(repr(said), said)


def _find_unlike(held: _Held, *, of_group: bool) -> Iterator[_Unlike]:
    for path, by_text in held.items():
        said = [*by_text.values()]
        for name in dict.fromkeys(name for each in said for name in each):
            first, *others = (each.get(name) for each in said)
            for other in [each for each in others if each != first][:1]:
                yield _Unlike(path=path, name=name, first=first, other=other, of_group=of_group)


def _refusal(ours: _Convention, found: _Unlike, paths: Sequence[str]) -> CombineError:
    same = ""
    if not found.of_group and found.first is not None:
        said = choose(attrs={found.path: {found.name: found.first}})
        same = write_remedy(" If it is wrong in some files, say it for all, like ", said, ".")
    return CombineError(
        f"by the convention {ours.name}, {found.name} of {found.path} says what its numbers mean,"
        f" and it is not the same in all files: {_shorten(found.first)}, {_shorten(found.other)}",
        do=write_remedy(
            f"Build the files of each {found.name} into a group of their own, with ",
            write_code("group=...", "--group NAME"),
            ".",
            same,
        ),
        fixes=[fix(_OF_DROPPING, combine_attrs="drop_conflicts")],
        convention=ours.name,
        attribute=found.name,
        paths=list(paths),
        first=_shorten(found.first),
        other=_shorten(found.other),
    )


def _lines(unlike: Sequence[_Unlike], policy: CombineAttrs) -> Iterator[str]:
    """Yield a line for each attribute, with all that have it."""
    by_name: dict[str, list[_Unlike]] = defaultdict(list)
    for each in unlike:
        by_name[each.name].append(each)
    shown = "the first file's is shown" if policy == "override" else "numbers are joined as stored"
    for name, found in by_name.items():
        one = found[0]
        yield (
            f"the attribute {name} of {list_names([each.path for each in found], _NAMED)} is not"
            f" the same in all files ({_shorten(one.first)}, {_shorten(one.other)}): if it says"
            f" what numbers mean, they are not comparable; {shown}"
        )


def _shorten(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
