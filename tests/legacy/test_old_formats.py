"""Every format generation before V1 opens here, and after an upgrade in the official client.

What is compared is what the writer of that time recorded: each array of each snapshot, branch and
tag, with attributes, history, and references into files.
"""

import pickle
import shutil
import warnings

import icechunk
import numpy as np
import pytest
import zarr

import icevirt
from icevirt.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    SnapshotNotFoundError,
)
from icevirt.ids import ObjectId12
from icevirt.model.generation import OldFormatWarning, without_old_format_warning
from icevirt.repo import formats
from icevirt.tasks.table_query import TableQuery
from icevirt.tasks.table_rows import plan_shares, rows_of
from legacy.old_repositories import (
    MAIN,
    MINE,
    REAL,
    SYNTHETIC,
    expected,
    files,
    in_memory,
    on_disk,
    synthetic,
)

BRANCHES = {"main": MAIN, "my-branch": MINE}
TAGS = {"it works!": MINE[1:], "it also works!": MINE}


@pytest.fixture
def target(tmp_path):
    """A file that the virtual chunk of synthetic repositories is in, of 25 numbers."""
    path = tmp_path / "values" / "chunk-1"
    path.parent.mkdir()
    path.write_bytes(np.full(25, 7, "<f4").tobytes())
    return path


def case(name, target):
    """Return generation, files, and what the virtual quarter holds; None: it cannot be read."""
    if name in REAL:
        return REAL[name], files(name), None
    generation, found = synthetic(target.as_uri())[name]
    return generation, found, None if generation in ("E1", "E3") else 7.0


def compare(group, message, virtual):
    """Compare every array of a snapshot with what was written."""
    arrays, has_virtual = expected(message)
    for path, values in arrays.items():
        found = group[path]
        assert dict(found.attrs) == {"this": "is a nice array", "icechunk": 1, "size": 42.0}
        assert dict(group[path.split("/")[0]].attrs)["this"] == "is a nice group"
        if path.endswith("big_chunks") and has_virtual:
            values[:5, :5] = 0 if virtual is None else virtual
            read = np.zeros((10, 10), "f4")
            read[5:], read[:5, 5:] = found[5:], found[:5, 5:]
            if virtual is not None:
                read[:5, :5] = found[:5, :5]
        else:
            read = found[:]
        fill = np.isnan(values) & (read == 8.0)  # the letter of the document knows no NaN
        np.testing.assert_array_equal(np.where(fill, np.nan, read), values)
        assert read.dtype == values.dtype
    assert len([*group.arrays(), *group.groups()]) == (len({p.split("/")[0] for p in arrays}))


def everything(repo, virtual):
    """Compare branches, tags, history and each snapshot."""
    assert set(repo.list_branches()) == {*BRANCHES}
    assert set(repo.list_tags()) == {*TAGS}
    versions = [({"branch": n}, m) for n, m in BRANCHES.items()]
    versions += [({"tag": n}, m) for n, m in TAGS.items()]
    seen = {}
    for version, messages in versions:
        ancestry = list(repo.ancestry(**version))
        assert tuple(each.message for each in ancestry) == messages
        times = [each.written_at for each in ancestry]
        assert times == sorted(times, reverse=True)
        seen |= {each.id: each.message for each in ancestry}
        tip = repo.readonly_session(**version)
        assert tip.snapshot_id == ancestry[0].id
    assert len(seen) == len(MINE)
    for key, message in seen.items():
        store = repo.readonly_session(snapshot_id=key).store
        if message == "Repository initialized":
            continue
        compare(zarr.open_group(store, mode="r"), message, virtual)
    return seen


def opened(storage, **options):
    with pytest.warns(OldFormatWarning, match="icevirt upgrade "):
        return icevirt.Repository.open(storage, **options)


ODD = ("E1", "E4", "E6", "synthetic E2", "synthetic E0 by the letter")
"""What the others have too; those belong to the second tier."""
EACH = [
    name if name in ODD else pytest.param(name, marks=pytest.mark.ci)
    for name in (*REAL, *SYNTHETIC)
]


