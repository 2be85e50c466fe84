"""What a person asks a build to make of the files."""

from __future__ import annotations

from dataclasses import dataclass

from icevirt.logic.attributes import CombineAttrs
from icevirt.logic.duplicates import Duplicates
from icevirt.logic.holes import Holes
from icevirt.logic.stacking import Labels
from icevirt.logic.windows import MAX_REFERENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user asked for."""

    build_id: str
    concat_dim: str | None = None
    group: str = "/"
    combine_attrs: CombineAttrs = "override"
    duplicates: Duplicates = "refuse"
    holes: Holes = "refuse"
    labels: Labels | None = None  # of a new dimension
    max_references: int = MAX_REFERENCES  # of one manifest
