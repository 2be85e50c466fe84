"""Scan GRIB 2: messages become chunks, and parameters on kinds of levels become variables.

Coordinates are computed from headers and stored. `read_values` reads with ecCodes for verification;
it shares with the scan which message is where.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkType
from icevirt.scan.contract import ByteSource, GridUse, Policy, ScannerOptions, SidecarUse
from icevirt.scan.values import read
from icevirt_scanners.context import ScanContext, no_such_group
from icevirt_scanners.encoding import hash_values
from icevirt_scanners.grib import arrays, refusals
from icevirt_scanners.grib.cube import find_repeated
from icevirt_scanners.grib.described import DescribedFile, GridOfFile, describe_file
from icevirt_scanners.grib.known_files import find_known, name_kind, remember
from icevirt_scanners.grib.products import FACTS
from icevirt_scanners.grib.sections import MAGIC
from icevirt_scanners.stored import hold

# the abbreviated heading of a bulletin (WMO-No. 386): TTAAii CCCC YYGGgg, with BBB or without
_HEADING = rb"[\x01-\x7f]{0,64}?[A-Z]{4}\d\d [A-Z]{4} \d{6}(?: [A-Z]{3})?[\r\n]{1,4}"
_START = re.compile(rb"(?:%b)?%b" % (_HEADING, MAGIC), re.DOTALL)


def _about(held: DescribedFile) -> dict[str, Any]:
    """Return the attributes of the file."""
    found: dict[str, Any] = {"GRIB_edition": 2}
    for name, key in (("center", "GRIB_centre_number"), ("subcenter", "GRIB_subCentre")):
        values = held.read.products.facts[:, FACTS.index(name)]
        if len(values) and (values == values[0]).all():
            found[key] = int(values[0])
    return {**found, "Conventions": "CF-1.7"}


def _parts(held: DescribedFile, context: ScanContext) -> tuple[DescribedFile, ...]:
    """Return what becomes of a file: one group, or a group of each grid."""
    for path, cause in refusals.find_unread(held):
        if context.wants(path):
            context.represent(path, partial(_refuse, context, path, "product", cause))
    top = paths.canonical(context.options.group)
    if top == paths.ROOT and context.options.grids == GridUse.one.value:
        has_one = bool((held.fields.grid == held.fields.grid[:1]).all())
        return (held if has_one else held.on_grid_of(_preferred(held, context.options)),)
    found = tuple(held.by_grid())
    if top != paths.ROOT:
        groups = [each.group for each in found]
        if top not in groups:
            raise no_such_group(context.source.file.url, top, groups)
        return (replace(found[groups.index(top)], group=paths.ROOT),)
    return found


def _arrays(held: DescribedFile, context: ScanContext) -> Sequence[ScannedArray]:
    """Return the coordinates and the variables that are wanted and can be described."""
    kind = name_kind(held, context)
    known, findings, before = find_known(kind), len(context.findings), len(context.left_out)
    if known is not None and held.place is not None:
        context.left_out += known.left_out
        context.equal |= known.equal
        return known.describe(held, _own(held, held.place, context), context)
    kept = [*_kept(held, context)]
    if (place := held.place) is None:
        return ()
    left_out = context.left_out[before:]
    _tell_equal(held, place, kept, context)
    own = _own(held, place, context)
    made = []
    for number in kept:
        make = partial(_make, number, held, place, context)
        if (array := context.represent(held.path_of(number), make)) is not None:
            made.append((number, array))
    if kind is not None and len(context.findings) == findings:
        known = remember(kind, held, made, left_out, context)
    if known is None:
        return (*own, *(array for _, array in made))
    return known.describe(held, own, context)


def _own(held: DescribedFile, place: GridOfFile, context: ScanContext) -> tuple[ScannedArray, ...]:
    """Return the coordinates that are wanted."""
    wanted = (each for each in _coordinates(held, place, context) if context.wants(each.path))
    found = tuple(_as_asked(each, context) for each in wanted)
    for array in found:
        nbytes = len(array.references.inline)
        context.budget.spend(nbytes, variable=array.path, cause="stored whole")
    return found


def _as_asked(array: ScannedArray, context: ScanContext) -> ScannedArray:
    """Return a coordinate with its values where these are to be stored."""
    is_native = context.options.policy_of(array.path) is Policy.native
    if not is_native or not array.references.count(ChunkType.virtual):
        return array
    values = np.asarray(read(array, lambda _, *where: context.source.read(*where)))
    context.tell(array.path, "stored-natively", "its policy is 'native'; computed by gribberish")
    return hold(array.path, tuple(map(str, array.dimension_names)), values, array.attributes.values)


def _coordinates(
    held: DescribedFile, place: GridOfFile, context: ScanContext
) -> Iterator[ScannedArray]:
    found = arrays.coordinates(held.cube, place, context)
    if held.group == paths.ROOT:
        return found
    return (replace(e, path=paths.join(held.group, paths.name(e.path))) for e in found)


def _preferred(held: DescribedFile, options: ScannerOptions) -> list[int]:
    """Return the variables that are wanted, those that may not be left out where there are any."""
    wanted = [(number, path) for number, path in enumerate(held.paths()) if options.wants(path)]
    firm = [number for number, path in wanted if options.policy_of(path) is not Policy.skip]
    return firm or [number for number, _ in wanted]


def _refuse(context: ScanContext, path: str, kind: str, cause: str) -> None:
    raise context.refusal(path, f"a GRIB field of a {kind} that is not read", cause=cause)


def _kept(held: DescribedFile, context: ScanContext) -> Iterator[int]:
    """Yield the numbers of the variables that are wanted and can be described."""
    seen, undecoded = set[str](), refusals.Undecoded.of(held.fields)
    for number, path in enumerate(held.paths()):
        if not context.wants(path):
            continue
        is_second = path in seen
        check = partial(_check, number, path, held, undecoded, context, is_second=is_second)
        if context.represent(path, check):
            seen.add(path)
            yield number


def _check(
    number: int,
    path: str,
    held: DescribedFile,
    undecoded: refusals.Undecoded,
    context: ScanContext,
    *,
    is_second: bool,
) -> bool:
    """Say that a variable can be described. Raises `UnsupportedError` if it cannot."""
    if is_second:
        raise context.refusal(path, "two kinds of GRIB fields would have the same name")
    if cause := refusals.find_grid_refusal(held, number):
        what, do = "a GRIB field of a grid that is not read", refusals.propose_groups(held, number)
        raise context.refusal(path, what, do=do, cause=cause)
    is_native = context.options.policy_of(path) is Policy.native
    cause = "" if is_native else refusals.find_codec_refusal(undecoded, held.rows(number))
    if cause:
        what = "a GRIB field that the codec gribberish does not decode"
        raise context.refusal(path, what, do=refusals.propose_native(path, cause), cause=cause)
    return True


def _make(
    number: int, held: DescribedFile, place: GridOfFile, context: ScanContext
) -> ScannedArray:
    """Return a variable. Raises `UnsupportedError` if a place has two messages."""
    key, rows = held.variables.keys[number], held.rows(number)
    path, index = held.path_of(number), held.index(number, rows)
    if repeated := find_repeated(index):
        _refuse_other(path, rows, repeated, held, context)
        again = np.isin(np.arange(len(rows)), [second for _, second in repeated])
        rows, index = rows[~again], index[~again]
    variable = arrays.PlacedFields(
        path=path,
        key=key,
        cube=held.cube,
        grid=place.grid,
        index=index,
        placed_by=_find_place(held, place, context.options),
    )
    if context.options.policy_of(path) is Policy.native:
        nbytes = len(rows) * int(np.prod(place.grid.shape)) * 8
        context.budget.spend(nbytes, variable=path, cause="its policy is 'native'")
        context.tell(path, "stored-natively", "its policy is 'native'; read by ecCodes")
        return variable.store(
            [held.decode(row, context.source) for row in held.fetch(rows, context.source)]
        )
    array = variable.refer(held.fields.begin[rows], held.fields.length[rows], context)
    if Fact.digest not in context.choose_facts(array):
        return array
    # of the messages: where they are equal byte for byte, so are values
    bodies = (held.message(row, context.source) for row in held.fetch(rows, context.source))
    digest = hash_values(array.data_type, array.shape, bodies)
    return replace(array, beside=FactsBeside(digest=digest))


def _find_place(
    held: DescribedFile, place: GridOfFile, options: ScannerOptions
) -> Mapping[str, Any] | None:
    """Return what says where points are, as far as it is left out."""
    grid, found = place.grid, dict[str, Any]()
    if grid.mapping and not options.selects(paths.join(held.group, arrays.MAPPING)):
        found |= grid.mapping
    names = grid.axes or ("latitude", "longitude")
    if not all(options.selects(paths.join(held.group, name)) for name in names):
        digest = hashlib.blake2b(place.section, digest_size=8)
        found["GRIB_gridDefinition"] = f"{grid.kind} {digest.hexdigest()}"
    return found or None


def _refuse_other(
    path: str,
    rows: NDArray[np.int64],
    repeated: list[tuple[int, int]],
    held: DescribedFile,
    context: ScanContext,
) -> None:
    """Refuse messages of one place that are not the same byte for byte."""
    message = partial(held.message, source=context.source)
    for one, other in repeated:
        first, second = int(rows[one]), int(rows[other])
        if held.fields.length[first] != held.fields.length[second] or (
            message(first) != message(second)
        ):
            raise context.refusal(
                path,
                "two GRIB messages are of the same variable, time, step and level",
                messages=held.fields.message[[first, second]].tolist(),
                cause="they differ in what no dimension holds, or in their values",
            )
    text = f"{len(repeated)} messages are there twice, byte for byte; the first counts"
    context.tell(path, "messages-repeated", text)


def _tell_equal(
    held: DescribedFile, place: GridOfFile, kept: list[int], context: ScanContext
) -> None:
    """Note which arrays must be alike in all files that are stacked."""
    if context.options.stack:
        keys = [(number, held.variables.keys[number]) for number in kept]
        context.equal |= context.options.equal_in_files(
            (
                held.path_of(number),
                (*held.cube.dimensions(key), *place.grid.dimensions),
                arrays.describe(key, place.grid),
            )
            for number, key in keys
        )


def read_values(source: ByteSource, path: str, region: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Return the values of a variable in a box as ecCodes reads them.

    Coordinates are computed from headers again: ecCodes has none of these.

    Raises:
        UnsupportedError: ecCodes is not installed.
        ScanError: It cannot read them, or there is no such variable.
    """
    held = describe_file(source)
    if (group := paths.parent(path)) != paths.ROOT:
        held = next((each for each in held.by_grid() if each.group == group), held)
    number = next((n for n, each in enumerate(held.paths()) if each == path), None)
    if held.place is None or number is None:
        shape = tuple(each.stop for each in region)
        return _coordinate(held, source, path, shape)[region]
    place_of = held.on_grid_of([number]).place or held.place
    key, grid, rows = held.variables.keys[number], place_of.grid, held.rows(number)
    lengths = (*map(held.cube.length, held.cube.dimensions(key)), *grid.shape)
    inside = [range(*each.indices(n)) for each, n in zip(region, lengths, strict=True)]
    found = np.full([len(each) for each in inside], np.nan)
    done = set[tuple[int, ...]]()
    for row, place in zip(rows.tolist(), map(tuple, held.index(number, rows)), strict=True):
        if place not in done and all(at in each for at, each in zip(place, inside, strict=False)):
            done.add(place)  # the first message of a place counts
            box = tuple(int(at) - each.start for at, each in zip(place, inside, strict=False))
            found[box] = held.decode(row, source).reshape(grid.shape)[region[-len(grid.shape) :]]
    return found


