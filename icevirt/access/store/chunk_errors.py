"""Make the errors of chunks that cannot be read or decoded.

They name the variable, the chunk, the object and the range of its bytes, and the command that finds
all chunks like it. Columns, zarr's pipeline and the store itself raise these.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import suppress
from shlex import join, quote
from typing import Any

import numpy as np

from icevirt.errors import IcevirtError, InvalidInputError, StorageError
from icevirt.model.chunks import ChunkType
from icevirt.repo.view import View

_DO = {
    ChunkType.virtual: "A source file is damaged or was replaced: `icevirt verify {repo} --full"
    "{version}` names every such chunk. Restore the file from a copy, or build again from sound"
    " files.",
    ChunkType.native: "An object of the repository is damaged: restore it from a copy, or write the"
    " chunk again. `icevirt check {repo} --chunks` names all chunks whose bytes do not agree with"
    " digests in their names; those that other clients wrote have none.",
    ChunkType.inline: "Its bytes are part of a manifest, and no source file has them: write the"
    " chunk again. `icevirt check {repo}` says whether all manifests are whole, and `icevirt log"
    " {repo}` lists earlier versions.",
    None: "The pipeline of codecs did not say which chunk it is: xarray's engine icevirt does.",
}
"""What to do about a chunk, by the kind of its reference; None: it is not known which one."""


def is_of_decoding(error: Exception) -> bool:
    """Say whether an error was raised while a chunk was decoded; its type does not tell."""
    if isinstance(error, IcevirtError | IndexError | Warning):  # an index is the caller's
        return False
    frames = traceback.walk_tb(error.__traceback__)
    return any("decode" in frame.f_code.co_name for frame, _ in frames)


def decoding_error(
    store: Any, path: str, error: Exception, chunk: Sequence[int] | None = None
) -> StorageError:
    """Return the error of a chunk that a codec cannot decode; None: it is not known which one."""
    session: View | None = getattr(store, "session", None)
    if session is None:
        facts, do = {"variable": path, "repo": str(store)}, _DO[None]
    else:
        facts, do = _describe(session, path, chunk)
    facts["reason"] = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return StorageError(
            "a read needs more memory than is available",
            do="Read a smaller part at once. If the part is already small, the array's chunks are "
            "larger than the memory.",
            **facts,
        )
    return StorageError("a chunk cannot be decoded", do=do, **facts)


def empty_error(session: View, path: str, chunk: Sequence[int]) -> StorageError:
    """Return the error of a chunk whose reference has no bytes, which other clients stored."""
    facts, _ = _describe(session, path, chunk)
    repo = quote(session.assets.storage.url)
    return StorageError(
        "the reference of a chunk has no bytes, so that it cannot be read",
        do=f"`icevirt check {repo}` finds such references. Write the chunk anew, or let `icevirt"
        f" check {repo} --drop-empty BRANCH` make a commit where such chunks are unwritten.",
        **facts,
    )


def _describe(session: View, path: str, chunk: Sequence[int] | None) -> tuple[dict[str, Any], str]:
    """Return which bytes of which object a chunk is, and what to do if they are damaged."""
    repo = session.assets.storage.url
    facts: dict[str, Any] = {"variable": path}
    kind, version = None, f" --snapshot-id {session.snapshot_id}"
    if chunk is not None:
        row = np.array([chunk], np.int64).reshape(1, len(chunk))
        found = session.references(path, row)
        facts["chunk"] = list(map(int, chunk))
        kind, source = ChunkType(int(found.kind[0])), int(found.source[0])
        if kind == ChunkType.virtual:
            from icevirt.objects.authorize import Authorizer, authorizing_fix

            known = Authorizer(session.config.virtual_chunk_containers, ())
            location = facts["location"] = known.absolute(found.locations.url[source])
            with suppress(InvalidInputError):  # no container, as in a repository from before V1
                version += f" {join(authorizing_fix([known.container(location)]).flags)}"
        elif kind == ChunkType.native:
            facts["location"] = session.assets.chunk_urls(found.chunk_ids[source : source + 1])[0]
        if kind in (ChunkType.virtual, ChunkType.native):
            facts["offset"] = int(found.offset[0])
        facts["length"] = int(found.length[0])
    facts["repo"] = repo
    return facts, _DO.get(kind, _DO[None]).format(repo=quote(repo), version=version)
