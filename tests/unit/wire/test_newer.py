"""Facts of newer clients: read over, told of, and never lost by writing again."""

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.snapshot import Snapshot
from icevirt.wire import snapshot, transaction_log
from icevirt.wire.flatbuffer.builder import build
from icevirt.wire.flatbuffer.reader import FlatBufferReader, Payload, Span, Tables
from icevirt.wire.flatbuffer.schema import (
    ARRAY_MANIFEST,
    CHUNK_REF,
    MANIFEST,
    SNAPSHOT,
    TRANSACTION_LOG,
    U64,
    Field,
    Table,
    Vector,
)
from icevirt.wire.header import FileKind, pack, unpack
from icevirt.wire.manifests import manifest

NODE, A = ObjectId8(b"12345678"), ObjectId12(b"a" * 12)
NEWS = Field("news", U64)


def newer(table: Table) -> Table:
    """The table with one more field, as a later version of the format might have it."""
    return Table(table.name, (*table.fields, NEWS))


def with_vector(table: Table, name: str, of: Table) -> Table:
    """The table with the elements of a vector replaced."""
    return Table(
        table.name,
        tuple(
            Field(name, Vector(of), required=field.required) if field.name == name else field
            for field in table.fields
        ),
    )


def written(refs, *, ref=CHUNK_REF, array=ARRAY_MANIFEST, root=MANIFEST, **more):
    """A manifest whose references are written row by row, by any schema."""
    rows = with_vector(root, "arrays", with_vector(array, "refs", ref))
    each = {"node_id": NODE, "refs": refs, **more.pop("each", {})}
    values = {"id": bytes(12), "arrays": [each], "compression_algorithm": 0, **more}
    return pack(FileKind.manifest, build(rows, values))


def refs(count=4, **fields):
    """References whose vtables differ, so that none speaks for all; the fields are the last's."""
    rows = [{"index": [n], "inline": b"x", "offset": n % 2} for n in range(count)]
    rows[-1] |= fields
    return rows


@pytest.mark.parametrize(
    ("raw", "unkept"),
    {
        "nothing": (written(refs()), ()),
        "extra of one reference among others": (written(refs(extra=b"y")), ("ChunkRef",)),
        "extra of all references": (written(refs(1, extra=b"y")), ("ChunkRef",)),
        "an empty extra": (written(refs(extra=b"")), ("ChunkRef",)),
        "a newer field of one reference": (
            written(refs(news=1), ref=newer(CHUNK_REF)),
            ("ChunkRef",),
        ),
        "a newer field at its default": (written(refs(news=0), ref=newer(CHUNK_REF)), ()),
        "extra of an array": (written(refs(), each={"extra": b"y"}), ("ArrayManifest",)),
        "extra of an array without references": (
            written([], each={"extra": b"y"}),
            ("ArrayManifest",),
        ),
        "a newer field of an array": (
            written(refs(), each={"news": 1}, array=newer(ARRAY_MANIFEST)),
            ("ArrayManifest",),
        ),
        "extra of the manifest": (written(refs(), extra=b"y"), ("Manifest",)),
        "a newer field of the manifest": (
            written(refs(), news=1, root=newer(MANIFEST)),
            ("Manifest",),
        ),
    }.values(),
    ids=lambda case: None,
)
def test_a_manifest_says_which_tables_hold_more_than_its_columns(raw, unkept):
    found = manifest.decode(raw)
    assert found.unkept == unkept
    if not unkept:
        found.refuse_loss()
        return
    with pytest.raises(FormatError, match="Upgrade icevirt") as refused:
        found.refuse_loss()
    assert refused.value.facts["manifest"] == str(found.id)
    assert refused.value.facts["tables"] == list(unkept)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 2)), min_size=1))
def test_extra_is_found_as_a_look_at_every_row_finds_it(rows):
    """Whatever else the rows have, and whether or not they share vtables."""
    made = [
        {"index": [n], "inline": b"x", "offset": offset, "extra": b"e" if extra else None}
        | ({"checksum_etag": "t"} if etag else {})
        for n, (extra, etag, offset) in enumerate(rows)
    ]
    found = manifest.decode(written(made)).unkept
    assert found == (("ChunkRef",) if any(extra for extra, _, _ in rows) else ())


@pytest.mark.parametrize("last", [60_000, 0], ids=["all alike", "the last one differs"])
def test_vtables_that_overlap_cost_no_more_than_the_file(last):
    """Long ones, each a word behind the other: to look at every slot of all takes a minute."""
    count, long = 1_000_000, 60_000
    vtables = np.full((4 * count + long) // 2, long, "<u2")
    vtables[-1] = last
    tables = np.full(count + long // 4, vtables.nbytes, "<i4")  # each as far behind its vtable
    vector = np.full(count, 4 * count + vtables.nbytes, "<u4")
    raw = vector.tobytes() + vtables.tobytes() + tables.tobytes()
    begin = time.process_time()
    rows = Tables(Payload(raw), Span(0, count), CHUNK_REF)
    assert rows.stores_from(0)
    assert time.process_time() - begin < 3


def snapshot_of_the_future():
    """A snapshot with a node that has a seventh field."""
    value = Snapshot(id=A, nodes=(), flushed_at=7, message="m")
    values = FlatBufferReader(unpack(snapshot.encode(value), FileKind.snapshot)[1]).root(SNAPSHOT)
    return pack(FileKind.snapshot, build(newer(SNAPSHOT), {**values, "news": 7})), value


def test_a_snapshot_of_a_newer_client_is_read_but_not_written_again():
    raw, value = snapshot_of_the_future()
    found = snapshot.decode(raw)
    assert found.newer_tables == ("Snapshot",)
    assert dataclasses.replace(found, newer_tables=()) == value
    with pytest.raises(FormatError, match="newer client"):
        snapshot.encode(found)


@pytest.mark.parametrize("where", ["the log", "its extra", "chunk indices"])
def test_a_log_of_a_newer_client_is_read_but_not_replaced(where):
    log = transaction_log.TransactionLog(id=A, updated_chunks={NODE: np.array([[1], [2]], "u4")})
    chunks = next(f for f in TRANSACTION_LOG.fields if f.name == "updated_chunks").kind.of
    indices = next(f for f in chunks.fields if f.name == "chunks").kind.of
    grown = newer(indices) if where == "chunk indices" else indices
    table = with_vector(TRANSACTION_LOG, "updated_chunks", with_vector(chunks, "chunks", grown))
    raw = transaction_log.encode(log)
    values = FlatBufferReader(unpack(raw, FileKind.transaction_log)[1]).root(
        with_vector(TRANSACTION_LOG, "updated_chunks", with_vector(chunks, "chunks", indices))
    )
    if where == "the log":
        table, values = newer(table), {**values, "news": 1}
    elif where == "its extra":
        values["extra"] = b"e"
    else:
        values["updated_chunks"][0]["chunks"][1]["news"] = 1
    found = transaction_log.decode(pack(FileKind.transaction_log, build(table, values)))
    assert found.updated_chunks[NODE].tolist() == [[1], [2]]
    with pytest.raises(FormatError, match="newer client"):
        found.refuse_loss()
    transaction_log.decode(raw).refuse_loss()
