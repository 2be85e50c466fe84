"""What is asked of references, in any session, fails when their manifests are gone or damaged."""

import shutil

import pytest
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import _collect_aiterator
from zarr.core.sync import sync as run

from access.virtual import make
from icevirt.errors import IcevirtError

PROTOTYPE = default_buffer_prototype()
RANGES = [RangeByteRequest(0, 4), RangeByteRequest(8, 12), None]


def collected(iterator):
    return run(_collect_aiterator(iterator))


# of a session and its store; of four chunks of /v, the second was never written
ASKED = {
    "exists": lambda _, store: run(store.exists("v/c/0/0")),
    "exists, of a chunk never written": lambda _, store: run(store.exists("v/c/1/0")),
    "get, of a chunk never written": lambda _, store: run(store.get("v/c/1/0", PROTOTYPE)),
    "get_sync, of a chunk never written": lambda _, store: store.get_sync("v/c/1/0"),
    "getsize": lambda _, store: run(store.getsize("v/c/0/0")),
    "getsize_prefix": lambda _, store: run(store.getsize_prefix("v")),
    "get_ranges": lambda _, store: collected(
        store.get_ranges("v/c/0/0", RANGES, prototype=PROTOTYPE)
    ),
    "get_ranges_sync": lambda _, store: list(
        store.get_ranges_sync("v/c/0/0", RANGES, prototype=PROTOTYPE)
    ),
    "_get_many": lambda _, store: collected(store._get_many([("v/c/0/0", PROTOTYPE, None)])),
    "list": lambda _, store: collected(store.list()),
    "list_prefix": lambda _, store: collected(store.list_prefix("v/c/0")),
    "list_dir": lambda _, store: collected(store.list_dir("v")),
    "is_empty": lambda _, store: run(store.is_empty("v/c")),
    "array_chunk_iterator": lambda _, store: collected(store.array_chunk_iterator("/v")),
    "refs_table": lambda _, store: store.refs_table("/v"),
    "source_of": lambda _, store: store.source_of("/v", (0, 0)),
    "references": lambda session, _: session.references("/v", [[0, 0]]),
    "array_table": lambda session, _: session.array_table("/v"),
    "chunk_type": lambda session, _: session.chunk_type("/v", (0, 0)),
    "chunk_coordinates": lambda session, _: session.chunk_coordinates("/v"),
    "all_virtual_chunk_locations": lambda session, _: session.all_virtual_chunk_locations(),
    "nchunks_initialized": lambda _, store: zarr.open_array(store, path="v").nchunks_initialized,
}


def gone(at, folder):
    shutil.rmtree(at.root / folder)


def cut_short(at, folder):
    for path in (at.root / folder).iterdir():
        path.write_bytes(path.read_bytes()[:-20])


SESSIONS = {
    "read-only": lambda repo: repo.readonly_session("main"),
    "writable": lambda repo: repo.writable_session("main"),
    "a fork": lambda repo: repo.writable_session("main").fork(),
}


@pytest.mark.parametrize("damage", [gone, cut_short])
@pytest.mark.parametrize("begin", SESSIONS.values(), ids=SESSIONS.keys())
def test_damaged_manifests_are_given_by_every_question(tmp_path, begin, damage):
    at = make(tmp_path, skip=(1,))
    for ask in ASKED.values():
        before = begin(at.open())
        ask(before, before.store)
    damage(at, "manifests")
    for name, ask in ASKED.items():
        session = begin(at.open())
        output = raised_by(ask, session)
        assert isinstance(output, IcevirtError), name
        assert not isinstance(output, KeyError | FileNotFoundError), name


def raised_by(ask, session):
    """Return the error; `get_ranges` of zarr tells errors as groups."""
    try:
        ask(session, session.store)
    except ExceptionGroup as group:
        return group.exceptions[0]
    except Exception as error:  # noqa: BLE001 - which is what is asked
        return error
    return None


CHANGES = {
    "a chunk is set": lambda store: store.set_sync("v/c/2/0", PROTOTYPE.buffer.from_bytes(b"1234")),
    "a chunk is deleted": lambda store: store.delete_sync("v/c/2/0"),
    "a part of a chunk is set": lambda store: zarr.open_array(store, path="v").__setitem__(
        (0, 0), 1
    ),
    "the chunks of a folder are deleted": lambda store: run(store.delete_dir("v/c/2")),
    "a chunk is set if absent": lambda store: run(
        store.set_if_not_exists("v/c/2/0", PROTOTYPE.buffer.from_bytes(b"1234"))
    ),
}


@pytest.mark.parametrize("damage", [gone, cut_short])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_no_change_of_an_array_whose_manifests_are_damaged_is_committed(tmp_path, change, damage):
    at = make(tmp_path, skip=(1,))
    tip = at.open().lookup_branch("main")
    damage(at, "manifests")
    session = at.open().writable_session("main")
    with pytest.raises(IcevirtError):  # noqa: PT012 - at the latest by the commit
        change(session.store)
        session.commit("over what cannot be read")
    assert at.open().lookup_branch("main") == tip
