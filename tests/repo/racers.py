"""What processes do that race for one repository. Imports little: each process imports it anew."""

import numpy as np


def commit_chunks(place, racer: int, commits: int, official: bool = False) -> list[str]:
    """Commit chunks of one's own, each in a commit; return the snapshots that were acknowledged."""
    act = _officially if official else _by_icevirt
    return act(place, range(racer * commits, (racer + 1) * commits))


def _by_icevirt(place, numbers) -> list[str]:
    from icevirt.logic.conflicts import ConflictDetector
    from icevirt.model.chunks import ChunkTable
    from icevirt.repo.repository import Repository

    repo = Repository.open(place.icevirt())
    made = []
    for number in numbers:
        session = repo.writable_session("main")
        chunk = np.full(12, number, np.int32).tobytes()
        session.set_chunks("/a", ChunkTable.inlined(index=np.array([[number]]), chunks=[chunk]))
        made.append(session.commit(str(number), rebase_with=ConflictDetector()))
    return made


def _officially(place, numbers) -> list[str]:
    import icechunk
    import zarr

    repo = icechunk.Repository.open(place.official())
    made = []
    for number in numbers:
        session = repo.writable_session("main")
        array = zarr.open_array(session.store, path="a", zarr_format=3)
        array[number * 12 : (number + 1) * 12] = number
        made.append(session.commit(str(number), rebase_with=icechunk.ConflictDetector()))
    return made


def add_container(place, racer: int) -> None:
    """Add a virtual chunk container to the persisted configuration."""
    from icevirt.model.config import VirtualChunkContainer, local_filesystem_store
    from icevirt.repo.repository import Repository

    repo = Repository.open(place.icevirt())
    prefix = f"file:///archive/{racer}/"
    repo.config.set_virtual_chunk_container(
        VirtualChunkContainer(prefix, local_filesystem_store(f"/archive/{racer}"))
    )
    repo.save_config()
