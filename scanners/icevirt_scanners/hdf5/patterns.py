"""Describe variables once for all files with the same headers.

Most files of an archive differ only in values, in the addresses of chunks and in the attributes of
the root group. Then all variables have the types, fill values, filters, attributes and dimensions
that they had in an earlier file, and that description (a pattern) is used again. It is found by a
key, which holds everything that the description depends on: names, all messages of all headers
without the address in a layout message, values of attributes that stand in the heap, and the
options of the scan. In the key an address of a dataset is the number of that dataset in the file,
since addresses move with the lengths of what stands before them.

A pattern holds variables only. A file with findings, or about which libhdf5 was asked, makes no
pattern and is described by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from h5py import h5d

from icevirt.scan.contract import ScannerOptions
from icevirt_scanners.hdf5.files import FileContext, Handle
from icevirt_scanners.hdf5.hierarchy import FoundDataset, Walk
from icevirt_scanners.hdf5.raw.attributes import FixedStrings, References, in_heap, without_places
from icevirt_scanners.hdf5.raw.chunks import without_address
from icevirt_scanners.hdf5.raw.header import place_values
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, require
from icevirt_scanners.hdf5.variable import HDF5Variable, KnownChunks

_MOST = 512  # datasets of a file that is remembered
_REMEMBERED = 16  # patterns


class Pattern(NamedTuple):
    """The variables of a file, without anything that is of this file only."""

    variables: tuple[tuple[int, HDF5Variable], ...]  # number of the dataset in the walk
    left_out: tuple[str, ...]  # paths of datasets that the options do not want
    equal: frozenset[str]  # paths of arrays that must be equal in all files


type _Patterns = dict[Hashable, Pattern]

_known: tuple[ScannerOptions, _Patterns] = (ScannerOptions(), {})


def _patterns_of(options: ScannerOptions) -> _Patterns:
    """Return the patterns of files that were scanned with these options; others are forgotten."""
    global _known  # noqa: PLW0603 - one value, which threads replace as a whole
    last, patterns = _known
    if last is not options:
        patterns = patterns if last == options else {}
        _known = options, patterns
    return patterns


def variables_like(
    key: Hashable | None, walk: Walk, context: FileContext
) -> list[tuple[str, Callable[[], HDF5Variable]]] | None:
    """Return path and description of each variable of a file whose pattern is known, else None.

    ``key`` is what `key_of` returned.
    """
    pattern = None if key is None else _patterns_of(context.options).get(key)
    if pattern is None:
        return None
    try:
        moved = [
            (like.path, _move(like, walk.datasets[number], context))
            for number, like in pattern.variables
        ]
    except NotUnderstoodError:  # values that would not be inside the file
        return None
    context.left_out += pattern.left_out
    context.equal = pattern.equal
    return [(path, lambda variable=variable: variable) for path, variable in moved]  # type: ignore[misc]


def _move(like: HDF5Variable, found: FoundDataset, context: FileContext) -> HDF5Variable:
    assert found.header is not None
    assert context.raw is not None
    here = None
    if like.layout != h5d.CHUNKED:
        here = place_values(found.header.layout, context.raw.space)
    return like._replace(
        handle=found.handle, address=found.address, header=found.header, placed=here
    )


def key_of(walk: Walk, context: FileContext) -> Hashable | None:
    """Return all on which the descriptions of a file's variables depend, beside the options.

    None where they depend on more than bytes of headers. Headers of datasets are known afterwards.
    """
    if context.raw is None or context.options.stack or len(walk.datasets) > _MOST:
        return None
    numbers = {found.address: number for number, found in enumerate(walk.datasets)}
    try:
        parts = tuple(_key(found, numbers, context) for found in walk.datasets)
    except NotUnderstoodError:
        return None
    return parts, tuple(group.path for group in walk.groups), context.raw.space.address_width


def _key(found: FoundDataset, numbers: dict[int, int], context: FileContext) -> Hashable:
    assert context.raw is not None
    found.header = header = context.header(found.address)
    require(header is not None and header.shared.is_kept, "an odd or large header")
    assert header is not None
    require(not found.handle.is_open, "a dataset that libhdf5 reads")
    layout = without_address(header.layout, context.raw.space.address_width)
    values = in_heap(header)
    require(values is not None, "attributes beside the header")
    beside = tuple(_number(value, numbers) for value in values or ())
    return found.path, found.link, header.shared.once(without_places), layout, beside


def _number(value: FixedStrings | References, numbers: dict[int, int]) -> Hashable:
    if isinstance(value, FixedStrings):
        return value
    with suppress(KeyError):
        return tuple(tuple(numbers[one] for one in some) for some in value.addresses)
    raise NotUnderstoodError("an object that is not a dataset of the file")


def remember(
    key: Hashable,
    walk: Walk,
    context: FileContext,
    variables: Mapping[FoundDataset, HDF5Variable],
    left_out: tuple[str, ...],
) -> None:
    """Keep the pattern of a file whose variables were described from headers alone."""
    known = _patterns_of(context.options)
    if len(known) >= _REMEMBERED:
        known.clear()
    number = {found: at for at, found in enumerate(walk.datasets)}
    nowhere: dict[str, Any] = {"handle": Handle(), "address": 0, "header": None, "placed": None}
    bare = tuple(
        (number[found], variable._replace(**nowhere, known=KnownChunks()))
        for found, variable in variables.items()
    )
    known[key] = Pattern(bare, left_out, context.equal)
