"""List the FlatBuffers tables of the format as data, in the order of the spec.

Spec: common.fbs, repo.fbs, snapshot.fbs, manifest.fbs, transaction_log.fbs. Field order gives the
slots: no field has an explicit id, and a union takes two slots, its type and its value. A test
compares these tables with ``fixtures/icechunk.fbs``.
"""

from __future__ import annotations

import struct
from functools import cache, cached_property
from typing import Any, NamedTuple

from icevirt.errors import FormatError


class Scalar(NamedTuple):
    """A number or a flag, stored inside its table."""

    name: str
    code: str  # of ``struct``, little-endian

    @property
    def size(self) -> int:
        """Bytes, and alignment too."""
        return struct.calcsize("<" + self.code)


class Struct(NamedTuple):
    """Bytes of one size, stored inside their table or vector."""

    name: str
    size: int
    align: int


class Text:
    """A UTF-8 string."""


class Vector(NamedTuple):
    """A counted sequence; ``columnar`` ones are read and written by numpy, as a whole."""

    of: Kind
    columnar: bool = False


class Union(NamedTuple):
    """One of several tables; ``members[tag - 1]`` is the table of a tag."""

    members: tuple[Table, ...]


# tables are made when this is imported, and hashed by identity: the caches need it fast
class Field:
    """A field of a table."""

    __slots__ = ("default", "kind", "name", "required")

    def __init__(self, name: str, kind: Kind, *, required: bool = False, default: int = 0) -> None:
        self.name, self.kind, self.required, self.default = name, kind, required, default


class Table:
    """A table: named fields with slots."""

    def __init__(self, name: str, fields: tuple[Field, ...] = ()) -> None:
        self.name, self.fields = name, fields
        self.slots: dict[str, int] = {}
        slot = 0
        for each in fields:
            if isinstance(each.kind, Union):  # the slot of the value follows that of the type
                slot += 1
            self.slots[each.name] = slot
            slot += 1

    @cached_property
    def places(self) -> tuple[tuple[Field, int], ...]:
        """Every field, and where in a vtable its offset stands."""
        return tuple((each, 4 + 2 * self.slots[each.name]) for each in self.fields)

    @cached_property
    def vtable_size(self) -> int:
        """Bytes of a vtable that lists every field; one that is longer has fields of the future."""
        return 6 + 2 * max(self.slots.values(), default=-1)

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """Every field by its name."""
        return {each.name: each for each in self.fields}


type Kind = Scalar | Struct | Text | Vector | Union | Table
type Values = dict[str, Any]
"""A table in Python: absent fields are None, tables are dicts, unions are (tag, dict)."""

OFFSET = 4
"""Bytes of a reference to something outside the table."""


@cache
def inline_size(field: Field) -> tuple[int, int]:
    """Return the bytes a field takes inside its table, and their alignment."""
    kind = field.kind
    if isinstance(kind, Struct):
        return kind.size, kind.align
    if isinstance(kind, Scalar):
        return kind.size, kind.size
    return OFFSET, OFFSET


U8 = Scalar("uint8", "B")
BOOL = Scalar("bool", "?")
U16 = Scalar("uint16", "H")
I32 = Scalar("int32", "i")
U32 = Scalar("uint32", "I")
U64 = Scalar("uint64", "Q")
TEXT = Text()
BYTES = Vector(U8)


def _require(name: str, kind: Kind) -> Field:
    return Field(name, kind, required=True)


# -- common.fbs -----------------------------------------------------------------------------------

OBJECT_ID_12 = Struct("ObjectId12", 12, 1)
OBJECT_ID_8 = Struct("ObjectId8", 8, 1)
METADATA_ITEM = Table("MetadataItem", (_require("name", TEXT), _require("value", BYTES)))
EXTRA = Field("extra", BYTES)

# -- manifest.fbs ---------------------------------------------------------------------------------

