"""Describe the fields of a file by its sidecar, from the headers of another file of its kind.

Files whose sidecars differ in times and offsets only are of one kind. Of the first of a kind all
headers are read, of later ones a sample: the other fields are those of the first with the times of
the sidecar. What a sidecar does not say (from when a statistic is) is read as well, and so are
messages of one length, which could have changed places while their offsets stay. Where a sidecar
contradicts a message, the file is a bad one; where a message of the sample is another field than in
the first file, all headers are read, and so they are where bytes between messages are none.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from icevirt.scan.contract import ByteSource
from icevirt_scanners.grib.products import FACTS, OF_RUNS, TEMPLATES, UNITS, read_products
from icevirt_scanners.grib.sections import GAP, MAGIC, Fields, NoMessageError, read_messages
from icevirt_scanners.grib.sidecars import Sidecar, SidecarError

_SAMPLE = 4  # messages, beside the last one
_KINDS = 8  # that a process remembers
_LEAST = 16  # messages of a file that is worth it
type _Kind = tuple[str, ...]


# the fields of the latest file of each kind
_known: OrderedDict[_Kind, Fields] = OrderedDict()


def read_by_sidecar(source: ByteSource, sidecar: Sidecar) -> Fields | None:
    """Return the fields of a file; None where its headers have to be read as if it had no sidecar.

    Raises:
        SidecarError: The sidecar contradicts the file.
        DamagedMessageError: A message is damaged.
    """
    _check_offsets(sidecar, source.file.size)
    if (np.diff(sidecar.begin) == 0).any():
        return None  # several fields of a message: their order is not told
    ends = np.r_[sidecar.begin[1:], source.file.size]
    if _has_between(source, np.r_[0, sidecar.end], np.r_[sidecar.begin, source.file.size]):
        return None
    known = _known.get(sidecar.kind) if len(sidecar) >= _LEAST else None
    concluded = None if known is None else _conclude(source, sidecar, known)
    if concluded is not None:
        return concluded
    every = np.arange(len(sidecar))
    fields = _read(source, sidecar, every)
    lengths = np.minimum(sidecar.end - sidecar.begin, fields.length)
    if len(fields) == len(every) and _has_between(source, sidecar.begin + lengths, ends):
        return None
    _compare(sidecar, fields, every)
    _known[sidecar.kind] = fields
    while len(_known) > _KINDS:
        _known.popitem(last=False)
    return fields


def _check_offsets(sidecar: Sidecar, size: int) -> None:
    steps = np.diff(sidecar.begin)
    if (steps < 0).any():
        raise SidecarError("its offsets are not in order")
    inside = (sidecar.begin >= 0) & (sidecar.begin < sidecar.end) & (sidecar.end <= size)
    same = np.r_[False, steps == 0] | np.r_[steps == 0, False]
    if not (inside | same).all():
        raise SidecarError(f"its offsets do not lie in a file of {size} bytes")


def _has_between(source: ByteSource, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
    """Say whether there are bytes between messages, which are headings.

    Raises:
        SidecarError: A message is among them, or messages overlap.
    """
    odd = np.nonzero(begins != ends)[0]
    for begin, end in zip(begins[odd].tolist(), ends[odd].tolist(), strict=True):
        if not 0 < end - begin <= GAP or MAGIC in source.read(begin, end - begin):
            raise SidecarError(f"its messages leave out, or overlap, what lies at {begin} to {end}")
    return bool(len(odd))


def _read(source: ByteSource, sidecar: Sidecar, rows: NDArray[np.int64]) -> Fields:
    places = zip(sidecar.begin[rows].tolist(), sidecar.end[rows].tolist(), strict=True)
    try:
        return read_messages(source, [*places], (rows + 1).tolist())
    except NoMessageError as error:
        raise SidecarError(f"no message begins at {error.offset}, where it lists one") from error


def _compare(sidecar: Sidecar, fields: Fields, rows: NDArray[np.int64]) -> None:
    """Hold rows of a sidecar against the headers that were read."""
    if len(fields) != len(rows):
        raise SidecarError("a message has several fields, and the sidecar lists one")
    products = read_products(fields)
    said_first, said_last = sidecar.first[rows], sidecar.last[rows]
    # lists differ in where a statistic over runs ends: with the last run, or at the lead of each
    of_runs = products.facts[:, FACTS.index("increment")] == OF_RUNS
    ends = of_runs & (said_last == products.begin + products.window)
    for what, said, found in (
        ("length", (sidecar.end - sidecar.begin)[rows], fields.length),
        ("reference time", sidecar.time[rows], products.time),
        ("end", said_last, np.where((said_last < 0) | ends, said_last, products.step)),
        ("begin", said_first, np.where(said_first < 0, -1, products.begin)),
    ):
        if (odd := said != found).any():
            at = int(np.argmax(odd))
            number = int(fields.message[at])
            raise SidecarError(
                f"message {number} has another {what}: {int(found[at])} instead of {int(said[at])}"
            )


def _conclude(source: ByteSource, sidecar: Sidecar, known: Fields) -> Fields | None:
    """Return the fields of a file that is known, at the times and places of another one.

    None where the other one has other fields, though their sidecars say the same.
    """
    product, is_said = _at_times(known, sidecar)
    rows = np.arange(len(sidecar))
    sample = np.unique(np.r_[rows[~is_said], _sample(sidecar, rows)])
    read = _read(source, sidecar, sample)
    _compare(sidecar, read, sample)
    sections, identification = _identify(known, sidecar)
    found = replace(
        known,
        begin=sidecar.begin,
        length=sidecar.end - sidecar.begin,
        identification=identification,
        identifications=sections,
        product=product,
    )
    if _are_other(found, read, sample, is_said):
        return None
    packing, bitmap = known.packing.copy(), known.bitmap.copy()
    product[sample], packing[sample], bitmap[sample] = read.product, read.packing, read.bitmap
    return replace(found, product=product, packing=packing, bitmap=bitmap)


def _sample(sidecar: Sidecar, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return messages of one length, the last one, and some that the file's offsets choose."""
    _, number, count = np.unique(
        sidecar.end - sidecar.begin, return_inverse=True, return_counts=True
    )
    chosen = np.random.default_rng(int(sidecar.begin.sum()) + int(sidecar.time[0]))
    some: NDArray[np.int64] = chosen.choice(rows, min(_SAMPLE, len(rows)), replace=False)
    return np.concatenate([some, rows[count[number] > 1], rows[-1:]])


