"""Which cases of a test take turns: CI runs some, and every night (`just nightly`) all of them run."""

import os
from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def cases[Case](every: Iterable[Case], *few: Case) -> list[Case]:
    """Return every case at night, and else the few that are named."""
    known = list(every)
    assert all(case in known for case in few), "a case that is no more"
    return known if IS_LONG else list(few)


def crossed(first: Collection[Any], *others: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return every combination at night, and else one for each of the first factor.

    The values of the others take turns like the digits of a number, so that those of short factors
    meet each other.
    """
    if IS_LONG:
        return list(product(first, *others))
    held = []
    for at, each in enumerate(first):
        row, rest = [each], at
        for other in others:
            rest, digit = divmod(rest, len(other))
            row.append([*other][digit])
        held.append(tuple(row))
    return held
