"""`check(chunks=True)` tells damaged native chunks from those whose names are random."""

import os
import pickle
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.check import check
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import ObjectInfo
from icevirt.versioning import id_columns
from repo.support import array_json

EDGE = 500  # elements, 4,000 bytes


def write(repo, name="a", *, first=0, number=4, message="x", amend=False):
    """Write some chunks of an array, each with other values."""
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    array = group.require_array(
        name, shape=(8 * EDGE,), chunks=(EDGE,), dtype="f8", compressors=None, fill_value=-1
    )
    begin = first * EDGE
    array[begin : begin + number * EDGE] = np.random.default_rng(first).normal(size=number * EDGE)
    return (session.amend if amend else session.commit)(message)


@pytest.fixture
def repo(repo_path):
    return Repository.create(repo_path, content_addressed_chunks=True)


def official(path):
    return icechunk.Repository.open(icechunk.local_filesystem_storage(path))


def files(path):
    return sorted(f"{path}/chunks/{name}" for name in os.listdir(f"{path}/chunks"))


def change(path, act):
    """Change the bytes of a file, which keeps its name."""
    with open(path, "rb") as file:
        before = file.read()
    with open(path, "wb") as file:
        file.write(act(before))


def flipped(at, mask=1):
    return lambda raw: raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]


def counts(report):
    chunks = report.chunks
    return chunks.intact, chunks.damaged, chunks.unverifiable


def codes(report):
    return sorted({problem.code for problem in report.problems})


# -- every kind of damage ----------------------------------------------------------------------

ONE = {
    **{f"byte {at}": flipped(at) for at in (0, 1, 7, 2000, 3999)},
    **{f"bit {bit}": flipped(1234, 1 << bit) for bit in range(8)},
    "zeros": lambda raw: bytes(len(raw)),
    "a torn page": lambda raw: raw[:512] + bytes(512) + raw[1024:],
    "cut": lambda raw: raw[:-1],
    "empty": lambda _: b"",
    "longer": lambda raw: raw + b"\0",
}


@pytest.mark.parametrize("act", ONE.values(), ids=ONE.keys())
def test_a_damaged_chunk_is_reported_and_no_other(repo, repo_path, act):
    write(repo)
    assert counts(check(repo_path, chunks=True)) == (4, 0, 0)
    change(files(repo_path)[2], act)
    report = check(repo_path, chunks=True)
    assert counts(report) == (3, 1, 0)
    assert not report.ok
    assert [(a.path, a.intact, a.damaged) for a in report.chunks.arrays] == [("/a", 3, 1)]


def test_the_report_names_array_index_and_remedy(repo, repo_path):
    write(repo)
    session = repo.readonly_session("main")
    table = session.array_table("/a")
    key = ObjectId12(table.chunk_ids[table.source[2]].tobytes())
    change(f"{repo_path}/chunks/{key}", flipped(77))
    (problem,) = check(repo_path, chunks=True).problems
    assert (problem.file, problem.code) == (f"chunks/{key}", "chunk-bytes")
    assert "/a [2]" in problem.what
    assert "restore the object from a copy, or write the chunk again" in problem.what


def test_swapped_chunks_are_both_damaged(repo, repo_path):
    write(repo)
    one, other, *_ = files(repo_path)
    os.rename(one, f"{one}.tmp")
    os.rename(other, one)
    os.rename(f"{one}.tmp", other)
    assert counts(check(repo_path, chunks=True)) == (2, 2, 0)


@pytest.mark.parametrize("writer", ["icevirt", "icechunk"])
def test_another_valid_chunk_in_its_place_is_damage(repo, repo_path, tmp_path, writer):
    write(repo)
    if writer == "icechunk":
        icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "other")))
    other = tmp_path / "other"
    opened = Repository.create(other) if writer == "icevirt" else official(str(other))
    write(opened, first=4)
    shutil.copyfile(files(other)[0], files(repo_path)[0])
    assert counts(check(repo_path, chunks=True)) == (3, 1, 0)


def test_a_missing_chunk_is_damage(repo, repo_path):
    write(repo)
    os.remove(files(repo_path)[0])
    report = check(repo_path, chunks=True)
    assert counts(report) == (3, 1, 0)
    assert codes(report) == ["chunk"]