def _at_times(fields: Fields, sidecar: Sidecar) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return sections 4 at other times, and for which rows the sidecar says the time."""
    found = fields.product.copy()
    is_said = np.zeros(len(fields), np.bool_)
    template = found[:, 7].astype(np.int64) << 8 | found[:, 8]
    for number, where in TEMPLATES.items():
        rows = template == number
        is_window = where.interval >= 0
        begin = sidecar.first if is_window else np.maximum(sidecar.first, sidecar.last)
        unit = UNITS[found[:, 17 + where.shift]]
        fits = rows & (begin >= 0) & (unit > 0) & (begin % np.maximum(unit, 1) == 0)
        if is_window:
            span, length = sidecar.last - sidecar.first, UNITS[found[:, where.interval + 14]]
            fits &= (sidecar.last >= 0) & (length > 0) & (span % np.maximum(length, 1) == 0)
            fits &= found[:, where.interval + 7] == 1
            fits &= found[:, where.interval + 13] != OF_RUNS
            _put(found, fits, where.interval + 15, span // np.maximum(length, 1))
        _put(found, fits, 18 + where.shift, begin // np.maximum(unit, 1))
        is_said |= fits
    return found, is_said


def _put(
    held: NDArray[np.uint8], rows: NDArray[np.bool_], at: int, numbers: NDArray[np.int64]
) -> None:
    """Write numbers of four octets into rows."""
    octets = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    held[rows, at : at + 4] = octets[rows]


def _identify(fields: Fields, sidecar: Sidecar) -> tuple[tuple[bytes, ...], NDArray[np.int64]]:
    """Return sections 1 with the reference times of a sidecar, and the row of each field."""
    pairs, number = np.unique(
        np.column_stack([fields.identification, sidecar.time]), axis=0, return_inverse=True
    )
    found = []
    for row, seconds in pairs.tolist():
        when = np.datetime64(seconds, "s").item()
        held = fields.identifications[row]
        date = when.year.to_bytes(2, "big") + bytes(
            (when.month, when.day, when.hour, when.minute, when.second)
        )
        found.append(held[:12] + date + held[19:])
    return tuple(found), number.reshape(-1)


def _are_other(
    found: Fields, read: Fields, sample: NDArray[np.int64], is_said: NDArray[np.bool_]
) -> bool:
    """Say whether messages that were read are other fields than was concluded."""
    mine, theirs = read_products(found), read_products(read)
    said = is_said[sample]
    for own, other in (
        (mine.facts[sample], theirs.facts),
        (mine.step[sample], theirs.step),
        (mine.window[sample], theirs.window),
        (mine.member[sample], theirs.member),
    ):
        same = own == other
        if not (same.all(axis=1) if same.ndim > 1 else same)[said].all():
            return True
    sections = [found.grids[number] for number in found.grid[sample].tolist()]
    return sections != [read.grids[number] for number in read.grid.tolist()]
