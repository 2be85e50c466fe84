"""Upgrades of old repositories: nothing is lost silently, and what was interrupted goes on."""

import json
import warnings
import zipfile

import icechunk
import msgpack
import pytest
import zarr
import zstandard

import icevirt
from icevirt.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    SnapshotNotFoundError,
)
from icevirt.ids import ObjectId12
from icevirt.legacy.encoding import FIELDS
from icevirt.legacy.generations import ENCODINGS
from icevirt.legacy.upgrade import upgrade
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.memory import MemoryStorage
from legacy.old_repositories import MINE, as_e0, files, in_memory, on_disk, unpacked
from repo.faults.faulty import VERBS, Faulty, deaths
from repo.v1.clients import FIXTURES as OTHERS


def opened(path, credentials=None):
    return icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(path)), authorize_virtual_chunk_access=credentials
    )


@pytest.mark.ci
def test_killed_at_any_call_there_is_nothing_or_all_and_the_next_run_goes_on():
    unused = ("refs/branch.my-branch", "refs/tag", "refs/branch.main/ZZZZZZZW")  # two commits stay
    kept = {path: body for path, body in files("E5b").items() if not path.startswith(unused)}
    source = in_memory(kept)
    whole = MemoryStorage()
    upgrade(source, whole)
    names = {info.path for info in whole.list()}
    for target in deaths(lambda storage: upgrade(source, storage), MemoryStorage):
        if RepoInfoFile(target).find() is None:
            assert upgrade(source, target).ok
        assert {info.path for info in target.list()} == names
    assert icevirt.check(target).problems == ()
    assert {i.path: source.get(i.path) for i in source.list()} == kept


def test_chunks_that_were_copied_are_not_copied_again(tmp_path):
    source = on_disk(files("E6"), tmp_path / "old")
    first = icevirt.upgrade(source, tmp_path / "new")
    (tmp_path / "new" / "repo").unlink()
    again = icevirt.upgrade(source, tmp_path / "new")
    assert (first.chunks, first.bytes, again.chunks) == (4, 76, 0)
    assert icevirt.check(tmp_path / "new").problems == ()
    with pytest.raises(AlreadyExistsError, match="already exists"):
        icevirt.upgrade(source, tmp_path / "new")


class Rival(Faulty):
    """Another process makes a repository in the moment before this one does."""

    def __getattr__(self, name):
        call = super().__getattr__(name)

        def acted(path, *args, **kwargs):
            if path == "repo":
                icevirt.Repository.create(self.storage, check_clean_root=False)
            return call(path, *args, **kwargs)

        return acted if name == "put_if" else call


def test_another_repository_at_the_target_is_never_overwritten():
    target = MemoryStorage()
    with pytest.raises(AlreadyExistsError):
        upgrade(in_memory(files("E1")), Rival(target))
    assert [each.message for each in icevirt.Repository.open(target).ancestry(branch="main")] == [
        "Repository initialized"
    ]


def test_paths_inside_each_other_are_refused_and_so_is_what_is_v2(tmp_path):
    source = on_disk(files("E1"), tmp_path / "old")
    (tmp_path / "link").symlink_to(source)
    for target in (source, source / "new", tmp_path, tmp_path / "link" / "x"):
        with pytest.raises(InvalidInputError, match="one lies in"):
            icevirt.upgrade(source, target)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(AlreadyExistsError, match="not a repository"):
        icevirt.upgrade(source, tmp_path / "full")
    icevirt.upgrade(source, tmp_path / "new")
    with pytest.raises(InvalidInputError, match="already V2"):
        icevirt.upgrade(tmp_path / "new", tmp_path / "newer")


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path):
    source = on_disk(files("E4"), tmp_path / "old")
    output = icevirt.upgrade(source, tmp_path / "new", dry_run=True)
    assert not (tmp_path / "new").exists()
    made = icevirt.upgrade(source, tmp_path / "new")
    for name in ("snapshots", "branches", "tags", "chunks", "bytes", "authorize", "notes", "lost"):
        assert getattr(output, name) == getattr(made, name), name


def test_chunks_stay_where_they_are_if_that_is_asked_for(tmp_path):
    source = on_disk(files("E3"), tmp_path / "old")
    report = icevirt.upgrade(source, tmp_path / "new", chunks="reference")
    prefix = (source / "chunks").as_uri() + "/"
    assert prefix in report.authorize
    assert not (tmp_path / "new" / "chunks").exists()
    official = opened(tmp_path / "new", {prefix: icechunk.credentials.LocalFileSystemAccess})
    array = zarr.open_array(
        official.readonly_session("main").store, path="group1/big_chunks", mode="r"
    )
    assert (array[5:] == 42).all()
    ours = icevirt.Repository.open(tmp_path / "new")  # the upgrade authorized nothing
    array = zarr.open_array(ours.readonly_session("main").store, path="group1/big_chunks", mode="r")
    with pytest.raises(InvalidInputError, match="not authorized"):
        array[5:]


