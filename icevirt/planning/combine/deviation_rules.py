"""Decide what may differ between the files of one array if chunks may be stored.

Chunking and encoding may differ, because decoding and encoding again changes no value. Packing may
differ if each value survives. The meaning of values may not differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.combine.cf_packing import PACKING

type Deviating = Literal["refuse", "native"]
type ChunkGrid = Literal["regular", "rectilinear"]

MAX_NATIVE_BYTES = 256 * 1024 * 1024
"""Of values that are stored because they cannot be referenced, by default."""

_STORAGE = frozenset(("chunk shape", "codecs", "fill value"))
_PACKED = frozenset(("data type", *(f"attribute {name}" for name in PACKING)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is stored that cannot be referenced."""

    deviating: Deviating = "refuse"
    float_variables: tuple[str, ...] = ()  # names or paths, to be stored as decoded floats
    chunk_grid: ChunkGrid = "regular"
    max_native_bytes: int = MAX_NATIVE_BYTES  # of values, in all hybrid arrays

    def as_floats(self, path: str) -> bool:
        """Say whether a variable was asked to be stored as what its values mean."""
        return bool({path, paths.name(path)} & set(self.float_variables))

    def permit(self, path: str, axes: Sequence[int], unlike: Mapping[str, tuple[Any, Any]]) -> bool:
        """Say whether files that differ in these facts of decoding may make one array."""
        if self.chunk_grid == "rectilinear" and len(axes) == 1 and set(unlike) == {"chunk shape"}:
            (axis,), (one, other) = axes, unlike["chunk shape"]
            if [*one[:axis], *one[axis + 1 :]] == [*other[:axis], *other[axis + 1 :]]:
                return True
        allowed = self.deviating == "native" or self.as_floats(path)
        return allowed and bool(axes) and set(unlike) <= _STORAGE | _PACKED


def is_storage(unlike: Iterable[str]) -> bool:
    """Say whether these differences are of how values are cut and encoded, and nothing else."""
    return set(unlike) <= _STORAGE


def is_packing(unlike: Iterable[str]) -> bool:
    """Say whether these differences are of packing, perhaps of encoding, and nothing else."""
    names = set(unlike)
    return bool(names & _PACKED) and names <= _STORAGE | _PACKED


def signature(schema: ArraySchema, *, stored: bool, but: int | None = None) -> str:
    """Return what must be alike, as text; ``but`` is an axis whose chunks may differ in length."""
    facts = schema.decode_signature(stored=stored)
    if stored and but is not None:
        facts["chunk shape"] = [n for axis, n in enumerate(facts["chunk shape"]) if axis != but]
    return json.dumps(facts, sort_keys=True)
