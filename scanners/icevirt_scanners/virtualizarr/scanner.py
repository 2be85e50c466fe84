"""Scan a file with a VirtualiZarr parser: ``virtualizarr:FITSParser``.

It is never chosen by content, only by name. References are checked against grids and lengths of
files and get checksums. The parser alone answers for what they decode to, and the scan says so. For
HDF5 and NetCDF, icevirt's own scanners decode more files, and know which they cannot decode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray, ScannedFile, ScannedGroup
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.paths import node_name
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext
from icevirt_scanners.given import GivenArray, ReferenceColumns, completed, tell_unverifiable
from icevirt_scanners.kerchunk.hierarchy import regular_array
from icevirt_scanners.virtualizarr.parser import Parser, installed_version, parsed, parser_of
from icevirt_scanners.virtualizarr.vouching import vouched

_INLINE = "__inlined__"  # VirtualiZarr's word for a chunk whose bytes are in the manifest


class VirtualizarrScanner:
    """Describes files as a parser of VirtualiZarr does.

    Args:
        parser: The parser, or its name: one of VirtualiZarr's, or ``package.module.name``.

    Raises:
        InvalidInputError: There is no such parser.
        ScanError: VirtualiZarr is not installed.
    """

    name = "virtualizarr"

    def __init__(self, parser: Parser | str = "") -> None:
        self._parser = parser_of(parser) if isinstance(parser, str) and parser else parser
        self._label = parser if isinstance(parser, str) else type(parser).__name__
        self.version = f"3 (VirtualiZarr {installed_version()} {self._label})"

    def accepts(self, head: bytes) -> bool:  # noqa: ARG002
        """Say no: this scanner is only used where it is named."""
        return False

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The parser fails, or refers to bytes that are not there.
            UnsupportedError: It refers to where it may not.
        """
        context = ScanContext.of(source, options)
        context.tell(paths.ROOT, "by-virtualizarr", f"described by VirtualiZarr's {self._label}")
        with Elsewhere(source, options.allow_references_to) as elsewhere:
            root = self._root(source, elsewhere, options.group)
            nodes = list(_below(paths.ROOT, root, context))
            context.equal = options.equal_in_files(
                (
                    (path, node.metadata.dimension_names or (), node.metadata.attributes)
                    for path, node in nodes
                    if not _is_group(node)
                ),
                ((path, node.metadata.attributes) for path, node in nodes if _is_group(node)),
            )

            def make(path: str, node: Any) -> ScannedArray:
                array = _given_array(path, node, source.file.url)
                return completed(array, _columns_of(node.manifest), context, elsewhere)

            scanned = ((path, node) for path, node in nodes if not _is_group(node))
            arrays = vouched(context.arrays(scanned, make), context, elsewhere)
            tell_unverifiable(context)
        return context.described(
            self,
            tuple(
                ScannedGroup(path=path, attributes=Attributes.of(node.metadata.attributes))
                for path, node in nodes
                if _is_group(node)
            ),
            arrays,
        )

    def _root(self, source: ByteSource, elsewhere: Elsewhere, group: str) -> Any:
        url = source.file.url
        if isinstance(self._parser, str):
            raise InvalidInputError(
                "the name of the parser is missing",
                do="Name one: virtualizarr:HDFParser.",
                file=url,
            )
        node = parsed(self._parser, source, elsewhere)
        for name in paths.canonical(group).split("/")[1:]:
            if name and name not in node.groups:
                there = sorted(node.groups)
                raise ScanError("the file has no such group", file=url, group=group, there=there)
            node = node.groups[name] if name else node
        return node


def _is_group(node: Any) -> bool:
    return hasattr(node, "groups")


def _below(path: str, group: Any, context: ScanContext) -> Iterator[tuple[str, Any]]:
    """Yield a group, then what is in it, then what is below."""
    yield path, group
    for name, array in group.arrays.items():
        yield _inside(path, name, context), array
    for name, inner in group.groups.items():
        yield from _below(_inside(path, name, context), inner, context)


def _inside(path: str, name: object, context: ScanContext) -> str:
    own, escaped = node_name(str(name).encode("utf-8", "surrogatepass"))
    inside = paths.join(path, own)
    if escaped:
        context.tell(inside, "renamed", f"the name {name!r} is not a valid node name in Zarr")
    return inside


def _given_array(path: str, array: Any, file: str) -> GivenArray:
    """Describe a manifest array. Raises `UnsupportedError`."""
    document = _document(array.metadata)
    if document["chunk_grid"]["name"] != "regular":
        raise UnsupportedError(
            "an array with a chunk grid that is not regular",
            do="Leave it out with drop_variables.",
            file=file,
            variable=path,
        )
    dtype = array.dtype if array.dtype.kind != "T" else np.dtype(object)
    dtype = dtype.newbyteorder("=") if dtype.names is None else dtype
    return regular_array(path, document, dtype, array.metadata.attributes)


def _document(metadata: Any) -> dict[str, Any]:
    from zarr.core.buffer import default_buffer_prototype

    raw = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    document: dict[str, Any] = json.loads(raw)
    return document


def _columns_of(manifest: Any) -> ReferenceColumns:
    # what is public of a manifest is an object for each chunk
    located = manifest._paths  # noqa: SLF001
    linked = (located != "") & (located != _INLINE)
    index = np.argwhere(linked).reshape(int(linked.sum()), located.ndim)
    names, codes = np.unique(located[linked], return_inverse=True)
    inline = dict(manifest._inlined)  # noqa: SLF001
    return ReferenceColumns(
        index=index.astype(np.int64),
        name=codes.astype(np.int64).reshape(-1),
        names=tuple(str(name) for name in names),
        offset=manifest._offsets[linked].astype(np.int64).reshape(-1),  # noqa: SLF001
        length=manifest._lengths[linked].astype(np.int64).reshape(-1),  # noqa: SLF001
        inline_index=np.array(list(inline), np.int64).reshape(len(inline), located.ndim),
        inline=tuple(bytes(body) for body in inline.values()),
    )
