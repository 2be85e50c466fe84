"""Scan kerchunk's references: files that say where the chunks of other files lie.

References are taken as they are, checked against the files' lengths, and bound to the files'
modification times, which kerchunk itself does not record. Nothing in the file is executed:
templates that are programs and pickled filters are refused. The scanned file of a Parquet directory
is its ``.zmetadata``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from icevirt.archive.scanned import ScannedArray, ScannedFile, ScannedGroup
from icevirt.model.attributes import Attributes
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext
from icevirt_scanners.given import GivenArray, ReferenceColumns, completed, tell_unverifiable
from icevirt_scanners.kerchunk.document import (
    of_json,
    of_parquet,
    parse,
    record_size,
    references_of,
)
from icevirt_scanners.kerchunk.hierarchy import Described, array_of, described

# keys that references begin with; one of them stands in the first kilobytes
_KEYS = (".zgroup", ".zattrs", ".zarray", ".zmetadata", "zarr.json", "refs", "templates")
_SIGNS = (*(f'{mark}{key}"'.encode() for key in _KEYS for mark in '"/'), b'"record_size"')

type _Read = Callable[[str, Described, GivenArray], ReferenceColumns]


class KerchunkScanner:
    """Describes kerchunk's references, JSON and parquet."""

    name = "kerchunk"
    version = "3"

    def accepts(self, head: bytes) -> bool:
        """Look for a JSON object with zarr's metadata keys, or kerchunk's own."""
        return head.lstrip()[:1] == b"{" and any(sign in head for sign in _SIGNS)

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: It is damaged, or a file that it refers to is missing or too short.
            UnsupportedError: It would have to be evaluated, refers to where it may not, or holds an
                array that zarr cannot read.
        """
        context = ScanContext.of(source, options)
        with Elsewhere(source, options.allow_references_to) as elsewhere:
            nodes, read = _opened(source, options, context, elsewhere)
            _tell_renamed(nodes, options.group, context)
            groups = tuple(
                ScannedGroup(path=path, attributes=Attributes.of(node.attributes))
                for path, node in nodes.items()
                if node.array is None
            )
            context.equal = options.equal_in_files(
                (
                    (path, _names(node), node.attributes)
                    for path, node in nodes.items()
                    if node.array is not None
                ),
                ((path, node.attributes) for path, node in nodes.items() if node.array is None),
            )

            def make(path: str, node: Described) -> ScannedArray:
                array = array_of(path, node, context)
                return completed(array, read(path, node, array), context, elsewhere)

            scanned = ((path, node) for path, node in nodes.items() if node.array is not None)
            arrays = context.arrays(scanned, make)
            tell_unverifiable(context)
        return context.described(self, groups, arrays)


def _names(node: Described) -> tuple[str, ...]:
    """Return the dimensions that a document names, without anything that is no name."""
    held = (node.array or {}).get("dimension_names") or node.attributes.get("_ARRAY_DIMENSIONS")
    return tuple(name for name in held if isinstance(name, str)) if isinstance(held, list) else ()


def _opened(
    source: ByteSource, options: ScannerOptions, context: ScanContext, elsewhere: Elsewhere
) -> tuple[dict[str, Described], _Read]:
    """Return the nodes, and what reads the references of an array."""
    url = source.file.url
    held = parse(source.read(0, source.file.size), url)
    if isinstance(held, dict) and isinstance(held.get("metadata"), dict):
        size = record_size(held, url)

        def read(path: str, node: Described, array: GivenArray) -> ReferenceColumns:
            warn = partial(context.warn, path)
            return of_parquet(node.folder, array.grid, size, source.file, elsewhere, warn)

        return described(held["metadata"], options.group, url), read

    def read_json(path: str, node: Described, array: GivenArray) -> ReferenceColumns:
        return of_json(node.chunks, len(array.grid), url, path)

    return described(references_of(held, url), options.group, url), read_json


def _tell_renamed(nodes: dict[str, Described], group: str, context: ScanContext) -> None:
    for path, node in nodes.items():
        if f"{group.rstrip('/')}{path}".strip("/") != node.folder:
            message = f"the key {node.folder!r} is not a valid node path in Zarr"
            context.tell(path, "renamed", message)
