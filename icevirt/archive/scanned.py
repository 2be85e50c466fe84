"""Describe one scanned file: groups, arrays, chunk references, findings.

These values are zarr's view of the file: data types, codecs and fill values are zarr v3 metadata,
and every array carries a chunk table that a zarr reader decodes to exactly what h5py reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from icevirt.amounts import plural
from icevirt.archive.schema import ArraySchema, ScannedGroup
from icevirt.archive.sources import SourceFile
from icevirt.errors import IcevirtError
from icevirt.escaping import Pictured, escape_line
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import JSON, dump

ATTEMPTS = 3
"""Attempts of a task before its job fails; Spark's own default in local mode is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """Time and memory that the scan of one file may take."""

    seconds: float = 600.0
    memory: int = 4 << 30  # bytes of address space, beside what the process has before


DEFAULT = ScanLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Estimate of what scanning one variable costs, from headers.

    ``cost`` is in chunk references, which take about half a microsecond each; ``chunks`` are the
    places of its chunk grid where its index can be read in runs, 0 where it cannot.
    """

    path: str
    cost: int
    chunks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One share of a file; all shares together hold each variable once.

    A run (low, high) is of places in the chunk grid, counted in C order.
    """

    order: tuple[str, ...] = ()  # the variables of the file, of all shares
    whole: frozenset[str] = frozenset()
    runs: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def covers(self, path: str) -> bool:
        """Say whether the variable, or a run of its chunks, is in this share."""
        return path in self.whole or path in self.runs


class Severity(StrEnum):
    """How much a finding matters."""

    note = "note"  # a decision that changes no value
    warning = "warning"  # something is not represented, and no value depends on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A remark about something unusual in the file, and how the scan treated it."""

    path: str  # of the node
    code: str  # stable, like "szip-stored-natively"
    message: str
    severity: Severity = Severity.note


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsBeside:
    """Facts about an array that only some ways of combining files need."""

    digest: str = ""  # hash of dtype, shape and raw values
    labels: bytes | None = None  # little-endian values
    labels_dtype: str = ""  # numpy typestr of labels
    values: ScannedArray | None = None  # the array stored whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedArray(Pictured):
    """An array. ``references`` covers its own chunk grid, which starts at 0 in every dimension.

    ``whole`` says that the values were read at scan time and lie in ``references`` as one inline
    chunk that covers the array, encoded without compression: such arrays can be joined at any
    length. Their ``digest`` is a hash of dtype, shape and raw values; ``labels`` repeats the raw
    values where they are a coordinate (1-D) or one value.
    ``contiguous`` says that each chunk is an uncompressed run of values in C order (gzip of such a
    run, where it is stored), which may be cut along the first axis.
    ``beside`` holds what only some ways of combining files need.
    ``placed_by`` says where on earth its values are, as far as other variables or groups of the
    file say so, which are left out. Files are compared by it; nothing of it is stored. It is
    empty if the file has no such statement, and None if an older version scanned the file.
    """

    path: str
    dimension_names: tuple[str | None, ...]
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]  # every edge at least 1
    data_type: JSON  # zarr v3 data type
    codecs: tuple[JSON, ...]  # zarr v3 codecs, in encoding order
    fill_value: JSON  # zarr v3 spelling
    attributes: Attributes = field(default_factory=Attributes)
    references: ChunkTable
    whole: bool = False
    contiguous: bool = False
    labels: bytes | None = None  # little-endian values
    labels_dtype: str = ""  # numpy typestr of labels
    digest: str = ""
    beside: FactsBeside | None = None
    placed_by: Mapping[str, JSON] | None = field(default=None, compare=False)

    @property
    def schema(self) -> ArraySchema:
        """What of it is usually alike in all files of an archive."""
        return ArraySchema(
            dimension_names=self.dimension_names,
            chunk_shape=None if self.whole else self.chunk_shape,
            data_type=self.data_type,
            codecs=self.codecs,
            fill_value=self.fill_value,
            attributes=self.attributes,
            contiguous=self.contiguous and not self.whole,
            placed_by=self.placed_by,
        )

    def zarr_json(
        self,
        *,
        shape: tuple[int, ...] | None = None,
        chunk_shape: tuple[int, ...] | None = None,
        codecs: tuple[JSON, ...] | None = None,
        attributes: Attributes | None = None,
    ) -> bytes:
        """Return the array's zarr.json, with other shapes, codecs or attributes where given."""
        from icevirt.model.attributes import readable

        held = self.attributes if attributes is None else attributes
        shown = readable(held, self.data_type)
        edges = self.chunk_shape if chunk_shape is None else chunk_shape
        named = any(name is not None for name in self.dimension_names)
        return dump(
            {
                "zarr_format": 3,
                "node_type": "array",
                "shape": list(self.shape if shape is None else shape),
                "data_type": self.data_type,
                "chunk_grid": {
                    "name": "regular",
                    "configuration": {"chunk_shape": list(edges)},
                },
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": self.fill_value,
                "codecs": list(self.codecs if codecs is None else codecs),
                "attributes": dict(shown.values),
                **({"dimension_names": list(self.dimension_names)} if named else {}),
                **shown.extension(),
            }
        )


