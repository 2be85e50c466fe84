"""Count the members of an enumeration as another file counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.attributes import Attributes, members_of


class NoMemberError(Exception):
    """A number that has no counterpart; the message says why."""


def can_renumber(one: Any, other: Any) -> bool:
    """Say whether two enumerations, as `members_of` returns them, name single numbers."""
    return all(isinstance(each, Mapping) and "enum" in each for each in (one, other))


def renumbered(values: NDArray[Any], source: Attributes, target: Attributes) -> NDArray[Any]:
    """Return the numbers by which ``target`` names what ``source`` names by these.

    Numbers without a name stay, if they have none there either.

    Raises:
        NoMemberError: There is no such number.
    """
    theirs, mine = members_of(source), members_of(target)
    if theirs == mine or not can_renumber(theirs, mine):
        return values
    given, wanted = _numbers(theirs), _numbers(mine)
    names = {number: name for name, number in given.items()}
    there, where = np.unique(values, return_inverse=True)
    made = [_number(int(number), names, wanted) for number in there.tolist()]
    dtype = np.min_scalar_type(max(made, default=0)) if min(made, default=0) >= 0 else np.int64
    counted = np.array(made, np.result_type(dtype, values.dtype))[where]
    return counted.reshape(values.shape)


def _numbers(members: Any) -> dict[str, int]:
    return {str(name): int(number) for name, number in members["enum"].items()}


def _number(number: int, names: Mapping[int, str], wanted: Mapping[str, int]) -> int:
    name = names.get(number)
    if name is None and number not in wanted.values():
        return number
    if name is None:
        raise NoMemberError(f"{number} has no name in the file, and one in the dataset")
    if name not in wanted:
        raise NoMemberError(f"the dataset has no number for {name!r}, {number} in the file")
    return wanted[name]
