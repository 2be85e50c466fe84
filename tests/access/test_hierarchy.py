"""zarr's state machine of hierarchies, on a session in memory that commits now and then.

`ZarrStoreStateMachine` is left out: it sets arbitrary bytes at arbitrary keys, which a session
refuses (test_store_contract.py).
"""

import pytest
import zarr
from hypothesis import HealthCheck, settings
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from zarr.testing.stateful import ZarrHierarchyStateMachine

from icevirt.repo.repository import Repository
from icevirt.storage.memory import MemoryStorage


class Hierarchies(ZarrHierarchyStateMachine):
    """The model is zarr's MemoryStore; ours is replaced by a new session at every commit."""

    def __init__(self):
        self.repo = Repository.create(MemoryStorage())
        super().__init__(self.repo.writable_session("main").store)

    @precondition(lambda self: self.store.session.has_uncommitted_changes)
    @rule()
    def commit(self):
        """Commit and go on in a new session."""
        self.store.session.commit("a step")
        self.store = self.repo.writable_session("main").store


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_a_session_behaves_as_a_hierarchy_in_memory():
    with zarr.config.set({"array.rectilinear_chunks": True}):
        run_state_machine_as_test(
            Hierarchies,
            settings=settings(
                max_examples=15, stateful_step_count=30, suppress_health_check=list(HealthCheck)
            ),
        )
