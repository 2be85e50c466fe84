"""Parts of a catalog that several tasks write at once, and what becomes of bad files in them."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builds.support import closed_of, tables_of
from icevirt.archive.blocks.packing import unpack
from icevirt.archive.catalog import parts_of, run_of, scan_of, status_of
from icevirt.archive.scanned import ScanLimits, ScanOutcome
from icevirt.archive.schema import ArraySchema
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.facts_reader import Chosen, read_facts
from icevirt.catalog.lookup import forget, look_up_files, rows_forgotten
from icevirt.catalog.parts import PartRows, ScanNotes, complete_parts, mark, write_part
from icevirt.errors import ScanError, ScanTimeoutError, StaleReferenceError
from icevirt.model.attributes import Attributes
from icevirt.planning.normal_form import file_signature
from icevirt.storage import durable
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Below
from planning.test_combine import data, file, time

FILES = [file(n, lambda u: data(u, 1), time([float(n)])) for n in range(3)]
SOURCES = [each.source for each in FILES]
LISTED = SourceFiles(SOURCES)
GOOD = [ScanOutcome(file=each.source, scanned=each, error=None, seconds=0.1) for each in FILES]


VERSIONS = [
    SourceFile(url=url, size=size, etag=etag, last_modified=moment)
    for url in ("s3://b/k", "s3://b/l")
    for size in (1, 2)
    for etag in ("", "e", "f")
    for moment in (1, 2)
]


def bad(outcome, error):
    return replace(outcome, scanned=None, error=error)


def chosen(*rows):
    return Chosen(part=np.zeros(len(rows), np.int32), row=np.array(rows, np.int32))


def test_a_task_that_was_thought_dead_mixes_nothing_with_its_successor():
    """The one saw a file whole, the other changed; both write tables of the same run of files."""
    storage = MemoryStorage()
    (part,) = parts_of(SOURCES[:1], identity="scan")
    found = bad(GOOD[0], StaleReferenceError("changed"))
    names = [write_part(storage, part.name, tables_of([each])) for each in (GOOD[0], found)]
    assert len(set(names)) == 2
    assert {run_of(name) for name in names} == {part.name}
    assert {scan_of(name) for name in names} == {"scan"}
    for name, arrays in zip(names, (2, 0), strict=True):
        assert len(closed_of(storage, [name]).facts.arrays.file) == arrays
    known = look_up_files(storage, "scan", SourceFiles(SOURCES[:1]))
    closed = read_facts(storage, SourceFiles(SOURCES[:1]), *known.chosen)
    assert len(closed.facts.arrays.file) == 2 * len(closed.facts.files)  # one of them, whole
    assert len(closed.bad) == 1 - len(closed.facts.files)


def test_a_task_that_repeats_another_replaces_its_tables_by_the_same():
    storage = MemoryStorage()
    names = {write_part(storage, "scan-run", tables_of(GOOD)) for _ in range(2)}
    assert len(names) == 1
    assert complete_parts(storage).keys() == names


def test_scans_that_forget_bad_files_at_once_keep_the_notes_of_both():
    storage = MemoryStorage()
    outcomes = [bad(each, ScanError("damaged")) for each in GOOD]
    name = write_part(storage, "scan-run", tables_of(outcomes))
    before = look_up_files(storage, "scan", LISTED)  # as both scans saw it
    assert not len(before.missing)
    forget(storage, [name], chosen(0))
    forget(storage, [name], chosen(1, 2))
    forget(storage, [name], chosen(0))  # the same again is the same note
    assert len(rows_forgotten(storage)) == 2
    after = look_up_files(storage, "scan", LISTED)
    assert after.missing.tolist() == [0, 1, 2]
    assert after.attempt != before.attempt  # so that parts tried again have other names


def test_only_what_lower_limits_stopped_is_tried_again():
    storage = MemoryStorage()
    outcomes = [GOOD[0], bad(GOOD[1], ScanTimeoutError("slow")), bad(GOOD[2], ScanError("cut"))]
    low, high = ScanLimits(seconds=5.0), ScanLimits(seconds=6.0)
    name = write_part(storage, "scan-run", tables_of(outcomes, low))
    assert not len(look_up_files(storage, "scan", LISTED, low).missing)
    assert not len(look_up_files(storage, "scan", LISTED, replace(low, memory=8 << 40)).missing)
    found = look_up_files(storage, "scan", LISTED, high)
    assert found.missing.tolist() == [1]
    assert found.outgrown.row.tolist() == [1]
    forget(storage, found.parts, found.outgrown)
    for limits in (low, high):
        found = look_up_files(storage, "scan", LISTED, limits)
        assert (found.missing.tolist(), len(found.outgrown.row)) == ([1], 0)
    again = write_part(storage, "scan-again", tables_of([GOOD[1]], high))
    for limits in (low, high):
        names, rows = look_up_files(storage, "scan", LISTED, limits).chosen
        assert [names[part] for part in rows.part.tolist()] == [name, again, name]


@given(st.lists(st.lists(st.sampled_from(VERSIONS), max_size=5), max_size=4), st.data())
def test_a_file_is_found_in_the_first_row_that_is_just_like_it(parts, drawn):
    """Among versions of files, and files that are listed and scanned twice."""
    storage = MemoryStorage()
    for at, versions in enumerate(parts):
        tables = tables_of([replace(GOOD[0], file=version) for version in versions])
        write_part(storage, f"scan-{at}", tables)
    wanted = drawn.draw(st.lists(st.sampled_from(VERSIONS), max_size=6))
    known = look_up_files(storage, "scan", SourceFiles(wanted))
    rows = [(at, row, version) for at, part in enumerate(parts) for row, version in enumerate(part)]
    for version, found in zip(wanted, zip(known.part, known.row, strict=True), strict=True):
        first = next(((at, row) for at, row, other in rows if other == version), (-1, 0))
        assert found == first


def test_marks_of_parts_do_not_wait_for_the_disk(tmp_path, monkeypatch):
    """A process that dies leaves its mark all the same."""
    waits = []
    monkeypatch.setattr(durable.os, "fsync", waits.append)
    (part,) = parts_of(SOURCES[:1], identity="scan")
    for storage in (LocalStorage(tmp_path), Below(LocalStorage(tmp_path), "catalog/")):
        mark(storage)
        assert waits
        waits.clear()
        notes = ScanNotes(storage)
        with notes.scanning(part):
            assert notes.has_died_in([part])
        assert not notes.has_died_in([part])
        assert not waits
        storage.put("refs/other", b"waits as before")
        assert waits
        waits.clear()
    memory = MemoryStorage()
    with ScanNotes(memory).scanning(part):
        assert ScanNotes(memory).has_died_in([part])


STATUSES = {
    "scan": "corrupt",
    "unsupported": "unsupported",
    "stale-reference": "changed",
    "not-found": "missing",
    "crashed": "crashed",
    "timeout": "timeout",
    "oom": "oom",
    "storage": "unreadable",
    "something-new": "unreadable",
}


@pytest.mark.parametrize(("code", "status"), STATUSES.items())
def test_the_code_of_an_error_says_what_kind_of_bad_a_file_is(code, status):
    assert status_of(code) == status


# -- signatures ----------------------------------------------------------------------------------

SCHEMA = ArraySchema(
    dimension_names=("time",),
    chunk_shape=(4,),
    data_type="int16",
    codecs=({"name": "bytes"}, {"name": "numcodecs.zlib", "configuration": {"level": 4}}),
    fill_value=0,
    attributes=Attributes(values={"scale_factor": 0.1, "long_name": "one"}),
)
OTHERS = {
    "another chunk shape": {"chunk_shape": (5,)},
    "another type": {"data_type": "int32"},
    "another fill value": {"fill_value": 1},
    "another codec": {"codecs": ({"name": "bytes"},)},
    "another scale": {"attributes": Attributes(values={"scale_factor": 0.2})},
    "another dimension": {"dimension_names": ("t",)},
}
ALIKE = {
    "another compression level": {
        "codecs": ({"name": "bytes"}, {"name": "numcodecs.zlib", "configuration": {"level": 9}})
    },
    "another name for people": {
        "attributes": Attributes(values={"scale_factor": 0.1, "long_name": "two"})
    },
}


def signature(*arrays):
    return file_signature(tuple((path, schema.dumps()) for path, schema in arrays))


@pytest.mark.parametrize("how", OTHERS.values(), ids=OTHERS.keys())
def test_files_that_decode_otherwise_have_another_signature(how):
    assert signature(("/v", replace(SCHEMA, **how))) != signature(("/v", SCHEMA))


@pytest.mark.parametrize("how", ALIKE.values(), ids=ALIKE.keys())
def test_files_that_decode_alike_have_one_signature(how):
    assert signature(("/v", replace(SCHEMA, **how))) == signature(("/v", SCHEMA))


def test_a_signature_covers_all_arrays_in_whatever_order():
    other = replace(SCHEMA, data_type="int32")
    one = signature(("/a", SCHEMA), ("/b", other))
    assert one == signature(("/b", other), ("/a", SCHEMA))
    assert one != signature(("/a", SCHEMA))
    assert one != signature(("/a", other), ("/b", SCHEMA))


def test_the_catalog_has_the_signature_of_good_files_and_none_of_bad_ones():
    third = file(3, lambda u: data(u, 1, codecs=({"name": "bytes"},)), time([3.0]))
    other = ScanOutcome(file=third.source, scanned=third, error=None, seconds=0.1)
    rows = tables_of([GOOD[0], GOOD[1], other, bad(GOOD[2], ScanError("cut"))]).files["signature"]
    assert rows[0] == rows[1] != rows[2]
    assert len(rows[0]) == 32
    assert rows[3] == ""


def test_sources_are_distinguished_by_all_that_identifies_them():
    one = SourceFile(url="s3://b/k", size=1, etag="e", last_modified=2)
    changes = ({"url": "s3://b/l"}, {"size": 2}, {"etag": "f"}, {"last_modified": 3})
    names = {
        part.name
        for each in (one, *(replace(one, **how) for how in changes))
        for part in parts_of([each], identity="scan")
    }
    assert len(names) == 5


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ([1000] * 20, [8, 8, 4]),
        ([3 << 20] * 5, [1] * 5),
        ([1 << 20, 3 << 20, 1, 5 << 20, 1, 1], [2, 1, 1, 2]),
        ([5 << 20] * 200, [4] * 50),
        ([1] * 2000, [32] * 62 + [16]),
    ],
    ids=["small", "large", "both", "many large", "many"],
)
def test_few_small_files_share_a_part(sizes, runs):
    """Tables of a part take longer than scanning one of them."""
    files = [SourceFile(url=f"file:///{at}", size=size) for at, size in enumerate(sizes)]
    parts = parts_of(files, identity="scan")
    assert [len(part.files) for part in parts] == runs
    assert [file for part in parts for file in part.files] == files


def large(number, steps):
    """A file with references of random lengths, which compress badly."""
    length = np.random.default_rng(number).integers(50, 50_000, steps)
    offset = 4096 + np.cumsum(length) - length

    def array(url):
        found = data(url, steps)
        table = replace(
            found.references, offset=offset.astype(np.uint64), length=length.astype(np.uint64)
        )
        return replace(found, references=table)

    return file(number, array)


def test_the_files_of_a_part_are_not_held_together():
    """Their references are: packed and compressed, in a quarter of the memory."""
    steps, count = 70_000, 20
    rows = PartRows()
    tracemalloc.start()
    try:
        for number in range(count):
            scanned = large(number, steps)
            before = tracemalloc.get_traced_memory()[0]
            rows.add(ScanOutcome(file=scanned.source, scanned=scanned, error=None, seconds=0.1))
            if not number:
                one = before
        del scanned
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < count * one / 4
    blocks = [unpack(block) for _, block in rows.tables().refs]
    assert sum(map(len, blocks)) == steps * count
    for number in range(count):
        own = np.concatenate([block.offset[block.file == number] for block in blocks])
        (array,) = large(number, steps).arrays
        assert np.array_equal(own, array.references.offset)


def test_files_that_share_no_more_than_a_name_share_a_part():
    """Whether they make a dataset is for the plan to say."""
    flat = data("file:///data/f0.nc", 3)
    table = replace(flat.references, index=flat.references.index[:, :1].copy())
    other = replace(flat, shape=(3,), chunk_shape=(1,), dimension_names=("time",), references=table)
    files = [file(0, other), file(1, lambda u: data(u, 2)), file(2, lambda u: data(u, 2))]
    found = [ScanOutcome(file=each.source, scanned=each, error=None, seconds=0.1) for each in files]
    blocks = [unpack(block) for _, block in tables_of(found).refs]
    assert [block.index.shape for block in blocks] == [(3, 1), (4, 2)]
    assert [sorted({*block.file.tolist()}) for block in blocks] == [[0], [1, 2]]
