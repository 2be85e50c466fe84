"""Scan NetCDF-3 files: classic, 64-bit offset and CDF-5.

Values are those that netCDF shows, with two exceptions, where netCDF shows values that were never
written: a file that is shorter than its header says is refused, and "streaming" files, whose header
does not give the number of records, have as many as fit into the file. `read_values` reads with
netCDF4 for verification, and shares only names with the scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import SMALL, STEP, Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.model.paths import node_name
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ByteSource, Policy, ScannerOptions
from icevirt_scanners import blocks
from icevirt_scanners.context import ScanContext, check_dimensions
from icevirt_scanners.encoding import (
    GZIP,
    PIECE,
    bytes_codec,
    hash_values,
    spell,
    squeeze,
    with_fit_fill,
)
from icevirt_scanners.netcdf3.header import (
    MAGIC,
    VERSIONS,
    Attribute,
    DamagedError,
    FileHeader,
    Kind,
    NetCDF3Variable,
    fill_of,
    read_header,
    show,
)

_LONGEST_EMPTY = 2**36  # bytes of a record, where no record shows that they exist


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVariable:
    """A variable and where its values lie: ``rows`` runs of ``run`` bytes, ``stride`` apart."""

    path: str
    dimensions: tuple[str, ...]
    shape: tuple[int, ...]
    kind: Kind
    begin: int
    rows: int  # 1 for a fixed-size variable
    run: int  # bytes
    stride: int  # bytes
    variable: NetCDF3Variable = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.rows * self.run

    @property
    def end(self) -> int:
        """Where the last value ends."""
        return self.begin + (self.rows - 1) * self.stride + self.run if self.rows else self.begin

    @property
    def contiguous(self) -> bool:
        """Whether the values of further records would lie directly behind these."""
        return self.stride == self.run

    @property
    def is_coordinate(self) -> bool:
        """Whether it is 1-D and named like its dimension."""
        return self.dimensions == (paths.name(self.path),)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The variables of a file, and its records."""

    variables: tuple[PlacedVariable, ...]
    records: int
    room: int  # how many records the file is long enough for


