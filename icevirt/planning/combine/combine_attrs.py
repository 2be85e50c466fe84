"""Combine the attributes of many files, as xarray's ``combine_attrs`` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.model.json import JSON
from icevirt.planning.remedies import fix, list_names

_NAMED = 5  # attributes
_LONGEST = 60  # letters of a value

type CombineAttrs = Literal["override", "drop", "identical", "no_conflicts", "drop_conflicts"]


def combine_attributes(
    found: Sequence[Attributes], policy: CombineAttrs, *, path: str, keep: Sequence[str] = ()
) -> Attributes:
    """Combine attributes, given in the order of the files, as xarray does.

    Args:
        found: Of each file.
        policy: xarray's.
        path: Of the node, for messages.
        keep: Names that stay whatever the policy, as in the first file: xarray takes attributes
            that say how values decode out of the way before it applies its policy.

    Raises:
        CombineError: The policy is "identical" or "no_conflicts", and attributes differ.
    """
    if keep and policy != "override":
        rest = combine_attributes([each.without(*keep) for each in found], policy, path=path)
        return found[0].only(*keep) | rest
    if policy == "override":
        return found[0]
    if policy == "drop":
        return Attributes()
    combined, conflicts = _merge(found)
    if policy == "drop_conflicts":
        return combined.without(*conflicts)
    if policy == "identical":
        items = [_items(each) for each in found]
        names = dict.fromkeys(name for each in items for name in each)
        conflicts = [n for n in names if any(each.get(n) != items[0].get(n) for each in items)]
        combined = found[0]
    if conflicts:
        raise _refusal(policy, path, found, conflicts)
    return combined


def _items(attributes: Attributes) -> dict[str, object]:
    return {k: (v, attributes.dtypes.get(k)) for k, v in attributes.values.items()}


def _merge(found: Sequence[Attributes]) -> tuple[Attributes, list[str]]:
    merged: dict[str, object] = {}
    conflicts: list[str] = []
    values, dtypes = {}, {}
    replaced: dict[str, tuple[JSON, JSON]] = {}
    for attributes in found:
        for name, item in _items(attributes).items():
            if name not in merged:
                merged[name] = item
                values[name] = attributes.values[name]
                if name in attributes.dtypes:
                    dtypes[name] = attributes.dtypes[name]
            elif merged[name] != item and name not in conflicts:
                conflicts.append(name)
        replaced.update(attributes.replaced)  # undone only where all of them are as shown
    return Attributes(values=values, dtypes=dtypes, replaced=replaced), conflicts


def _refusal(
    policy: str, path: str, found: Sequence[Attributes], conflicts: Sequence[str]
) -> CombineError:
    name = conflicts[0]
    items = [_items(each).get(name) for each in found]
    other = next((each for each in items if each != items[0]), None)
    return CombineError(
        f"attributes differ between files in {path}: {list_names(conflicts, _NAMED)}",
        fixes=[
            fix("attributes that differ are left out", combine_attrs="drop_conflicts"),
            fix("the first file says what attributes are", combine_attrs="override"),
        ],
        path=path,
        attributes=list(conflicts),
        values=[_text_of(items[0]), _text_of(other)],
        combine_attrs=policy,
    )


def _text_of(item: object) -> str:
    if not isinstance(item, tuple):
        return "no such attribute"
    value, dtype = item
    text = repr(value) if dtype is None else f"{value!r} ({dtype})"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