@pytest.mark.parametrize("name", EACH)
def test_a_repository_reads_as_it_was_written_and_so_does_its_upgrade(name, target, tmp_path):
    generation, found, virtual = case(name, target)
    source = on_disk(found, tmp_path / "old")
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    prefix = target.parent.as_uri() + "/"
    repo = opened(source, authorize_virtual_chunk_access=[prefix])
    assert f"format generation {generation} " in str(repo.head.read().info.old)
    seen = everything(repo, virtual)

    report = icevirt.upgrade(source, tmp_path / "new")
    assert (report.ok, report.generation, report.lost) == (True, generation, ())
    assert report.snapshots == len(MINE)
    assert icevirt.check(tmp_path / "new").problems == ()
    credentials = {prefix: icechunk.credentials.LocalFileSystemAccess}
    official = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(tmp_path / "new")),
        authorize_virtual_chunk_access=credentials if virtual is not None else None,
    )
    assert everything(official, virtual) == seen
    log = [type(each.kind).__name__ for each in official.ops_log()]
    assert (log[0], log[-1], log.count("BranchReset")) == ("RepoMigrated", "RepoInitialized", 0)
    assert log.count("NewCommit") == len(MINE) - 1
    changed = official.diff(from_snapshot_id=_id(seen, MAIN[2]), to_branch="my-branch")
    chunks = {path: sorted(map(tuple, index)) for path, index in changed.updated_chunks.items()}
    assert len(chunks["/group1/big_chunks"]) == 4
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before


def _id(seen, message):
    return next(key for key, found in seen.items() if found == message)


