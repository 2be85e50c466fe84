"""What the driver knows of a closed catalog: facts per file and per array, in columns.

Strings that repeat (paths, schemas, shapes, digests) are dictionary-encoded, so that a million
files cost integers. References are not here; they never reach the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedGroup
from icevirt.model.strings import Strings


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A dictionary-encoded column of strings."""

    codes: NDArray[np.int32]  # (n,)
    values: tuple[str, ...]

    @classmethod
    def of(cls, column: Sequence[str]) -> Coded:
        """Encode Python strings, numbering values by first appearance."""
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(value, len(numbers)) for value in column]
        return cls(np.array(codes, np.int32), tuple(numbers))

    def __getitem__(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: NDArray[np.integer]) -> Coded:
        """Return the given rows, with only the values that occur in them."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Coded(codes.astype(np.int32), tuple(self.values[code] for code in used.tolist()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileColumns:
    """Source files, a row each."""

    parts: tuple[str, ...]  # names of catalog parts
    part: NDArray[np.int32]  # (n,) index into ``parts``
    row: NDArray[np.int32]  # (n,) row of the file in its part
    url: Strings  # (n,)
    etag: Strings  # (n,)
    size: NDArray[np.int64]  # (n,) bytes
    last_modified: NDArray[np.int64]  # (n,) nanoseconds since 1970

    def __len__(self) -> int:
        return len(self.part)

    def take(self, rows: NDArray[np.integer]) -> FileColumns:
        """Return the given rows, in their order, with only the parts they need."""
        used, part = np.unique(self.part[rows], return_inverse=True)
        return FileColumns(
            parts=tuple(self.parts[int(number)] for number in used),
            part=part.astype(np.int32),
            row=self.row[rows],
            url=self.url[rows],
            etag=self.etag[rows],
            size=self.size[rows],
            last_modified=self.last_modified[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayColumns:
    """Arrays of the files, a row each."""

    file: NDArray[np.int64]  # (n,) row in the file columns
    path: Coded
    schema: Coded  # JSON of `ArraySchema`
    shape: Coded  # JSON lists
    digest: Coded
    labels: Mapping[int, bytes]  # by row, where the array orders files
    labels_dtype: Mapping[int, str]
    virtual: NDArray[np.int64]  # (n,) references
    inline: NDArray[np.int64]  # (n,)
    virtual_bytes: NDArray[np.int64]  # (n,)
    inline_bytes: NDArray[np.int64]  # (n,)
    own_path: Coded | None = None  # in the files, where arrays were renamed

    def of_files(self, files: NDArray[np.int64], count: int) -> ArrayColumns:
        """Return the arrays of some files, which are numbered anew in the order given."""
        place = np.full(count, -1, np.int64)
        place[files] = np.arange(len(files))
        rows = np.flatnonzero(place[self.file] >= 0)
        new = {old: row for row, old in enumerate(rows.tolist())}
        return ArrayColumns(
            file=place[self.file[rows]],
            path=self.path.take(rows),
            schema=self.schema.take(rows),
            shape=self.shape.take(rows),
            digest=self.digest.take(rows),
            labels={new[row]: raw for row, raw in self.labels.items() if row in new},
            labels_dtype={new[row]: kind for row, kind in self.labels_dtype.items() if row in new},
            virtual=self.virtual[rows],
            inline=self.inline[rows],
            virtual_bytes=self.virtual_bytes[rows],
            inline_bytes=self.inline_bytes[rows],
            own_path=None if self.own_path is None else self.own_path.take(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogFacts:
    """A closed catalog, as far as a plan needs it."""

    files: FileColumns
    arrays: ArrayColumns
    groups_of: Callable[[int], tuple[ScannedGroup, ...]]  # of a file row; read on demand
    places: Strings  # (m,) URLs of files, or of directories, that references lead to

    def only(self, rows: NDArray[np.int64]) -> CatalogFacts:
        """Return the facts of some files, in the order given."""
        groups_of = self.groups_of
        return CatalogFacts(
            files=self.files.take(rows),
            arrays=self.arrays.of_files(rows, len(self.files)),
            groups_of=lambda row: groups_of(int(rows[row])),
            places=self.places,
        )
