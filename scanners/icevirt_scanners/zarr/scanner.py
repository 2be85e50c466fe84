"""Scan a Zarr store of v2 or v3: each chunk that is there is an object, or a member of an archive.

Shards stay whole, with their codec. What is no chunk and no metadata is named; chunks whose array
has lost its metadata are an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray, ScannedFile, Weight
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import IcevirtError, ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.zarr_v2 import NoEquivalentError
from icevirt.scan.contract import ByteSource, ListedStore, Policy, ScannerOptions, StoreByteSource
from icevirt_scanners.context import ScanContext
from icevirt_scanners.kerchunk.document import json_value
from icevirt_scanners.kerchunk.scanner import Described, describe_nodes, names_of, tell_renamed
from icevirt_scanners.zarr.arrays import Descriptions, describe_array, keys_of, scan_array
from icevirt_scanners.zarr.chunk_batches import ChunkBatches, Spelled
from icevirt_scanners.zarr.copies import copy_chunks, copy_values, open_array
from icevirt_scanners.zarr.documents import (
    V2,
    V3,
    Metadata,
    damaged,
    document_rows,
    first_keys,
    read_metadata,
    refuse_extensions,
)
from icevirt_scanners.zarr.shares import LEAST, Outline, objects_of, outline_of, weight_of
from icevirt_scanners.zarr.zip_directory import EMPTY, SIGNATURE
from icevirt_scanners.zarr.zipped import ZippedStore

_CHUNK = re.compile(r"(?:^|/)(?:c[./])?[0-9]+(?:[./][0-9]+)*$")
ROOT_ARRAY = "/data"
"""What an array is called that is all of a store; the same in all stores, so that they stack."""

_LOOKED_AT = 1000  # objects that belong to nothing


class ZarrScanner:
    """Describes Zarr stores."""

    name = "zarr"
    version = "2"
    reads_stores = True

    def __init__(self) -> None:
        self._outlines = WeakKeyDictionary[Any, Outline]()  # until shares are scanned

    def accepts(self, head: bytes) -> bool:
        """Accept ZIP archives: other stores are known by the document that stands for them."""
        return head.startswith((SIGNATURE, EMPTY))

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the store.

        Raises:
            ScanError: It is damaged, partly deleted, or was written to meanwhile.
            UnsupportedError: It holds an array that readers of Icechunk cannot read.
        """
        store = _as_store(source)
        url, context = source.file.url, ScanContext.of(store, options)
        metadata, nodes = self._nodes(store, context)
        tell_renamed(nodes, options.group, context)
        arrays = {path: node for path, node in nodes.items() if node.array is not None}
        groups = tuple(
            ScannedGroup(path=path, attributes=Attributes.of(node.attributes))
            for path, node in nodes.items()
            if node.array is None
        )
        known = np.zeros(len(store.objects), np.bool_)
        known[list(metadata.rows.values())] = True
        owned = np.zeros(len(store.objects), np.bool_)
        document = V3 if metadata.is_v3 else V2[0]
        outside: list[str] = []
        within = {
            path: store.objects.find(
                node.folder, metadata.rows[f"{node.folder}/{document}".lstrip("/")]
            )
            for path, node in arrays.items()
        }
        wanted = {path: node for path, node in arrays.items() if options.wants(path)}
        batches = ChunkBatches(store, _spelled(wanted, within))
        descriptions = Descriptions(context)

        def make(path: str, node: Described) -> ScannedArray:
            key = f"{node.folder}/{document}".lstrip("/")
            if metadata.is_v3:
                refuse_extensions({key: node.array or {}}, url)
            owned[slice(*within[path])] = True
            is_stored = options.policy_of(path) in (Policy.native, Policy.inline)
            try:
                found = scan_array(path, node, batches, descriptions, context)
            except UnsupportedError as refusal:
                if not is_stored:
                    raise
                known[slice(*within[path])] = True
                return copy_values(path, node, context, refusal)
            known[found.chunks] = known[found.outside] = known[found.others] = True
            outside.extend(first_keys(store.objects.keys[row] for row in found.outside.tolist()))
            if is_stored:
                return copy_chunks(found.array, found.dtype, store.chunks(found.chunks), context)
            return found.array

        scanned = context.arrays(arrays.items(), make)
        for path in context.left_out:  # what belongs to others is not looked at
            if path in arrays:
                known[slice(*within[path])] = True
        _tell_foreign(store, context, ~known, owned)
        if isinstance(store, ZippedStore) and (beside := store.outside()):
            context.warn(
                paths.ROOT,
                "foreign-objects",
                f"members beside {store.folder} are left out: {', '.join(beside)}",
            )
        if outside:
            context.warn(
                paths.ROOT,
                "chunks-outside",
                f"chunks behind the end of their array are left out: {', '.join(outside[:5])}",
            )
        return context.describe(self, groups, scanned)

    def outline(self, source: ByteSource, options: ScannerOptions) -> tuple[Weight, ...]:
        """Return what scanning each array takes; see `icevirt.scan.contract.Divisible`."""
        store = _as_store(source)
        if not isinstance(store, ListedStore):
            raise UnsupportedError(
                "a store in an archive is not scanned in shares",
                do="Scan it in one task.",
                file=source.file.url,
            )
        context = ScanContext.of(store, options)
        outline = self._outlines[source] = outline_of(store)
        nodes = _nodes_equal(outline.metadata, context)
        return tuple(
            _weigh(path, node, context)
            for path, node in nodes.items()
            if node.array is not None and options.wants(path)
        )

    def _nodes(
        self, store: StoreByteSource, context: ScanContext
    ) -> tuple[Metadata, dict[str, Described]]:
        """Return the documents and nodes of a store; of a share, list its chunks."""
        share = context.options.share
        if share is None or not isinstance(store, ListedStore):
            metadata = read_metadata(store)
            return metadata, _nodes_equal(metadata, context)
        outline = self._outlines.pop(store, None) or outline_of(store)
        nodes = _nodes_equal(outline.metadata, context)
        grids = {path: describe_array(path, nodes[path], context).grid for path in share.runs}
        store.hold(objects_of(store, share, outline, nodes, grids))
        rows = document_rows(store)
        if rows.keys() - outline.metadata.rows.keys():
            raise UnsupportedError(
                "nodes of a store below an array, or below a folder without metadata",
                do="Scan it in one task.",
                file=store.file.url,
            )
        return replace(outline.metadata, rows=rows), nodes

    def read_values(
        self, source: ByteSource, path: str, region: tuple[slice, ...]
    ) -> np.ndarray[Any, Any]:
        """Return the undecoded values of a box, by zarr-python.

        Raises:
            ScanError: zarr-python cannot read them.
        """
        store = _as_store(source)
        try:
            values = open_array(store, path)[region]
        except Exception as error:
            raise ScanError(
                "zarr-python cannot read the variable",
                do="Leave it out.",
                file=source.file.url,
                variable=path,
                cause=f"{type(error).__name__}: {error}",
            ) from error
        return np.asarray(values)


