"""Try the fixes of a refused plan: keep those that work, and join those that only work together.

A fix may lead from one difference between files to the next one. Then it is joined with the best
fix of that, so that one command solves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.options import names
from icevirt.archive.roles import coordinates_of
from icevirt.errors import Fix, IcevirtError
from icevirt.model import paths
from icevirt.planning.combine.data_vars import variables_of
from icevirt.planning.combine.hints import is_named
from icevirt.planning.combine.options import CombineOptions, CombineSpec, tolerance_of
from icevirt.planning.remedies import together
from icevirt.remedy_notation import name_of

_REPAIR = (
    "Repair the files that differ (preprocess corrects names and attributes of single files), leave"
    ' them out, or build them into another group: group="..." (--group NAME).'
)

_TRIED = frozenset({
    "chunk_grid",
    "combine_attrs",
    "duplicates",
    "float_variables",
    "max_native_bytes",
    "missing",
    "on_mismatch",
    "spacing",
})  # fmt: skip
"""Options of combining that need no other facts of files than those that the scan took."""

_LEFT_OUT = ("float_variables", "pad", "spacing", "tolerance")
_FILES = 1_000_000  # that all trials together plan: with more files, there are fewer trials
_TRIALS = 24
_TOGETHER = 4  # fixes

type Plan = Callable[[CatalogFacts, CombineSpec], object]


def keep_working_fixes(
    error: IcevirtError, facts: CatalogFacts, spec: CombineSpec, plan: Plan
) -> None:
    """Let an error propose only what works, as far as that can be tried without the files.

    Args:
        error: Why the files are refused.
        facts: Of the files.
        spec: How they were to be combined.
        plan: Combines them, or raises an error.
    """
    most = min(_TRIALS, _FILES // max(1, len(facts.files)))
    if not error.fixes or not most:
        error.do = error.do or ("" if error.fixes else _REPAIR)
        return
    trials = _Trials(plan, most)
    made, left = trials.working(error, replace(facts, compare=None), spec, _TOGETHER)
    error.fixes = found = tuple(each for each in made if not _hides(each, spec))
    if left is not None and not found:
        error.do = f"{error.do} This is not all that differs: {left.what}.".strip()
    if not found and not error.do:
        error.do = _REPAIR


def is_tried(fix: Fix) -> bool:
    """Say whether a fix can be tried without other facts of files."""
    combining = fix.arguments.get("combine_options", {})
    scanning = fix.arguments.get("scan_options", {})
    rest = fix.arguments.keys() - {"combine_options", "scan_options"}
    return not rest and combining.keys() <= _TRIED and scanning.keys() <= {"drop_variables"}


class _Trials:
    def __init__(self, plan: Plan, most: int) -> None:
        self._plan, self._left = plan, most

    def working(
        self, error: IcevirtError, facts: CatalogFacts, spec: CombineSpec, depth: int
    ) -> tuple[tuple[Fix, ...], IcevirtError | None]:
        """Return the fixes that work, and what is left of one that does not."""
        found: list[Fix] = []
        left = None
        for each in error.fixes:
            if not _keeps_meaning(each, facts):
                continue
            try:
                applied = _applied(each, facts, spec)
                if applied is None or not self._left:
                    found.append(each)
                    continue
                self._left -= 1
                self._plan(*applied)
            except IcevirtError as later:
                if later.what != error.what and applied is not None:
                    left = left or later
                    more, _ = self.working(later, *applied, depth - 1) if depth > 1 else ((), None)
                    found += [together(each, other) for other in more[:1]]
            else:
                found.append(each)
        return tuple(found), left


def _applied(
    fix: Fix, facts: CatalogFacts, spec: CombineSpec
) -> tuple[CatalogFacts, CombineSpec] | None:
    """Return facts and choices with a fix; None where it changes what is not known here."""
    rest = dict(fix.arguments)
    combining: Mapping[str, Any] = rest.pop("combine_options", {})
    scanning: Mapping[str, Any] = rest.pop("scan_options", {})
    known = combining.keys() <= _TRIED and scanning.keys() <= {"drop_variables"}
    chosen, spacing = spec.options.chosen(), dict(spec.spacing)
    is_known = known and not rest and all(_gone(each, chosen, spacing) for each in fix.without)
    if not is_known or not (combining or scanning or fix.without):
        return None
    if scanning:
        facts = _less(facts, tuple(scanning["drop_variables"]))
    added = dict(combining)
    if "float_variables" in added:
        added["float_variables"] = (*spec.options.float_variables, *added["float_variables"])
    spacing |= added.get("spacing", {})
    return facts, replace(spec, options=CombineOptions.of(chosen | added), spacing=spacing)


def _gone(option: str, chosen: dict[str, Any], spacing: dict[str, Any]) -> bool:
    """Leave out what an option says of a name; say whether that is known here."""
    flag, _, name = option.partition("=")
    called = name_of(flag)
    if called not in _LEFT_OUT:
        return False
    if called == "spacing":
        chosen.pop(called, None)
        spacing.pop(name, None) if name else spacing.clear()
    elif called == "tolerance":
        held = tolerance_of(chosen.pop(called, None))
        chosen[called] = {each: value for each, value in held.items() if each != name}
    else:
        chosen[called] = tuple(each for each in names(chosen.pop(called, ())) if each != name)
    return True


def hides_eras(options: CombineOptions, concat_dim: Sequence[str]) -> bool:
    """Say whether what files of another era hold would read as missing.

    Along several dimensions each era would be a whole grid, most of it reserved.
    """
    both = options.on_mismatch == "eras" and options.missing == "reserve"
    return both and len(concat_dim) > 1


def _hides(fix: Fix, spec: CombineSpec) -> bool:
    added = fix.arguments.get("combine_options", {})
    chosen = {**spec.options.chosen(), **{each: added[each] for each in _TRIED & added.keys()}}
    dims = fix.arguments.get("concat_dim", spec.concat_dim)
    return hides_eras(CombineOptions.of(chosen), dims)


def _keeps_meaning(fix: Fix, facts: CatalogFacts) -> bool:
    """Say whether a fix keeps the coordinates of dimensions, and some data."""
    dropped = tuple(fix.arguments.get("scan_options", {}).get("drop_variables", ()))
    if not dropped:
        return True
    known = [
        (path, schema.dimension_names, schema.attributes.values)
        for path, schema in variables_of(facts)
    ]
    if any(names == (paths.name(path),) and is_named(path, dropped) for path, names, _ in known):
        return False
    data = {path for path, _, _ in known} - coordinates_of(known)
    return not data or any(not is_named(path, dropped) for path in data)


def _less(facts: CatalogFacts, names: tuple[str, ...]) -> CatalogFacts:
    """Return the facts without some variables."""
    own = facts.arrays.path if facts.arrays.own_path is None else facts.arrays.own_path
    stays = np.array([not is_named(path, names) for path in own.values])
    return replace(facts, arrays=facts.arrays.take(np.flatnonzero(stays[own.codes])))
