"""Files that moved are described by both names, from the same tables."""

import io
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from builds.support import closed_of
from builds.support import tables_of as rows_of
from icevirt.api.upkeep.scans import objects_of_parts
from icevirt.archive.blocks.packing import unpack
from icevirt.archive.catalog import parts_of, path_of, run_of, scan_of, tables_of
from icevirt.archive.joining import Fact
from icevirt.archive.scanned import ScanOutcome
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.facts_beside import fact_row, objects_of, write_facts
from icevirt.catalog.facts_reader import Chosen
from icevirt.catalog.lookup import forget, look_up_files
from icevirt.catalog.part_copies import copy_others, fold_parts, rename_files
from icevirt.catalog.parts import complete_parts, mark, write_part
from icevirt.catalog.references import RefsReader
from icevirt.errors import FormatError, ScanError
from icevirt.model.chunks import ChunkType
from icevirt.storage.memory import MemoryStorage
from planning.test_combine import data, file, time

FILES = [file(n, lambda u: data(u, 1), time([float(n)])) for n in range(3)]
SOURCES = [each.source for each in FILES]


def moved(url):
    return url.replace("file:///data/", "file:///new/")


MOVED = [replace(each, url=moved(each.url)) for each in SOURCES]
NOT_MOVED = SourceFiles(SOURCES)


def outcome(file, error=None):
    scanned = None if error else file
    return ScanOutcome(file=file.source, scanned=scanned, error=error, seconds=0.1)


@pytest.fixture
def storage():
    found = MemoryStorage()
    mark(found)
    return found


@pytest.fixture
def part(storage):
    """A part of three files, the last one bad."""
    name = parts_of(SOURCES, identity="scan")[0].name
    outcomes = [*map(outcome, FILES[:2]), outcome(FILES[2], ScanError("broken"))]
    return write_part(storage, name, rows_of(outcomes))


def objects(storage):
    return {info.path: storage.get(info.path) for info in storage.list()}


def test_sources_of_this_test_move():
    assert all(one.url != other.url for one, other in zip(SOURCES, MOVED, strict=True))


def test_both_names_are_found_and_nothing_that_was_there_changes(storage, part):
    before = objects(storage)
    (new,) = rename_files(storage, moved, {}).values()
    now = objects(storage)
    assert {path: now[path] for path in before} == before
    assert now.keys() - before.keys() == {path_of("files", new)}
    assert (scan_of(new), tables_of(new), run_of(new) != run_of(part)) == ("scan", part, True)
    for files, name in ((SOURCES, part), (MOVED, new)):
        found = look_up_files(storage, "scan", SourceFiles(files))
        assert [found.parts[at] for at in found.part] == [name] * 3
        closed = closed_of(storage, [name])
        assert [*closed.facts.files.url] == [each.url for each in files[:2]]
        assert len(closed.facts.arrays.file) == 4
        assert [each.url for each in closed.bad] == [files[2].url]


def test_a_checksum_that_is_another_one_at_the_new_place_is_that_of_the_new_name(storage, part):
    changed = {SOURCES[0]: replace(MOVED[0], last_modified=99)}
    rename_files(storage, moved, changed)
    now = SourceFiles([changed[SOURCES[0]], *MOVED[1:]])
    assert not len(look_up_files(storage, "scan", now).missing)
    assert look_up_files(storage, "scan", SourceFiles(MOVED)).missing.tolist() == [0]


def test_moving_there_and_back_adds_nothing_twice(storage, part):
    for _ in range(2):
        rename_files(storage, moved, {})
        rename_files(storage, lambda url: url.replace("file:///new/", "file:///data/"), {})
    assert {*map(tables_of, complete_parts(storage))} == {part}
    assert len(complete_parts(storage)) == 3  # as scanned, at the new place, and back again
    assert not len(look_up_files(storage, "scan", NOT_MOVED).missing)


@pytest.mark.parametrize("by", [0, 1], ids=["the name before", "the name now"])
def test_a_bad_file_is_tried_again_under_either_name(by, storage, part):
    (new,) = rename_files(storage, moved, {}).values()
    row = Chosen(part=np.zeros(1, np.int32), row=np.array([2], np.int32))
    forget(storage, [(part, new)[by]], row)
    for files in (SOURCES, MOVED):
        assert look_up_files(storage, "scan", SourceFiles(files)).missing.tolist() == [2]


@pytest.mark.parametrize("by", [0, 1], ids=["the name before", "the name now"])
def test_facts_beside_belong_to_both_names(by, storage, part):
    (new,) = rename_files(storage, moved, {}).values()
    write_facts(storage, (part, new)[by], [fact_row(0, FILES[0].arrays[0], Fact.digest)])
    found = objects_of(storage, [part, new])
    assert found[part] == found[new]
    assert objects_of(storage, ["scan-x-y"]) == {}