def test_a_chunk_that_cannot_be_read_is_reported(repo, repo_path):
    write(repo)

    class Failing(LocalStorage):
        def get_range(self, path, *, offset, length):
            from icevirt.errors import StorageError

            if path == f"chunks/{os.path.basename(files(repo_path)[1])}":
                raise StorageError("input/output error", do="Look at the disk.")
            return super().get_range(path, offset=offset, length=length)

    report = check(Failing(repo_path), chunks=True)
    assert counts(report) == (3, 1, 0)
    assert codes(report) == ["storage"]


def test_a_chunk_of_several_arrays_names_them_and_counts_once(repo, repo_path):
    write(repo, "a", number=1)
    write(repo, "b", number=1)
    assert len(files(repo_path)) == 1
    change(files(repo_path)[0], flipped(0))
    report = check(repo_path, chunks=True)
    assert counts(report) == (0, 1, 0)
    (problem,) = report.problems
    assert "/a [0], /b [0]" in problem.what


def test_chunks_larger_than_a_piece_are_compared_in_pieces(repo, repo_path, monkeypatch):
    write(repo)
    monkeypatch.setattr("icevirt.repo.maintenance.check._PIECE", 999)
    assert counts(check(repo_path, chunks=True)) == (4, 0, 0)
    change(files(repo_path)[0], flipped(3998))
    assert counts(check(repo_path, chunks=True)) == (3, 1, 0)


# -- random names are no damage ----------------------------------------------------------------


def by_official(repo_path):
    write(official(repo_path), "theirs", message="official")


def over_ours(repo_path):
    write(official(repo_path), "a", first=2, number=2, message="official")


def amended(repo_path):
    write(official(repo_path), "a", first=2, number=2, message="official", amend=True)


def by_default(repo_path):
    write(Repository.open(repo_path), "random", message="icevirt")


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (by_official, (4, 0, 4)),
        (over_ours, (4, 0, 2)),
        (amended, (4, 0, 2)),
        (by_default, (4, 0, 4)),
    ],
)
def test_random_names_are_unverifiable_and_never_damage(repo, repo_path, act, expected):
    write(repo)
    act(repo_path)
    report = check(repo_path, chunks=True)
    assert report.ok, report.problems
    assert counts(report) == expected
    change(next(f for f in files(repo_path) if is_listed(repo_path, f)), flipped(9))
    assert counts(check(repo_path, chunks=True))[1] == 1


def is_listed(repo_path, file):
    listed, bad = content_names.read_recorded(LocalStorage(repo_path))
    assert not bad
    return ObjectId12.parse(os.path.basename(file)) in {ObjectId12(key.tobytes()) for key in listed}


def test_a_moved_or_shifted_random_chunk_is_not_listed_by_a_session_with_the_option(repo_path):
    """Only chunks that were named by content are listed, not all that a session refers to."""
    write(Repository.create(repo_path))
    repo = Repository.open(repo_path, content_addressed_chunks=True)
    session = repo.writable_session("main")
    session.shift_array("/a", [1])
    session.set_chunk("/a", [0], b"\7" * 8 * EDGE)
    session.commit("shifted")
    report = check(repo_path, chunks=True)
    assert report.ok
    assert counts(report) == (1, 0, 4)


# -- what the record survives ------------------------------------------------------------------


def rebased(repo, path):
    from icevirt.versioning.merge.conflicts import ConflictDetector

    first, second = (repo.writable_session("main") for _ in range(2))
    for number, session in enumerate((first, second)):
        session.set_chunk("/a", [5 + number], bytes([number]) * 8 * EDGE)
    first.commit("first")
    second.commit("second", rebase_with=ConflictDetector())


def expired(repo, path):
    write(repo, first=4, number=2, message="second")
    late = datetime.now(UTC) + timedelta(seconds=1)
    official(path).expire_snapshots(late)
    client = official(path)
    client.garbage_collect(datetime.now(UTC))


def collected(repo, path):
    repo.expire_snapshots(datetime.now(UTC))
    repo.garbage_collect(datetime.now(UTC))