def test_a_branch_that_was_reset_keeps_what_it_led_to(tmp_path):
    found = files("E6")
    older = found["refs/branch.main/ZZZZZZZY.json"]
    found["refs/branch.main/ZZZZZZZV.json"] = older  # main goes back to 'empty structure'
    dropped = json.loads(found["refs/branch.main/ZZZZZZZW.json"])["snapshot"]
    source = on_disk(found, tmp_path / "old")
    assert icevirt.upgrade(source, tmp_path / "new").ok
    official = opened(tmp_path / "new")
    assert [each.message for each in official.ancestry(branch="main")] == [*MINE[-2:]]
    reset = [each for each in official.ops_log() if type(each.kind).__name__ == "BranchReset"]
    assert [(each.kind.name, each.kind.previous_snap_id) for each in reset] == [("main", dropped)]
    assert official.readonly_session(snapshot_id=dropped).snapshot_id == dropped


def test_deleted_tags_stay_deleted_and_configurations_become_narrow(tmp_path):
    source = on_disk(files("E6"), tmp_path / "old")
    report = icevirt.upgrade(source, tmp_path / "new")
    assert report.authorize == (("s3://testbucket/can_read_old/", "http://localhost:9000"),)
    assert any("prefixes in use" in note for note in report.notes)
    official = opened(tmp_path / "new")
    (container,) = official.config.virtual_chunk_containers.values()
    assert container.url_prefix == "s3://testbucket/can_read_old/"
    assert official.config.inline_chunk_threshold_bytes == 12
    with pytest.raises(icechunk.IcechunkError, match="deleted"):
        official.create_tag("deleted", snapshot_id=official.lookup_branch("main"))
    session = official.writable_session("main")  # what was upgraded goes on
    zarr.create_array(session.store, name="more", shape=(2,), dtype="i4")[:] = 1
    assert session.commit("more")


def test_what_is_lost_is_reported_line_by_line(tmp_path):
    found = files("E4")
    chunk = next(path for path in found if path.startswith("chunks/"))
    del found[chunk]
    tag = json.loads(found["refs/tag.it also works!/ref.json"])["snapshot"]
    del found[f"snapshots/{tag}"]
    source = on_disk(found, tmp_path / "old")
    report = icevirt.upgrade(source, tmp_path / "new")
    assert not report.ok
    assert {chunk in line for line in report.lost} == {True, False}
    assert [line for line in report.lost if "my-branch" in line]
    assert [line for line in report.lost if "it also works!" in line]
    official = opened(tmp_path / "new")
    assert (official.list_branches(), official.list_tags()) == ({"main"}, {"it works!"})
    main = json.loads(found["refs/branch.main/ZZZZZZZW.json"])["snapshot"]
    (source / "snapshots" / main).unlink()
    with pytest.raises((FormatError, SnapshotNotFoundError)):
        icevirt.upgrade(source, tmp_path / "other")


def test_a_manifest_that_is_missing_stays_missing_and_never_reads_as_fill_values(tmp_path):
    found = files("E4")
    tip = json.loads(found["refs/branch.main/ZZZZZZZW.json"])["snapshot"]
    ((manifest, *_),) = unpacked(found[f"snapshots/{tip}"])[0]
    del found[f"manifests/{manifest}"]
    report = icevirt.upgrade(on_disk(found, tmp_path / "old"), tmp_path / "new")
    assert len([line for line in report.lost if manifest in line]) == 2
    for repo in (icevirt.Repository.open(tmp_path / "new"), opened(tmp_path / "new")):
        arrays = [
            zarr.open_array(repo.readonly_session(name).store, path="group1/small_chunks", mode="r")
            for name in ("main", "my-branch")
        ]
        assert arrays[1][:].tolist() == [84, 84, 84, 84, 8]
        with pytest.raises((icevirt.StorageError, icechunk.IcechunkError), match="object"):
            arrays[0][:]


def test_history_before_a_damaged_snapshot_is_lost_and_nothing_else(tmp_path):
    found = files("E6")
    damaged = json.loads(found["refs/branch.main/ZZZZZZZY.json"])["snapshot"]
    found[f"snapshots/{damaged}"] = b"junk"
    report = icevirt.upgrade(on_disk(found, tmp_path / "old"), tmp_path / "new")
    (line,) = report.lost
    assert damaged in line
    assert icevirt.check(tmp_path / "new").problems == ()
    official = opened(tmp_path / "new")
    assert [each.message for each in official.ancestry(branch="main")] == [*MINE[2:4]]
    assert type([*official.ops_log()][-1].kind).__name__ == "RepoInitialized"