def test_without_its_entry_points_icevirt_reads_the_formats_of_today(tmp_path, monkeypatch):
    """As in a bundle without metadata; a repository from before V1 is not called missing."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    monkeypatch.setattr(formats, "before_v1", formats.before_v1.__wrapped__)
    for version in (1, 2):
        place = str(tmp_path / str(version))
        assert not icevirt.Repository.exists(place)
        icevirt.Repository.create(place, spec_version=version)
        assert icevirt.Repository.open(place).spec_version == version
    old = in_memory(files("E6"))
    for use in (
        lambda: icevirt.Repository.open(old),
        lambda: icevirt.check(old),
        lambda: icevirt.Repository.create(old),
        lambda: icevirt.upgrade(old, str(tmp_path / "new")),
    ):
        with pytest.raises(FormatError, match="the formats before V1 is not installed") as raised:
            use()
        assert raised.value.facts["repo"] == old.url


@pytest.mark.parametrize("name", ["E1", "E6"])
def test_references_keep_location_range_and_checksum(name):
    repo = opened(in_memory(files(name)))
    session = pickle.loads(pickle.dumps(repo)).readonly_session("main")
    session = pickle.loads(pickle.dumps(session))
    found = session.references("/group1/big_chunks", np.array([[0, 0]]))
    url, seconds, size = {
        "E1": ("s3://testbucket/path/to/python/chunk-1", 0, 100),
        "E6": ("s3://testbucket/can_read_old/chunk-1", 4294111232, 19),
    }[name]
    assert (found.locations.url[0], int(found.length[0])) == (url, size)
    assert int(found.locations.last_modified[0]) == seconds
    table = session.array_table("/group1/big_chunks")
    assert table.index.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]  # of no other array
    diff = repo.diff(from_branch="main", to_branch="my-branch")
    assert diff.new_arrays == {"/group2/group3/group4/group5/inner"}
    assert diff.updated_chunks["/group1/small_chunks"].tolist() == [[4]]


def test_virtual_chunks_need_authorization(target):
    _, found, _ = case("synthetic E2", target)
    storage = in_memory(found)
    array = zarr.open_array(
        opened(storage).readonly_session("main").store, path="group1/big_chunks", mode="r"
    )
    prefix = target.parent.as_uri() + "/"
    with pytest.raises(InvalidInputError, match=rf'authorize_virtual_chunk_access=\["{prefix}"\]'):
        array[0]


def test_writing_is_refused_by_name(target, tmp_path):
    storage = in_memory(files("E4"))
    repo = opened(storage)
    attempts = [
        lambda: repo.writable_session("main"),
        lambda: repo.create_tag("x", snapshot_id=repo.lookup_branch("main")),
        lambda: repo.create_branch("x", repo.lookup_branch("main")),
        lambda: repo.delete_tag("it works!"),
        repo.save_config,
        lambda: repo.rewrite_manifests("x", branch="main"),
        repo.upgrade,
        lambda: repo.garbage_collect(repo.list_branches()),
        lambda: list(repo.ops_log()),
        repo.inspect_repo_info,
        lambda: plan_shares(storage, TableQuery(table="ops_log"), at_most=1),
        lambda: icevirt.check(storage, chunks=True, record=True),
    ]
    before = {info.path: storage.get(info.path) for info in storage.list()}
    for attempt in attempts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OldFormatWarning)
            with pytest.raises(ReadOnlyError, match=r"format generation E4 .*icevirt upgrade "):
                attempt()
    assert (
        f"icevirt upgrade {storage.url} {storage.url}-v2" in repo.head.read().info.old.description
    )
    assert {info.path: storage.get(info.path) for info in storage.list()} == before
    shutil.rmtree(tmp_path / "values")


@pytest.mark.parametrize("name", ["E1", "E6", "synthetic E0 by the letter"])
def test_files_and_tables_are_shown(name, target, tmp_path):
    generation, found, _ = case(name, target)
    source = on_disk(found, tmp_path / "old")
    repo = opened(source)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OldFormatWarning)  # it was told once
        tip, first = (repo.lookup_branch("main"), [*repo.ancestry(branch="main")][-1].id)
        shown = repo.inspect_snapshot(tip)
        assert (shown["id"], shown["commit_message"]) == (tip, MAIN[0])
        assert (shown["header"] is None) == (generation < "E4")
        manifest = repo.inspect_manifest(shown["manifests"][0]["id"])
        assert manifest["total_chunk_refs"] == sum(
            each["num_chunk_refs"] for each in manifest["arrays"]
        )
        log = repo.inspect_transaction_log(tip)
        assert [each["chunks"] for each in log["updated_chunks"]] == [[[0, 0]]]
        assert repo.inspect_transaction_log(first)["updated_chunks"] == []
        for missing in (repo.inspect_snapshot, repo.inspect_transaction_log):
            with pytest.raises(SnapshotNotFoundError):
                missing(str(ObjectId12(bytes(12))))
        with pytest.raises(NotFoundError):
            repo.inspect_manifest(str(ObjectId12(bytes(12))))
        pickle.loads(pickle.dumps(repo)).readonly_session("main")
    with without_old_format_warning():
        tables = {
            table: [
                row
                for share in pickle.loads(pickle.dumps(plan_shares(repo.storage, query, at_most=2)))
                for part in rows_of(share)
                for row in part.to_pylist()
            ]
            for table in ("references", "files", "arrays", "snapshots")
            for query in [TableQuery.of(table)]
        }
    assert {row["path"] for row in tables.pop("arrays")} == {
        "/group1/big_chunks",
        "/group1/small_chunks",
    }
    assert {table: len(rows) for table, rows in tables.items()} == {
        "references": 9,
        "files": 1,
        "snapshots": len(MAIN),
    }
    native = [each["location"] for each in tables["references"] if each["kind"] == "native"]
    assert len(native) == 3
    assert all((source / each.partition(source.as_uri() + "/")[2]).is_file() for each in native)


@pytest.mark.parametrize("name", EACH)
def test_check_and_info_work(name, target, tmp_path):
    generation, found, _ = case(name, target)
    source = on_disk(found, tmp_path / "old")
    report = icevirt.check(source)
    assert [problem for problem in report.problems if not problem.advice] == []
    assert (report.snapshots, report.manifests) == (len(MINE), 4)
    summary = icevirt.info(source)
    assert f"generation {generation} " in summary.generation
    assert {array.path for array in summary.arrays} == {
        "/group1/big_chunks",
        "/group1/small_chunks",
    }
    (authorize,) = summary.containers  # the narrowest prefix, not all of s3:// or the disk
    assert str(authorize).count("/") > 3
    lost = next(path for path in found if path.startswith(("chunks/", "c/")))
    (source / lost).unlink()
    codes = {problem.code for problem in icevirt.check(source).problems if not problem.advice}
    assert codes == {"chunk"}
