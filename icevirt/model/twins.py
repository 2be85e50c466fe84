"""Recognize twins, and whether they are in step with the variables that they copy.

Others may change either array. A commit that leaves both with the same values marks them: a digest
of what both nodes say of their chunks. Readers compare it, and read no twin that was left behind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from icevirt.errors import FormatError
from icevirt.model import paths
from icevirt.model.attributes import COARSENED_FROM, EXTENSION, TWIN_MARKS, TWIN_OF
from icevirt.model.snapshot import ArrayNode, document_of

_DECODED_BY = ("shape", "data_type", "fill_value", "chunk_grid", "codecs")
_ELEMENTS = ("shape", "data_type")  # alike where an index means the same in both

type History = Iterable[Mapping[str, Any]]
"""Metadata of snapshots, the newest first."""


def path_of_twin(path: str) -> str:
    """Return where the twin of a variable lies."""
    return f"{path}_twin"


def find_variable(node: ArrayNode) -> str | None:
    """Return the path of the variable that an array says to copy; None where it says nothing."""
    if TWIN_OF.encode() in node.user_data:
        name = (document_of(node).get("attributes") or {}).get(TWIN_OF)
        if isinstance(name, str) and name and "/" not in name:
            return _join(paths.parent(node.path), name)  # of a node, if there is such a node
    return find_finer(node)


def find_finer(node: ArrayNode) -> str | None:
    """Return the path of the variable whose coarser copy an array says to be."""
    if COARSENED_FROM.encode() not in node.user_data:
        return None
    said = (document_of(node).get("attributes") or {}).get(COARSENED_FROM)
    if not isinstance(said, str) or not said.startswith("../"):
        return None
    up, _, name = said.rpartition("../")
    above = [*paths.ancestors(node.path)]
    steps = up.count("../") + 1
    is_known = name and "/" not in name and not up.replace("../", "") and steps < len(above)
    return _join(above[-1 - steps], name) if is_known else None


def _join(group: str, name: str) -> str:
    """Return a path that anybody may have written, whether or not a node can have it."""
    return f"{group.rstrip('/')}/{name}"


def find_copies(
    arrays: Iterable[ArrayNode], history: Callable[[], History]
) -> dict[str, tuple[ArrayNode, ArrayNode]]:
    """Return twins and coarser copies among arrays, by path, with their variables among them.

    An attribute alone makes no copy: it travels with copies, and files have it then. A commit
    marked a copy once.
    """
    known = {node.path: node for node in arrays}
    said = ((find_variable(node), node) for node in known.values())
    return {
        node.path: (node, known[path])
        for path, node in said
        if path in known and path != node.path and was_marked(node, history())
    }


def find_twins(arrays: Iterable[ArrayNode], history: Callable[[], History]) -> dict[str, ArrayNode]:
    """Return the twins among arrays, by the path of the variable, where that is among them."""
    return {
        variable.path: node
        for node, variable in find_copies(arrays, history).values()
        if find_finer(node) is None
    }


def is_in_step(twin: ArrayNode, variable: ArrayNode, history: History) -> bool:
    """Say whether a twin has the values of its variable.

    Args:
        twin: As it is.
        variable: As it is.
        history: Metadata of the snapshots, the newest first.
    """
    mark = _find_mark(twin.path, history)
    try:
        one, other = document_of(twin), document_of(variable)
        is_like = find_finer(twin) or all(one.get(name) == other.get(name) for name in _ELEMENTS)
        return bool(is_like) and mark is not None and mark == digest_of_twin(variable, twin)
    except FormatError:
        return False


def was_marked(node: ArrayNode, history: History) -> bool:
    """Say whether a commit marked a copy that lies there: an attribute alone makes none."""
    return _find_mark(node.path, history) is not None


def _find_mark(path: str, history: History) -> str | None:
    """Return the newest mark of a twin."""
    found = (marks_in(metadata).get(path) for metadata in history)
    return next((each for each in found if each is not None), None)


def digest_of_twin(variable: ArrayNode, twin: ArrayNode) -> str:
    """Return a digest of what a variable and its twin say of their chunks.

    A coarser copy holds decoded values, and repeats what the variable says of them: so attributes
    count there.
    """
    digest = hashlib.blake2b(digest_size=16)
    if find_finer(twin) is not None:
        document = document_of(variable)
        said = {name: document.get(name) or {} for name in ("attributes", EXTENSION)}
        digest.update(json.dumps(said, sort_keys=True).encode())
    for node in (variable, twin):
        document = document_of(node)
        said = {name: document.get(name) for name in _DECODED_BY}
        digest.update(bytes(node.id) + json.dumps(said, sort_keys=True).encode())
        for ref in node.manifests:
            digest.update(bytes(ref.object_id) + repr(tuple(ref.extents)).encode())
    return digest.hexdigest()


def marks_in(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the marks in the metadata of a snapshot, which anybody may have written."""
    found = metadata.get(TWIN_MARKS)
    return found if isinstance(found, Mapping) else {}
