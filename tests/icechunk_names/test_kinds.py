"""Kinds of errors are declared for each class, and are those of the official client.

Each program runs with both clients: on disk, in memory, and on a strict S3.
"""

import asyncio
import itertools
import pickle
from datetime import UTC, datetime
from pathlib import Path

import icechunk as official
import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import icevirt.icechunk as ours
from icechunk_names.storages import storages
from icevirt import errors
from icevirt.icechunk._shims.classes import icechunks_errors
from icevirt.icechunk._shims.error_kinds import KINDS
from servers.faults import refused

NOWHERE = "0000000000000000000G"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def subclasses(kind):
    for each in kind.__subclasses__():
        if each.__module__ == "icevirt.errors":
            yield each
            yield from subclasses(each)


def test_the_table_has_each_class_of_errors():
    assert {errors.IcevirtError, *subclasses(errors.IcevirtError)} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_becomes_one_of_icechunk_and_pickles(kind):
    name, code = KINDS[kind]
    error = kind("what happened", do="Do this.", fact=1)
    with pytest.raises(kind) as caught, icechunks_errors():
        raise error
    again = pickle.loads(pickle.dumps(caught.value))
    for each in (caught.value, again):
        assert type(each).__name__ == name
        assert isinstance(each, getattr(ours, name))
        assert each.kind == code == official.ErrorKind(each.kind).value
        assert each.facts == {"fact": 1}
    assert type(again) is type(caught.value)
    assert issubclass(getattr(official, name), KeyError) == isinstance(again, KeyError)


def test_both_clients_have_the_same_kinds():
    assert {each.name: each.value for each in ours.ErrorKind} == {
        each.name: each.value for each in official.ErrorKind
    }


def seen(call):
    """Return what a caller can see of an error: its class, its kind, and what else it is."""
    try:
        answer = call()
        if asyncio.iscoroutine(answer):
            asyncio.run(answer)
    except (ours.IcechunkError, official.IcechunkError) as error:
        return type(error).__name__, str(error.kind), isinstance(error, KeyError)
    return "succeeded"


def written(ice, make, name="repo", spec_version=2):
    """Return a repository with an array /a, a group /g, and its first and second snapshot."""
    repo = ice.Repository.create(make(name), spec_version=spec_version)
    first = repo.lookup_branch("main")
    session = repo.writable_session("main")
    zarr.group(session.store)
    zarr.create_array(session.store, name="a", shape=(4, 4), chunks=(2, 2), dtype="i4")[:] = 1
    zarr.create_group(session.store, path="g")
    return repo, first, session.commit("second")


def changed(repo, branch="main", name="h"):
    """Return a session of a branch that created a group."""
    session = repo.writable_session(branch)
    zarr.open_group(session.store, mode="r+").create_group(name)
    return session


def repositories(ice, make):
    repo, *_ = written(ice, make)
    del repo
    return {
        "create where one is": lambda: ice.Repository.create(make("repo")),
        "open none": lambda: ice.Repository.open(make("missing")),
        "config of none": lambda: ice.Repository.fetch_config(make("missing")),
        "version of none": lambda: ice.Repository.fetch_spec_version(make("missing")),
    }


def refs(ice, make, spec_version=2):
    repo, first, second = written(ice, make, spec_version=spec_version)
    repo.create_tag("gone", first)
    repo.delete_tag("gone")
    repo.create_tag("kept", first)
    return {
        "tag that was deleted": lambda: repo.create_tag("gone", second),
        "tag that exists": lambda: repo.create_tag("kept", second),
        "deleted tag": lambda: repo.lookup_tag("gone"),
        "delete it again": lambda: repo.delete_tag("gone"),
        "no tag": lambda: repo.readonly_session(tag="nope"),
        "branch that exists": lambda: repo.create_branch("main", first),
        "no branch": lambda: repo.writable_session("nope"),
        "delete no branch": lambda: repo.delete_branch("nope"),
        "delete main": lambda: repo.delete_branch("main"),
        "branch at no id": lambda: repo.create_branch("b", "nonsense"),
        "branch at no snapshot": lambda: repo.create_branch("b", NOWHERE),
        "tag at no snapshot": lambda: repo.create_tag("b", NOWHERE),
        "reset to no snapshot": lambda: repo.reset_branch("main", NOWHERE),
        "reset from elsewhere": lambda: repo.reset_branch("main", first, from_snapshot_id=first),
        "before all": lambda: repo.readonly_session("main", as_of=LONG_AGO),
        "snapshot by no id": lambda: repo.lookup_snapshot("nonsense"),
        "no snapshot": lambda: repo.readonly_session(snapshot_id=NOWHERE),
        "diff backwards": lambda: repo.diff(from_snapshot_id=second, to_snapshot_id=first),
        "rewrite no branch": lambda: repo.rewrite_manifests("m", branch="nope"),
    }


