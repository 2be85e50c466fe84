"""Describe the fields of a file by its sidecar, from the headers of another file of its kind.

Files whose sidecars differ in times and offsets only are of one kind. Of the first of a kind all
headers are read, of later ones a sample: the other fields are those of the first with the times of
the sidecar. What a sidecar does not say (from when a statistic is) is read as well, and so are
messages of one length, which could have changed places while their offsets stay, and of CCSDS.
Where a sidecar contradicts a message, the file is a bad one; where a message of the sample is
another field than in the first file, or packed otherwise, all headers are read, and so they are
where bytes between messages are none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from icevirt.model.grib_packings import CCSDS
from icevirt.scan.contract import ByteSource
from icevirt_scanners.grib.headers import read_number
from icevirt_scanners.grib.known_heads import KnownHeads
from icevirt_scanners.grib.products import (
    FACTS,
    OF_RUNS,
    TEMPLATES,
    UNITS,
    Products,
    read_products,
)
from icevirt_scanners.grib.sections import (
    GAP,
    MAGIC,
    Fields,
    KeptHeads,
    NoMessageError,
    read_messages,
)
from icevirt_scanners.grib.sidecars import Sidecar, SidecarError
from icevirt_scanners.grib.variables import ReadFields, are_called_alike, find_variables

_FACTORS = (1, 7919, 104729, 1299709)  # of a number, which choose a message each
_KINDS = 64  # that a process remembers, and of how many messages
_REMEMBERED = 1 << 16
_LEAST = 16  # messages of a file that is worth it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Known:
    """The latest file of a kind, and what times of a sidecar mean for its fields."""

    read: ReadFields
    is_window: NDArray[np.bool_]  # (n,)
    unit: NDArray[np.int64]  # (n,) seconds of the unit of the beginning; 0: a sidecar cannot say it
    length_unit: NDArray[np.int64]  # (n,) and of the length of a window, 1 where there is none
    varied: NDArray[np.int64]  # rows whose packing is looked at in each file
    heads: KnownHeads | None = None

    @classmethod
    def of(cls, read: ReadFields, heads: KnownHeads | None) -> Self:
        """Look at the templates of the fields."""
        found, count = read.fields.product, len(read.fields)
        is_window = np.zeros(count, np.bool_)
        unit, length_unit = np.zeros(count, np.int64), np.ones(count, np.int64)
        template = read_number(found, 7, 2)
        for number, where in TEMPLATES.items():
            rows = template == number
            unit[rows] = UNITS[found[rows, 17 + where.shift]]
            if where.interval >= 0 and rows.any():
                held = found[:, where.interval :]
                is_window |= rows
                length_unit[rows] = UNITS[held[rows, 14]]
                is_sayable = (held[:, 7] == 1) & (held[:, 13] != OF_RUNS) & (length_unit > 0)
                unit[rows & ~is_sayable] = 0
        packing = read.fields.packing
        is_varied = (read_number(packing, 9, 2) == CCSDS) | (packing[:, 19] == 0)
        return cls(
            read=read,
            is_window=is_window,
            unit=unit,
            length_unit=np.maximum(length_unit, 1),
            varied=np.flatnonzero(is_varied),
            heads=heads,
        )


# by kind, the latest at the end
_known: dict[Hashable, _Known] = {}


def read_by_sidecar(source: ByteSource, sidecar: Sidecar) -> ReadFields | None:
    """Return the fields of a file; None where its headers have to be read as if it had no sidecar.

    Raises:
        SidecarError: The sidecar contradicts the file.
        DamagedMessageError: A message is damaged.
    """
    _check_offsets(sidecar, source.file.size)
    if (np.diff(sidecar.begin) == 0).any():
        return None  # several fields of a message: their order is not told
    ends = np.append(sidecar.begin[1:], source.file.size)
    if sidecar.begin[0] and _has_between(source, np.zeros(1, np.int64), sidecar.begin[:1]):
        return None
    if _has_between(source, sidecar.end, ends):
        return None
    known = _known.get(sidecar.kind) if len(sidecar) >= _LEAST else None
    concluded = None if known is None else _conclude(source, sidecar, known)
    if concluded is not None:
        return concluded
    every = np.arange(len(sidecar))
    fields, kept = _read(source, sidecar, every, keeps=len(sidecar) >= _LEAST)
    _check_count(fields, every)
    lengths = np.minimum(sidecar.end - sidecar.begin, fields.length)
    if _has_between(source, sidecar.begin + lengths, ends):
        return None
    found = _compare(sidecar, fields, every)
    read = ReadFields(fields=fields, products=found, variables=find_variables(found))
    _remember(sidecar.kind, _Known.of(read, KnownHeads.of(fields, kept)))
    return read


def _remember(kind: Hashable, known: _Known) -> None:
    _known.pop(kind, None)
    while len(_known) >= _KINDS or (
        _known and sum(len(each.read.fields) for each in _known.values()) > _REMEMBERED
    ):
        _known.pop(next(iter(_known)), None)
    _known[kind] = known


def _check_offsets(sidecar: Sidecar, size: int) -> None:
    steps = np.diff(sidecar.begin)
    if (steps < 0).any():
        raise SidecarError("its offsets are not in order")
    inside = (sidecar.begin >= 0) & (sidecar.begin < sidecar.end) & (sidecar.end <= size)
    if inside.all():
        return
    same = np.append(False, steps == 0) | np.append(steps == 0, False)
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


def _places(sidecar: Sidecar, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    return [*zip(sidecar.begin[rows].tolist(), sidecar.end[rows].tolist(), strict=True)]


def _read(
    source: ByteSource, sidecar: Sidecar, rows: NDArray[np.int64], *, keeps: bool = False
) -> tuple[Fields, Sequence[KeptHeads]]:
    try:
        return read_messages(source, _places(sidecar, rows), (rows + 1).tolist(), keeps=keeps)
    except NoMessageError as error:
        raise SidecarError(f"no message begins at {error.offset}, where it lists one") from error


def _check_count(fields: Fields, rows: NDArray[np.int64]) -> None:
    if len(fields) != len(rows):
        raise SidecarError("a message has several fields, and the sidecar lists one")


def _compare(sidecar: Sidecar, fields: Fields, rows: NDArray[np.int64]) -> Products:
    """Hold rows of a sidecar against the headers that were read; return what these say."""
    _check_count(fields, rows)
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
    return products


def _conclude(source: ByteSource, sidecar: Sidecar, known: _Known) -> ReadFields | None:
    """Return the fields of a file that is known, at the times and places of another one.

    Sections 1 and 4 remain those of the known file; what they say is in the products. None where
    the other one has other fields, though their sidecars say the same.
    """
    products, is_said = _at_times(known, sidecar)
    before = known.read.fields
    sample = _sample(sidecar, known.varied)
    packing, bitmap = before.packing.copy(), before.bitmap.copy()
    found = None
    if known.heads is not None and is_said.all():
        leads = products.begin[sample] // known.unit[sample]
        places = np.stack([sidecar.begin[sample], sidecar.end[sample]], axis=1)
        found = known.heads.find(source, sample, places, products, leads)
    if found is None:
        sample = np.unique(np.concatenate([np.flatnonzero(~is_said), sample]))
        fields, _ = _read(source, sidecar, sample)
        read = _compare(sidecar, fields, sample)
        grids = [before.grids[number] for number in before.grid[sample].tolist()]
        if (
            _are_other(products, read, sample, is_said[sample])
            or _are_packed_otherwise(before, fields, sample)
            or grids != [fields.grids[number] for number in fields.grid.tolist()]
        ):
            return None
        found, bitmap[sample] = fields.packing, fields.bitmap
        if len(unsaid := np.flatnonzero(~is_said[sample])):
            products = products.put(sample[unsaid], read.take(unsaid))
    packing[sample] = found
    is_alike = are_called_alike(products, known.read.products)
    return ReadFields(
        fields=replace(
            before,
            begin=sidecar.begin,
            length=sidecar.end - sidecar.begin,
            packing=packing,
            bitmap=bitmap,
        ),
        products=products,
        variables=known.read.variables if is_alike else find_variables(products),
    )


def _sample(sidecar: Sidecar, varied: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return messages of one length, the last one, and some that the file's offsets choose.

    And those of CCSDS: their bits change from file to file, and the codec misreads few of them and
    many of them. Constant fields, which have no bits, may be of CCSDS in another file.
    """
    count, lengths = len(sidecar), sidecar.end - sidecar.begin
    order = np.argsort(lengths, kind="stable")
    sizes = lengths[order]
    alike = np.flatnonzero(sizes[1:] == sizes[:-1])
    chosen = int(sidecar.begin.sum() + sidecar.time[0])
    wanted = np.zeros(count, np.bool_)
    wanted[[*(chosen * factor // 7 % count for factor in _FACTORS), count - 1]] = True
    for rows in (order[alike], order[alike + 1], varied):
        wanted[rows] = True
    return np.flatnonzero(wanted)


def _at_times(known: _Known, sidecar: Sidecar) -> tuple[Products, NDArray[np.bool_]]:
    """Return products at other times, and for which rows the sidecar says the time."""
    before, is_window = known.read.products, known.is_window
    begin = np.where(is_window, sidecar.first, np.maximum(sidecar.first, sidecar.last))
    window = np.where(is_window, sidecar.last - sidecar.first, 0)
    unit = np.maximum(known.unit, 1)
    is_said = (known.unit > 0) & (begin >= 0) & (begin % unit == 0)
    facts = before.facts
    if is_window.any():
        is_said &= ~is_window | ((window >= 0) & (window % known.length_unit == 0))
        facts = facts.copy()
        lengths = facts[:, FACTS.index("length")]
        lengths[is_window] = (window // known.length_unit)[is_window]
    found = replace(
        before, time=sidecar.time, begin=begin, window=window, step=begin + window, facts=facts
    )
    return found, is_said


def _are_packed_otherwise(before: Fields, read: Fields, sample: NDArray[np.int64]) -> bool:
    """Say whether messages that were read tell of other packings or bitmaps in those that were not.

    A service changes the packing of all its fields at once, and the codec misreads some of CCSDS.
    A constant field is packed as one in any file.
    """
    then, now = (read_number(each.packing, 9, 2) for each in (before, read))
    varies = (then[sample] != now) & (before.packing[sample, 19] > 0) & (read.packing[:, 19] > 0)
    is_mapped_anew = (before.bitmap[sample] != read.bitmap) & ~np.isin(read.bitmap, (0, 255))
    return bool((varies | is_mapped_anew | ~np.isin(now, then)).any())


def _are_other(
    found: Products, read: Products, sample: NDArray[np.int64], is_said: NDArray[np.bool_]
) -> bool:
    """Say whether messages that were read are other fields than was concluded."""
    is_refused = np.isin(np.arange(len(sample)), [*read.refused])
    for own, other in (
        (np.isin(sample, [*found.refused]), is_refused),
        (found.facts[sample], read.facts),
        (found.step[sample], read.step),
        (found.window[sample], read.window),
        (found.member[sample], read.member),
    ):
        same = own == other
        if not (same.all(axis=1) if same.ndim > 1 else same)[is_said].all():
            return True
    return False