def layout_of(header: FileHeader, *, size: int, url: str) -> FileLayout:
    """Place the variables of a file of ``size`` bytes.

    Raises:
        DamagedError: They cannot lie as the header says.
        ScanError: The file is too short for a variable.
    """
    _check_dimensions(header)
    moving = [each for each in header.variables if _is_record(header, each)]
    runs = [_run(header, each) for each in moving]
    stride = runs[0] if len(runs) == 1 else sum(run + -run % 4 for run in runs)
    # for how many records of all variables the file is long enough
    ends = [each.begin + run for each, run in zip(moving, runs, strict=True)]
    room = max(0, (size - max(ends)) // stride + 1) if ends else 0
    records = room if header.records is None else header.records
    placed = tuple(_place(header, each, records, stride) for each in header.variables)
    _check_inside(placed, header, size=size, url=url)
    _check_apart(placed)
    return FileLayout(variables=placed, records=records, room=room)


def _check_dimensions(header: FileHeader) -> None:
    numbers = range(len(header.dimensions))
    for variable in header.variables:
        for axis, number in enumerate(variable.dimensions):
            if number not in numbers:
                raise DamagedError(f"{variable.name!r} has a dimension that does not exist")
            if axis and not header.dimensions[number].length:
                raise DamagedError(f"{variable.name!r} has records inside of records")
    if sum(dimension.length == 0 for dimension in header.dimensions) > 1:
        raise DamagedError("two record dimensions")


def _is_record(header: FileHeader, variable: NetCDF3Variable) -> bool:
    return bool(variable.dimensions) and not header.dimensions[variable.dimensions[0]].length


def _run(header: FileHeader, variable: NetCDF3Variable) -> int:
    """Return the bytes of a fixed-size variable, or of one record of another."""
    lengths = (header.dimensions[number].length or 1 for number in variable.dimensions)
    return prod(lengths) * variable.kind.size


def _place(
    header: FileHeader, variable: NetCDF3Variable, records: int, stride: int
) -> PlacedVariable:
    moving, run = _is_record(header, variable), _run(header, variable)
    shape = tuple(header.dimensions[number].length or records for number in variable.dimensions)
    return PlacedVariable(
        path=paths.join(paths.ROOT, node_name(variable.name)[0]),
        dimensions=tuple(
            node_name(header.dimensions[number].name)[0] for number in variable.dimensions
        ),
        shape=shape,
        kind=variable.kind,
        begin=variable.begin,
        rows=records if moving else 1,
        run=run,
        stride=stride if moving else run,
        variable=variable,
    )


def _check_inside(
    placed: tuple[PlacedVariable, ...], header: FileHeader, *, size: int, url: str
) -> None:
    for each in placed:
        if each.run > _LONGEST_EMPTY and not each.rows:
            raise DamagedError(f"a record of {each.path} has {each.run} bytes")
        if each.rows and each.begin < header.size:
            raise DamagedError(f"{each.path} begins inside the header")
        if each.rows and each.end > size:
            raise ScanError(
                "the file ends before the values that its header describes",
                do="It is truncated, or was still being written; fetch it again.",
                file=url,
                variable=each.path,
                end=each.end,
                size=size,
            )


def _check_apart(placed: tuple[PlacedVariable, ...]) -> None:
    """Compare the variables of one record with each other, then all records with the blocks."""
    moving = [each for each in placed if not each.contiguous and each.rows]
    spans = [(e.begin, e.end, e.path) for e in placed if e.contiguous and e.rows]
    if moving:
        record = [(each.begin, each.begin + each.run, each.path) for each in moving]
        _check_spans(record)
        begin, end = min(record)[0], max(end for _, end, _ in record)
        if moving[0].rows > 1 and end - begin > moving[0].stride:
            raise DamagedError("a record is longer than its variables")
        spans.append((begin, max(each.end for each in moving), "the records"))
    _check_spans(spans)


def _check_spans(spans: list[tuple[int, int, str]]) -> None:
    for (_, end, one), (start, _, other) in pairwise(sorted(spans)):
        if end > start:
            raise DamagedError(f"{one} and {other} overlap")


_NEAR = 64 * 1024  # bytes between two runs that are read through rather than skipped
_REFERENCE = 16  # bytes of a run that is not worth a reference


def represent(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: Its values must be stored, and are too large for that.
    """
    policy = context.options.policy_of(placed.path)
    if _wants_whole(placed, context, policy):
        return _store(placed, attributes, context)
    represented = _natively if policy is Policy.native else _reference
    array = represented(placed, attributes, context)
    wanted = context.choose_facts(array)
    if Fact.values in wanted:
        return replace(array, beside=context.values_of(lambda: _store(placed, attributes, context)))
    if Fact.digest in wanted:
        pieces = (piece.view(np.uint8) for piece in _pieces(placed, context.source))
        digest = hash_values(placed.kind.data_type, placed.shape, pieces)
        return replace(array, beside=FactsBeside(digest=digest))
    return array


def _reference(
    placed: PlacedVariable, attributes: Attributes, context: ScanContext
) -> ScannedArray:
    lead, rest = ((), placed.shape) if placed.contiguous else ((1,), placed.shape[1:])
    chunk = (*lead, *blocks.grid_of_block(rest, placed.kind.size))
    table = blocks.virtual(placed.path, *_references(placed, chunk), context)
    codecs = (bytes_codec(placed.kind.dtype, "big" if placed.kind.size > 1 else "little"),)
    return _make_array(placed, attributes, chunk, codecs, table, whole=False)


def _make_array(
    placed: PlacedVariable,
    attributes: Attributes,
    chunk: tuple[int, ...],
    codecs: tuple[JSON, ...],
    table: ChunkTable,
    *,
    whole: bool,
    **more: Any,
) -> ScannedArray:
    kind = placed.kind
    return ScannedArray(
        path=placed.path,
        dimension_names=placed.dimensions,
        shape=placed.shape,
        chunk_shape=chunk,
        data_type=kind.data_type,
        codecs=codecs,
        fill_value=spell(fill_of(placed.variable.attributes, kind), kind.dtype),
        attributes=attributes,
        references=table,
        whole=whole,
        contiguous=not whole,
        **more,
    )


def _wants_whole(placed: PlacedVariable, context: ScanContext, policy: Policy) -> bool:
    if policy is Policy.reference:
        return False
    if not placed.shape or policy is Policy.inline:
        return True
    affordable = placed.nbytes <= context.budget.left
    if placed.is_coordinate:
        return affordable
    if not placed.contiguous and placed.run < STEP:
        # a reference to each crumb would take about as much room as the crumbs
        small = placed.nbytes <= SMALL or placed.run <= _REFERENCE
        return small and affordable
    return False


def _store(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Read the values as one chunk; those of coordinates, and single ones, are labels too.

    Raises:
        UnsupportedError: They are too large for that.
    """
    if context.options.policy_of(placed.path) is Policy.inline and placed.nbytes > SMALL:
        raise context.refusal(
            placed.path,
            f"a variable with the policy 'inline' has more than {SMALL} bytes",
            do='Use the policy "native", which stores it in chunks.',
            nbytes=placed.nbytes,
        )
    context.budget.spend(placed.nbytes, variable=placed.path, cause="stored whole")
    found = _read(placed, context.source)
    ndim = len(placed.shape)
    table = ChunkTable.empty(ndim)
    if found.size:
        table = ChunkTable.of_inline(index=np.zeros((1, ndim), np.int64), chunks=[found.tobytes()])
    more: dict[str, Any] = {}
    if placed.is_coordinate or (found.size == 1 and found.dtype.kind in "iuf"):
        more = {"labels": found.tobytes(), "labels_dtype": found.dtype.str}
    chunk = tuple(max(n, 1) for n in placed.shape)
    digest = hash_values(placed.kind.data_type, placed.shape, [found.tobytes()])
    codecs = (bytes_codec(placed.kind.dtype),)
    return _make_array(placed, attributes, chunk, codecs, table, whole=True, digest=digest, **more)


def _natively(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Read the values and store them in the chunks that a block of them would have."""
    cause = "its policy is 'native'"
    context.budget.spend(placed.nbytes, variable=placed.path, cause=cause)
    context.tell(placed.path, "stored-natively", cause)
    found = _read(placed, context.source)
    chunk = blocks.grid_of_block(placed.shape, placed.kind.size)
    index = blocks.all_chunks(tuple(n // edge for n, edge in zip(placed.shape, chunk, strict=True)))
    runs = found.reshape(len(index), -1) if found.size else ()  # a chunk is a run of the block
    table = ChunkTable.of_inline(index=index, chunks=[squeeze(run.tobytes()) for run in runs])
    codecs = (bytes_codec(placed.kind.dtype), GZIP)
    return _make_array(placed, attributes, chunk, codecs, table, whole=False)


def _references(
    placed: PlacedVariable, chunk: tuple[int, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return index, offset and length of all chunks."""
    size = placed.kind.size
    if placed.contiguous:
        return blocks.block_chunks(placed.shape, chunk, size, placed.begin)
    inner, offset, length = blocks.block_chunks(placed.shape[1:], chunk[1:], size, placed.begin)
    row = np.arange(placed.rows, dtype=np.int64)
    index = np.column_stack([np.repeat(row, len(inner)), np.tile(inner, (placed.rows, 1))])
    offsets = placed.stride * row[:, None] + offset
    return index, offsets.reshape(-1), np.tile(length, placed.rows)


def _read(placed: PlacedVariable, source: ByteSource) -> np.ndarray[Any, Any]:
    """Read all values."""
    flat = b"".join(piece.tobytes() for piece in _pieces(placed, source))
    return np.frombuffer(flat, placed.kind.dtype).reshape(placed.shape)


def _pieces(placed: PlacedVariable, source: ByteSource) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the values in their order, flat and little-endian."""
    for raw in _raw(placed, source):
        yield np.frombuffer(raw, placed.kind.stored).astype(placed.kind.dtype)


def _raw(placed: PlacedVariable, source: ByteSource) -> Iterator[Any]:
    if placed.contiguous:
        yield from _block(placed.begin, placed.nbytes, source)
    elif placed.stride - placed.run <= _NEAR:
        yield from _through(placed, source)
    else:
        for row in range(placed.rows):
            yield from _block(placed.begin + row * placed.stride, placed.run, source)


def _block(begin: int, length: int, source: ByteSource) -> Iterator[bytes]:
    return (_exactly(begin + at, min(PIECE, length - at), source) for at in range(0, length, PIECE))


def _through(placed: PlacedVariable, source: ByteSource) -> Iterator[Any]:
    """Read several records at once, and pick out this variable's part of each."""
    most = max(1, PIECE // placed.stride)
    for first in range(0, placed.rows, most):
        rows = min(most, placed.rows - first)
        span = (rows - 1) * placed.stride + placed.run
        raw = _exactly(placed.begin + first * placed.stride, span, source)
        filled = np.frombuffer(raw.ljust(rows * placed.stride, b"\0"), np.uint8)
        yield np.ascontiguousarray(filled.reshape(rows, placed.stride)[:, : placed.run]).reshape(-1)


def _exactly(at: int, length: int, source: ByteSource) -> bytes:
    raw = source.read(at, length)
    if len(raw) != length:
        raise ScanError(
            "the file became shorter while it was read",
            do="Scan it again when it no longer changes.",
            file=source.file.url,
            offset=at,
            length=length,
        )
    return raw


_MOST_AXES = 32  # of HDF5, and of many readers


def read_values(source: ByteSource, path: str, region: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Return the values of a variable in a box, neither masked nor scaled.

    Raises:
        UnsupportedError: netCDF4 is not installed, or the file is not on local disk.
        ScanError: netCDF4 cannot read it.
    """
    try:
        import netCDF4
    except ImportError as error:
        raise UnsupportedError(
            "values of NetCDF-3 files are compared by netCDF4, which is not installed",
            do="Run `pip install netCDF4`.",
            file=source.file.url,
        ) from error
    if source.local_path is None:
        raise UnsupportedError(
            "netCDF4 can only read local files",
            do="Check the references only, or verify where the files are mounted.",
            file=source.file.url,
        )
    try:
        with netCDF4.Dataset(source.local_path) as file:
            variable = _variable(file, path.strip("/"))
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            return np.asarray(variable[region])
    except (OSError, RuntimeError, KeyError, IndexError) as error:
        raise ScanError(
            "netCDF4 cannot read the variable",
            do="Fetch the file again, or leave it out.",
            file=source.file.url,
            variable=path,
            cause=str(error),
        ) from error


def _variable(file: Any, name: str) -> Any:
    """Find a variable by its node name, which may be escaped. Raises ``KeyError``."""
    if name in file.variables:
        return file.variables[name]
    own = next((own for own in file.variables if node_name(own.encode())[0] == name), name)
    return file.variables[own]


class NetCDF3Scanner:
    """Describes NetCDF-3 files."""

    name = "netcdf3"
    version = "3"
    read_values = staticmethod(read_values)  # see `icevirt.scan.contract.Oracle`

    def accepts(self, head: bytes) -> bool:
        """Look for the signature: ``CDF`` and the number of a version."""
        return head.startswith(MAGIC) and len(head) > 3 and head[3] in VERSIONS

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The file is damaged, or the options name a group, which it cannot have.
            UnsupportedError: Something in it has no exact representation.
        """
        file = source.file
        if paths.canonical(options.group) != paths.ROOT:
            raise ScanError(
                "the file has no such group",
                do=write_remedy(
                    "NetCDF-3 has no groups: leave ", write_option("source_group"), " out."
                ),
                file=file.url,
                group=options.group,
            )
        context = ScanContext.of(source, options)
        try:
            header = read_header(source)
            layout = layout_of(header, size=file.size, url=file.url)
        except DamagedError as error:
            raise ScanError(
                f"damaged NetCDF-3: {error}", do="Fetch it again, or leave it out.", file=file.url
            ) from error
        check_dimensions((node_name(each.name)[0] for each in header.dimensions), file.url)
        _tell_records(header, layout, context)
        context.equal = _equal(header, layout, options)
        found = show(header.attributes, partial(context.tell, paths.ROOT))
        root = ScannedGroup(path=paths.ROOT, attributes=Attributes.of(found))
        variables = ((placed.path, placed) for placed in layout.variables)
        arrays = context.arrays(variables, partial(_array, context))
        return context.describe(self, (root,), arrays)


def _equal(header: FileHeader, layout: FileLayout, options: ScannerOptions) -> frozenset[str]:
    if not options.stack:
        return options.equal_in_files(())

    def values(attributes: Sequence[Attribute]) -> dict[str, Any]:
        return show(attributes, lambda *_: None)  # findings are reported when arrays are made

    variables = ((p.path, p.dimensions, values(p.variable.attributes)) for p in layout.variables)
    return options.equal_in_files(variables, [(paths.ROOT, values(header.attributes))])


def _tell_records(header: FileHeader, layout: FileLayout, context: ScanContext) -> None:
    if header.records is None:
        message = f"the header leaves the number of records open; the file holds {layout.records}"
        context.tell(paths.ROOT, "records-counted", message)
    elif layout.room > layout.records:
        message = f"the file has room for {layout.room} records, its header says {layout.records}"
        context.warn(paths.ROOT, "records-beyond-count", message)


def _array(context: ScanContext, path: str, placed: PlacedVariable) -> ScannedArray:
    variable = placed.variable
    if len(placed.shape) > _MOST_AXES:
        raise context.refusal(path, f"a variable of more than {_MOST_AXES} dimensions")
    if node_name(variable.name)[1]:
        context.tell(
            path, "renamed", f"the name {variable.name!r} is not a valid node name in Zarr"
        )
    found = show(variable.attributes, partial(context.tell, path))
    attributes = with_fit_fill(found, placed.kind.dtype, partial(context.warn, path))
    return represent(placed, attributes, context)