def files(ice, make):
    repo, *_ = written(ice, make)
    return {
        "no snapshot": lambda: repo.inspect_snapshot(NOWHERE),
        "no log": lambda: repo.inspect_transaction_log(NOWHERE),
        "no manifest": lambda: repo.inspect_manifest(NOWHERE),
    }


def sessions(ice, make, spec_version=2):
    repo, first, second = written(ice, make, spec_version=spec_version)
    done = changed(repo, name="by-done")
    done.commit("done")
    reading = repo.readonly_session("main")
    behind = changed(repo, name="same")
    zarr.open_array(behind.store, path="a")[0, 0] = 2
    ahead = repo.writable_session("main")
    zarr.open_array(ahead.store, path="a")[0, 0] = 3
    ahead.commit("ahead")
    for name in ("deleted", "reset"):
        repo.create_branch(name, second)
    deleted, reset = changed(repo, "deleted"), changed(repo, "reset")
    repo.delete_branch("deleted")
    repo.reset_branch("reset", first)
    fork = repo.writable_session("main").fork()
    empty = ice.Repository.create(make("empty"), spec_version=spec_version)
    empty = empty.writable_session("main")
    zarr.group(empty.store)
    solver = ice.ConflictDetector()
    return {
        **{
            f"{call.__name__} by {who}": lambda call=call, session=session: call(session)
            for who, session in {"committed": done, "reader": reading, "fork": fork}.items()
            for call in (commit, amend, rebase)
        },
        "fork of a reader": reading.fork,
        "merge into a reader": lambda: reading.merge(repo.writable_session("main").fork()),
        "discard by a reader": reading.discard_changes,
        "nothing to commit": lambda: repo.writable_session("main").commit("x"),
        "nothing to amend": lambda: repo.writable_session("main").amend("x"),
        "amend the first": lambda: empty.amend("x"),
        "commit behind": lambda: behind.commit("x"),
        "commit with a solver": lambda: behind.commit("x", rebase_with=solver),
        "rebase": lambda: behind.rebase(solver),
        "branch that is gone": lambda: deleted.commit("x"),
        "branch that was reset": lambda: reset.commit("x"),
        "other's fork": lambda: repo.writable_session("main").merge(fork),
        "move while writing": lambda: repo.writable_session("main").move("/a", "/b"),
    }


def moves(ice, make):
    repo, *_ = written(ice, make)
    rearranging = repo.rearrange_session("main")
    return {
        "write while moving": lambda: zarr.open_group(rearranging.store, mode="r+").create_group(
            "x"
        ),
        "move none": lambda: rearranging.move("/nope", "/there"),
        "move over another": lambda: rearranging.move("/a", "/g"),
        "move into itself": lambda: rearranging.move("/g", "/g/h"),
        "move the root": lambda: rearranging.move("/", "/b"),
        "move below none": lambda: rearranging.move("/a", "/nope/a"),
        "move below an array": lambda: rearranging.move("/g", "/a/g"),
    }


def commit(session):
    session.commit("x")


def amend(session):
    session.amend("x")


def rebase(session):
    session.rebase((ours if isinstance(session, ours.Session) else official).ConflictDetector())


