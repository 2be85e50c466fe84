"""Fingerprints of the values of arrays that must be equal in all files."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from icevirt_scanners.hdf5 import values
from icevirt_scanners.hdf5.references import stored_chunks
from icevirt_scanners.hdf5.variable import Variable


def digest_of_dataset(variable: Variable) -> str:
    """Hash type, shape and values; encoded chunks where this libhdf5 cannot decode them."""
    if variable.pipeline.undecodable and variable.chunk is not None:
        return _of_chunks(variable.dsid, variable)
    return values.digest(
        variable.dsid, variable.element, variable.plist.get_chunk() if variable.chunk else None
    )


def _of_chunks(dsid: Any, variable: Variable) -> str:
    chunk = variable.plist.get_chunk()
    total = hashlib.blake2b(digest_size=16)
    head = (variable.element.data_type, variable.shape, chunk, variable.pipeline.codecs)
    total.update(json.dumps(head, sort_keys=True).encode())
    index = stored_chunks(dsid, chunk).index
    for row in sorted(index.tolist()):
        mask, data = dsid.read_direct_chunk(tuple(n * e for n, e in zip(row, chunk, strict=True)))
        total.update(repr((row, mask, len(data))).encode())
        total.update(data)
    return total.hexdigest()
