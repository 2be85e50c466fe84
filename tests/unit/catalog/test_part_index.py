"""Indexes of a catalog's files say what its tables say, and are optional."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builds.support import tables_of
from icevirt import errors
from icevirt.api.upkeep.scans import forget_scans, objects_of_parts
from icevirt.archive.catalog import path_of
from icevirt.archive.scanned import ScanLimits, ScanOutcome
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog import lookup, part_index
from icevirt.catalog.facts_reader import Chosen
from icevirt.catalog.file_hashes import WantedFiles, hash_of_url, hashes_of
from icevirt.catalog.lookup import forget, look_up_files
from icevirt.catalog.part_index import FEWEST, IndexWriter, read_indexes
from icevirt.catalog.parts import mark, tables_of_files, write_part
from icevirt.errors import ScanError, ScanTimeoutError
from icevirt.storage.memory import MemoryStorage
from planning.test_combine import data, file, time

ONE = file(0, lambda u: data(u, 1), time([0.0]))
LOW, HIGH = ScanLimits(seconds=5.0), ScanLimits(seconds=6.0)
VERSIONS = [
    SourceFile(url=f"s3://b/{name}", size=size, etag=etag, last_modified=1)
    for name in "klmnop"
    for size in (1, 2)
    for etag in ("", "e")
]


class Counting(MemoryStorage):
    """Notes what is read."""

    def __init__(self):
        super().__init__()
        self.read = []

    def get(self, path):
        found = super().get(path)
        self.read.append((path.partition("/")[0], len(found)))
        return found

    def get_range(self, path, *, offset, length):
        self.read.append((path.partition("/")[0], length))
        return self.get_versioned(path)[0][offset:][:length]


def outcome(source, error=None):
    scanned = ONE if error is None else None
    return ScanOutcome(file=source, scanned=scanned, error=error, seconds=0.1)


def sources(count, first=0):
    return [
        SourceFile(url=f"s3://b/{n}.nc", size=n, etag=f"{n}", last_modified=n)
        for n in range(first, first + count)
    ]


def listed(storage, parts, files, scan="scan"):
    """Put tables that nobody can read, and their index: files are dealt to the parts in turn."""
    for part in range(parts):
        storage.put(path_of("files", f"{scan}-{part:04d}-0"), b"unread")
    writer = IndexWriter(storage)
    for part, info in enumerate(tables_of_files(storage).values()):
        hashes = hashes_of(SourceFiles(files[part::parts]))
        writer.add(info, hashes, np.arange(len(hashes), dtype=np.int32), may_stop=False)
    writer.close((), set())


def parts_of_one(storage, files, scan="scan"):
    """Write a part for each file."""
    for each in files:
        write_part(storage, f"{scan}-{each.size:04d}", tables_of([outcome(each)]))


def indexed(storage, files, scan="scan", **how):
    return look_up_files(storage, scan, SourceFiles(files), writer=IndexWriter(storage), **how)


def indexes(storage):
    return [info.path for info in storage.list("known")]


@pytest.mark.parametrize(
    ("count", "requests", "share"), [(10, 12, 0.1), (3_000, 4, 1.05)], ids=["few", "many"]
)
def test_files_are_found_in_few_requests_that_read_no_table(count, requests, share):
    """Of 150,000 files in 200 parts: those that are looked for lie anywhere."""
    storage, files = Counting(), sources(150_000)
    listed(storage, 200, files)
    size = sum(info.size for info in storage.list("known"))
    wanted = np.random.default_rng(1).permutation(len(files))[:count]
    known = look_up_files(storage, "scan", SourceFiles(files[n] for n in wanted))
    assert known.part.tolist() == (wanted % 200).tolist()
    assert known.row.tolist() == (wanted // 200).tolist()
    assert {folder for folder, _ in storage.read} == {"known"}
    assert len(storage.read) <= requests
    assert sum(length for _, length in storage.read) <= share * size
    unknown = look_up_files(storage, "scan", SourceFiles(sources(5, 200_000)))
    assert unknown.missing.tolist() == [0, 1, 2, 3, 4]


def test_few_parts_are_looked_up_in_their_tables():
    """Nothing is listed, read or written that was not before there were indexes."""
    storage, files = Counting(), sources(FEWEST - 1)
    parts_of_one(storage, files)
    listings, list_ = [], storage.list
    storage.list = lambda prefix="", **how: listings.append(prefix) or list_(prefix, **how)
    assert not len(indexed(storage, files).missing)
    assert sorted(listings) == ["files", "forgotten/"]
    assert {folder for folder, _ in storage.read} == {"files"}
    assert not indexes(storage)


def test_the_lookup_that_reads_many_tables_writes_an_index_for_the_next():
    storage, files = Counting(), sources(FEWEST)
    parts_of_one(storage, files)
    assert not len(look_up_files(storage, "scan", SourceFiles(files)).missing)
    assert not indexes(storage)  # who only looks writes nothing
    first = indexed(storage, files)
    storage.read.clear()
    second = indexed(storage, files)
    assert {folder for folder, _ in storage.read} == {"known"}
    assert len(indexes(storage)) == 1
    assert (first.part.tolist(), first.row.tolist()) == (second.part.tolist(), second.row.tolist())


def test_a_catalog_that_grows_keeps_few_indexes(monkeypatch):
    monkeypatch.setattr(lookup, "FEWEST", 8)
    storage, files = Counting(), sources(12 * 8)
    for number in range(12):
        parts_of_one(storage, files[number * 8 :][:8])
        assert not len(indexed(storage, files[: (number + 1) * 8]).missing)
        assert len(indexes(storage)) <= 4
    storage.read.clear()
    assert not len(indexed(storage, files).missing)
    assert {folder for folder, _ in storage.read} == {"known"}
    assert sum(index.count for index in read_indexes(storage)) == len(files)


def test_what_is_said_of_tables_that_are_gone_is_dropped(monkeypatch):
    monkeypatch.setattr(lookup, "FEWEST", 8)
    storage, files = Counting(), sources(28)
    parts_of_one(storage, files[:20])
    indexed(storage, files)
    for name in sorted(tables_of_files(storage))[:12]:
        storage.delete(path_of("files", name))
    parts_of_one(storage, files[20:])
    assert indexed(storage, files).missing.tolist() == [*range(12)]
    assert [(index.count, len(index.tables)) for index in read_indexes(storage)] == [(16, 16)]


def test_scans_of_other_options_have_indexes_of_their_own():
    storage, files = Counting(), sources(FEWEST)
    parts_of_one(storage, files)
    parts_of_one(storage, files[:3], scan="other")
    indexed(storage, files)
    storage.read.clear()
    known = indexed(storage, files, scan="other", also=("scan",))
    assert [name.partition("-")[0] for name in (known.parts[at] for at in known.part[:4])] == [
        *(["other"] * 3),
        "scan",
    ]
    assert [folder for folder, _ in storage.read].count("files") == 3


def test_a_table_that_was_replaced_is_read():
    """Files are renamed in their tables when they move; such a table has the name it had."""
    storage, files = Counting(), sources(FEWEST)
    parts_of_one(storage, files)
    known = indexed(storage, files)
    moved = replace(files[5], url="s3://c/5.nc")
    other = MemoryStorage()
    write_part(other, "scan-0005", tables_of([outcome(moved)]))
    (name,) = tables_of_files(other)
    storage.put(path_of("files", name), other.get(path_of("files", name)))
    again = look_up_files(storage, "scan", SourceFiles([*files, moved]))
    assert again.missing.tolist() == [5]
    assert again.part[-1] == known.part[5]


def test_an_index_that_vanishes_while_it_is_read_is_not_missed():
    """Another scan merges it: heads were read, entries are gone."""
    storage, files = Counting(), sources(FEWEST)
    parts_of_one(storage, files)
    before = indexed(storage, files)
    (path,) = indexes(storage)
    get_range = storage.get_range

    def vanishing(path, *, offset, length):
        if offset:
            storage.delete(path)
        return get_range(path, offset=offset, length=length)

    storage.get_range = vanishing
    assert look_up_files(storage, "scan", SourceFiles(files)).part.tolist() == before.part.tolist()
    assert not indexes(storage)
    storage.get_range = get_range
    indexed(storage, files)
    assert indexes(storage) == [path]  # the same again
    heads = read_indexes(storage)
    storage.delete(path)
    assert lookup.parts_with(storage, [files[0].url])
    writer = IndexWriter(storage)
    info = tables_of_files(storage)[before.parts[0]]
    writer.add(info, hashes_of(SourceFiles(files[:1])), np.zeros(1, np.int32), may_stop=False)
    writer.close(heads, {part_index.table_of(info)})
    assert [index.count for index in read_indexes(storage)] == [1]


def damages(raw, begin):
    """Yield a name and damaged bytes."""
    for at in (0, 9, 17, 40, begin - 1, begin, begin + 100, len(raw) - 1):
        yield f"byte {at}", raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    for size in (0, 20, begin, len(raw) - 1):
        yield f"cut to {size}", raw[:size]


def test_a_damaged_index_is_refused_and_may_be_deleted():
    storage, files = Counting(), sources(FEWEST)
    parts_of_one(storage, files)
    indexed(storage, files)
    (path,) = indexes(storage)
    raw, begin = storage.get(path), int(path.rpartition("-")[2])
    for name, damaged in damages(raw, begin):
        storage.put(path, damaged)
        with pytest.raises(errors.FormatError, match=r"Delete known/scan-") as refused:
            look_up_files(storage, "scan", SourceFiles(files))
        assert refused.value.facts["path"] == path, name
    storage.delete(path)
    assert not len(indexed(storage, files).missing)
    assert storage.get(path) == raw


def test_an_index_of_a_later_version_is_left_alone(monkeypatch):
    storage, files = Counting(), sources(FEWEST)
    parts_of_one(storage, files)
    monkeypatch.setattr(part_index, "_VERSION", 2)
    indexed(storage, files)
    later = indexes(storage)
    monkeypatch.undo()
    assert not len(indexed(storage, files).missing)
    assert len(indexes(storage)) == 2
    assert {*later} < {*indexes(storage)}


def test_scans_of_named_files_are_forgotten_without_reading_other_tables():
    storage, files = Counting(), sources(2 * FEWEST)
    mark(storage)
    parts_of_one(storage, files)
    indexed(storage, files)
    storage.read.clear()
    assert forget_scans(storage, [files[3].url, files[70].url]) == 2
    assert [folder for folder, _ in storage.read].count("files") == 2
    assert indexed(storage, files).missing.tolist() == [3, 70]


def test_parts_that_are_deleted_take_the_indexes_with_them():
    storage, files = Counting(), sources(FEWEST)
    parts_of_one(storage, files)
    known = indexed(storage, files)
    going = objects_of_parts(storage, [known.parts[0]])
    assert going[0] == indexes(storage)[0]
    assert objects_of_parts(storage, []) == []


@given(st.lists(st.sampled_from(VERSIONS)), st.lists(st.sampled_from(VERSIONS)))
def test_files_are_found_by_hashes_as_by_comparing_them(wanted, rows):
    at, row = WantedFiles.of(SourceFiles(wanted)).among(hashes_of(SourceFiles(rows)))
    pairs = [(i, j) for i, one in enumerate(wanted) for j, other in enumerate(rows) if one == other]
    assert sorted(zip(at.tolist(), row.tolist(), strict=True)) == pairs
    urls = np.array([hash_of_url(each.url) for each in wanted], np.uint64)
    at, row = WantedFiles(urls).among(hashes_of(SourceFiles(rows)))
    alike = [
        (i, j)
        for i, one in enumerate(wanted)
        for j, other in enumerate(rows)
        if one.url == other.url
    ]
    assert sorted(zip(at.tolist(), row.tolist(), strict=True)) == alike


class GrowingCatalog(RuleBasedStateMachine):
    """A catalog whose parts come, go and are replaced, with indexes and without."""

    @initialize()
    def begin(self):
        self.storage = MemoryStorage()
        self.count = 0

    @rule(
        versions=st.lists(st.sampled_from(VERSIONS), max_size=4),
        scan=st.sampled_from(["scan", "also"]),
        error=st.sampled_from([None, ScanError("cut"), ScanTimeoutError("slow")]),
    )
    def scanned(self, versions, scan, error):
        self.count += 1
        outcomes = [outcome(each, error if not at else None) for at, each in enumerate(versions)]
        write_part(self.storage, f"{scan}-{self.count:04d}", tables_of(outcomes, LOW))

    @rule(limits=st.sampled_from([LOW, HIGH]))
    def looked_up_by_a_scan(self, limits):
        files = SourceFiles(VERSIONS)
        look_up_files(
            self.storage, "scan", files, limits, ("also",), writer=IndexWriter(self.storage)
        )

    @rule(drawn=st.data())
    def deleted(self, drawn):
        if names := sorted(tables_of_files(self.storage)):
            self.storage.delete(path_of("files", drawn.draw(st.sampled_from(names))))

    @rule(drawn=st.data(), error=st.sampled_from([None, ScanTimeoutError("slow")]))
    def replaced(self, drawn, error):
        """In the same bytes or others."""
        if names := sorted(tables_of_files(self.storage)):
            path = path_of("files", drawn.draw(st.sampled_from(names)))
            run = path.removeprefix("files/").rpartition("-")[0]
            other = MemoryStorage()
            versions = drawn.draw(st.lists(st.sampled_from(VERSIONS), max_size=2))
            write_part(other, run, tables_of([outcome(each, error) for each in versions], LOW))
            (info,) = other.list("files")
            self.storage.put(path, other.get(info.path))

    @rule(drawn=st.data())
    def forgotten(self, drawn):
        known = look_up_files(self.storage, "scan", SourceFiles(VERSIONS), LOW, ("also",))
        found = np.flatnonzero(known.part >= 0)
        if len(found):
            at = found[drawn.draw(st.integers(0, len(found) - 1)) :][:1]
            forget(self.storage, known.parts, Chosen(part=known.part[at], row=known.row[at]))

    @rule(drawn=st.data())
    def index_lost(self, drawn):
        if paths := indexes(self.storage):
            self.storage.delete(drawn.draw(st.sampled_from(paths)))

    @invariant()
    def lookups_agree(self):
        """With the indexes, and with the tables alone."""
        plain = MemoryStorage()
        for folder in ("files", "forgotten"):
            for info in self.storage.list(folder):
                plain.put(info.path, self.storage.get(info.path))
        urls = [VERSIONS[0].url, VERSIONS[-1].url, "s3://b/z"]
        for limits in (LOW, HIGH):
            one, other = (
                look_up_files(each, "scan", SourceFiles(VERSIONS), limits, ("also",))
                for each in (self.storage, plain)
            )
            assert one.parts == other.parts
            for name in ("part", "row"):
                assert getattr(one, name).tolist() == getattr(other, name).tolist()
            assert one.attempt == other.attempt
            assert {*zip(one.outgrown.part.tolist(), one.outgrown.row.tolist(), strict=True)} == {
                *zip(other.outgrown.part.tolist(), other.outgrown.row.tolist(), strict=True)
            }
        for url in urls:
            there = {part for part in tables_of_files(plain) if url in files_of(plain, part)}
            assert there <= {*lookup.parts_with(self.storage, [url])}


def files_of(storage, part):
    return (
        lookup.read_tables(storage, [path_of("files", part)], ["url"]).__next__()["url"].to_pylist()
    )


class TestGrowingCatalog(GrowingCatalog.TestCase):
    """The model, with an index wherever it has two parts without one."""

    pytestmark = pytest.mark.ci
    settings = settings(max_examples=30, stateful_step_count=12, deadline=None)

    def runTest(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lookup, "FEWEST", 2)
            super().runTest()