def stores(ice, make):
    repo, *_ = written(ice, make)
    store = repo.writable_session("main").store
    reading = repo.readonly_session("main").store
    buffer = default_buffer_prototype().buffer.from_bytes

    def refer(key="a/c/0/0", url="s3://bucket/key", length=1, **checks):
        store.set_virtual_ref(key, url, offset=0, length=length, **checks)

    def refer_all(path="a", index=(0, 0), length=1):
        spec = ice.VirtualChunkSpec(list(index), "s3://bucket/key", 0, length)
        store.set_virtual_refs(path, [spec], validate_containers=False)

    def box(path="a", **more):
        arguments = {
            "chunk_grid_shape": (1, 1),
            "locations": ["s3://bucket/key"],
            "offsets": np.zeros(1, np.uint64),
            "lengths": np.ones(1, np.uint64),
            "validate_containers": False,
            **more,
        }
        store.set_virtual_refs_arr(path, **arguments)

    documents = [b"", b"{", b"[]", b'{"zarr_format":2}', b"\xff"]
    return {
        **{
            f"set {key!r}": lambda key=key: store.set(key, buffer(b"{}"))
            for key in ("a/c/9/9", "a/c/x/y", "a/0/0", "g/c/0", "nope/c/0", "", "/", "foo")
        },
        **{
            f"refer {key!r}": lambda key=key: refer(key, validate_container=False)
            for key in ("a/c/9/9", "a/c/x/y", "a/0/0", "g/c/0", "nope/c/0", "", "/", "foo")
        },
        **{
            f"document {body!r}": lambda body=body: store.set("m/zarr.json", buffer(body))
            for body in documents
        },
        "key of zarr 2": lambda: store.set("a/.zarray", buffer(b"{}")),
        "write to a reader": lambda: reading.set("a/zarr.json", buffer(b"{}")),
        "refer for a reader": lambda: reading.set_virtual_ref(
            "a/c/0/0", "s3://bucket/key", offset=0, length=1
        ),
        "no container": refer,
        "no URL": lambda: refer(url="key", validate_container=False),
        "no bytes": lambda: refer(length=0, validate_container=False),
        "specs: no bytes": lambda: refer_all(length=0),
        "specs: outside": lambda: refer_all(index=(9, 9)),
        "specs: no array": lambda: refer_all(path="nope"),
        "specs: a group": lambda: refer_all(path="g"),
        "box: no bytes": lambda: box(lengths=np.zeros(1, np.uint64)),
        "box: outside": lambda: box(arr_offset=(9, 9)),
        "box: no array": lambda: box("nope"),
        "type in a group": lambda: repo.readonly_session("main").chunk_type("/g", (0,)),
        "type in no array": lambda: repo.readonly_session("main").chunk_type("/nope", (0,)),
        "id of no node": lambda: repo.readonly_session("main").get_node_id("/nope"),
        "shift a group": lambda: repo.writable_session("main").shift_array("/g", (1,)),
        "shift no array": lambda: repo.writable_session("main").shift_array("/nope", (1,)),
        "reindex outside": lambda: repo.writable_session("main").reindex_array(
            "/a", lambda _: [9, 9]
        ),
    }


def features(ice, make):
    repo, first, _ = written(ice, make)
    repo.create_tag("kept", first)
    for name in ("create_tag", "delete_tag", "move_node"):
        repo.set_feature_flag(name, False)
    return {
        "create_tag": lambda: repo.create_tag("t", first),
        "delete_tag": lambda: repo.delete_tag("kept"),
        "move_node": lambda: repo.rearrange_session("main"),
        "no feature": lambda: repo.set_feature_flag("nope", True),
        "upgrade of the newest": lambda: ice.upgrade_icechunk_repository(repo, dry_run=True),
    }


def read_only_repositories(ice, make):
    repo, first, _ = written(ice, make)
    repo.set_status(ice.RepoStatus(ice.RepoAvailability.read_only))
    return {
        "session": lambda: repo.writable_session("main"),
        "tag": lambda: repo.create_tag("q", first),
        "branch": lambda: repo.create_branch("q", first),
        "reset": lambda: repo.reset_branch("main", first),
        "configuration": repo.save_config,
        "metadata": lambda: repo.set_metadata({"a": 1}),
        "garbage": lambda: repo.garbage_collect(LONG_AGO),
        "expiry": lambda: repo.expire_snapshots(LONG_AGO),
        "feature": lambda: repo.set_feature_flag("create_tag", False),
    }


def repositories_of_v1(ice, make):
    repo = ice.Repository.create(make("repo"), spec_version=1)
    first = repo.lookup_branch("main")
    repo.create_tag("kept", first)
    session = repo.writable_session("main")
    zarr.group(session.store)
    status = ice.RepoStatus(ice.RepoAvailability.read_only)
    return {
        "tag that exists": lambda: repo.create_tag("kept", first),
        "no tag": lambda: repo.lookup_tag("nope"),
        "delete no tag": lambda: repo.delete_tag("nope"),
        "moves": lambda: repo.rearrange_session("main"),
        "amend": lambda: session.amend("x"),
        "features": repo.feature_flags,
        "feature": lambda: repo.set_feature_flag("create_tag", False),
        "make read-only": lambda: repo.set_status(status),
        "status": repo.get_status,
        "operations": lambda: list(repo.ops_log()),
        "metadata": lambda: repo.set_metadata({"a": 1}),
        "its file": repo.inspect_repo_info,
    }