def _with_equal_ranks(found):
    """Give E1's writer's bug something to hurt: a second array of two dimensions, 'later'."""
    made = dict(found)
    for path in [path for path in found if path.startswith(("snapshots/", "manifests/"))]:
        value = list(unpacked(found[path]))
        if path.startswith("snapshots/"):
            nodes = dict(value[-1])
            if "/group1/big_chunks" in nodes:
                _, _, attributes, data = nodes["/group1/big_chunks"]
                nodes["/later"] = (900, "/later", attributes, data)
            value[-1] = nodes
        else:
            chunks = dict(value[2])
            chunks[900, (1, 1)] = chunks[3, (1, 1)]
            value[2] = chunks
        made[path] = msgpack.packb(value)
    return made


def test_chunks_of_arrays_that_were_mixed_up_are_reported(tmp_path):
    source = on_disk(_with_equal_ranks(files("E1")), tmp_path / "old")
    report = icevirt.upgrade(source, tmp_path / "new")
    assert len(report.lost) == 4  # of each snapshot with chunks
    assert "/group1/big_chunks are those of /later" in report.lost[0]
    assert {problem.code for problem in icevirt.check(source).problems} == {"mixed-arrays"}


def test_nodes_of_different_branches_with_one_number_become_different_nodes(tmp_path):
    found = files("E1")
    value = list(unpacked(found["snapshots/0XEZMR4J7SJ5QBWAYBE0"]))
    parents = [meta for meta in value[6] if meta[2] != "delete a chunk"]  # a commit on main
    key = str(ObjectId12(bytes(12)))
    value[4:8] = [
        len(parents),
        len(parents),
        parents,
        (key, "2024-10-14T00:00:00Z", "main goes on"),
    ]
    nodes = {path: node for path, node in value[-1].items() if not path.startswith("/group2/")}
    number, _, *rest = nodes.pop("/group2")
    nodes["/other"] = (number, "/other", *rest)
    value[-1] = nodes
    found[f"snapshots/{key}"] = msgpack.packb(value)
    found["refs/branch.main/ZZZZZZZV.json"] = json.dumps({"snapshot": key}).encode()
    icevirt.upgrade(on_disk(found, tmp_path / "old"), tmp_path / "new")
    repo = icevirt.Repository.open(tmp_path / "new")
    tips = [repo.readonly_session(branch).snapshot for branch in ("main", "my-branch")]
    ids = [{node.path: node.id for node in tip.nodes} for tip in tips]
    assert ids[0]["/group1"] == ids[1]["/group1"]
    assert ids[0]["/other"] != ids[1]["/group2"]
    assert icevirt.check(tmp_path / "new").problems == ()


def test_v1_can_be_copied_too(tmp_path):
    with zipfile.ZipFile(OTHERS / "v1-by-1.1.21.zip") as packed:
        packed.extractall(tmp_path / "old")
    report = icevirt.upgrade(tmp_path / "old", tmp_path / "new")
    assert (report.ok, report.generation) == (True, "V1")
    old, new = (icevirt.Repository.open(tmp_path / name) for name in ("old", "new"))
    assert old.spec_version == 1
    for branch in old.list_branches():
        assert [each.id for each in old.ancestry(branch=branch)] == [
            each.id for each in new.ancestry(branch=branch)
        ]
        sessions = [repo.readonly_session(branch) for repo in (old, new)]
        for node in sessions[0].snapshot.arrays():
            tables = [session.array_table(node.path) for session in sessions]
            assert tables[0].index.tolist() == tables[1].index.tolist()
    assert icevirt.check(tmp_path / "new").ok
    opened(tmp_path / "new").readonly_session("main")


# -- what is refused -------------------------------------------------------------------------------


def _parquet(found):
    return {"r/branch:main/ZZZZZZZZ.json": b'{"snapshot": "x"}', "s/x.parquet": b"PAR1"}


def _suffixed(found):
    return {
        path + ".msgpack" if path.startswith("snapshots/") else path: body
        for path, body in found.items()
    }


def _flatbuffers(found):
    made = dict(found)
    for path in found:
        if path.startswith("snapshots/"):
            made[path] = b"\x10\0\0\0Ichk" + bytes(40)
    return made


@pytest.mark.parametrize("change", [_parquet, _suffixed, _flatbuffers])
def test_layouts_that_were_never_released_are_named_and_refused(change):
    storage = in_memory(change(files("E3")))
    for use in (icevirt.Repository.open, icevirt.check, icevirt.info):
        with pytest.raises(FormatError, match="never released: a state of"):
            use(storage)