def rewritten(repo, path):
    official(path).rewrite_manifests("rewritten", branch="main")


def forked(repo, path):
    session = repo.writable_session("main")
    fork = pickle.loads(pickle.dumps(session.fork()))
    fork.set_chunk("/a", [6], b"\3" * 8 * EDGE)
    session.merge(pickle.loads(pickle.dumps(fork)))
    session.commit("forked")


def flushed(repo, path):
    session = repo.writable_session("main")
    session.set_chunk("/a", [6], b"\3" * 8 * EDGE)
    repo.create_branch("flushed", session.flush("flushed"))


def our_amend(repo, path):
    write(repo, first=6, number=1, amend=True)


def copied(repo, path):
    shutil.copytree(path, f"{path}.copy")
    shutil.rmtree(path)
    os.rename(f"{path}.copy", path)


@pytest.mark.parametrize(
    "act",
    [rebased, expired, collected, rewritten, forked, flushed, our_amend, copied],
    ids=lambda act: act.__name__,
)
def test_every_chunk_is_still_listed_after(repo, repo_path, act):
    write(repo)
    act(repo, repo_path)
    intact, damaged, unverifiable = counts(check(repo_path, chunks=True))
    assert (damaged, unverifiable) == (0, 0)
    assert check(repo_path, chunks=True).chunks.unlisted == 0
    for file in files(repo_path):
        change(file, flipped(100))
    assert counts(check(repo_path, chunks=True)) == (0, intact, 0)


def test_the_official_client_is_not_disturbed_by_the_lists(repo, repo_path):
    write(repo)
    client = official(repo_path)
    client.garbage_collect(datetime.now(UTC))
    write(client, "theirs")
    assert os.listdir(f"{repo_path}/icevirt/content-names")
    assert check(repo_path, chunks=True).ok


# -- lists that are lost, old or damaged -------------------------------------------------------


def test_lost_lists_make_damage_unverifiable_and_recording_mends_that(repo, repo_path):
    """As in repositories of earlier versions, which have no lists."""
    write(repo)
    shutil.rmtree(f"{repo_path}/icevirt")
    change(files(repo_path)[0], flipped(5))
    report = check(repo_path, chunks=True)
    assert report.ok
    assert counts(report) == (3, 0, 1)
    assert report.chunks.unlisted == 3
    assert check(repo_path, chunks=True, record=True).chunks.unlisted == 0
    change(files(repo_path)[1], flipped(5))
    assert counts(check(repo_path, chunks=True)) == (2, 1, 1)


def test_recording_without_comparing_is_refused(repo_path):
    with pytest.raises(InvalidInputError, match="chunks=True"):
        check(repo_path, record=True)


@pytest.mark.parametrize(
    "act",
    [flipped(3), flipped(20), lambda raw: raw[:-5], lambda _: b""],
    ids=["a bit of the magic", "a bit of an id", "cut short", "empty"],
)
def test_a_damaged_list_is_a_problem_and_no_chunk_is(repo, repo_path, act):
    write(repo)
    (name,) = os.listdir(f"{repo_path}/icevirt/content-names")
    change(f"{repo_path}/icevirt/content-names/{name}", act)
    report = check(repo_path, chunks=True)
    assert codes(report) == ["content-names"]
    assert counts(report) == (4, 0, 0)


def test_what_others_leave_beside_the_lists_is_no_damaged_list(repo, repo_path):
    write(repo)
    folder = Path(repo_path, "icevirt/content-names")
    (folder / "sub").mkdir()
    (name,) = (each.name for each in folder.iterdir() if each.is_file())
    for other in (".DS_Store", f"._{name}", f"{name}.tmp", "sub/desktop.ini"):
        (folder / other).write_bytes(b"x")
    report = check(repo_path, chunks=True)
    assert report.ok
    assert counts(report) == (4, 0, 0)
    repo.garbage_collect(datetime.now(UTC))
    assert (folder / ".DS_Store").exists()