PROGRAMS = [
    repositories,
    refs,
    sessions,
    moves,
    stores,
    features,
    read_only_repositories,
    repositories_of_v1,
]


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        *itertools.product(["disk", "memory", "s3"], PROGRAMS),
        ("disk", files),  # on S3 the official client repeats these requests for a minute
        ("memory", files),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_errors_are_of_the_kinds_of_the_official_client(kind, program, tmp_path, request):
    official.set_logs_filter("off")
    make = storages(kind, tmp_path, request.getfixturevalue("strict_s3") if kind == "s3" else None)
    answers = {}
    for ice in (official, ours):
        calls = program(ice, make(ice))
        answers[ice] = {name: seen(call) for name, call in calls.items()}
    assert answers[ours] == answers[official]


OF_V1 = [  # its official client has no object that lists snapshots and branches
    "tag that was deleted",
    "branch that exists",
    "branch at no snapshot",
    "tag at no snapshot",
    "reset to no snapshot",
    "no snapshot",
    "branch that is gone",
]


def test_a_repository_of_v1_has_the_official_kinds_or_those_of_v2():
    official.set_logs_filter("off")
    kinds = {}
    for who, ice, version in (("official", official, 1), ("ours", ours, 1), ("of v2", ours, 2)):
        make = storages("memory", None, None)(ice)
        calls = refs(ice, make, version)
        calls |= sessions(ice, storages("memory", None, None)(ice), version)
        kinds[who] = {name: seen(call) for name, call in calls.items()}
    found, expected = kinds["ours"], kinds["official"]
    assert [name for name in found if found[name] != expected[name]] == OF_V1
    assert all(found[name] == kinds["of v2"][name] for name in OF_V1)


def test_a_bucket_that_is_missing_is_of_the_same_kind(strict_s3):
    official.set_logs_filter("off")
    strict_s3.rules.add(refused(404, "NoSuchBucket"), times=1e9)
    answers = []
    for ice in (official, ours):
        storage = ice.s3_storage(**strict_s3.place.options)
        calls = (
            ice.Repository.open,
            ice.Repository.create,
            ice.Repository.fetch_config,
            ice.Repository.open_or_create,
            ice.Repository.fetch_spec_version,
            ice.Repository.exists,
        )
        answers.append([seen(lambda call=call, storage=storage: call(storage)) for call in calls])
    assert answers[0] == answers[1]


def cut(body):
    return body[:20]


def scramble(body):
    return b"garbage" * 30


def newer(body):
    return body[:36] + b"\x63" + body[37:]


def other(body):
    return body[:37] + b"\x4d" + body[38:]


def lost(body):
    return None


FOLDERS = ["repo", "snapshots", "manifests", "transactions"]


