"""Build the groups and arrays that zarr metadata keys describe, below the requested group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.names import node_name
from icevirt_scanners.given import damaged
from icevirt_scanners.kerchunk.document import json_value

V2 = (".zgroup", ".zarray", ".zattrs")
V3 = "zarr.json"


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


def described(references: Mapping[str, Any], group: str, url: str) -> dict[str, Described]:
    """Return the nodes by path, each group after its parent, with the references of arrays.

    Raises:
        ScanError: The metadata is damaged, or there is no such group.
        UnsupportedError: Names of two nodes become one in Zarr.
    """
    metadata = _consolidated(references, url)
    metadata.update({key: value for key, value in references.items() if is_metadata(key)})
    nodes: dict[str, Described] = {paths.ROOT: Described()}
    for key, value in metadata.items():
        folder, _, name = key.rpartition("/")
        node = nodes[paths.ROOT] if key == name else _node(nodes, folder, url)
        _add(node, name, json_value(value, url, key))
    _give_chunks(nodes, references, url)
    return _below(nodes, paths.canonical(group), url)


def _consolidated(references: Mapping[str, Any], url: str) -> dict[str, Any]:
    if ".zmetadata" not in references:
        return {}
    held = json_value(references[".zmetadata"], url, ".zmetadata").get("metadata")
    if not isinstance(held, dict):
        raise damaged(url, key=".zmetadata", cause="no 'metadata'")
    return dict(held)


def _node(nodes: dict[str, Described], folder: str, url: str) -> Described:
    """Return the node of a folder; it and those above it are added where they are missing."""
    path, spelt = "", ""
    for part in folder.split("/"):
        if part in ("", ".", ".."):
            raise damaged(url, cause="a part of the key is empty, '.' or '..'", key=folder)
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
            node.attributes = dict(document.get("attributes") or {})
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
            owners[folder] = _owner(folder, arrays)
        owner = owners[folder]
        if owner is None:
            raise damaged(url, key=key, cause="neither metadata nor a chunk of an array")
        owner.chunks[key.removeprefix(f"{owner.folder}/")] = value


def _owner(folder: str, arrays: Mapping[str, Described]) -> Described | None:
    """Return the array at or above a folder."""
    while folder not in arrays:
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
    return arrays[folder]


def _below(nodes: dict[str, Described], group: str, url: str) -> dict[str, Described]:
    if group not in nodes or nodes[group].array is not None:
        there = sorted(path for path, node in nodes.items() if node.array is None)
        raise ScanError("the file has no such group", file=url, group=group, there=there)
    if group == paths.ROOT:
        return nodes
    return {
        path.removeprefix(group) or paths.ROOT: node
        for path, node in nodes.items()
        if path == group or path.startswith(group + "/")
    }