def test_garbage_collection_joins_lists_and_forgets_chunks_that_are_gone(repo, repo_path):
    for at in range(3):
        write(repo, first=at, number=1)
    gone = repo.lookup_branch("main")
    write(repo, "b", first=5, number=2)
    repo.reset_branch("main", gone)
    folder = f"{repo_path}/icevirt/content-names"
    assert len(os.listdir(folder)) == 4
    assert len(content_names.read_recorded(repo.storage)[0]) == 5
    repo.garbage_collect(datetime(2025, 1, 1, tzinfo=UTC))
    assert len(os.listdir(folder)) == 4, "young lists stay"
    repo.garbage_collect(datetime.now(UTC))
    assert len(os.listdir(folder)) == 1
    assert len(content_names.read_recorded(repo.storage)[0]) == 3
    assert check(repo_path, chunks=True).chunks.unlisted == 0
    before = os.listdir(folder)
    repo.garbage_collect(datetime.now(UTC))
    assert os.listdir(folder) == before


def test_a_list_that_is_joined_while_it_is_read_is_found_in_the_new_one(repo, repo_path):
    for at in range(2):
        write(repo, first=at, number=1)

    class Collecting(LocalStorage):
        left = 1

        def get(self, path):
            if path.startswith("icevirt/") and self.left:
                self.left -= 1
                Repository.open(repo_path).garbage_collect(datetime.now(UTC))
            return super().get(path)

    listed, bad = content_names.read_recorded(Collecting(repo_path))
    assert (len(listed), bad) == (2, {})


# -- manifests, and what lies in them ----------------------------------------------------------


@pytest.mark.ci
def test_flipped_bits_of_our_manifests_are_noticed_wherever_they_are(repo, repo_path):
    """Inline chunks and references are in manifests; zstd alone notices few of these."""
    session = repo.writable_session("main")
    values = np.random.default_rng(1).integers(0, 2**31, 100).astype("<i4").tobytes()
    session.add_array(
        "/i",
        array_json((100,), (100,)),
        ChunkTable.of_inline(index=np.zeros((1, 1)), chunks=[values]),
    )
    session.commit("x")
    (name,) = os.listdir(f"{repo_path}/manifests")
    path = f"{repo_path}/manifests/{name}"
    size, silent = os.path.getsize(path), 0
    for at in [*range(39), *range(39, size, 7)]:
        change(path, flipped(at))
        report = check(repo_path)
        if 12 <= at < 37:  # who wrote it, and the version: no reader needs it
            change(path, flipped(at))
            continue
        assert not report.ok, at
        silent += codes(report) == ["manifest-bytes"]
        change(path, flipped(at))
    assert silent > 10
    assert check(repo_path).ok


def test_manifests_of_the_official_client_have_random_names(tmp_path):
    storage = icechunk.local_filesystem_storage(str(tmp_path))
    write(icechunk.Repository.create(storage))
    assert check(str(tmp_path)).ok


# -- columns -----------------------------------------------------------------------------------


def test_names_of_ids_are_read_as_columns():
    ids = [ObjectId12.random() for _ in range(50)]
    strange = ["", "x", "1CECHNKREP0F1RSTCMT", "1CECHNKREP0F1RSTCMT00", "é" * 20, "U" * 20]
    wrong_bits = str(ids[0])[:-1] + "1"  # four spare bits must be zero
    names = [strange[0], *map(str, ids[:25]), *strange[1:], wrong_bits, *map(str, ids[25:])]
    found, there = id_columns.of_names(names)
    assert [ObjectId12(each.tobytes()) for each in found] == ids
    assert [name for name, is_name in zip(names, there, strict=True) if is_name] == list(
        map(str, ids)
    )


def test_sizes_of_chunks_are_found():
    ids = [ObjectId12.random() for _ in range(5)]
    listed = [
        ObjectInfo(path=f"chunks/{key}", size=size, last_modified=0)
        for size, key in enumerate(ids[:4])
    ]
    sizes = ChunkSizes.of([*listed, ObjectInfo(path="chunks/other", size=9, last_modified=0)])
    assert sizes.find(id_columns.column(ids)).tolist() == [0, 1, 2, 3, -1]
    assert ChunkSizes.of([]).find(id_columns.column(ids)).tolist() == [-1] * 5
    assert ChunkType.native == 1
