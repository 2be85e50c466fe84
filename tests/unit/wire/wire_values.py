"""Hypothesis strategies for every value that has a file, and readable tables for examples."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import repo_info as r
from icevirt.model import updates as u
from icevirt.model.chunks import FARTHEST, ChunkTable, ChunkType, Locations
from icevirt.model.snapshot import ArrayNode, GroupNode, ManifestFile, ManifestRef, Snapshot
from icevirt.model.strings import Strings
from icevirt.model.transaction_log import Move, NodeType, TransactionLog

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
ids8 = st.binary(min_size=8, max_size=8).map(ObjectId8)
ids12 = st.binary(min_size=12, max_size=12).map(ObjectId12)
texts = st.text(max_size=12)
names = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=6)
paths = st.lists(names, max_size=3).map(lambda parts: "/" + "/".join(parts))
extras = st.none() | st.binary(max_size=5)
keys = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=30,
)
metadata = st.dictionaries(texts, json_values, max_size=3)
backups = st.none() | ids12.map(lambda i: f"repo.30729294865234.{i}")

# -- snapshots ------------------------------------------------------------------------------------

groups = st.builds(GroupNode, id=ids8, path=paths, user_data=st.binary(max_size=30), extra=extras)


@st.composite
def arrays(draw):
    ndim = draw(st.integers(0, 4))
    axis = st.tuples(U64, U32)
    shape = draw(st.lists(axis, min_size=ndim, max_size=ndim))
    labels = st.lists(st.none() | texts, min_size=ndim, max_size=ndim).map(tuple)
    box = st.lists(st.tuples(U32, U32), min_size=ndim, max_size=ndim).map(tuple)
    refs = st.lists(st.builds(ManifestRef, object_id=ids12, extents=box), max_size=3)
    return ArrayNode(
        id=draw(ids8),
        path=draw(paths),
        user_data=draw(st.binary(max_size=30)),
        shape=tuple(length for length, _ in shape),
        num_chunks=tuple(count for _, count in shape),
        dimension_names=draw(st.none() | labels),
        manifests=tuple(draw(refs)),
        extra=draw(extras),
    )


manifest_infos = st.builds(ManifestFile, id=ids12, size_bytes=U64, num_chunk_refs=U32, extra=extras)
snapshots = st.builds(
    Snapshot,
    id=ids12,
    nodes=st.lists(groups | arrays(), max_size=5, unique_by=lambda node: node.path).map(tuple),
    flushed_at=U64,
    message=texts,
    metadata=metadata,
    manifest_files=st.lists(manifest_infos, max_size=3, unique_by=lambda i: i.id).map(tuple),
    extra=extras,
)

# -- repo info ------------------------------------------------------------------------------------

statuses = st.builds(
    r.StatusRecord,
    availability=st.sampled_from(r.RepoAvailability),
    set_at=U64,
    limited_availability_reason=st.none() | texts,
)
update_kinds = st.one_of(
    st.sampled_from([u.RepoInitialized(), u.ConfigChanged(), u.MetadataChanged(), u.GCRan()]),
    st.just(u.ExpirationRan()),
    st.builds(u.RepoMigrated, st.integers(0, 255), st.integers(0, 255)),
    st.builds(u.TagCreated, texts),
    st.builds(u.TagDeleted, texts, ids12),
    st.builds(u.BranchCreated, texts),
    st.builds(u.BranchDeleted, texts, ids12),
    st.builds(u.BranchReset, texts, ids12),
    st.builds(u.NewCommit, texts, ids12),
    st.builds(u.CommitAmended, texts, ids12, ids12),
    st.builds(u.NewDetachedSnapshot, ids12),
    st.builds(u.FeatureFlagChanged, U16, st.none() | st.booleans()),
    st.builds(u.RepoStatusChanged, statuses),
)
flags = st.none() | st.lists(U16, max_size=4, unique=True).map(lambda f: tuple(sorted(f)))


def snapshot_infos(key, parents):
    """Facts about the snapshot ``key``, whose parent is one of these or none."""
    return st.builds(
        r.SnapshotSummary,
        id=st.just(key),
        parent_id=st.none() | st.sampled_from(parents),
        flushed_at=U64,
        message=texts,
        metadata=metadata,
        pruned_ancestor_tx_logs=st.none() | st.lists(ids12, min_size=1, max_size=3).map(tuple),
    )


@st.composite
def repo_infos(draw):
    ids = draw(st.lists(ids12, min_size=1, max_size=5, unique=True))
    infos = {key: draw(snapshot_infos(key, ids)) for key in ids}
    refs = st.dictionaries(texts, st.sampled_from(ids), max_size=3)
    older = st.builds(r.OpsLogEntry, kind=update_kinds, updated_at=U64, backup_path=backups)
    # hypothesis draws the fields of a NamedTuple that have a default, too
    newest = st.builds(r.OpsLogEntry, kind=update_kinds, updated_at=U64, backup_path=st.none())
    return r.RepoInfo(
        tags=draw(refs),
        branches=draw(refs) | {"main": draw(st.sampled_from(ids))},
        deleted_tags=draw(st.frozensets(texts, max_size=3)),
        snapshots=infos,
        status=draw(statuses),
        metadata=draw(st.none() | metadata),
        latest_updates=(draw(newest), *draw(st.lists(older, max_size=4))),
        repo_before_updates=draw(backups),
        config=draw(st.none() | st.dictionaries(keys, json_values, max_size=4)),
        enabled_feature_flags=draw(flags),
        disabled_feature_flags=draw(flags),
        extra=draw(extras),
    )


# -- transaction logs and chunk tables ------------------------------------------------------------


@st.composite
def indices(draw, ndim, max_rows=12):
    """Distinct chunk indices in lexicographic order, shape (n, ndim)."""
    rows = st.tuples(*([st.integers(0, 3) | U32] * ndim))
    found = draw(st.sets(rows, min_size=1, max_size=max_rows if ndim else 1))
    return np.array(sorted(found), np.uint32).reshape(len(found), ndim)


@st.composite
def transaction_logs(draw):
    sets = {
        name: draw(st.frozensets(ids8, max_size=3))
        for name in (
            "new_groups",
            "new_arrays",
            "deleted_groups",
            "deleted_arrays",
            "updated_arrays",
            "updated_groups",
        )
    }
    moves = st.builds(
        Move, from_path=paths, to_path=paths, node_id=ids8, node_type=st.sampled_from(NodeType)
    )
    found = draw(st.lists(moves, max_size=3, unique_by=lambda move: move.to_path))
    nodes = draw(st.lists(ids8, max_size=3, unique=True))
    return TransactionLog(
        id=draw(ids12),
        **sets,
        updated_chunks={node: draw(indices(draw(st.integers(0, 4)))) for node in nodes},
        moved_nodes=tuple(sorted(found, key=lambda m: [p.encode() for p in m.to_path.split("/")])),
        extra=draw(extras),
    )


@st.composite
def locations(draw, count):
    url = draw(st.lists(texts.map(lambda t: "s3://b/" + t), min_size=count, max_size=count))
    etag = draw(st.lists(st.just("") | texts, min_size=count, max_size=count))
    modified = draw(st.lists(st.just(0) | U32, min_size=count, max_size=count))
    # at most one checksum is stored
    modified = [0 if tag else seconds for tag, seconds in zip(etag, modified, strict=True)]
    return Locations(
        url=Strings.of(url), etag=Strings.of(etag), last_modified=np.array(modified, np.uint32)
    )


@st.composite
def tables(draw, max_rows=12):
    index = draw(indices(draw(st.integers(0, 4)), max_rows))
    n = len(index)
    kind = np.array(draw(st.lists(st.sampled_from([1, 2, 3]), min_size=n, max_size=n)), np.uint8)
    places, chunks = draw(locations(draw(st.integers(1, 4)))), draw(st.integers(1, 4))
    blobs = draw(st.lists(st.binary(min_size=1, max_size=9), min_size=n, max_size=n))
    source, offset, length = np.zeros(n, np.uint32), np.zeros(n, np.uint64), np.ones(n, np.uint64)
    used = 0
    for row, blob in enumerate(blobs):
        if kind[row] == ChunkType.inline:
            offset[row], length[row], used = used, len(blob), used + len(blob)
        else:
            height = len(places) if kind[row] == ChunkType.virtual else chunks
            source[row] = draw(st.integers(0, height - 1))
            offset[row], length[row] = (
                draw(st.integers(0, FARTHEST - 1)),
                draw(st.integers(1, FARTHEST - 1)),
            )
    inline = b"".join(b for b, k in zip(blobs, kind, strict=True) if k == ChunkType.inline)
    return ChunkTable(
        index=index,
        kind=kind,
        source=source,
        offset=offset,
        length=length,
        locations=places,
        chunk_ids=np.frombuffer(
            draw(st.binary(min_size=12 * chunks, max_size=12 * chunks)), np.uint8
        )
        .reshape(chunks, 12)
        .copy(),
        inline=np.frombuffer(inline, np.uint8).copy(),
    )


manifests = st.dictionaries(ids8, tables(), max_size=3)


def meaning(table):
    """Return what each row says, however the table shares and numbers things."""
    rows = {}
    for row in range(len(table)):
        index, source = tuple(table.index[row].tolist()), int(table.source[row])
        start, size = int(table.offset[row]), int(table.length[row])
        match ChunkType(table.kind[row]):
            case ChunkType.inline:
                rows[index] = table.inline[start : start + size].tobytes()
            case ChunkType.native:
                rows[index] = (table.chunk_ids[source].tobytes(), start, size)
            case _:
                at = table.locations
                rows[index] = (
                    at.url[source],
                    at.etag[source],
                    int(at.last_modified[source]),
                    start,
                    size,
                )
    return rows


def virtual_table(n, *, per_file=10, url="s3://bucket/some/prefix/file_{:06d}.nc", **checksum):
    """Return ``n`` virtual references in one dimension, ``per_file`` to a file."""
    count = -(-n // per_file)
    place = Locations.one("x", **checksum)
    return ChunkTable.virtual(
        index=np.arange(n)[:, None],
        offset=np.arange(n) % per_file * 100,
        length=np.full(n, 100),
        source=np.arange(n) // per_file,
        locations=Locations(
            url=Strings.of(url.format(i) for i in range(count)),
            etag=Strings.of([place.etag[0]] * count),
            last_modified=np.repeat(place.last_modified, count),
        ),
    )