def _coordinate(
    held: DescribedFile, source: ByteSource, path: str, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Return a coordinate."""
    context = ScanContext.of(source, ScannerOptions())
    known = (each for place in held.grids() for each in _coordinates(held, place, context))
    found = {each.digest: each for each in known if each.path == path and each.shape == shape}
    if not found:
        raise ScanError(
            "the file has no such variable",
            do="Check its name.",
            file=source.file.url,
            variable=path,
        )
    if len(found) > 1:
        raise UnsupportedError("the file has several grids with such a coordinate")
    (array,) = found.values()
    return np.asarray(read(array, lambda _, *where: source.read(*where)))


class GribScanner:
    """Describes GRIB 2."""

    name = "grib"
    version = "2"
    read_values = staticmethod(read_values)  # see `icevirt.scan.contract.Oracle`

    def accepts(self, head: bytes) -> bool:
        """Look for the signature, which the heading of a bulletin may precede."""
        return _START.match(head) is not None

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: It is damaged, or none of its grids is that of the named group.
            UnsupportedError: Something in it has no exact representation.
        """
        context = ScanContext.of(source, options)
        held = describe_file(source, SidecarUse(options.sidecar), options.allow_references_to)
        for offset, length in held.fields.between[:1]:
            text = f"{len(held.fields.between)} runs of bytes are no message, the first of"
            context.warn(paths.ROOT, "bytes-between", f"{text} {length} bytes at {offset}")
        parts = _parts(held, context)
        each = [_arrays(part, context) for part in parts]
        found = each[0] if len(each) == 1 else tuple(array for some in each for array in some)
        root = ScannedGroup(path=paths.ROOT, attributes=Attributes.of(_about(held)))
        groups = {each.group: ScannedGroup(path=each.group) for each in parts}
        return context.describe(self, tuple((groups | {paths.ROOT: root}).values()), found)
