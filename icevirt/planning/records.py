"""Find what snapshots say of builds in their metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

METADATA = "icevirt_build"
"""Key of a snapshot's metadata under which a build says what it was made of."""

RELOCATED = "icevirt_relocated"
"""Key of a snapshot's metadata under which a relocation says what each dataset is made of now."""

BUILD_ID = re.compile("[0-9a-f]{20}")  # it becomes a path


def records_of(metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what metadata says of builds, unchecked: one of a build, several of a relocation."""
    moved = metadata.get(RELOCATED)
    builds = moved.get("builds") if isinstance(moved, dict) else None
    for each in (metadata.get(METADATA), *(builds if isinstance(builds, list) else ())):
        if isinstance(each, dict) and BUILD_ID.fullmatch(str(each.get("build_id"))):
            yield each
