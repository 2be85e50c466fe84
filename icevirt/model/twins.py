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
from icevirt.model.attributes import TWIN_MARKS, TWIN_OF
from icevirt.model.snapshot import ArrayNode, document_of

_DECODED_BY = ("shape", "data_type", "fill_value", "chunk_grid", "codecs")
_ELEMENTS = ("shape", "data_type")  # alike where an index means the same in both

type History = Iterable[Mapping[str, Any]]
"""Metadata of snapshots, the newest first."""


def find_variable(node: ArrayNode) -> str | None:
    """Return the path of the variable that an array says to copy; None where it says nothing."""
    if TWIN_OF.encode() not in node.user_data:
        return None
    name = (document_of(node).get("attributes") or {}).get(TWIN_OF)
    if not isinstance(name, str) or not name or "/" in name:
        return None
    return f"{paths.parent(node.path).rstrip('/')}/{name}"  # of a node, if there is such a node


def find_twins(arrays: Iterable[ArrayNode], history: Callable[[], History]) -> dict[str, ArrayNode]:
    """Return the twins among arrays, by the path of the variable, where that is among them.

    An attribute alone makes no twin: it travels with copies, and files have it then. A commit
    marked a twin once.
    """
    known = {node.path: node for node in arrays}
    said = ((find_variable(node), node) for node in known.values())
    return {
        path: node
        for path, node in said
        if path in known and path != node.path and _find_mark(node.path, history()) is not None
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
        is_like = all(one.get(name) == other.get(name) for name in _ELEMENTS)
        return is_like and mark is not None and mark == digest_of_twin(variable, twin)
    except FormatError:
        return False


def _find_mark(path: str, history: History) -> str | None:
    """Return the newest mark of a twin."""
    found = (marks_in(metadata).get(path) for metadata in history)
    return next((each for each in found if each is not None), None)


def digest_of_twin(variable: ArrayNode, twin: ArrayNode) -> str:
    """Return a digest of what a variable and its twin say of their chunks."""
    digest = hashlib.blake2b(digest_size=16)
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
