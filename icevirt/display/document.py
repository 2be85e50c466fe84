"""Convert reports to JSON documents, for programs that read the command's output.

Field names are those of the Python values; what is derived of them stands in `descriptions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from icevirt.display.descriptions import describe, find_function
from icevirt.model.json import JSON
from icevirt.remedy_notation import show_remedy

if TYPE_CHECKING:
    from icevirt.errors import IcevirtError

_NEVER = ("opening",)  # they may hold credentials


def document(value: Any) -> JSON:
    """Return ``value`` as JSON: dataclasses by field, sequences as lists, the rest as it is."""
    shown, described = describe(value)
    if described.json:
        return find_function(described.json)(value)  # type: ignore[no-any-return]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(shown) if field.name not in _NEVER)
        return pick(value, (*described.first, *fields, *described.last))
    if isinstance(value, Enum | datetime):
        return str(value.value) if isinstance(value, Enum) else value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, frozenset | list | tuple):
        return [
            document(item) for item in (sorted(value) if isinstance(value, frozenset) else value)
        ]
    return value  # type: ignore[no-any-return]


def document_error(value: IcevirtError) -> JSON:
    """Return an error; the eras that it is about lie on top, as where none is refused."""
    facts = dict(value.facts)
    eras = document(facts.pop("eras", None))
    said = {"code": value.code, "what": show_remedy(value.what), "facts": document(facts)}
    return {
        **(eras if isinstance(eras, dict) else {}),
        "error": {**said, "do": show_remedy(value.do)},
        "fixes": [document(each) for each in value.fixes],
    }


def pick(value: object, names: Iterable[str]) -> dict[str, JSON]:
    """Return attributes of a value by their names, as JSON."""
    return {name: document(getattr(value, name)) for name in names}


def pick_fields(value: Any) -> dict[str, JSON]:
    """Return the fields of a value, without what is derived of them, as JSON."""
    return pick(value, (field.name for field in dataclasses.fields(value)))
