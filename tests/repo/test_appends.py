"""Writers that append to the same arrays at once do not lose one another's data, if asked to."""

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import RebaseFailedError
from icevirt.repo.repository import Repository
from icevirt.versioning.merge.conflicts import (
    AppendConflictSolver,
    BasicConflictSolver,
    ConflictDetector,
    VersionSelection,
)
from repo.support import sound

ALONG_TIME = AppendConflictSolver(append_dim="time")


@pytest.fixture
def repo(repo_path):
    """A time axis of 4 in chunks of 2, a variable along it, and one beside it."""
    repo = Repository.create(repo_path)
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)
    common = {"dtype": "i4", "fill_value": -1}
    group.create_array("time", shape=(4,), chunks=(2,), dimension_names=["time"], **common)
    group.create_array("v", shape=(3, 4), chunks=(2, 2), dimension_names=["x", "time"], **common)
    group.create_array("x", shape=(3,), chunks=(3,), dimension_names=["x"], **common)
    group["time"][:] = np.arange(4)
    group["v"][:] = np.tile(np.arange(4), (3, 1))
    session.commit("base")
    return repo


def group_of(session) -> zarr.Group:
    return zarr.open_group(session.store, mode="r" if session.read_only else "a")


def append(session, times) -> None:
    """Append whole columns, as `to_zarr(append_dim="time")` does."""
    group = group_of(session)
    start = group["time"].shape[0]
    group["time"].resize((start + len(times),))
    group["v"].resize((3, start + len(times)))
    group["time"][start:] = times
    group["v"][:, start:] = np.tile(times, (3, 1))


def theirs_of(repo):
    path = repo.storage.url.removeprefix("file://")
    return icechunk.Repository.open(icechunk.local_filesystem_storage(path))


def test_the_second_append_moves_behind_the_first(repo):
    sessions = [repo.writable_session("main") for _ in range(3)]
    official = theirs_of(repo).writable_session("main")
    append(official, [10, 11])
    official.commit("theirs")
    for number, session in enumerate(sessions, 2):
        append(session, [10 * number, 10 * number + 1, 10 * number + 2, 10 * number + 3])
        session.commit(f"ours {number}", rebase_with=ALONG_TIME)
    expected = [0, 1, 2, 3, 10, 11, 20, 21, 22, 23, 30, 31, 32, 33, 40, 41, 42, 43]
    for client in (repo, theirs_of(repo)):
        group = group_of(client.readonly_session("main"))
        assert group["time"][:].tolist() == expected
        assert group["v"][:].tolist() == [expected] * 3
        assert len(list(client.ancestry(branch="main"))) == 6
    assert sound(repo.storage)


def test_a_last_chunk_that_is_not_full_may_only_be_the_last(repo):
    first, second, third = (repo.writable_session("main") for _ in range(3))
    append(first, [10, 11])
    first.commit("first")
    append(second, [20, 21, 22])
    second.commit("second", rebase_with=ALONG_TIME)
    append(third, [30, 31])
    with pytest.raises(RebaseFailedError, match="ZarrMetadataDoubleUpdate"):
        third.commit("third", rebase_with=ALONG_TIME)
    times = group_of(theirs_of(repo).readonly_session("main"))["time"][:]
    assert times.tolist() == [0, 1, 2, 3, 10, 11, 20, 21, 22]
    assert sound(repo.storage)


def test_chunks_before_the_append_conflict_as_they_do_otherwise(repo):
    first, second = (repo.writable_session("main") for _ in range(2))
    for session, value in ((first, 7), (second, 8)):
        append(session, [10 * value, 10 * value])
        group_of(session)["time"][0:2] = value
    first.commit("first")
    careful = AppendConflictSolver(append_dim="time", on_chunk_conflict=VersionSelection.Fail)
    with pytest.raises(RebaseFailedError, match=r"ChunkDoubleUpdate /time in 1 chunks, \[0\]"):
        second.rebase(careful)
    second.commit(
        "second",
        rebase_with=AppendConflictSolver(
            append_dim="time", on_chunk_conflict=VersionSelection.UseTheirs
        ),
    )
    times = group_of(repo.readonly_session("main"))["time"][:]
    assert times.tolist() == [7, 7, 2, 3, 70, 70, 80, 80]


def shrink(session) -> None:
    group_of(session)["time"].resize((2,))


def widen(session) -> None:
    group_of(session)["v"].resize((4, 6))


def describe(session) -> None:
    append(session, [20, 21])
    group_of(session)["time"].attrs["units"] = "days"


def half(session) -> None:
    append(session, [20])


# what is odd: (first, second, solver of the second)
REFUSED = {
    "not asked for": (append, append, BasicConflictSolver()),
    "nothing is solved": (append, append, ConflictDetector()),
    "another dimension": (append, append, AppendConflictSolver(append_dim="x")),
    "no such dimension": (append, append, AppendConflictSolver(append_dim="y")),
    "the first is not whole chunks": (half, append, ALONG_TIME),
    "the first shrinks": (shrink, append, ALONG_TIME),
    "the second shrinks": (append, shrink, ALONG_TIME),
    "the second changes another axis": (append, widen, ALONG_TIME),
    "the second changes attributes too": (append, describe, ALONG_TIME),
    "the first changes attributes too": (describe, append, ALONG_TIME),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_plain_append_stays_a_conflict(repo, case):
    *changes, solver = REFUSED[case]
    first, second = (repo.writable_session("main") for _ in range(2))
    for session, change in zip((first, second), changes, strict=True):
        change(session, [10, 11]) if change is append else change(session)
    first.commit("first")
    with pytest.raises(RebaseFailedError):
        second.commit("second", rebase_with=solver)
