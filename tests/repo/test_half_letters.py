"""Text with lone surrogates, which JSON and Python may hold and no file of a repository, is refused."""

import pytest

from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable
from repo.support import array_json

HALF = "a\ud800"

CALLS = {
    "a message": lambda repo, session: session.commit(HALF),
    "metadata": lambda repo, session: session.commit("x", metadata={"key": [HALF]}),
    "a key of metadata": lambda repo, session: session.commit("x", metadata={HALF: 1}),
    "an amended message": lambda repo, session: session.amend(HALF),
    "a branch": lambda repo, session: repo.create_branch(HALF, session.snapshot_id),
    "a tag": lambda repo, session: repo.create_tag(HALF, session.snapshot_id),
    "metadata of the repository": lambda repo, session: repo.set_metadata({HALF: HALF}),
    "a dimension": lambda repo, session: session.add_array(
        "/b", array_json(dimension_names=[HALF]), ChunkTable.empty(1)
    ),
    "a node": lambda repo, session: session.add_array(
        f"/{HALF}", array_json(), ChunkTable.empty(1)
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_half_a_letter_is_refused_before_anything_is_written(repo, call):
    before = {each.path for each in repo.storage.list("")}
    session = repo.writable_session("main")
    session.add_array("/a", array_json(), ChunkTable.empty(1))
    with pytest.raises(InvalidInputError, match=r"surrogates|UTF-8|utf-8"):
        call(repo, session)
    assert {each.path for each in repo.storage.list("")} == before
    session.commit("sound")
