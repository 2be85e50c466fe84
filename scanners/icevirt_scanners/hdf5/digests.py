"""Fingerprints of the values of arrays that must be equal in all files.

A digest is of decoded values, so that files may encode them differently. Decoding the same grid
again in each of ten thousand files would be most of a scan, so the digest is remembered by the
encoded bytes: when another file holds the same ones under the same filters, nothing is decoded.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import numpy as np

from icevirt_scanners.hdf5 import values
from icevirt_scanners.hdf5.context import FileContext
from icevirt_scanners.hdf5.fill import fill_json
from icevirt_scanners.hdf5.references import Stored, stored_chunks
from icevirt_scanners.hdf5.variable import Variable

_REMEMBERED = 4096  # digests; about 200 bytes each
_WORTH = 4096  # bytes of a chunk from which on reading it raw pays
_known: OrderedDict[bytes, str] = OrderedDict()


def digest_of_dataset(variable: Variable, context: FileContext) -> str:
    """Hash type, shape and values; encoded chunks where this libhdf5 cannot decode them."""
    if variable.chunk is None or not variable.pipeline.codecs:
        return _decoded(variable)
    found = stored_chunks(variable, context)
    if variable.pipeline.undecodable:
        return _encoded(variable, found, context).hex()
    if int(found.length.sum()) < _WORTH * len(found.length):
        return _decoded(variable)
    key = _encoded(variable, found, context)
    known = _known.pop(key, None) or _decoded(variable)
    _known[key] = known  # the latest stands last
    while len(_known) > _REMEMBERED:
        _known.popitem(last=False)
    return known


def _decoded(variable: Variable) -> str:
    chunk = variable.plist.get_chunk() if variable.chunk else None
    return values.digest(variable.dsid, variable.element, chunk)


def _encoded(variable: Variable, found: Stored, context: FileContext) -> bytes:
    """Hash the chunks as they lie in the file, with all that decides what they decode to."""
    total = hashlib.blake2b(_head(variable), digest_size=16)
    order = np.lexsort(found.index.T[::-1])
    for column in (found.index, found.length, found.mask):
        total.update(column[order].tobytes())
    ranges = zip(found.offset[order].tolist(), found.length[order].tolist(), strict=True)
    for offset, length in ranges:  # a read each: they may lie anywhere in the file
        total.update(context.source.read(offset, length))
    return total.digest()


def _head(variable: Variable) -> bytes:
    filters = range(variable.plist.get_nfilters())
    facts: tuple[Any, ...] = (
        variable.element.data_type,
        variable.element.big_endian,
        variable.element.not_plain,
        variable.own_shape,
        variable.chunk,
        [variable.plist.get_filter(number) for number in filters],
        fill_json(variable.fill, variable.element),
        variable.dsid.get_type().encode(),
    )
    return repr(facts).encode()