class NodeWriter(Protocol):
    """A target to write a scanned file to; `icevirt.Session` is one."""

    def add_group(self, path: str, zarr_json: bytes) -> None:
        """Add a group; missing parents are added too."""

    def add_array(self, path: str, zarr_json: bytes, chunks: ChunkTable) -> None:
        """Add an array and its chunk references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile(Pictured):
    """Everything a scanner found in one file. Groups and arrays are in the order of the file."""

    source: SourceFile
    scanner: str
    scanner_version: str
    groups: tuple[ScannedGroup, ...]  # the root group is the first
    arrays: Sequence[ScannedArray]  # see `icevirt.archive.array_layouts`
    findings: tuple[Finding, ...] = ()
    left_out: tuple[str, ...] = ()  # paths of variables that the options did not ask for
    # what adds up over the shares of a file: bytes that were stored, under "", and under the path
    # of an array that is scanned in runs, chunks found less those that there are: 0 in sum
    tally: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        references = sum(len(array.references) for array in self.arrays)
        counted = f"{plural(len(self.arrays), 'array')}, {plural(references, 'reference')}"
        return f"<icevirt.ScannedFile {escape_line(self.source.url)} {counted}>"

    def array(self, path: str) -> ScannedArray:
        """Return the array at ``path``. Raises ``KeyError``."""
        wanted = paths.canonical(path)
        for array in self.arrays:
            if array.path == wanted:
                return array
        raise KeyError(path)

    def counts(self) -> dict[str, int]:
        """Return the number of references by kind: virtual, native, inline."""
        kinds = (ChunkType.virtual, ChunkType.native, ChunkType.inline)
        return {
            kind.name: sum(array.references.count(kind) for array in self.arrays) for kind in kinds
        }

    def write_to(self, session: NodeWriter, group: str = "/") -> None:
        """Stage all groups and arrays of the file below ``group`` of a writable session.

        Raises:
            AlreadyExistsError: A node is already there.
            InvalidInputError: No virtual chunk container of the repository covers the file.
        """
        names = names_by_group(array.path for array in self.arrays)
        for scanned in self.groups:
            made = scanned.zarr_json(variables=names.get(scanned.path, ()))
            session.add_group(paths.join(group, scanned.path), made)
        for array in self.arrays:
            session.add_array(paths.join(group, array.path), array.zarr_json(), array.references)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOutcome:
    """The result of an attempt to scan one file: a description, or an error."""

    file: SourceFile
    scanned: ScannedFile | None
    error: IcevirtError | None
    seconds: float
    requests: int = 0  # to the file's server
    bytes_fetched: int = 0
    share: Share | None = None  # the scanned share, if not the whole file


def names_by_group(arrays: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of arrays by the path of their group, in the order of the paths given."""
    found: dict[str, list[str]] = {}
    for path in arrays:
        found.setdefault(paths.parent(path), []).append(paths.name(path))
    return found


_TEXTS = 1024  # of schemas that are kept


class SchemaTexts:
    """A cache of `ArraySchema.dumps` for schemas that share all their parts.

    Scanners return the same parts for arrays whose files describe them equally.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[ArraySchema, str]] = {}

    def of(self, array: ScannedArray) -> str:
        """Return the JSON of an array's schema."""
        # equal for arrays that share their parts, which stay alive; numbers differ by their
        # spelling: as keys 0, 0.0, -0.0 and False are one
        key = (
            array.dimension_names,
            None if array.whole else array.chunk_shape,
            id(array.data_type),
            tuple(map(id, array.codecs)),
            repr(array.fill_value),
            id(array.attributes),
            array.contiguous,
            id(array.placed_by),
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) == _TEXTS:
                self._known.clear()
            schema = array.schema
            # it holds the parts, so that no others get their ids
            known = self._known[key] = schema, schema.dumps()
        return known[1]
