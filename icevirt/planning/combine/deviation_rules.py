"""Decide what may differ between the files of one array if chunks may be stored.

Chunking and encoding may differ, because decoding and encoding again changes no value. Packing may
differ if each value survives. The meaning of values may not differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from icevirt.archive.schema import ArraySchema
from icevirt.planning.combine.cf_packing import PACKING
from icevirt.planning.combine.options import CombineOptions

_STORAGE = frozenset(("chunk shape", "codecs", "fill value"))
_PACKED = frozenset(("data type", *(f"attribute {name}" for name in PACKING)))


def permits(
    options: CombineOptions,
    path: str,
    axes: Sequence[int],
    unlike: Mapping[str, tuple[Any, Any]],
) -> bool:
    """Say whether files that differ in these facts of decoding may make one array."""
    if options.chunk_grid == "rectilinear" and len(axes) == 1 and set(unlike) == {"chunk shape"}:
        (axis,), (one, other) = axes, unlike["chunk shape"]
        if [*one[:axis], *one[axis + 1 :]] == [*other[:axis], *other[axis + 1 :]]:
            return True
    allowed = options.on_mismatch == "native" or options.as_floats(path)
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