CHUNK_REF = Table(
    "ChunkRef",
    (
        _require("index", Vector(U32)),
        Field("inline", BYTES),
        Field("offset", U64),
        Field("length", U64),
        Field("chunk_id", OBJECT_ID_12),
        Field("location", TEXT),
        Field("checksum_etag", TEXT),
        Field("checksum_last_modified", U32),
        Field("compressed_location", BYTES),
        EXTRA,
    ),
)
ARRAY_MANIFEST = Table(
    "ArrayManifest",
    (_require("node_id", OBJECT_ID_8), _require("refs", Vector(CHUNK_REF, columnar=True)), EXTRA),
)
MANIFEST = Table(
    "Manifest",
    (
        _require("id", OBJECT_ID_12),
        _require("arrays", Vector(ARRAY_MANIFEST)),
        Field("location_dictionary", BYTES),
        Field("compression_algorithm", U8, default=1),
        EXTRA,
    ),
)

# -- snapshot.fbs ---------------------------------------------------------------------------------

MANIFEST_FILE_INFO = Struct("ManifestFileInfo", 32, 8)
MANIFEST_FILE_INFO_LAYOUT = struct.Struct("<12s4xQI4x")  # id, size_bytes, num_chunk_refs
CHUNK_INDEX_RANGE = Struct("ChunkIndexRange", 8, 4)
CHUNK_INDEX_RANGE_LAYOUT = struct.Struct("<II")  # from (included), to (excluded)
DIMENSION_SHAPE = Struct("DimensionShape", 16, 8)
DIMENSION_SHAPE_LAYOUT = struct.Struct("<QQ")  # array_length, chunk_length
MANIFEST_FILE_INFO_V2 = Table(
    "ManifestFileInfoV2",
    (Field("id", OBJECT_ID_12), Field("size_bytes", U64), Field("num_chunk_refs", U32), EXTRA),
)
MANIFEST_REF = Table(
    "ManifestRef",
    (_require("object_id", OBJECT_ID_12), _require("extents", Vector(CHUNK_INDEX_RANGE))),
)
DIMENSION_SHAPE_V2 = Table(
    "DimensionShapeV2", (Field("array_length", U64), Field("num_chunks", U32))
)
DIMENSION_NAME = Table("DimensionName", (Field("name", TEXT),))
ARRAY_NODE_DATA = Table(
    "ArrayNodeData",
    (
        _require("shape", Vector(DIMENSION_SHAPE)),
        Field("dimension_names", Vector(DIMENSION_NAME)),
        _require("manifests", Vector(MANIFEST_REF)),
        Field("shape_v2", Vector(DIMENSION_SHAPE_V2)),
    ),
)
GROUP_NODE_DATA = Table("GroupNodeData")
NODE_DATA = Union((ARRAY_NODE_DATA, GROUP_NODE_DATA))
NODE_SNAPSHOT = Table(
    "NodeSnapshot",
    (
        _require("id", OBJECT_ID_8),
        _require("path", TEXT),
        _require("user_data", BYTES),
        _require("node_data", NODE_DATA),
        EXTRA,
    ),
)
SNAPSHOT = Table(
    "Snapshot",
    (
        _require("id", OBJECT_ID_12),
        Field("parent_id", OBJECT_ID_12),
        _require("nodes", Vector(NODE_SNAPSHOT)),
        Field("flushed_at", U64),
        _require("message", TEXT),
        _require("metadata", Vector(METADATA_ITEM)),
        _require("manifest_files", Vector(MANIFEST_FILE_INFO)),
        Field("manifest_files_v2", Vector(MANIFEST_FILE_INFO_V2)),
        EXTRA,
    ),
)

# -- transaction_log.fbs --------------------------------------------------------------------------

CHUNK_INDICES = Table("ChunkIndices", (_require("coords", Vector(U32)),))
ARRAY_UPDATED_CHUNKS = Table(
    "ArrayUpdatedChunks",
    (_require("node_id", OBJECT_ID_8), _require("chunks", Vector(CHUNK_INDICES, columnar=True))),
)
MOVE_OPERATION = Table(
    "MoveOperation",
    (Field("from", TEXT), Field("to", TEXT), Field("node_id", OBJECT_ID_8), Field("node_type", U8)),
)
NODE_SETS = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_arrays",
    "updated_groups",
)
TRANSACTION_LOG = Table(
    "TransactionLog",
    (
        _require("id", OBJECT_ID_12),
        *(_require(name, Vector(OBJECT_ID_8)) for name in NODE_SETS),
        _require("updated_chunks", Vector(ARRAY_UPDATED_CHUNKS)),
        Field("moved_nodes", Vector(MOVE_OPERATION)),
        EXTRA,
    ),
)

