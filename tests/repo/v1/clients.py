"""V1 repositories for tests, and a client that knows only V1: it never looks for `repo`."""

import zipfile
from pathlib import Path

import icechunk
import numpy as np

from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkTable
from icevirt.repo.assets import Assets
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from repo.support import group_json

FIXTURES = Path(__file__).parents[3] / "fixtures" / "icechunk"
NAMES = ("v1-by-0.2.18", "v1-by-1.1.21")


def unpacked(name, path):
    """Unpack a repository that a released client wrote, and return its path."""
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as packed:
        packed.extractall(path)
    return str(path)


def official(path):
    """Open a repository with the official client."""
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def in_memory(path):
    """Copy a repository into memory."""
    copy, disk = MemoryStorage(), LocalStorage(path)
    for found in disk.list():
        copy.put(found.path, disk.get(found.path))
    return copy


class V1Head(RepoInfoFile):
    """The head of a client that knows only V1."""

    def _repo_object(self):
        return None

    def swap(self, current, *edits, **more):
        after = super().swap(current, *edits, **more)
        if after is None and current.files.is_sealed("main"):
            raise FormatError("a V1 client does not understand this reference file")
        return after


def v1_client(storage):
    """Open a repository as a client does that knows only V1."""
    repo = Repository.open(storage)
    repo._head = V1Head(storage)
    repo._assets = Assets(storage, spec_version=1)
    return repo


def commit(repo, path="/new", message="more", branch="main", **how):
    """Commit a new group."""
    session = repo.writable_session(branch)
    session.add_group(path, group_json())
    return session.commit(message, **how)


def one(value, at=0):
    """Return a chunk of twelve values, inline."""
    return ChunkTable.of_inline(index=np.array([[at]]), chunks=[np.int32(value).tobytes() * 12])