def _spelled(
    arrays: Mapping[str, Described], within: Mapping[str, tuple[int, int]]
) -> Iterator[Spelled]:
    """Yield where chunks of arrays are, but for those whose documents `scan_array` refuses."""
    for path, node in arrays.items():
        low, high = within[path]
        with suppress(NoEquivalentError, KeyError, TypeError, ValueError, AttributeError):
            keys, ndim = keys_of(node)
            yield Spelled(folder=node.folder, low=low, high=high, keys=keys, ndim=ndim)


def _nodes_equal(metadata: Metadata, context: ScanContext) -> dict[str, Described]:
    """Return the nodes of a store, and note which arrays must be alike in all stores.

    Raises:
        ScanError: Nodes lie below an array, or there is no such group.
    """
    options, url = context.options, context.source.file.url
    nodes = nodes_of(metadata.documents, options.group, url)
    above = ((path, paths.parent(path)) for path in nodes)
    if below := [path for path, at in above if nodes[at].array is not None and options.selects(at)]:
        raise damaged(url, cause="nodes below an array", nodes=first_keys(below))
    context.equal = options.equal_in_files(
        (
            (path, names_of(node), node.attributes)
            for path, node in nodes.items()
            if node.array is not None
        ),
        ((path, node.attributes) for path, node in nodes.items() if node.array is None),
    )
    return nodes


