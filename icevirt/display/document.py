"""Convert reports to JSON documents, for programs that read the command's output.

Field names are those of the Python values; derived numbers that the text shows are included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from icevirt.errors import IcevirtError
from icevirt.model.json import JSON
from icevirt.remedy_notation import shown

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
        return {name: document(getattr(value, name)) for name in (*first, *fields, *last)}
    if isinstance(value, Enum | datetime):
        return str(value.value) if isinstance(value, Enum) else value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, frozenset | list | tuple):
        items = sorted(value) if isinstance(value, frozenset) else value
        return [document(item) for item in items]
    return value  # type: ignore[no-any-return]


def _refused(value: IcevirtError) -> JSON:
    """Return an error; the eras that it is about lie on top, as where none is refused."""
    facts = dict(value.facts)
    eras = document(facts.pop("eras", None))
    return {
        **(eras if isinstance(eras, dict) else {}),
        "error": {
            "code": value.code,
            "what": value.what,
            "facts": {name: document(each) for name, each in facts.items()},
            "do": shown(value.do),
        },
        "fixes": [document(each) for each in value.fixes],
    }


def _planned(value: BuildPlan) -> JSON:
    from icevirt.display.plan import array_of
    from icevirt.objects.authorize import entry_of
    from icevirt.planning.schedule.cost_estimate import costs_of

    return document(
        {
            "build_id": value.build_id,
            "group": value.group,
            "concat_dim": value.concat_dim,
            "dimensions": value.dimensions,
            "files": list(value.files.url),
            "arrays": [
                {**dataclasses.asdict(array_of(array)), "mode": array.mode.value}
                for array in value.arrays
            ],
            "containers": [entry_of(container) for container in value.containers],
            "notes": list(map(shown, value.notes)),
            "left_out": value.left_out,
            "bad_files": value.bad_files,
            "eras": value.eras,
            "cost": value.cost or costs_of(value),
            "difference": value.difference,
        }
    )


def _scanned(value: ScannedFile) -> JSON:
    from icevirt.display.scan import summary_of

    return document(
        {
            "source": value.source,
            "scanner": value.scanner,
            "scanner_version": value.scanner_version,
            "groups": [
                {"path": group.path, "attributes": group.attributes.values}
                for group in value.groups
            ],
            "arrays": [
                {
                    **dataclasses.asdict(summary_of(array)),
                    "codecs": array.codecs,
                    "fill_value": array.fill_value,
                    "attributes": array.attributes.values,
                }
                for array in value.arrays
            ],
            "findings": value.findings,
        }
    )


_OWN: dict[str, Callable[[Any], JSON]] = {
    "BuildPlan": _planned,
    "IcevirtError": _refused,
    "ScannedFile": _scanned,
}
