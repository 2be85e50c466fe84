"""Scan a version of a repository of Icechunk: its references are taken over, with their checksums.

Nothing in the repository decides where is read: references may lead below its own folder and to
where the options allow.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import IcevirtError, ScanError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.scan.contract import ByteSource, Policy, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt.scan.repositories import MAGIC, SourceRepository
from icevirt_scanners.context import ScanContext
from icevirt_scanners.given import tell_unverifiable, with_facts
from icevirt_scanners.kerchunk.scanner import Described, names_of
from icevirt_scanners.zarr.arrays import describe_array, refuse_lengths
from icevirt_scanners.zarr.copies import copy_chunks
from icevirt_scanners.zarr.scanner import nodes_of


class IcechunkScanner:
    """Describes repositories of version 2 of the format."""

    name = "icechunk"
    version = "1"

    def accepts(self, head: bytes) -> bool:
        """Look for the first bytes of the format's files."""
        return head.startswith(MAGIC)

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the version that the options name.

        Raises:
            ScanError: It is damaged, or a file that values are read of changed.
            UnsupportedError: It refers to where it may not, or holds an array that Icechunk's
                readers cannot read.
        """
        url = source.file.url
        if url.rpartition("/")[2] != "repo":
            raise ScanError(
                "this is a file inside of a repository",
                do="Name the folder of the repository.",
                file=url,
            )
        context = ScanContext.of(source, options)
        with Elsewhere(source, options.allow_references_to, reads_servers=True) as elsewhere:
            repository = _open(source, options, elsewhere)
            nodes = nodes_of(repository.documents, options.group, url)
            arrays = {path: node for path, node in nodes.items() if node.array is not None}
            groups = {path: node for path, node in nodes.items() if node.array is None}
            context.equal = options.equal_in_files(
                ((path, names_of(node), node.attributes) for path, node in arrays.items()),
                ((path, node.attributes) for path, node in groups.items()),
            )
            native: dict[str, int] = {}

            def make(path: str, node: Described) -> ScannedArray:
                at = f"/{node.folder}"
                array = _make_array(path, node, repository.references(at), repository, context)
                if array.references.count(ChunkType.virtual):
                    native[path] = repository.count_native(at)
                return array

            scanned = context.arrays(arrays.items(), make)
            tell_unverifiable(context)
        if any(native.values()):
            context.warn(
                paths.ROOT,
                "chunks-of-a-repository",
                f"{sum(native.values()):,} chunks are objects of the repository {_folder(url)}: "
                "what its garbage collection deletes cannot be read here any more",
            )
        found = (
            ScannedGroup(path=path, attributes=Attributes.of(node.attributes))
            for path, node in groups.items()
        )
        return context.describe(self, tuple(found), scanned)


def _open(source: ByteSource, options: ScannerOptions, elsewhere: Elsewhere) -> SourceRepository:
    try:
        return SourceRepository(source, options.source_version, elsewhere)
    except IcevirtError as error:
        raise ScanError(
            f"a repository cannot be opened: {error.what}",
            do=error.do,
            file=source.file.url,
            version=options.source_version,
        ) from error


def _make_array(
    path: str,
    node: Described,
    table: ChunkTable,
    repository: SourceRepository,
    context: ScanContext,
) -> ScannedArray:
    given = describe_array(path, node, context)
    refuse_lengths(given, table.length.astype(np.int64), path, context)
    # of an array that was made smaller, chunks may be left behind its end, which no reader sees
    inside = (table.index < np.array(given.grid, np.int64)).all(axis=1)
    if not inside.all():
        table = table.take(inside)
    if (nbytes := int(table.length[table.kind == ChunkType.inline].sum())) > 0:
        context.budget.spend(nbytes, variable=path, cause="stored inline in the repository")
    places = table.locations
    unknown = (places.etag.lengths == 0) & (places.last_modified == 0)
    if unknown.any():
        context.unverifiable |= {*places.url[np.flatnonzero(unknown)]}
    array = replace(given.scanned, references=table)
    reading = repository.reader(table)
    if context.options.policy_of(path) in (Policy.native, Policy.inline):
        return copy_chunks(array, given.dtype, reading, context)
    return with_facts(array, given.dtype, context, reading)


def _folder(url: str) -> str:
    return json.dumps(url.rpartition("/")[0])
