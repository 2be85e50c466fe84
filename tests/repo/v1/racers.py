"""What processes do that race with an upgrade. Imports little: each process imports it anew."""

import time

import numpy as np

MOST = 60
"""Commits of one writer; its chunks have numbers of their own."""


def all_opened(repo, racer: int, writers: int) -> None:
    """Wait until as many clients opened the repository."""
    repo.create_tag(f"opened-{racer}", repo.lookup_branch("main"))
    while len(repo.list_tags()) < writers:
        time.sleep(0.05)


def commit_officially(place, racer: int, writers: int) -> list[str]:
    """Commit with an official client that opened V1 until it is refused."""
    import icechunk
    import zarr

    repo = icechunk.Repository.open(place.official())
    assert repo.spec_version == 1
    all_opened(repo, racer, writers)
    made = []
    for number in range(racer * MOST, (racer + 1) * MOST):
        try:
            session = repo.writable_session("main")
            array = zarr.open_array(session.store, path="a", zarr_format=3)
            array[number * 12 : (number + 1) * 12] = number
            made.append(session.commit(str(number), rebase_with=icechunk.ConflictDetector()))
        except icechunk.IcechunkError:
            return made
    raise AssertionError("it was never refused")


def commit_through(place, racer: int, writers: int) -> list[str]:
    """Commit with icevirt until the repository is upgraded, and a few times more."""
    from icevirt.errors import ConflictError
    from icevirt.model.chunks import ChunkTable
    from icevirt.repo.repository import Repository
    from icevirt.versioning.merge.conflicts import ConflictDetector

    repo = Repository.open(place.icevirt())
    assert repo.spec_version == 1
    all_opened(repo, racer, writers)
    made, more = [], 3
    for number in range(racer * MOST, (racer + 1) * MOST):
        chunk = np.full(12, number, np.int32).tobytes()
        session = repo.writable_session("main")
        session.set_chunks("/a", ChunkTable.of_inline(index=np.array([[number]]), chunks=[chunk]))
        try:
            made.append(session.commit(str(number), rebase_with=ConflictDetector()))
        except ConflictError:
            continue  # begun on a commit of V1 that was not carried over yet
        more -= repo.spec_version == 2
        if not more:
            return made
    raise AssertionError("it was never upgraded")


def upgrade(place, writers: int) -> list[str]:
    """Upgrade a repository when all have opened it; return branches that were put aside."""
    from icevirt.errors import ConflictError
    from icevirt.repo.repository import Repository

    repo = Repository.open(place.icevirt())
    while len(repo.list_tags()) < writers:
        time.sleep(0.05)
    try:
        repo.upgrade()
    except ConflictError as error:
        return sorted(error.facts["branches"].values())
    return []


def call(act, *arguments):
    """Do what is named first."""
    return act(*arguments)