@pytest.mark.parametrize(
    ("folder", "damage"),
    [*itertools.product(FOLDERS, [cut, scramble, newer, other, lost]), ("chunks", lost)],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_damage_is_of_the_same_kind(folder, damage, tmp_path):
    official.set_logs_filter("off")
    answers = {}
    for ice in (official, ours):
        path = tmp_path / ice.__name__
        written_on_disk(ice, path)
        for file in [path / "repo"] if folder == "repo" else (path / folder).iterdir():
            body = damage(file.read_bytes())
            file.unlink() if body is None else file.write_bytes(body)
        answers[ice] = seen(lambda ice=ice, path=path: read_all(ice, path))
    assert answers[ours] == answers[official]


def written_on_disk(ice, path: Path):
    config = ice.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = ice.Repository.create(ice.local_filesystem_storage(str(path)), config)
    for number in range(2):
        session = repo.writable_session("main")
        zarr.create_array(session.store, name=f"a{number}", data=np.arange(9), chunks=(3,))
        session.commit(str(number))


def read_all(ice, path: Path):
    repo = ice.Repository.open(ice.local_filesystem_storage(str(path)))
    history = [info.id for info in repo.ancestry(branch="main")]
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    for _, array in root.arrays():
        array[:]
    repo.diff(from_snapshot_id=history[-1], to_snapshot_id=history[0])


def test_what_a_web_server_has_can_only_be_read(http_server):
    official.set_logs_filter("off")
    answers = [
        seen(lambda ice=ice: ice.Repository.create(ice.http_storage(f"{http_server.url}/repo")))
        for ice in (official, ours)
    ]
    assert answers[0] == answers[1]


NAIVE = datetime(2020, 1, 1)  # noqa: DTZ001


def times(ice, at):
    """Return what takes a time, by name."""
    repo, *_ = written(ice, lambda _: ice.in_memory_storage())
    store = repo.writable_session("main").store
    place = {"offset": 0, "length": 1, "checksum": at, "validate_container": False}
    box = {
        "chunk_grid_shape": (1, 1),
        "locations": ["s3://bucket/key"],
        "offsets": np.zeros(1, np.uint64),
        "lengths": np.ones(1, np.uint64),
        "validate_containers": False,
    }
    key = {"access_key_id": "a", "secret_access_key": "b"}
    return {
        "garbage": lambda: repo.garbage_collect(at, dry_run=True),
        "expiry": lambda: repo.expire_snapshots(at),
        "session": lambda: repo.readonly_session("main", as_of=at),
        "reference": lambda: store.set_virtual_ref("a/c/0/0", "s3://bucket/key", **place),
        "references": lambda: store.set_virtual_refs_arr("a", checksum=at, **box),
        "spec": lambda: ice.VirtualChunkSpec(
            [0, 0], "s3://bucket/key", 0, 1, last_updated_at_checksum=at
        ),
        "status": lambda: ice.RepoStatus(ice.RepoAvailability.online, set_at=at),
        "keys of S3": lambda: ice.s3_static_credentials(**key, expires_after=at),
        "token of GCS": lambda: ice.GcsBearerCredential("t", expires_after=at),
        "token of Azure": lambda: ice.AzureRefreshableCredential.BearerToken("t", expires_after=at),
    }


@pytest.mark.parametrize("ice", [official, ours], ids=["official", "ours"])
def test_times_without_a_zone_are_refused_wherever_the_official_client_refuses_them(ice):
    """Read as local time, they would delete chunks of sessions that still write."""
    official.set_logs_filter("off")
    for call in times(ice, NAIVE).values():
        with pytest.raises(TypeError, match=r"time zone|tzinfo|ChecksumArgument"):
            call()
    for name, call in times(ice, NAIVE.replace(tzinfo=UTC)).items():
        if name == "session":  # it is older than the repository
            with pytest.raises(ice.SnapshotNotFoundError):
                call()
        else:
            call()


@pytest.mark.parametrize("wrong", [None, NAIVE.date(), "2020-01-01"], ids=str)
@pytest.mark.parametrize("ice", [official, ours], ids=["official", "ours"])
def test_what_is_no_time_is_refused(ice, wrong):
    with pytest.raises(TypeError):
        times(ice, wrong)["garbage"]()
    with pytest.raises(TypeError):
        times(ice, wrong)["expiry"]()


@pytest.mark.parametrize(
    "names",
    [
        {"client": 5},
        {"client": ""},
        {"client": "a b"},
        {"client": "a/b/c"},
        {"client": "name/1.0"},
        {"workload": "a\n"},
        {"workload": "é"},
        {"workload": "a b, c@d"},
        {"workload": "a;b"},
        {"principal": "x(y)"},
        {"principal": "a" * 129},
        {"principal": "a" * 128},
    ],
    ids=lambda names: repr(names)[:30],
)
def test_an_attribution_is_as_given_or_refused(names):
    answers = []
    for ice in (official, ours):
        try:
            made = ice.Attribution(**names)
        except (TypeError, ValueError) as error:
            answers.append(
                next(each for each in (TypeError, ValueError) if isinstance(error, each))
            )
        else:
            repo = ice.Repository.create(ice.in_memory_storage(), attribution=made)
            for each in (repo, repo.reopen()):
                assert each.attribution == made
            answers.append(repr(made))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("ice", [official, ours], ids=["official", "ours"])
def test_what_is_no_attribution_is_refused(ice):
    with pytest.raises(TypeError):
        ice.Repository.create(ice.in_memory_storage(), attribution="x")
    with pytest.raises(TypeError):
        ice.Attribution("by position")
    made = ice.Repository.create(ice.in_memory_storage())
    assert made.attribution == ice.Attribution()


LIMITS = {
    "max_concurrent_listings": (0, -1, "x"),
    "max_snapshots_in_memory": (0, -1, None),
    "max_compressed_manifest_mem_bytes": (0, None),
    "max_concurrent_manifest_fetches": (0, "x"),
    "nope": (1,),
}


@pytest.mark.parametrize("ice", [official, ours], ids=["official", "ours"])
def test_limits_that_are_none_are_refused(ice):
    repo = ice.Repository.create(ice.in_memory_storage())
    for name, values in LIMITS.items():
        for value in values:
            with pytest.raises((ValueError, TypeError, OverflowError)):
                repo.garbage_collect(LONG_AGO, **{name: value})
            with pytest.raises((ValueError, TypeError, OverflowError)):
                repo.chunk_storage_stats(**{name: value})
    repo.garbage_collect(LONG_AGO, max_concurrent_listings=None, max_snapshots_in_memory=1)
