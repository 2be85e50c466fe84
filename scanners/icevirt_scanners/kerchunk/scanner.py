"""Scan kerchunk's references: files that say where the chunks of other files lie.

References are taken as they are, checked against the files' lengths, and bound to the files'
modification times, which kerchunk itself does not record. Nothing in the file is executed:
templates that are programs and pickled filters are refused. The scanned file of a Parquet directory
is its ``.zmetadata``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import FILL, Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.model.paths import dimension_name, node_name
from icevirt.model.zarr_v2 import NoEquivalentError, decoding_of, document_v2
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext, no_such_group
from icevirt_scanners.encoding import with_fit_fill
from icevirt_scanners.given import (
    GivenArray,
    ReferenceColumns,
    complete,
    damage_error,
    tell_unverifiable,
)
from icevirt_scanners.kerchunk.document import (
    json_value,
    of_json,
    of_parquet,
    parse,
    record_size,
    references_of,
)

V2 = (".zgroup", ".zarray", ".zattrs")
V3 = "zarr.json"


_DIMENSIONS = "_ARRAY_DIMENSIONS"  # xarray's attribute in v2
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


@dataclass(slots=True)
class Described:
    """A node by its documents."""

    folder: str = ""  # its keys begin with this and a slash; "" for the root
    array: dict[str, Any] | None = None  # .zarray, or zarr.json of an array
    attributes: dict[str, Any] = field(default_factory=dict)
    v3: bool = False
    chunks: dict[str, Any] = field(default_factory=dict)  # references by chunk key


def is_metadata(key: str) -> bool:
    """Say whether a key holds metadata."""
    return key.rpartition("/")[2] in {*V2, V3}


def describe_nodes(references: Mapping[str, Any], group: str, url: str) -> dict[str, Described]:
    """Return the nodes by path, each group after its parent, with the references of arrays.

    Raises:
        ScanError: The metadata is damaged, or there is no such group.
        UnsupportedError: Names of two nodes become one in Zarr.
    """
    metadata: dict[str, Any] = {}
    if ".zmetadata" in references:
        held = json_value(references[".zmetadata"], url, ".zmetadata").get("metadata")
        if not isinstance(held, dict):
            raise damage_error(url, key=".zmetadata", cause="no 'metadata'")
        metadata.update(held)
    metadata.update({key: value for key, value in references.items() if is_metadata(key)})
    nodes: dict[str, Described] = {paths.ROOT: Described()}
    for key, value in metadata.items():
        folder, _, name = key.rpartition("/")
        node = nodes[paths.ROOT] if key == name else _node(nodes, folder, url)
        _add(node, name, json_value(value, url, key))
    _give_chunks(nodes, references, url)
    return _below(nodes, paths.canonical(group), url)


def _node(nodes: dict[str, Described], folder: str, url: str) -> Described:
    """Return the node of a folder; it and those above it are added where they are missing."""
    path, spelt = "", ""
    for part in folder.split("/"):
        if part in ("", ".", ".."):
            raise damage_error(url, cause="a part of the key is empty, '.' or '..'", key=folder)
        path, spelt = f"{path}/{node_name(part.encode())[0]}", f"{spelt}/{part}".lstrip("/")
        node = nodes.setdefault(path, Described(folder=spelt))
        if node.folder != spelt:
            raise UnsupportedError(
                "several nodes would have the same name in Zarr",
                do="Create the references again with other names.",
                file=url,
                path=path,
                keys=[node.folder, spelt],
            )
    return node


def _add(node: Described, name: str, document: dict[str, Any]) -> None:
    match name:
        case ".zarray":
            node.array = document
        case ".zattrs":
            node.attributes = document
        case "zarr.json":
            node.v3 = True
            node.attributes = document.get("attributes") or {}
            if document.get("node_type") == "array":
                node.array = document
        case _:  # .zgroup says only that there is a group
            pass


def _give_chunks(nodes: dict[str, Described], references: Mapping[str, Any], url: str) -> None:
    arrays = {node.folder: node for node in nodes.values() if node.array is not None}
    owners: dict[str, Described | None] = {}
    for key, value in references.items():
        if key == ".zmetadata" or is_metadata(key):
            continue
        folder = key.rpartition("/")[0]
        if folder not in owners:
            above = folder  # the array at or above it
            while above and above not in arrays:
                above = above.rpartition("/")[0]
            owners[folder] = arrays.get(above)
        owner = owners[folder]
        if owner is None:
            raise damage_error(url, key=key, cause="neither metadata nor a chunk of an array")
        owner.chunks[key.removeprefix(f"{owner.folder}/")] = value


def _below(nodes: dict[str, Described], group: str, url: str) -> dict[str, Described]:
    if group not in nodes or nodes[group].array is not None:
        there = sorted(path for path, node in nodes.items() if node.array is None)
        raise no_such_group(url, group, there)
    if group == paths.ROOT:
        return nodes
    return {
        path.removeprefix(group) or paths.ROOT: node
        for path, node in nodes.items()
        if path == group or path.startswith(group + "/")
    }


def array_of(path: str, node: Described, context: ScanContext) -> GivenArray:
    """Read the metadata of an array.

    Raises:
        ScanError: It is damaged.
        UnsupportedError: zarr v3 has no words for it.
    """
    url = context.source.file.url
    if packing := sorted({"scale_factor", "add_offset"} & set(node.attributes)):
        context.warn(
            path,
            "attribute-types-lost",
            f"references lack the types of {' and '.join(packing)}; if the file has float32, "
            "decoded values are float64 and differ after the seventh digit",
        )
    try:
        return _of_v3(path, node.array or {}, node) if node.v3 else array_v2(path, node, context)
    except NoEquivalentError as error:
        raise UnsupportedError(
            f"an array that zarr cannot read: {error}",
            do="Leave it out with drop_variables.",
            file=url,
            variable=path,
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise damage_error(url, variable=path, cause=f"metadata: {cause}") from error


def array_v2(path: str, node: Described, context: ScanContext) -> GivenArray:
    """Return the array that a .zarray and its attributes describe.

    Raises:
        NoEquivalentError: Zarr v3 cannot say it.
        KeyError, TypeError, ValueError: It is no such document.
    """
    document = node.array or {}
    if document.get("zarr_format", 2) != 2:
        raise NoEquivalentError(f"zarr_format {document['zarr_format']!r}")
    decoding = decoding_of(document)
    attributes = {k: v for k, v in node.attributes.items() if k != _DIMENSIONS}
    if decoding.has_fill and decoding.dtype.kind in "iuf":
        # readers of v2 take the fill value of an array for its missing value
        attributes[FILL] = decoding.fill_value
    fill = attributes.get(FILL)
    if decoding.dtype.kind in "iuf" and isinstance(fill, int | float | str):
        attributes[FILL] = _number(fill, decoding.dtype)
    shape = _lengths(document["shape"])
    return GivenArray(
        scanned=ScannedArray(
            path=path,
            dimension_names=_dimensions_named(node.attributes.get(_DIMENSIONS), shape),
            shape=shape,
            chunk_shape=_edges(document["chunks"], shape),
            data_type=decoding.data_type,
            codecs=decoding.codecs,
            fill_value=decoding.fill_value,
            attributes=with_fit_fill(attributes, decoding.dtype, partial(context.warn, path)),
            references=ChunkTable.empty(len(shape)),
        ),
        dtype=decoding.dtype,
    )


def _of_v3(path: str, document: dict[str, Any], node: Described) -> GivenArray:
    if document["chunk_grid"]["name"] != "regular":
        raise NoEquivalentError(f"the chunk grid {document['chunk_grid']['name']!r}")
    dtype = decoding_of(document_v2(document, None)).dtype
    return regular_array(path, document, dtype, node.attributes)


def regular_array(
    path: str, document: Mapping[str, Any], dtype: np.dtype[Any], attributes: Mapping[str, Any]
) -> GivenArray:
    """Return the array that a zarr.json with a regular chunk grid describes.

    Raises:
        ValueError: Lengths, chunks and dimensions do not fit together.
    """
    shape = _lengths(document["shape"])
    return GivenArray(
        scanned=ScannedArray(
            path=path,
            dimension_names=_dimensions_named(document.get("dimension_names"), shape),
            shape=shape,
            chunk_shape=_edges(document["chunk_grid"]["configuration"]["chunk_shape"], shape),
            data_type=document["data_type"],
            codecs=tuple(document["codecs"]),
            fill_value=document["fill_value"],
            attributes=Attributes.of(attributes),
            references=ChunkTable.empty(len(shape)),
        ),
        dtype=dtype,
    )


def _lengths(given: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(length, int) and 0 <= length < 1 << 62 for length in given):
        raise ValueError(f"lengths {list(given)}")
    return tuple(given)


def _dimensions_named(given: Any, shape: Sequence[int]) -> tuple[str | None, ...]:
    names = [None] * len(shape) if given is None else list(given)
    if len(names) != len(shape):
        raise ValueError(f"{len(names)} dimension names, {len(shape)} dimensions")
    return tuple(dimension_name(name) for name in names)


def _edges(given: Sequence[Any], shape: Sequence[int]) -> tuple[int, ...]:
    edges = tuple(max(edge, 1) for edge in _lengths(given))
    if len(edges) != len(shape):
        raise ValueError(f"chunks {list(given)} of shape {list(shape)}")
    return edges


def _number(value: JSON, dtype: np.dtype[Any]) -> Any:
    """Give a number the dtype of its variable, where that is exactly possible."""
    try:
        number = np.float64(_WORDS[value]) if isinstance(value, str) else np.asarray(value)[()]
    except KeyError:
        return value
    with np.errstate(all="ignore"):
        cast = number.astype(dtype)
    same = cast == number or (cast != cast and number != number)  # noqa: PLR0124 - both NaN
    # a double that is no value of a float32 variable is one that was printed with fewer digits
    return cast if same or (dtype.kind == "f" and number.dtype.kind == "f") else number


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
            nodes, read = _open(source, options, context, elsewhere)
            tell_renamed(nodes, options.group, context)
            groups = tuple(
                ScannedGroup(path=path, attributes=Attributes.of(node.attributes))
                for path, node in nodes.items()
                if node.array is None
            )
            context.equal = options.equal_in_files(
                (
                    (path, names_of(node), node.attributes)
                    for path, node in nodes.items()
                    if node.array is not None
                ),
                ((path, node.attributes) for path, node in nodes.items() if node.array is None),
            )

            def make(path: str, node: Described) -> ScannedArray:
                array = array_of(path, node, context)
                return complete(array, read(path, node, array), context, elsewhere)

            scanned = ((path, node) for path, node in nodes.items() if node.array is not None)
            arrays = context.arrays(scanned, make)
            tell_unverifiable(context)
        return context.describe(self, groups, arrays)


def names_of(node: Described) -> tuple[str, ...]:
    """Return the dimensions that a document names, without anything that is no name."""
    held = (node.array or {}).get("dimension_names") or node.attributes.get("_ARRAY_DIMENSIONS")
    return tuple(name for name in held if isinstance(name, str)) if isinstance(held, list) else ()


def _open(
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

        return describe_nodes(held["metadata"], options.group, url), read

    def read_json(path: str, node: Described, array: GivenArray) -> ReferenceColumns:
        return of_json(node.chunks, len(array.grid), url, path)

    return describe_nodes(references_of(held, url), options.group, url), read_json


def tell_renamed(nodes: dict[str, Described], group: str, context: ScanContext) -> None:
    """Name the nodes whose keys are no valid paths in Zarr v3."""
    for path, node in nodes.items():
        if f"{group.rstrip('/')}{path}".strip("/") != node.folder:
            message = f"the key {node.folder!r} is not a valid node path in Zarr"
            context.tell(path, "renamed", message)
