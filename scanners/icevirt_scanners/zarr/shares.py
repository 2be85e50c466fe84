"""List what one of several tasks needs of a store: documents, and the chunks of its share.

Nothing lists the whole store: below a group are documents and folders, and an array is listed by
the task that scans it. A large array whose chunks lie in a folder for each step along its first
axis is shared by several tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from icevirt.archive.scanned import Share, Weight
from icevirt.archive.store_objects import StoreObjects
from icevirt.model.zarr_v2 import NoEquivalentError
from icevirt.scan.contract import ListedStore
from icevirt_scanners.kerchunk.scanner import Described
from icevirt_scanners.zarr.arrays import keys_of
from icevirt_scanners.zarr.documents import V2, V3, Metadata, parse_document, read_metadata

LEAST = 100  # references that are made while a document is read
_FOLDER = 100  # chunks in a folder at least, which is one request or more
_STEPS = 1 << 22  # folders at most, each of which is asked for: a grid may be all but empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The objects of groups, and the documents of arrays."""

    metadata: Metadata
    documents: StoreObjects
    beside: StoreObjects  # in groups, and no documents
    strange: tuple[str, ...]  # folders that are no nodes


def outline_of(store: ListedStore) -> Outline:
    """Find the documents of all nodes, level by level, and hold them as the objects of the store.

    Raises as listing and reading do.
    """
    names = (V3,) if store.document == V3 else V2
    documents, beside, strange = list[StoreObjects](), list[StoreObjects](), list[str]()
    level = [""]
    while level:
        keys = [f"{folder}/{name}".lstrip("/") for folder in level for name in names]
        found = store.find_objects(keys)
        documents.append(found)
        arrays, groups = _kinds(store, found)
        strange += [each for each in level if each not in arrays and each not in groups]
        level = []
        for folder in groups:
            own, folders = store.list_folder(folder)
            is_document = [key.rpartition("/")[2] in names for key in own.keys]
            beside.append(own.take([row for row, is_one in enumerate(is_document) if not is_one]))
            level += folders
    joined = StoreObjects.join(documents)
    order = sorted(range(len(joined)), key=[key.split("/") for key in joined.keys].__getitem__)
    found, others = joined.take(order), StoreObjects.join(beside)
    store.hold(StoreObjects.join([found, others]))
    return Outline(
        metadata=read_metadata(store), documents=found, beside=others, strange=tuple(strange)
    )


def _kinds(store: ListedStore, found: StoreObjects) -> tuple[set[str], list[str]]:
    """Return the folders of documents that are arrays, and those that are groups."""
    store.hold(found)
    arrays, groups = set[str](), list[str]()
    read = [row for row, key in enumerate(found.keys) if key.rpartition("/")[2] == V3]
    bodies = dict(zip(read, store.read_objects(read), strict=True))
    for row, key in enumerate(found.keys):
        folder, _, name = key.rpartition("/")
        kind: Any = name
        if name == V3:
            kind = parse_document(bodies[row], store.file.url, key).get("node_type")
        if kind in ("array", V2[0]):
            arrays.add(folder)
        elif kind in ("group", V2[1]) and folder not in arrays:
            groups.append(folder)
    return arrays, groups


def weight_of(path: str, node: Described, grid: Sequence[int], *, is_plain: bool) -> Weight:
    """Return what an array takes, and whether its chunks can be listed in runs."""
    places, can = prod(grid), False
    try:
        keys, ndim = keys_of(node)
        can = is_plain and keys.separator == "/" and ndim > 1
        can = can and prod(grid[1:]) >= _FOLDER and grid[0] <= _STEPS
    except (NoEquivalentError, KeyError, TypeError, ValueError, AttributeError):
        pass
    return Weight(path=path, cost=LEAST + places, chunks=places if can else 0)


def objects_of(
    store: ListedStore,
    share: Share,
    outline: Outline,
    arrays: Mapping[str, Described],
    grids: Mapping[str, Sequence[int]],
) -> StoreObjects:
    """List the chunks of a share, and return them with all documents.

    Args:
        store: What is scanned.
        share: Of it.
        outline: Of the store.
        arrays: Its arrays by path.
        grids: The number of chunks along each axis of those that are scanned in runs.
    """
    listed = list[StoreObjects]()
    whole = [arrays[path].folder for path in share.order if path in share.whole]
    kept = _outside(outline.documents, whole)
    if not share.order or _holds_first(share, share.order[0]):  # without arrays, chunks are lost
        listed += [outline.beside, store.list_below(outline.strange)]
        kept = _outside(outline.documents, [*whole, *outline.strange])
    for folder in whole:
        listed.append(store.list_below([folder]))
    for path, run in share.runs.items():
        folder = arrays[path].folder
        mine = _below_array(outline.documents, folder)
        kept = [row for row in kept if row not in mine]
        documents = outline.documents.take(sorted(mine))
        listed.append(documents)
        listed += _run(store, arrays[path], grids[path], run, {*documents.keys})
    return StoreObjects.join([outline.documents.take(kept), *listed])


def _holds_first(share: Share, path: str) -> bool:
    return path in share.whole or share.runs.get(path, (1, 1))[0] == 0


def _below_array(documents: StoreObjects, folder: str) -> set[int]:
    prefix = f"{folder}/" if folder else ""
    return {row for row, key in enumerate(documents.keys) if key.startswith(prefix)}


def _outside(documents: StoreObjects, folders: Iterable[str]) -> list[int]:
    """Return the rows of documents that are not below some arrays."""
    known = set(folders)
    if "" in known:
        return []
    held = (key.rpartition("/")[0] for key in documents.keys)
    return [row for row, folder in enumerate(held) if folder not in known]


def _run(
    store: ListedStore,
    node: Described,
    grid: Sequence[int],
    run: tuple[int, int],
    known: set[str],
) -> list[StoreObjects]:
    """List the folders of a run of chunks; the first run has what else is in the array."""
    keys, _ = keys_of(node)
    base = "/".join(filter(None, (node.folder, keys.begin)))
    inner = prod(grid[1:])
    steps = range(run[0] // inner, -(-run[1] // inner))
    found = [store.list_below([f"{base}/{step}".lstrip("/") for step in steps])]
    if run[0] == 0:
        for folder in dict.fromkeys((node.folder, base)):
            own, folders = store.list_folder(folder)
            found.append(own.take([row for row, key in enumerate(own.keys) if key not in known]))
            odd = [each for each in folders if each != base and not _is_step(each, base, grid[0])]
            found.append(store.list_below(odd))
    return found


def _is_step(folder: str, base: str, count: int) -> bool:
    """Say whether a folder holds the chunks of a step along the first axis."""
    above, _, name = folder.rpartition("/")
    return above == base and name.isdecimal() and name == str(int(name)) and int(name) < count