def _weigh(path: str, node: Described, context: ScanContext) -> Weight:
    """Return what an array takes; the task that scans it says what is wrong with it."""
    try:
        given = describe_array(path, node, context)
    except IcevirtError:
        return Weight(path=path, cost=LEAST)
    is_stored = context.options.policy_of(path) in (Policy.native, Policy.inline)
    is_plain = not is_stored and not context.choose_facts(given.scanned)
    return weight_of(path, node, given.grid, is_plain=is_plain)


def nodes_of(documents: Mapping[str, Any], group: str, url: str) -> dict[str, Described]:
    """Return the nodes of a store; an array that is all of it gets a name.

    Args:
        documents: Of all nodes by their keys, as text or read.
        group: Of which the nodes are wanted.
        url: Of the store.

    Raises:
        ScanError: Nodes lie below an array, or there is no such group.
    """
    root = json_value(documents.get(V3, {}), url, V3)
    if V2[0] not in documents and root.get("node_type") != "array":
        return describe_nodes(documents, group, url)
    if below := [key for key in documents if "/" in key]:
        raise damaged(url, cause="nodes below an array", nodes=first_keys(below))
    named = {f"{ROOT_ARRAY[1:]}/{key}": document for key, document in documents.items()}
    nodes = describe_nodes(named, group, url)
    nodes[ROOT_ARRAY].folder = ""
    return nodes


def _as_store(source: ByteSource) -> StoreByteSource:
    if isinstance(source, StoreByteSource):
        return source
    if source.read(0, len(SIGNATURE)) in (SIGNATURE, EMPTY):
        return ZippedStore(source)
    raise ScanError(
        "this is not a Zarr store",
        do="Name the folder that holds its zarr.json or .zgroup.",
        file=source.file.url,
    )


def _tell_foreign(
    store: StoreByteSource,
    context: ScanContext,
    foreign: NDArray[np.bool_],
    owned: NDArray[np.bool_],
) -> None:
    """Name objects that are neither chunks nor metadata.

    Raises:
        ScanError: Chunks have no array: its metadata was deleted.
    """
    group = paths.canonical(context.options.group).strip("/")
    keys = store.objects.keys
    if group:
        foreign = foreign & keys.begin_with(f"{group}/".encode())
    lost = np.flatnonzero(foreign & ~owned)[:_LOOKED_AT]
    orphans = [key for key in keys[lost] if _CHUNK.search(key)]
    wanted = replace(context.options, share=None)
    dropped = {key: _dropped_by(key, group, wanted) for key in orphans}
    context.left_out += sorted({path for path in dropped.values() if path})
    orphans = [key for key, path in dropped.items() if not path]
    if orphans:
        raise damaged(
            store.file.url,
            cause="chunks without the metadata of their array: the store is partly deleted",
            objects=first_keys(orphans),
        )
    count = int(foreign.sum())
    if count:
        some = first_keys(keys[np.flatnonzero(foreign)[:_LOOKED_AT]])
        more = f" and {count - len(some):,} more" if count > len(some) else ""
        context.warn(
            paths.ROOT,
            "foreign-objects",
            f"objects that are neither chunks nor metadata are left out: {', '.join(some)}{more}",
        )


def _dropped_by(key: str, group: str, options: ScannerOptions) -> str:
    """Return the path above an object that is left out, "" for none."""
    path = f"/{key.removeprefix(group).strip('/')}"
    while path != paths.ROOT and options.wants(path):
        path = paths.parent(path)
    return "" if path == paths.ROOT else path
