"""Compute where the values of variables lie, and check that they can lie there.

A fixed-size variable is one block. The others are cut into records, and the records of all of them
follow each other, each padded to a multiple of 4 bytes, unless there is only one such variable.
Blocks that overlap or leave the file are refused, so no header, however hostile, describes more
values than the file has bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.names import node_name
from icevirt_scanners.netcdf3.header import DamagedError, FileHeader, Kind, NetCDF3Variable

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
    room = _room(header, moving, stride, size)
    records = room if header.records is None else header.records
    placed = tuple(_placed(header, each, records, stride) for each in header.variables)
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


def _room(header: FileHeader, moving: list[NetCDF3Variable], stride: int, size: int) -> int:
    """Return for how many records of all variables the file is long enough."""
    ends = [each.begin + _run(header, each) for each in moving]
    return max(0, (size - max(ends)) // stride + 1) if ends else 0


def _placed(
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
