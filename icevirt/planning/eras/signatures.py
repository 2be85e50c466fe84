"""Number the decode signatures of arrays per file; eras differ in them.

Times are labels: "hours since" another date in every file makes no era, and neither does a
compression level. Neither does it matter whether the scan read the values: such arrays are encoded
anew, as the referenced ones are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns
from icevirt.archive.schema import ArraySchema
from icevirt.planning.axes.time_recoding import units_of

_UNITS = ("attribute units", "attribute calendar")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signatures:
    """The decode signatures of all schemas of a catalog, numbered."""

    of_schema: NDArray[np.int64]  # (schemas,) number of the signature
    admits: tuple[frozenset[int], ...]  # by number: those that files of one array may have with it
    facts: tuple[Mapping[str, Any], ...]  # by number

    @classmethod
    def of(cls, arrays: ArrayColumns) -> Signatures:
        """Read every schema once."""
        made = _Made()
        for text in arrays.schema.values:
            made.add(ArraySchema.loads(text))
        return made.done()


@dataclass(slots=True)
class _Made:
    """Signatures as they are found."""

    codes: list[int] = field(default_factory=list)  # by schema
    numbers: dict[str, int] = field(default_factory=dict)
    facts: list[Mapping[str, Any]] = field(default_factory=list)  # from here on by number
    bases: list[str] = field(default_factory=list)  # of the values alone
    whole: list[bool] = field(default_factory=list)  # read by the scan

    def add(self, schema: ArraySchema) -> None:
        base = _without_units(schema, schema.decode_signature(stored=False))
        told = base if schema.whole else schema.decode_signature()
        key = json.dumps([schema.whole, told], sort_keys=True)
        if key not in self.numbers:
            self.numbers[key] = len(self.facts)
            self.facts.append(told)
            self.bases.append(json.dumps(base, sort_keys=True))
            self.whole.append(schema.whole)
        self.codes.append(self.numbers[key])

    def done(self) -> Signatures:
        stored: dict[str, set[int]] = {}
        for number, base in enumerate(self.bases):
            if not self.whole[number]:
                stored.setdefault(base, set()).add(number)
        admits = [
            frozenset(stored.get(base, {number}) if self.whole[number] else {number})
            for number, base in enumerate(self.bases)
        ]
        return Signatures(
            of_schema=np.array(self.codes, np.int64), admits=tuple(admits), facts=tuple(self.facts)
        )


def _without_units(schema: ArraySchema, signature: dict[str, Any]) -> dict[str, Any]:
    """Leave out the units of times that can be recoded, and spell their calendar in one way."""
    units = units_of(schema.attributes.values) if schema.whole else None
    if units is None:
        return signature
    kept = {name: value for name, value in signature.items() if name not in _UNITS}
    return {**kept, "attribute calendar": [units.calendar, None]}
