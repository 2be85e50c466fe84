"""What processes do that race for one repository. Imports little: each process imports it anew."""

from datetime import datetime

import numpy as np

LENGTH = 150
"""Values of a chunk, so many that it is an object of its own."""


def commit_chunks(place, racer: int, commits: int, official: bool = False) -> list[str]:
    """Commit chunks of one's own, each in a commit; return the snapshots that were acknowledged."""
    act = _officially if official else _by_icevirt
    return act(place, range(racer * commits, (racer + 1) * commits))


def _by_icevirt(place, numbers) -> list[str]:
    from icevirt.errors import ConflictError, RebaseFailedError
    from icevirt.repo.repository import Repository

    repo = Repository.open(place.icevirt())
    made = []
    while len(made) < len(numbers):
        try:
            made.append(_commit_chunk(repo, numbers[len(made)]))
        except RebaseFailedError:
            raise
        except ConflictError as error:
            if "expired" not in str(error):  # what the session began with; it says to begin anew
                raise
    return made


def _commit_chunk(repo, number: int) -> str:
    from icevirt.versioning.merge.conflicts import ConflictDetector

    session = repo.writable_session("main")
    session.set_chunk("/a", [number], np.full(LENGTH, number, np.int32).tobytes())
    return session.commit(str(number), rebase_with=ConflictDetector())


def maintain(place, before: datetime, rounds: int) -> int:
    """Release old snapshots and collect garbage, again and again; return the files deleted."""
    from icevirt.repo.repository import Repository

    repo = Repository.open(place.icevirt())
    deleted = 0
    for _ in range(rounds):
        repo.expire_snapshots(before)
        output = repo.garbage_collect(before)
        deleted += output.snapshots_deleted + output.manifests_deleted + output.chunks_deleted
    return deleted


def _officially(place, numbers) -> list[str]:
    import icechunk
    import zarr

    repo = icechunk.Repository.open(place.official())
    made = []
    for number in numbers:
        session = repo.writable_session("main")
        array = zarr.open_array(session.store, path="a", zarr_format=3)
        array[number * LENGTH : (number + 1) * LENGTH] = number
        made.append(session.commit(str(number), rebase_with=icechunk.ConflictDetector()))
    return made


def commit_or_maintain(place, racer: int, rounds: int, before: datetime | None):
    """Do the one, or where a time is given the other."""
    if before is None:
        return commit_chunks(place, racer, rounds)
    return maintain(place, before, rounds)


def create(place, racer: int, official: bool) -> bool:
    """Make the repository; say whether it was us."""
    if official:
        import icechunk

        try:
            icechunk.Repository.create(place.official())
        except icechunk.IcechunkError:
            return False
        return True
    from icevirt.errors import AlreadyExistsError
    from icevirt.repo.repository import Repository

    try:
        Repository.create(place.icevirt())
    except AlreadyExistsError:
        return False
    return True


def add_container(place, racer: int) -> None:
    """Add a virtual chunk container to the persisted configuration."""
    from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
    from icevirt.repo.repository import Repository

    repo = Repository.open(place.icevirt())
    prefix = f"file:///archive/{racer}/"
    repo.config.set_virtual_chunk_container(
        VirtualChunkContainer(prefix, local_filesystem_store(f"/archive/{racer}"))
    )
    repo.save_config()
