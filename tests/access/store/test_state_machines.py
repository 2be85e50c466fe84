"""zarr's state machines of stores and hierarchies, on sessions that commit now and then.

The store's machine sets arbitrary bytes at arbitrary keys, which a session refuses
(test_store_contract.py). So those of its rules that write are replaced: they write the chunks and
documents of a hierarchy, and deleting a node's document deletes what is below.
"""

import uuid

import pytest
import zarr
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from zarr.testing.stateful import (
    SyncStoreWrapper,
    ZarrHierarchyStateMachine,
    ZarrStoreStateMachine,
)

from access.hierarchy import HIERARCHY, array, buffer
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from long_forms import IS_LONG
from servers.places import S3Place

CONFIG = RepositoryConfig(inline_chunk_threshold_bytes=16)  # of chunks of up to 100
DOCUMENTS = HIERARCHY | {"foo/zarr.json": array(3, 3)}  # few, so that keys meet again
CHUNKS = [
    *(f"foo/c/{y}/{x}" for y in range(3) for x in range(3)),
    "scalar/c",
    *(f"foo-bar/deep/c/{n}" for n in (0, 1, 10)),
]
KEYS = st.sampled_from([*DOCUMENTS, *CHUNKS])


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.servers)])
def new_repo(request, tmp_path):
    """Return what makes an empty repository, and how many examples are enough on it."""
    match request.param:
        case "memory":
            return lambda: Repository.create(MemoryStorage(), CONFIG), 15
        case "local":
            return lambda: Repository.create(LocalStorage(tmp_path / uuid.uuid4().hex), CONFIG), 8
        case "s3":
            server = request.getfixturevalue("s3_server")
            return lambda: Repository.create(fresh(server).icevirt(), CONFIG), 4


def fresh(server):
    return S3Place(endpoint=server, prefix=f"machine-{uuid.uuid4().hex}")


class Committing:
    """Commits now and then, and goes on in a new session."""

    def __init__(self, repo):
        self.repo = repo
        super().__init__(repo.writable_session("main").store)

    @property
    def session(self):
        return getattr(self.store, "store", self.store).session

    @precondition(lambda self: self.session.has_uncommitted_changes)
    @rule()
    def commit(self):
        self.session.commit("a step")
        store = self.repo.writable_session("main").store
        self.store = SyncStoreWrapper(store) if self.wrapped else store


class Hierarchies(Committing, ZarrHierarchyStateMachine):
    """The model is zarr's MemoryStore."""

    wrapped = False


class Stores(Committing, ZarrStoreStateMachine):
    """The model is a dict of keys and values."""

    wrapped = True

    @initialize()
    def init_store(self):
        self.clear()

    @rule(key=st.sampled_from(CHUNKS), value=st.binary(min_size=1, max_size=100))
    def set(self, key, value):
        """Set a chunk, and before it the documents above that are missing."""
        note(f"(set) {key!r}")
        self._set_documents(key)
        self.store.set(key, buffer(value))
        self.model[key] = buffer(value)

    @rule(key=st.sampled_from(sorted(DOCUMENTS)), number=st.integers())
    def set_document(self, key, number):
        note(f"(set document) {key!r}")
        self._set_documents(key)
        document = buffer(DOCUMENTS[key] | {"attributes": {"number": number}})
        self.store.set(key, document)
        self.model[key] = document

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data):
        """Delete a key; with a node's document, the node and all below."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        note(f"(delete) {key!r}")
        self.store.delete(key)
        below = key.removesuffix("zarr.json")
        gone = [k for k in self.model if k == key or (below != key and k.startswith(below))]
        for one in gone:
            del self.model[one]

    @rule(key=KEYS)
    def look(self, key):
        """Keys that could be there and are not have no value; zarr's rules draw any keys."""
        assert self.store.exists(key) == (key in self.model)
        assert self.store.get(key, self.prototype) == self.model.get(key)

    def _set_documents(self, key):
        above = key.partition("/c")[0] if key in CHUNKS else key.removesuffix("/zarr.json")
        for document in DOCUMENTS:
            node = document.removesuffix("zarr.json")
            if document not in self.model and f"{above}/".startswith(node):
                self.store.set(document, buffer(DOCUMENTS[document]))
                self.model[document] = buffer(DOCUMENTS[document])


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize(("machine", "times"), [(Hierarchies, 1), (Stores, 8 if IS_LONG else 2)])
def test_a_session_behaves_as_the_model_does(new_repo, machine, times):
    make, examples = new_repo
    work = settings(
        max_examples=times * examples // (1 if IS_LONG else 2),
        stateful_step_count=30,
        suppress_health_check=list(HealthCheck),
    )
    with zarr.config.set({"array.rectilinear_chunks": True}):
        run_state_machine_as_test(lambda: machine(make()), settings=work)
