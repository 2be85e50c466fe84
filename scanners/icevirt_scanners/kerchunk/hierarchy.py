"""The groups and arrays that zarr's metadata keys describe, below the group asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from icevirt.errors import InvalidInputError, ScanError
from icevirt.model import paths
from icevirt_scanners.kerchunk.document import damaged, json_value

V2 = (".zgroup", ".zarray", ".zattrs")
V3 = "zarr.json"


@dataclass(slots=True)
class Described:
    """A node by its documents."""

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
    """
    metadata = _consolidated(references, url)
    metadata.update({key: value for key, value in references.items() if is_metadata(key)})
    nodes: dict[str, Described] = {paths.ROOT: Described()}
    for key, value in metadata.items():
        folder, _, name = key.rpartition("/")
        path = _path(folder, url)
        for parent in paths.ancestors(path):
            nodes.setdefault(parent, Described())
        _add(nodes.setdefault(path, Described()), name, json_value(value, url, key))
    _give_chunks(nodes, references, url)
    return _below(nodes, paths.canonical(group), url)


def _consolidated(references: Mapping[str, Any], url: str) -> dict[str, Any]:
    if ".zmetadata" not in references:
        return {}
    held = json_value(references[".zmetadata"], url, ".zmetadata").get("metadata")
    if not isinstance(held, dict):
        raise damaged(url, key=".zmetadata", cause="no 'metadata'")
    return dict(held)


def _path(folder: str, url: str) -> str:
    try:
        return paths.canonical("/" + folder)
    except InvalidInputError as error:
        raise damaged(url, cause=str(error), key=folder) from error


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
    arrays = {path: node for path, node in nodes.items() if node.array is not None}
    owners: dict[str, tuple[Described, int] | None] = {}
    for key, value in references.items():
        if key == ".zmetadata" or is_metadata(key):
            continue
        folder = key.rpartition("/")[0]
        if folder not in owners:
            owners[folder] = _owner("/" + folder, arrays)
        owner = owners[folder]
        if owner is None:
            raise damaged(url, key=key, cause="neither metadata nor a chunk of an array")
        owner[0].chunks[key[owner[1] :]] = value


def _owner(folder: str, arrays: Mapping[str, Described]) -> tuple[Described, int] | None:
    """Return the array at or above a folder, and the length of its prefix in keys."""
    while folder not in arrays:
        if folder in {"", paths.ROOT}:
            return None
        folder = folder.rpartition("/")[0] or paths.ROOT
    return arrays[folder], len(folder) if folder != paths.ROOT else 0


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
