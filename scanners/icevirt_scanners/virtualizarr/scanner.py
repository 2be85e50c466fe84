"""Scan a file with a VirtualiZarr parser: ``virtualizarr:FITSParser``.

It is never chosen by content, only by name. References are checked against grids and lengths of
files and get checksums. The parser alone answers for what they decode to, and the scan says so. For
HDF5 and NetCDF, icevirt's own scanners decode more files, and know which they cannot decode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from icevirt.archive.scanned import ScannedArray, ScannedFile, ScannedGroup
from icevirt.errors import InvalidInputError, ScanError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.paths import node_name
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere, Targets
from icevirt_scanners.context import ScanContext
from icevirt_scanners.given import completed, tell_unverifiable
from icevirt_scanners.kerchunk.columns import table_of
from icevirt_scanners.sizes import encoded_size
from icevirt_scanners.virtualizarr.arrays import found_array
from icevirt_scanners.virtualizarr.parser import Parser, installed_version, parsed, parser_of


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
            targets: list[Targets] = []
            nodes = list(_below(paths.ROOT, root, context))
            context.equal = options.equal_in_files(
                (
                    (path, node.metadata.dimension_names or (), node.metadata.attributes)
                    for path, node in nodes
                    if not _is_group(node)
                ),
                ((path, node.metadata.attributes) for path, node in nodes if _is_group(node)),
            )
            made = (
                context.represented(path, partial(_array, path, node, context, elsewhere, targets))
                for path, node in nodes
                if not _is_group(node) and context.wants(path)
            )
            arrays = tuple(array for array in made if array is not None)
            tell_unverifiable(iter(targets), context)
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


def _array(
    path: str, node: Any, context: ScanContext, elsewhere: Elsewhere, targets: list[Targets]
) -> ScannedArray:
    url = context.source.file.url
    found = found_array(path, node, url)
    fixed = None if found.dtype.hasobject else found.dtype.itemsize
    table, led_to = table_of(
        found.columns,
        found.grid,
        elsewhere.targets,
        url,
        path,
        nbytes=None if fixed is None else encoded_size(found.scanned, fixed),
    )
    targets.append(led_to)
    return completed(replace(found.scanned, references=table), found.dtype, context, elsewhere)
