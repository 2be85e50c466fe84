"""Try the fixes of a refused plan: keep those that work, and join those that only work together.

A fix may lead from one difference between files to the next one. Then it is joined with the best
fix of that, so that one command solves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from icevirt.archive.facts import CatalogFacts, describe_variables
from icevirt.archive.options import names
from icevirt.archive.plan import BuildPlan
from icevirt.archive.roles import coordinates_of
from icevirt.errors import Fix, IcevirtError
from icevirt.model import paths
from icevirt.planning.combine.hints import is_named
from icevirt.planning.combine.options import CombineOptions, CombineSpec, tolerance_of
from icevirt.planning.eras.report import refuse_unsure
from icevirt.planning.losses import Measured, sort_by_loss, with_loss_of
from icevirt.planning.remedies import together
from icevirt.remedy_notation import join, name_of, write_code, write_remedy

_REPAIR = write_remedy(
    "Repair the files that differ (preprocess corrects names and"
    " attributes of single files), leave them out, or build them into"
    " another group: ",
    write_code('group="..."', "--group NAME"),
    ".",
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

_LEFT_OUT = ("float_variables", "index_of", "pad", "rebase_indices", "spacing", "tolerance")
_FILES = 1_000_000  # that all trials together plan: with more files, there are fewer trials
_TRIALS = 24
_TOGETHER = 4  # fixes

type Plan = Callable[[CatalogFacts, CombineSpec], BuildPlan]


def keep_working_fixes(
    error: IcevirtError, facts: CatalogFacts, spec: CombineSpec, plan: Plan
) -> None:
    """Let an error propose only what works, as far as ``plan`` can try it without the files."""
    most = min(_TRIALS, _FILES // max(1, len(facts.files)))
    if not error.fixes or not most:
        error.do = error.do or ("" if error.fixes else _REPAIR)
        return
    trials = _Trials(plan, most, facts)
    made, left = trials.working(error, replace(facts, compare=None), spec, _TOGETHER)
    found = sort_by_loss(
        each
        for each in made
        if not hides_eras(
            CombineOptions.of(spec.options.list_chosen() | _choose_tried(each)),
            each.arguments.get("concat_dim", spec.concat_dim),
        )
    )
    error.fixes = tuple(found)
    if left is not None and not found:
        more = f"This is not all that differs: {left.what}."
        error.do = join(" ", filter(None, (error.do, more)))
    if not found and not error.do:
        error.do = _REPAIR


def is_tried(fix: Fix) -> bool:
    """Say whether a fix can be tried without other facts of files."""
    combining = fix.arguments.get("combine_options", {})
    scanning = fix.arguments.get("scan_options", {})
    rest = fix.arguments.keys() - {"combine_options", "scan_options"}
    return not rest and combining.keys() <= _TRIED and scanning.keys() <= {"drop_variables"}


def _choose_tried(fix: Fix) -> dict[str, Any]:
    added = fix.arguments.get("combine_options", {})
    return {name: added[name] for name in _TRIED & added.keys()}


class _Trials:
    def __init__(self, plan: Plan, most: int, facts: CatalogFacts) -> None:
        self._plan, self._left, self._facts = plan, most, facts

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
                applied = _apply(each, facts, spec)
                if applied is None or not self._left:
                    found.append(each)
                    continue
                self._left -= 1
                plan = self._plan(*applied)
                refuse_unsure(plan, each.arguments.get("combine_options", {}))
            except IcevirtError as later:
                if later.what != error.what and applied is not None:
                    left = left or later
                    more, _ = self.working(later, *applied, depth - 1) if depth > 1 else ((), None)
                    found += [with_loss_of(together(each, e), e) for e in sort_by_loss(more)[:1]]
            else:
                found.append(Measured.of(self._facts, plan).put_on(each))
        return tuple(found), left


def _apply(
    fix: Fix, facts: CatalogFacts, spec: CombineSpec
) -> tuple[CatalogFacts, CombineSpec] | None:
    """Return facts and choices with a fix; None where it changes what is not known here."""
    added: dict[str, Any] = dict(fix.arguments.get("combine_options", {}))
    dropped = tuple(fix.arguments.get("scan_options", {}).get("drop_variables", ()))
    chosen, spacing = spec.options.list_chosen(), dict(spec.spacing)
    if not is_tried(fix) or not all(_leave_out(each, chosen, spacing) for each in fix.without):
        return None
    if not (added or dropped or fix.without):
        return None
    if dropped:
        own = facts.arrays.in_files
        stays = np.array([not is_named(path, dropped) for path in own.values])
        rows = np.flatnonzero(stays[own.codes])
        facts = replace(facts, arrays=facts.arrays.take(rows))
    if "float_variables" in added:
        added["float_variables"] = (*spec.options.float_variables, *added["float_variables"])
    spacing |= added.get("spacing", {})
    return facts, replace(spec, options=CombineOptions.of(chosen | added), spacing=spacing)


def _leave_out(option: str, chosen: dict[str, Any], spacing: dict[str, Any]) -> bool:
    """Leave out what an option says of a name; say whether that is known here."""
    flag, _, name = option.partition("=")
    called = name_of(flag)
    if called not in _LEFT_OUT:
        return False
    if called == "spacing":
        chosen.pop(called, None)
        spacing.pop(name, None) if name else spacing.clear()
    elif called == "tolerance":
        tolerated = tolerance_of(chosen.pop(called, None))
        chosen[called] = {each: value for each, value in tolerated.items() if each != name}
    elif not name:
        chosen.pop(called, None)
    elif isinstance(held := chosen.pop(called, ()), Mapping):
        chosen[called] = {each: value for each, value in held.items() if each != name}
    else:
        chosen[called] = tuple(each for each in names(held) if each != name)
    return True


def hides_eras(options: CombineOptions, concat_dim: Sequence[str]) -> bool:
    """Say whether what files of another era hold would read as missing.

    Along several dimensions each era would be a whole grid, most of it reserved.
    """
    both = options.on_mismatch == "eras" and options.missing == "reserve"
    return both and len(concat_dim) > 1


def _keeps_meaning(fix: Fix, facts: CatalogFacts) -> bool:
    """Say whether a fix keeps the coordinates of dimensions, and some data."""
    dropped = tuple(fix.arguments.get("scan_options", {}).get("drop_variables", ()))
    if not dropped:
        return True
    known = [*describe_variables(facts)]
    if any(names == (paths.name(path),) and is_named(path, dropped) for path, names, _ in known):
        return False
    data = {path for path, _, _ in known} - coordinates_of(known)
    return not data or any(not is_named(path, dropped) for path in data)
