"""Read and write lists of chunk ids that are digests of their bytes, in files of our own.

A random id says nothing about the bytes, so a checker has to know which ids it may compare. The
format has no place for that; these files lie beside it. A list is 12 bytes of magic, then ids of 12
bytes, ascending. It is named by its own digest, so a damaged list is noticed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.versioning.id_columns import ID

MAGIC = b"ICVT-NAMES-1"


def encode(ids: NDArray[np.void]) -> tuple[ObjectId12, bytes]:
    """Return the name and the bytes of the file that lists these ids, which ascend."""
    raw = MAGIC + ids.tobytes()
    return ObjectId12.of_content(raw), raw


def decode(name: str, raw: bytes) -> NDArray[np.void]:
    """Return the ids that a file lists.

    Raises:
        FormatError: The file is damaged, or of a newer icevirt.
    """
    if str(ObjectId12.of_content(raw)) != name or len(raw) % ID.itemsize:
        raise FormatError(
            "a list of chunk names is damaged, so damaged chunks of this list count as"
            " unverifiable",
            do="Restore the file. If there is no copy, delete it and run"
            " `icevirt check REPO --chunks --record`.",
            name=name,
        )
    if not raw.startswith(MAGIC):
        raise FormatError(
            "this icevirt does not support the format of a list of chunk names",
            do="Upgrade icevirt.",
            name=name,
        )
    return np.frombuffer(raw, ID, offset=len(MAGIC))