def _repacked(found, folder, change):
    """Change the value of each file of a folder; header and compression stay."""
    made = dict(found)
    for path in [path for path in found if path.startswith(f"{folder}/")]:
        value = msgpack.packb(change(list(unpacked(found[path])), path))
        made[path] = found[path][:39] + zstandard.ZstdCompressor().compress(value)
    return made


def _with_entries(at, entry):
    def change(value, _):
        return [*value[:at], [entry(*each) for each in value[at]], *value[at + 1 :]]

    return change


DEVELOPMENT = {  # of January 2025, between 0.1.0a15 and 0.1.0, and their like
    "snapshots of 0.1.0, manifests listed with four fields": (
        "E6", "snapshots", _with_entries(5, lambda key, size, count: (key, 1, size, count))),
    "snapshots of 0.1.0, manifests of four fields": (
        "E6", "manifests", lambda value, path: [1, {}, *value]),
    "snapshots of 0.1.0, logs with a version": (
        "E6", "transactions", lambda value, path: [1, *value]),
    "snapshots of 0.1.0a15, manifests listed without a version": (
        "E5b", "snapshots", _with_entries(0, lambda key, _, size, count: (key, size, count))),
    "snapshots of 0.1.0a15, manifests of two fields": (
        "E5b", "manifests", lambda value, path: value[2:]),
    "snapshots of 0.1.0a15, logs without a version": (
        "E5b", "transactions", lambda value, path: value[1:]),
}  # fmt: skip


def _use_all(storage):
    """Read all that there is."""
    session = icevirt.Repository.open(storage).readonly_session("main")
    zarr.open_array(session.store, path="group1/small_chunks", mode="r")[...]
    history = [each.id for each in icevirt.Repository.open(storage).ancestry(branch="main")]
    icevirt.Repository.open(storage).diff(from_snapshot_id=history[-1], to_snapshot_id=history[0])


@pytest.mark.parametrize(("name", "folder", "change"), DEVELOPMENT.values(), ids=DEVELOPMENT)
@pytest.mark.filterwarnings("ignore::icevirt.OldFormatWarning")
def test_files_of_two_generations_in_one_repository_are_named(name, folder, change):
    """They are sound: a development version wrote them, and no release."""
    _use_all(in_memory(files(name)))
    changed = in_memory(_repacked(files(name), folder, change))
    with pytest.raises(FormatError, match="never released: a development state") as caught:
        _use_all(changed)
    assert "damaged" not in str(caught.value)


def test_the_counts_of_fields_are_those_of_all_generations():
    of = ENCODINGS.values()
    assert {
        "a snapshot": {len(each) for e in of for each in e.snapshot},
        "the entry of a manifest": {len(each) for e in of for each in e.manifest_file},
        "a manifest": {len(each) for e in of for each in e.manifest},
        "a transaction log": {len(each) for e in of for each in e.log},
    } == FIELDS


def _two_names(found):
    return found | {"r/branch:main/ZZZZZZZZ.json": found["r/main/ZZZZZZZZ.json"]}


def _two_suffixes(found):
    path = next(path for path in found if path.startswith("s/"))
    return found | {f"{path}.json": found[path]}


def _other_count(found):
    return {
        path: body.replace(b'"short_term_parents": 3', b'"short_term_parents": 9')
        for path, body in found.items()
    }


def _other_path(found):
    return {path: body.replace(b'"path": "/"', b'"path": "/b"') for path, body in found.items()}


def _attributes_file(found):
    return {
        path: body.replace(b'"Inline": {}', b'"Ref": {"object_id": [], "location": 0, "flags": []}')
        for path, body in found.items()
    }


@pytest.mark.parametrize(
    "change", [_two_names, _two_suffixes, _other_count, _other_path, _attributes_file]
)
def test_where_the_first_specification_contradicts_itself_it_is_refused(change):
    found = as_e0(files("E1"), "s3://b/c/d", as_document=True)
    icevirt.check(in_memory(found))
    storage = in_memory(change(found))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", icevirt.OldFormatWarning)
        with pytest.raises(FormatError):
            icevirt.Repository.open(storage).readonly_session("main")


def test_opening_v2_asks_for_no_more_than_before():
    storage = MemoryStorage()
    icevirt.Repository.create(storage)
    counted = Counting(storage)
    icevirt.Repository.open(counted).readonly_session("main")
    assert counted.made == ["get_versioned repo", "get_versioned repo", "get snapshots"]


class Counting(Faulty):
    """Remembers the calls."""

    def __init__(self, storage):
        super().__init__(storage)
        self.made = []

    def __getattr__(self, name):
        call = super().__getattr__(name)

        def noted(path="", *args, **kwargs):
            self.made.append(f"{name} {path.split('/')[0]}")
            return call(path, *args, **kwargs)

        return noted if name in VERBS else call
