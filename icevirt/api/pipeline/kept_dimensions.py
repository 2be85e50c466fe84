"""Read which variables have which dimensions in the build that a new build replaces."""

from __future__ import annotations

import re

from icevirt.api.pipeline.provenance import provenance_of
from icevirt.api.pipeline.target import Target
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode
from icevirt.planning.combine.data_vars import Kept, data_vars_of
from icevirt.repo.assets import Assets

_ERA = re.compile(r"^/era_[0-9]+(?=/)")


def kept_of(target: Target) -> Kept:
    """Return what the last build of the group says of dimensions, nothing where it stays.

    Builds of earlier versions gave variables a new dimension where their values differed; what
    these have, they keep too.
    """
    last = None if target.mode != "w" else target.last_build()
    if last is None:
        return Kept()
    told = provenance_of(last) or {}
    asked = told.get("combine", {}).get("data_vars")
    dimensions = {}
    for node in Assets(target.storage).snapshot(last.id).below(target.group):
        if isinstance(node, ArrayNode):
            path = "/" + node.path.removeprefix(target.group).lstrip("/")
            inner = _ERA.sub("", path, count=1) if told.get("eras", 1) != 1 else path
            names = document_of(node).get("dimension_names") or ()
            dimensions[inner] = tuple(name for name in names if name is not None)
    return Kept(dimensions=dimensions, data_vars=data_vars_of(asked))
