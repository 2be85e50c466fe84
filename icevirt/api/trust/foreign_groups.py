"""Propose how a group that another program made, as VirtualiZarr does, becomes a dataset.

Such a group has no record of its files and of how they combine, so nothing can be appended to it.
Its references name the files, from which it can be built. A repository's words about files are
data: only those are put into a command that lie where the caller named files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from icevirt.api.dataset.records import provenance_of
from icevirt.api.dataset.target import Target
from icevirt.api.trust.readable_places import ReadablePlaces, common, is_plain
from icevirt.connect.urls import local_path
from icevirt.errors import AlreadyExistsError
from icevirt.model.chunks import ChunkType
from icevirt.model.snapshot import ArrayNode
from icevirt.planning.remedies import anew_fix, list_names
from icevirt.redaction import without_secrets
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.versioning import chunk_tables
from icevirt.versioning.lookup import ancestry

_FEW = 20  # files that a command names
_MOST = 1_000_000  # references that are read for a proposal
_PRICE = "makes the group anew from the files it refers to and yours; older snapshots keep it"


def propose_build(
    error: AlreadyExistsError, target: Target, sources: Any, places: Sequence[str]
) -> None:
    """Let a refusal to append to a group propose to build it, if it refers to files.

    Args:
        error: The refusal.
        target: The group.
        sources: That the caller named.
        places: Below which files may be named in a command.
    """
    if target.info is None or any(map(provenance_of, ancestry(target.info, target.tip))):
        return  # a group below may be a build's
    if not (urls := _list_files(target)):
        return
    given = [sources] if isinstance(sources, str | os.PathLike) else sources
    may_name = ReadablePlaces.of(places).covers
    if (
        len(urls) <= _FEW
        and isinstance(given, Sequence)
        and all(isinstance(each, str | os.PathLike) for each in given)
        and all(is_plain(url) and may_name(url) for url in urls)
    ):
        before = [local_path(url) if url.startswith("file://") else url for url in urls]
        names = list(dict.fromkeys([*before, *map(os.fspath, given)]))
        error.fixes = (anew_fix(names, target.storage.url, _PRICE, target.branch, target.group),)
        return
    below = list_names([without_secrets(each) for each in common(urls)], 3)
    error.fixes = ()
    error.do = write_remedy(
        f"No build of icevirt made it. Build it anew from all of its files, {len(urls):,} below"
        f" {below}, and yours; older snapshots keep what is there: ",
        write_code(
            'icevirt.build(files, repo, mode="w", commit_options={"allow_changes": True})',
            "icevirt build SOURCES... REPO --mode w --allow-changes",
        ),
        ".",
    )


def _list_files(target: Target) -> list[str]:
    """Return the files that the references of a group lead to; none where they are too many."""
    snapshot, assets = target.snapshot(), target.assets
    keys = {
        ref.object_id
        for node in snapshot.below(target.group)
        if isinstance(node, ArrayNode)
        for ref in node.manifests
    }
    facts = [snapshot.manifest(key) for key in keys]
    if sum(each.num_chunk_refs for each in facts if each is not None) > _MOST:
        return []
    found: set[str] = set()
    for key in sorted(keys):
        for table in assets.read_manifest(key).arrays.values():
            virtual = table.take(table.kind == ChunkType.virtual)
            found.update(chunk_tables.compact(virtual).locations.url)
    return sorted(found)
