"""Compute the cost of storing deviating chunks instead of making eras, by planning it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from icevirt.archive.eras import Choice
from icevirt.archive.hybrid import Hybrid
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.errors import IcevirtError
from icevirt.planning.combine.combine import combined
from icevirt.planning.combine.deviation_rules import Rules
from icevirt.planning.combine.options import Wish
from icevirt.planning.combine.prepare import PreparedFacts
from icevirt.planning.partial.storage_cost import max_error

_OPTION = 'on_mismatch="native"'
_UNLIMITED = 1 << 62
_NAMED = 3  # variables in a line


def stored_natively(prepared: PreparedFacts, wish: Wish) -> Iterator[Choice]:
    """Yield what storing deviating files would cost, and where values are packed unlike, floats."""
    rules = replace(wish.rules, deviating="native", max_native_bytes=_UNLIMITED)
    try:
        plan = combined(prepared, replace(wish, rules=rules))
    except IcevirtError as error:
        # an estimate must not hide why the files were refused
        yield Choice(option=_OPTION, does=impossible(error))
        return
    errors = {array.source_path: max_error(hybrid) for array, hybrid in _hybrids(plan)}
    packed = [path for path, error in errors.items() if error is not None]
    does = "chunks of deviating files are stored in the same arrays; every value survives exactly"
    if packed:
        does += f", or the build stops: {_named(packed)} is packed differently"
    yield Choice(
        option=_OPTION,
        does=does,
        bytes_stored=_bytes(plan),
        max_error=max((error for error in errors.values() if error is not None), default=None),
    )
    if packed:
        yield from _as_floats(prepared, wish, rules, packed)


def impossible(error: IcevirtError) -> str:
    """Return why something cannot be done, and what would help."""
    return f"is not possible: {error.what}. {error.do}".strip()


def _as_floats(
    prepared: PreparedFacts, wish: Wish, rules: Rules, packed: Sequence[str]
) -> Iterator[Choice]:
    names = (*rules.float_variables, *packed)
    try:
        plan = combined(prepared, replace(wish, rules=replace(rules, float_variables=names)))
    except IcevirtError:
        return  # they do not decode to floats
    yield Choice(
        option=f"{_OPTION}, float_variables={list(packed[:_NAMED])!r}"
        + (f" and {len(packed) - _NAMED} more" if len(packed) > _NAMED else ""),
        does="all values of these variables are stored as decoded floats, exactly",
        bytes_stored=_bytes(plan),
    )


def _hybrids(plan: BuildPlan) -> Iterator[tuple[PlannedArray, Hybrid]]:
    """Yield the arrays some of whose chunks would be stored."""
    for array in plan.arrays:
        if array.hybrid is not None and array.hybrid.chunks:
            yield array, array.hybrid


def _bytes(plan: BuildPlan) -> int:
    """Return what would be stored beside what the scan read, which is in any case."""
    return sum(hybrid.nbytes for array, hybrid in _hybrids(plan) if not array.whole.all())


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED
    return ", ".join(paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")