# -- repo.fbs -------------------------------------------------------------------------------------

REF = Table("Ref", (_require("name", TEXT), Field("snapshot_index", U32)))
SNAPSHOT_INFO = Table(
    "SnapshotInfo",
    (
        _require("id", OBJECT_ID_12),
        Field("parent_offset", I32),  # absent means 0, which is a parent; no parent is -1
        Field("flushed_at", U64),
        _require("message", TEXT),
        Field("metadata", Vector(METADATA_ITEM)),
        Field("pruned_ancestor_tx_logs", Vector(OBJECT_ID_12)),  # spec 2.1
    ),
)
REPO_STATUS = Table(
    "RepoStatus",
    (Field("availability", U8), Field("set_at", U64), Field("limited_availability_reason", TEXT)),
)
_NAME = _require("name", TEXT)
_BRANCH = _require("branch", TEXT)
_PREVIOUS = _require("previous_snap_id", OBJECT_ID_12)
_NEW = _require("new_snap_id", OBJECT_ID_12)
UPDATE_TYPE = Union(
    (
        Table("RepoInitializedUpdate"),
        Table("RepoMigratedUpdate", (Field("from_version", U8), Field("to_version", U8))),
        Table("ConfigChangedUpdate"),
        Table("MetadataChangedUpdate"),
        Table("TagCreatedUpdate", (_NAME,)),
        Table("TagDeletedUpdate", (_NAME, _PREVIOUS)),
        Table("BranchCreatedUpdate", (_NAME,)),
        Table("BranchDeletedUpdate", (_NAME, _PREVIOUS)),
        Table("BranchResetUpdate", (_NAME, _PREVIOUS)),
        Table("NewCommitUpdate", (_BRANCH, _NEW)),
        Table("CommitAmendedUpdate", (_BRANCH, _PREVIOUS, _NEW)),
        Table("NewDetachedSnapshotUpdate", (_NEW,)),
        Table("GCRanUpdate"),
        Table("ExpirationRanUpdate"),
        Table(
            "FeatureFlagChangedUpdate",
            (Field("id", U16), Field("new_value", BOOL), Field("is_set", BOOL)),
        ),
        Table("RepoStatusChangedUpdate", (Field("status", REPO_STATUS),)),
    )
)
UPDATE = Table(
    "Update",
    (_require("update_type", UPDATE_TYPE), Field("updated_at", U64), Field("backup_path", TEXT)),
)
REPO = Table(
    "Repo",
    (
        Field("spec_version", U8),
        _require("tags", Vector(REF)),
        _require("branches", Vector(REF)),
        _require("deleted_tags", Vector(TEXT)),
        _require("snapshots", Vector(SNAPSHOT_INFO, columnar=True)),
        _require("status", REPO_STATUS),
        Field("metadata", Vector(METADATA_ITEM)),
        _require("latest_updates", Vector(UPDATE, columnar=True)),
        Field("repo_before_updates", TEXT),
        Field("config", BYTES),  # a FlexBuffer
        Field("enabled_feature_flags", Vector(U16)),
        Field("disabled_feature_flags", Vector(U16)),
        EXTRA,
    ),
)


# A builder may share equal strings and vtables; a file visited many times over is an attack.
MAX_SHARING = 16


class Damage(Exception):  # noqa: N818 - it never leaves the package, see ``reading``
    """Something in the file cannot be; the fields passed on the way out are collected."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.trail: list[str] = []

    def as_error(self, file: str) -> FormatError:
        """Return the error for the user."""
        field = ".".join(reversed(self.trail)).replace(".[", "[")
        return FormatError(
            self.what,
            do="The file is damaged or was not written by an Icechunk client: restore it from a"
            " copy of the repository.",
            file=file,
            **({"field": field, "at": self.at} if field or self.at else {}),
        )
