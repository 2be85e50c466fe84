"""Read MessagePack strictly, and declare how a format generation encodes its files with it.

A struct is written as an array; the names of its fields stand here in their order. Where releases
of one generation differ in the number of fields, each length has its own line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgpack

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12, unbase32
from icevirt.model.generation import FormatGeneration
from icevirt.wire.flatbuffer.schema import Damage
from icevirt.wire.metadata import check_counts, unique_keys

MOST_CONTAINERS = 2_000_000
_FREE_CONTAINERS = 10_000
_BYTES_PER_CONTAINER = 3  # of honest values; an empty array takes one byte, and 60 in memory


class MessagePackFile:
    """One value, whose outer arrays and maps can be read one by one, in the memory of one.

    Raises:
        Damage: From every method: the bytes are no MessagePack, or made to exhaust memory.
    """

    def __init__(self, raw: bytes) -> None:
        self._most = min(MOST_CONTAINERS, _FREE_CONTAINERS + len(raw) // _BYTES_PER_CONTAINER)
        self._left = self._most
        size = self._guard(lambda: check_counts(raw))
        if size != len(raw):
            raise Damage("bytes follow the MessagePack value", size)
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=max(len(raw), 1),
            strict_map_key=False,
            use_list=False,
            list_hook=self._count,
            object_pairs_hook=self._map,
        )
        self._unpacker.feed(raw)

    def array(self) -> int:
        """Enter an array and return how many values follow."""
        return int(self._guard(self._unpacker.read_array_header))

    def map(self) -> int:
        """Enter a map and return how many pairs of values follow."""
        return int(self._guard(self._unpacker.read_map_header))

    def value(self) -> Any:
        """Return the next value whole: arrays are tuples, maps dicts."""
        self._left = self._most  # what came before is not kept, however much it was
        return self._guard(self._unpacker.unpack)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Enter a map and yield what it holds."""
        for _ in range(self.map()):
            key = self.value()
            yield key, self.value()

    def _count(self, items: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError("more arrays and maps than such a file has")
        return items

    def _map(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return self._count(unique_keys(pairs))  # type: ignore[no-any-return]

    def _guard(self, read: Any) -> Any:
        try:
            return read()
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            cause = str(error).rstrip(".") or type(error).__name__
            raise Damage(f"the MessagePack is damaged: {cause[:200]}", 0) from error


type Lines = tuple[tuple[str, ...], ...]
type ReadId = Callable[[Any], bytes]


class Framing(Enum):
    """How the MessagePack of a file is packed."""

    bare = "no header, no compression"
    zstd = "no header, compressed"
    header = "a header, compressed"
    document = "JSON"


HISTORY = (
    *("total_parents", "short_term_parents", "short_term_history", "metadata", "started_at"),
    *("properties", "nodes"),
)
META = (("id", "written_at", "message"),)
NODE = (("id", "path", "user_attributes", "node_data"),)
ARRAY = (
    (
        *("shape", "data_type", "chunk_shape", "chunk_key_encoding", "fill_value", "codecs"),
        *("storage_transformers", "dimension_names"),
    ),
)
NAMED = (("name", "configuration"),)
CHUNK = (("id", "offset", "length"),)
VIRTUAL = (("location", "offset", "length"), ("location", "offset", "length", "checksum"))
NODE_SETS = (
    *("new_groups", "new_arrays", "deleted_groups", "deleted_arrays"),
    *("updated_user_attributes", "updated_zarr_metadata"),
)


def text_id(size: int) -> ReadId:
    """Return the reader of ids of ``size`` bytes that are written as text."""

    def read(value: Any) -> bytes:
        if not isinstance(value, str):
            raise Damage(f"an id is {type(value).__name__}, not text", 0)
        return unbase32(value, size)

    return read


def pair_id(size: int) -> ReadId:
    """Return the reader of ids that are written as bytes and a marker of their kind."""

    def read(value: Any) -> bytes:
        match value:
            case (bytes(raw), () | None) if len(raw) == size:
                return raw
            case _:
                raise Damage(f"an id is not {size} bytes and a marker", 0)

    return read


def number_id(value: Any) -> bytes:
    """Read the id of a node that is a number."""
    return number(value, "the number of a node", (1 << 32) - 1).to_bytes(8)


_OF_REFS = text_id(12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How the files of a generation are read."""

    generation: FormatGeneration
    framing: Framing
    snapshot: Lines
    manifest_file: Lines
    manifest_ref: Lines = (("object_id", "extents"),)
    manifest: Lines
    log: Lines = ()  # none were written
    object_id: ReadId
    node_id: ReadId
    ref_id: ReadId = _OF_REFS  # in reference files
    by_node: bool = False  # chunks lie below their node, not under (node, index)
    numbers_nodes: bool = False  # ids of nodes are numbers, unique in one branch
    renames_root: bool = False  # the initial snapshot's file is not called what is in it
    mixes_arrays: bool = False  # an array can list chunks of another one
    short: bool = False  # one letter for each folder

    def id12(self, value: Any) -> ObjectId12:
        """Read the id of an object."""
        return ObjectId12(self.object_id(value))

    def id8(self, value: Any) -> ObjectId8:
        """Read the id of a node."""
        return ObjectId8(self.node_id(value))


FIELDS: dict[str, frozenset[int]] = {
    "a snapshot": frozenset({7, 8, 9, 11}),
    "the entry of a manifest": frozenset({1, 2, 3, 4}),
    "a manifest": frozenset({1, 2, 3, 4}),
    "a transaction log": frozenset({7, 8}),
}
"""How many fields the structs have that changed from one generation to the next."""


class OtherGeneration(Damage):
    """A struct is that of another generation than the files beside it: no release wrote both."""

    def as_error(self, file: str) -> FormatError:
        """Return the error for the user."""
        return refuse_unreleased(self.what, file=file)


def refuse_unreleased(which: str, **facts: Any) -> FormatError:
    """Return the error of a layout that no release wrote."""
    return FormatError(
        f"this repository has a layout that was never released: {which}",
        do="Read it with the development version of icechunk that wrote it.",
        **facts,
    )


def check_version(found: Mapping[str, Any], what: str) -> None:
    """Check that the version of a struct is one of those that were written.

    Raises:
        OtherGeneration: It is not: a later development state has another field at its place.
    """
    version = found.get("format_version", 0)
    if type(version) is int and version > 1:
        raise OtherGeneration(
            f"a development state, in which {what} begins otherwise than in a release", 0
        )


def lines_for(size: int, lines: Lines, what: str) -> tuple[str, ...]:
    """Return the names of the fields of a struct of that size.

    Raises:
        Damage: No struct of this generation has so many; `OtherGeneration`: one of another has.
    """
    for names in lines:
        if len(names) == size:
            return names
    if size in FIELDS.get(what, ()):
        wanted = " or ".join(str(len(names)) for names in lines)
        raise OtherGeneration(
            f"a development state between two releases, in which {what} has {size} fields; beside"
            f" such files a release wrote {wanted}",
            0,
        )
    raise Damage(f"{what} has not the fields that it should: {size}", 0)


def fields(value: Any, lines: Lines, what: str) -> dict[str, Any]:
    """Return the fields of a struct by name; of one that is a map, as it is. Raises ``Damage``."""
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise Damage(f"{what} has a field whose name is not text", 0)
        return {**dict.fromkeys(lines[-1]), **value}
    if isinstance(value, tuple | list):
        return dict(zip(lines_for(len(value), lines, what), value, strict=True))
    raise Damage(f"{what} has not the fields that it should: {type(value).__name__}", 0)


def choice(value: Any, what: str) -> tuple[str, Any]:
    """Return a variant and what it holds; one without content stands for itself.

    Raises:
        Damage: It is no variant.
    """
    match value:
        case str(name):
            return name, None
        case dict() if len(value) == 1:
            ((name, inner),) = value.items()
            if isinstance(name, str):
                return name, inner
    raise Damage(f"{what} is none of its kinds", 0)


def number(value: Any, what: str, most: int = (1 << 62) - 1) -> int:
    """Return a count, an offset or a length. Raises ``Damage``."""
    if type(value) is not int or not 0 <= value <= most:
        raise Damage(f"{what} is no number up to {most}", 0)
    return value


def sequence(value: Any, what: str) -> tuple[Any, ...]:
    """Return the values of an array. Raises ``Damage``."""
    if not isinstance(value, tuple | list):
        raise Damage(f"{what} is no array", 0)
    return tuple(value)


def text(value: Any, what: str) -> str:
    """Return a text. Raises ``Damage``."""
    if not isinstance(value, str):
        raise Damage(f"{what} is no text", 0)
    return value
