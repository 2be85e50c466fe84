"""Convert reports to JSON documents, for programs that read the command's output.

Field names are those of the Python values; derived numbers that the text shows are included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from icevirt.errors import IcevirtError
from icevirt.model.json import JSON
from icevirt.remedy_notation import show_remedy

if TYPE_CHECKING:
    from icevirt.archive.plan import BuildPlan
    from icevirt.archive.scanned import ScannedFile

_COMPUTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "AppendReport": ((), ("references",)),
    "UpdateReport": (("summary",), ("references",)),
    "BuildReport": ((), ("references",)),
    "ScanReport": ((), ("references", "ok")),
    "VerifyReport": ((), ("ok",)),
    "CheckReport": ((), ("ok",)),
    "VersionDiff": ((), ("chunks_written",)),
    "MaintenanceReport": ((), ("objects", "bytes")),
    "RepositoryStatus": ((), ("lag_seconds", "age_seconds")),
    "ExcludedFiles": ((), ("count",)),
    "PlanCost": ((), ("map", "series")),
    "ReadCost": (("requests",), ()),
    "Era": (("name",), ()),
}  # what is shown before and after the fields of a class
_NEVER = ("opening",)  # they may hold credentials


def of_class[T](value: object, known: Mapping[str, T]) -> T | None:
    """Return what is known of the class of a value, or of the nearest class above it, by name."""
    return next((known[each.__name__] for each in _classes(value) if each.__name__ in known), None)


def _classes(value: object) -> Iterator[type]:
    """Yield the classes of this package that a value is of, the nearest first."""
    return (each for each in type(value).__mro__ if each.__module__.startswith("icevirt."))


def document(value: Any) -> JSON:
    """Return ``value`` as JSON: dataclasses by field, sequences as lists, the rest as it is."""
    if own := of_class(value, _OWN):
        return own(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = next((each for each in _classes(value) if each.__name__ in _COMPUTED), type(value))
        first, last = _COMPUTED.get(shown.__name__, ((), ()))
        fields = (field.name for field in dataclasses.fields(shown) if field.name not in _NEVER)
        return _pick(value, (*first, *fields, *last))
    if isinstance(value, Enum | datetime):
        return str(value.value) if isinstance(value, Enum) else value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, frozenset | list | tuple):
        return [
            document(item) for item in (sorted(value) if isinstance(value, frozenset) else value)
        ]
    return value  # type: ignore[no-any-return]


def _error(value: IcevirtError) -> JSON:
    """Return an error; the eras that it is about lie on top, as where none is refused."""
    facts = dict(value.facts)
    eras = document(facts.pop("eras", None))
    said = {"code": value.code, "what": show_remedy(value.what), "facts": document(facts)}
    return {
        **(eras if isinstance(eras, dict) else {}),
        "error": {**said, "do": show_remedy(value.do)},
        "fixes": [document(each) for each in value.fixes],
    }


def _plan(value: BuildPlan) -> JSON:
    from icevirt.display.plan import array_of
    from icevirt.objects.authorize import entry_of
    from icevirt.planning.schedule.cost_estimate import costs_of

    arrays = [{**_fields(array_of(each)), "mode": each.mode.value} for each in value.arrays]
    same = ("left_out", "bad_files", "eras")
    return {
        **_pick(value, ("build_id", "group", "concat_dim", "dimensions")),
        "files": list(value.files.url),
        "arrays": arrays,
        "containers": [document(entry_of(container)) for container in value.containers],
        "notes": list(map(show_remedy, value.notes)),
        **_pick(value, same),
        "cost": document(value.cost or costs_of(value)),
        "difference": document(value.difference),
    }


def _document_file(value: ScannedFile) -> JSON:
    from icevirt.display.scan import summary_of

    return {
        **_pick(value, ("source", "scanner", "scanner_version")),
        "groups": [
            {"path": group.path, "attributes": document(group.attributes.values)}
            for group in value.groups
        ],
        "arrays": [
            {
                **_fields(summary_of(array)),
                **_pick(array, ("codecs", "fill_value")),
                "attributes": document(array.attributes.values),
            }
            for array in value.arrays
        ],
        "findings": document(value.findings),
    }


def _pick(value: object, names: Iterable[str]) -> dict[str, JSON]:
    return {name: document(getattr(value, name)) for name in names}


def _fields(value: Any) -> dict[str, JSON]:
    return _pick(value, (field.name for field in dataclasses.fields(value)))


_OWN: dict[str, Callable[[Any], JSON]] = {
    "BuildPlan": _plan,
    "IcevirtError": _error,
    "ScannedFile": _document_file,
}