def test_parts_that_share_tables_are_not_joined_with_others(storage, part):
    (new,) = rename_files(storage, moved, {}).values()
    later = 1 << 62
    assert fold_parts(storage, older_than=later, fewest=1) == 0
    storage.delete(path_of("files", part))
    (other,) = parts_of([replace(SOURCES[0], size=7)], identity="scan")
    good = replace(FILES[0], source=other.files[0])
    write_part(storage, other.name, rows_of([outcome(good)]))
    assert fold_parts(storage, older_than=later, fewest=2) == 1
    (joined,) = complete_parts(storage)
    assert joined not in {part, new}
    assert len(closed_of(storage, [joined]).facts.arrays.file) == 6
    assert not len(look_up_files(storage, "scan", SourceFiles(MOVED)).missing)


def test_with_a_part_goes_what_describes_its_files_by_other_names(storage, part):
    (new,) = rename_files(storage, moved, {}).values()
    found = objects_of_parts(storage, {new})
    assert {*found} == objects(storage).keys() - {"catalog.json"}
    assert found[:2] == sorted([path_of("files", part), path_of("files", new)])


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_copy_without_a_file_says_of_the_others_what_their_scan_said(gone, storage, part):
    rename_files(storage, moved, {})
    write_facts(storage, part, [fact_row(n, FILES[n].arrays[0], Fact.digest) for n in (0, 1)])
    old = {*complete_parts(storage)}
    whole = dict(each for name in old for each in described(storage, name))
    copy_others(storage, [(part, gone)])
    new = {*complete_parts(storage)} - old
    storage.delete_many(objects_of_parts(storage, {part}))
    left = dict(each for name in new for each in described(storage, name))
    lost = {each[gone].url for each in (SOURCES, MOVED)}
    assert left == {url: each for url, each in whole.items() if url not in lost}
    paths = [info.path for info in storage.list() if info.path.endswith(".parquet")]
    assert not any(url in str(rows_in(storage, path)) for url in lost for path in paths)
    for files in (SOURCES, MOVED):
        found = look_up_files(storage, "scan", SourceFiles(files))
        assert found.missing.tolist() == [gone]


def test_a_copy_lacks_files_that_are_to_be_tried_again_and_one_of_no_file_is_none(storage, part):
    bad = Chosen(part=np.zeros(1, np.int32), row=np.array([2], np.int32))
    forget(storage, [part], bad)
    copy_others(storage, [(part, 0)])
    (copy,) = {*complete_parts(storage)} - {part}
    assert [url for url, _ in described(storage, copy)] == [SOURCES[1].url]
    copy_others(storage, [(copy, 0)])
    assert {*complete_parts(storage)} == {part, copy}


def described(storage, name):
    """Yield the URL of each file of a part, and all that its tables say of it but its number."""
    paths = [path_of("files", name), path_of("arrays", name)]
    tables = [rows_in(storage, path) for path in paths]
    tables += [rows_in(storage, path) for path in objects_of(storage, [name]).get(name, [])]
    reader = RefsReader(storage)
    arrays = {row["path"] for row in tables[1]}
    blocks = [(path, unpack(each)) for path in arrays for each in reader.blocks(name, path)]
    for row, url in [(each["row"], each["url"]) for each in tables[0]]:
        rows = [str(each | {"row": 0}) for table in tables for each in table if each["row"] == row]
        references = [
            (path, *reference(block, at))
            for path, block in blocks
            for at in np.flatnonzero(block.file == row)
        ]
        yield url, (sorted(rows), sorted(references))


def reference(block, at):
    """Return the index of a chunk, and its place in the file or its bytes."""
    begin, length = int(block.offset[at]), int(block.length[at])
    is_inline = block.kind[at] == ChunkType.inline
    found = block.data[begin : begin + length].tobytes() if is_inline else (begin, length)
    return block.index[at].tolist(), found


def rows_in(storage, path):
    return pq.read_table(io.BytesIO(storage.get(path))).to_pylist()


def test_damaged_tables_say_what_to_delete_of_all_that_share_them(storage, part):
    (new,) = rename_files(storage, moved, {}).values()
    storage.put(path_of("arrays", new), b"damaged")
    with pytest.raises(FormatError) as caught:
        closed_of(storage, [new])
    scan, _, shared = part.partition("-")
    assert f"Delete files/{scan}-*{shared}.parquet" in str(caught.value)
    assert all(name.endswith(shared) and name.startswith(f"{scan}-") for name in (part, new))
