"""Plan, or refuse with commands that were tried: each holds all that it takes to build these files.

A refusal knows what solves it, and not what is refused next. So each of its fixes is planned with,
and what the next refusal proposes is added, until a plan is made. What leads nowhere is not shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icevirt.api.choices import Choices
from icevirt.api.dataset.scanning import Scan, closed_catalog
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.errors import CombineError, Fix, IcevirtError, InvalidInputError
from icevirt.execution.executor import Executor
from icevirt.model import paths
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.eras.group_plan import combine_eras, plan_once
from icevirt.planning.eras.working_fixes import hides_eras, is_tried
from icevirt.planning.remedies import together

_FILES = 10_000  # with more of them, plans and facts for the sake of a message take too long
_ATTEMPTS = 24  # of all fixes of an error
_DEEP = 8  # refusals after one another
_OPTIONS = ("combine_options", "scan_options")
_ORDER = frozenset(("duplicates", "combine"))
_TRIED_SCAN_OPTIONS = frozenset(("drop_variables",))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planner:
    """What plans are made of."""

    executor: Executor
    scan: Scan  # with the dimensions that were inferred
    choices: Choices
    spec: CombineSpec

    def plan(self, closed: ClosedCatalog) -> tuple[CatalogFacts, CombineSpec, BuildPlan]:
        """Return the edited facts, and the plan.

        Raises:
            CombineError: The files do not combine; its fixes do what they say.
        """
        facts, spec = self.choices.edits.applied(closed.facts, self.spec)
        try:
            return facts, spec, combine_eras(facts, spec)
        except CombineError as error:
            if error.fixes and len(self.scan.files) <= _FILES:
                fixes, why_not = tried(error, self.refusal)
                error.fixes = tuple(fixes)
                error.do = error.do if fixes else f"{error.do} {why_not}".strip()
            raise

    def refusal(self, arguments: Mapping[str, Any]) -> IcevirtError | None:
        """Return what a plan with other arguments is refused for; None where it is made.

        Raises:
            UntriedError: That cannot be known.
        """
        scan = arguments.get("scan_options", {})
        known = {*_OPTIONS, "concat_dim", "commit_options"}
        if not scan.keys() <= _TRIED_SCAN_OPTIONS or not arguments.keys() <= known:
            raise UntriedError
        try:
            self._planned(arguments)
        except IcevirtError as error:
            return error
        except Exception as error:  # whatever it is, it must not hide the refusal
            raise UntriedError from error
        return None

    def _planned(self, arguments: Mapping[str, Any]) -> None:
        before = self.choices.combine
        added = arguments.get("combine_options", {})
        combine = replace(
            before, **{name: _with(getattr(before, name), value) for name, value in added.items()}
        )
        inferred = self.scan.options.concat_dims
        named = tuple(arguments.get("concat_dim", self.choices.dimensions))
        choices = Choices.of(list(named or inferred) or None, self.choices.scan, combine)
        options = choices.scanner
        if hides_eras(combine, options.concat_dims):
            raise InvalidInputError("what other eras hold would read as missing")
        spec = choices.spec(
            options.concat_dims,
            group=self.spec.group,
            build_id=self.spec.build_id,
            nest=self.spec.nest,
        )
        closed = closed_catalog(self.executor, replace(self.scan, options=options))
        facts = _without(closed.facts, arguments.get("scan_options", {}).get("drop_variables", ()))
        plan_once(*choices.edits.applied(facts, replace(spec, kept=self.spec.kept)))


def _with(before: Any, added: Any) -> Any:
    """Return an option with what a fix adds: names to names, and what it says of names."""
    if isinstance(before, Mapping) and isinstance(added, Mapping):
        return {**before, **added}
    if isinstance(before, tuple) and isinstance(added, list | tuple):
        return tuple(dict.fromkeys((*before, *added)))
    return added


class UntriedError(Exception):
    """Whether something works cannot be known without doing it."""


def _without(facts: CatalogFacts, names: tuple[str, ...]) -> CatalogFacts:
    """Return facts without some variables, by name or path."""
    paths_there = facts.arrays.path.values
    kept = [path not in names and paths.name(path) not in names for path in paths_there]
    if all(kept):
        return facts
    rows = np.flatnonzero(np.array(kept, np.bool_)[facts.arrays.path.codes])
    return replace(facts, arrays=facts.arrays.take(rows))


# -- which fixes lead to a plan ------------------------------------------------------------------


def tried(
    error: IcevirtError, refusal: Callable[[Mapping[str, Any]], IcevirtError | None]
) -> tuple[list[Fix], str]:
    """Return the fixes that lead to a plan, each with all that it takes; and why one does not.

    Args:
        error: The refusal.
        refusal: What a plan with some arguments is refused for, None where it is made.
    """
    left = _Attempts(refusal, _ATTEMPTS, error.do)
    found: list[Fix] = []
    for fix in error.fixes:
        is_known = fix.first or fix.without or not fix.arguments or is_tried(fix)
        made = fix if is_known else left.completed(fix, error.what, _DEEP)
        if made is not None and not any(_holds(made.arguments, each.arguments) for each in found):
            found.append(made)
    return found, left.why_not


def _holds(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether arguments hold all that others do: these alone are enough, then."""
    for name, value in other.items():
        known = one.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            if not _holds(known, value):
                return False
        elif isinstance(known, list | tuple) and isinstance(value, list | tuple):
            if not all(each in known for each in value):
                return False
        elif known != value:
            return False
    return bool(other)


def _places(fix: Fix) -> bool:
    """Say whether a fix supposes along which dimension files follow one another."""
    return "concat_dim" in fix.arguments or "labels" in fix.arguments.get("combine_options", {})


def _contradicts(further: Fix, fix: Fix) -> bool:
    """Say whether a fix shows that files do not follow one another as another one supposes."""
    padded = fix.arguments.get("combine_options", {}).get("pad", ())
    names = {*fix.arguments.get("concat_dim", ()), *padded}  # their labels say what lies where
    dropped = further.arguments.get("scan_options", {}).get("drop_variables", ())
    is_order = not _ORDER.isdisjoint(further.arguments.get("combine_options", {}))
    return (_places(fix) and is_order) or any(paths.name(each) in names for each in dropped)


class _Attempts:
    """Looks for arguments with which a plan is made, a limited number of times."""

    def __init__(
        self, refusal: Callable[[Mapping[str, Any]], IcevirtError | None], most: int, do: str
    ) -> None:
        self._refusal, self._left, self._do = refusal, most, do
        self.why_not = ""  # of the first that leads nowhere

    def completed(self, fix: Fix, before: str, depth: int) -> Fix | None:
        """Return a fix with what else it takes; None where nothing is known to help.

        Args:
            fix: To be tried.
            before: What happens without it; it is no fix of that if it happens again.
            depth: How many fixes may be added.
        """
        if not self._left or not depth:
            return fix
        self._left -= 1
        try:
            error = self._refusal(fix.arguments)
        except UntriedError:
            return fix
        if error is None:
            return fix
        if error.what == before:
            return None
        for further in error.fixes:
            both = together(fix, further)
            if _contradicts(further, fix):
                continue
            if not (further.first or further.without) and both.arguments != fix.arguments:
                found = self.completed(both, error.what, depth - 1)
                if found is not None:
                    return found
        if not self.why_not and isinstance(error, CombineError):
            given = f"{fix.python} ({shlex.join(fix.flags)})"
            do = error.do if error.do != self._do else ""
            self.why_not = f"With {given}: {error.what}. {do}".strip()
        return None
