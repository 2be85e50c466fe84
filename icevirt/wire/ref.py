"""Read and write V1 reference files: JSON that names the snapshot of a branch or tag.

An upgrade seals the branches it converted: their files then say so under names that no V1 client
understands, so an open V1 session fails to commit instead of committing to an abandoned branch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.model.json import loads

_SNAPSHOT, _SEALED = "snapshot", "upgraded_to_v2_at"


@dataclass(frozen=True, slots=True)
class Ref:
    """What a reference file says."""

    snapshot: ObjectId12
    sealed: bool = False  # an upgrade took it over: it never changes again


def encode(ref: Ref) -> bytes:
    """Return the file."""
    name = _SEALED if ref.sealed else _SNAPSHOT
    return json.dumps({name: str(ref.snapshot)}, separators=(",", ":")).encode()


def decode(raw: bytes) -> Ref:
    """Read a reference file. Raises ``FormatError``."""
    try:
        document = loads(raw)
        if _SEALED in document:
            return Ref(ObjectId12.parse(document[_SEALED]), sealed=True)
        return Ref(ObjectId12.parse(document[_SNAPSHOT]))
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "not a reference file of a V1 repository",
            do="Restore it from a copy of the repository.",
            found=raw[:80],
        ) from error
