"""Hold what the headers of a file say: its fields, the variables they make, and their cube."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import batched

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.scan.contract import ByteSource, SidecarUse, prefetch, read_sparsely
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import LEAVE_OUT
from icevirt_scanners.grib import by_eccodes
from icevirt_scanners.grib.by_sidecar import read_by_sidecar
from icevirt_scanners.grib.cube import Cube, make_cube
from icevirt_scanners.grib.grid_values import Grid
from icevirt_scanners.grib.grids import name_grids, read_grid
from icevirt_scanners.grib.octets import UnreadGridError
from icevirt_scanners.grib.sections import (
    DamagedMessageError,
    EditionError,
    Fields,
    OtherBytesError,
    read_file,
)
from icevirt_scanners.grib.sidecars import SidecarError, find_sidecar
from icevirt_scanners.grib.variables import ReadFields, Variables

_AGAIN = "Fetch the file again, or leave it out."
_TOGETHER = 16  # messages that servers are asked for at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridOfFile:
    """The grid of a file, that of its first wanted field whose product and grid are read."""

    number: int  # among the grids of the file
    section: bytes
    grid: Grid
    first: tuple[int, int] | None  # where a message lies from which the codec computes places


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescribedFile:
    """A file, in the columns of its fields."""

    read: ReadFields
    cube: Cube  # of all variables: to leave some out does not change others
    place: GridOfFile | None
    group: str = paths.ROOT  # where its arrays are

    @classmethod
    def of(cls, read: ReadFields, group: str = paths.ROOT) -> DescribedFile:
        """Place the fields of a file."""
        return cls(
            read=read,
            cube=make_cube(read.variables, read.products),
            place=next(_grids(read.fields, read.variables.of >= 0), None),
            group=group,
        )

    @property
    def fields(self) -> Fields:
        """Its fields."""
        return self.read.fields

    @property
    def variables(self) -> Variables:
        """Its variables."""
        return self.read.variables

    def by_grid(self) -> Iterator[DescribedFile]:
        """Yield what lies on each grid, as a group of its own."""
        numbers = dict.fromkeys(self.fields.grid[self.variables.of >= 0].tolist())
        names = name_grids([self.fields.grids[number] for number in numbers])
        for number, name in zip(numbers, names, strict=True):
            rows = np.nonzero(self.fields.grid == number)[0]
            yield self.of(self.read.take(rows), paths.join(paths.ROOT, name))

    def path_of(self, variable: int) -> str:
        """Return the path of a variable."""
        return paths.join(self.group, self.variables.nodes[variable])

    def paths(self) -> tuple[str, ...]:
        """Return the paths of all variables."""
        return tuple(map(self.path_of, range(len(self.variables.keys))))

    def on_grid_of(self, numbers: Iterable[int]) -> DescribedFile:
        """Return the file with the grid of the first of some variables whose grid is read."""
        rows = np.isin(self.variables.of, [*numbers])
        place = next(_grids(self.fields, rows), self.place)
        return replace(self, place=place)

    def grids(self) -> Iterator[GridOfFile]:
        """Yield the grids that are read."""
        return _grids(self.fields, self.variables.of >= 0)

    def rows(self, variable: int) -> NDArray[np.int64]:
        """Return the fields of a variable."""
        return self.variables.rows(variable)

    def index(self, variable: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n, axes) the places of fields of a variable in the cube."""
        return self.cube.index(self.variables.keys[variable], rows)

    def message(self, row: int, source: ByteSource) -> bytes:
        """Return the message of a field."""
        return source.read(int(self.fields.begin[row]), int(self.fields.length[row]))

    def fetch(self, rows: NDArray[np.int64], source: ByteSource) -> Iterator[int]:
        """Yield fields, having servers asked for the messages of some at a time."""
        begin, end = self.fields.begin, self.fields.begin + self.fields.length
        for some in batched(rows.tolist(), _TOGETHER):
            prefetch(source, [(int(begin[row]), int(end[row])) for row in some])
            yield from some

    def decode(self, row: int, source: ByteSource) -> NDArray[np.float64]:
        """Return the values of a field as ecCodes reads them.

        Raises:
            UnsupportedError: ecCodes is not installed, or does not know where they lie.
            ScanError: It cannot decode them.
        """
        file, number = source.file.url, int(self.fields.message[row])
        message, part = self.message(row, source), int(self.fields.part[row])
        found = by_eccodes.decode(message, part, file=file, number=number)
        points = int.from_bytes(self.fields.grids[self.fields.grid[row]][6:10], "big")
        if len(found) != points:
            raise UnsupportedError(
                f"values of {len(found)} of {points} points, by a bitmap that ecCodes lacks",
                do=LEAVE_OUT,
                file=file,
                message=number,
            )
        if (grid := read_grid(self.fields.grids[self.fields.grid[row]])).is_alternating:
            found = found.reshape(grid.shape)
            found[1::2] = found[1::2, ::-1]
            found = found.reshape(-1)
        return found


def describe_file(
    source: ByteSource, sidecar: SidecarUse = SidecarUse.ignore, allowed: Iterable[str] = ()
) -> DescribedFile:
    """Read the headers of a file, or its sidecar.

    Raises:
        ScanError: It is damaged, or its sidecar contradicts it or is missing.
        UnsupportedError: It is of another edition.
    """
    url = source.file.url
    read_sparsely(source)
    try:
        with Elsewhere(source, allowed) as beside:
            return DescribedFile.of(_read_fields(source, sidecar, beside))
    except SidecarError as error:
        raise ScanError(
            f"the sidecar contradicts its file: {error}",
            do=write_remedy(
                "Fetch both again, or read the headers of all messages: ",
                write_code('scan_options={"sidecar": "ignore"}', "--sidecar ignore"),
                ".",
            ),
            file=url,
        ) from error
    except EditionError as error:
        raise UnsupportedError(
            f"{error.what}: GRIB 2 is read only",
            do="Convert the file: grib_set -s edition=2 FILE NEW_FILE.",
            file=url,
            message=error.message,
            offset=error.offset,
        ) from error
    except DamagedMessageError as error:
        copy = "Where nothing is missing, grib_copy FILE NEW_FILE leaves such bytes out."
        raise ScanError(
            f"damaged GRIB: {error.what}",
            do=f"{_AGAIN} {copy}" if isinstance(error, OtherBytesError) else _AGAIN,
            file=url,
            message=error.message,
            offset=error.offset,
        ) from error


def _read_fields(source: ByteSource, use: SidecarUse, beside: Elsewhere) -> ReadFields:
    sidecar = None
    if use is not SidecarUse.ignore:
        sidecar = find_sidecar(source, beside, required=use is SidecarUse.require)
    read = None if sidecar is None else read_by_sidecar(source, sidecar)
    return ReadFields.of(read_file(source)) if read is None else read


def _grids(fields: Fields, rows: NDArray[np.bool_]) -> Iterator[GridOfFile]:
    """Yield the grids of some fields that are read."""
    mine = fields.grid[rows]
    numbers = mine[:1] if (mine == mine[:1]).all() else mine  # nearly always
    for number in dict.fromkeys(numbers.tolist()):
        section = fields.grids[number]
        with suppress(UnreadGridError):
            grid = read_grid(section)
            whole = np.nonzero((fields.grid == number) & (fields.part == 0))[0]
            row = int(whole[0]) if len(whole) else -1
            first = (int(fields.begin[row]), int(fields.length[row])) if row >= 0 else None
            yield GridOfFile(number=number, section=section, grid=grid, first=first)
