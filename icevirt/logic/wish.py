"""What a person asks a build to make of the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from icevirt.archive.eras import EraRule
from icevirt.logic.attributes import CombineAttrs
from icevirt.logic.duplicates import Duplicates
from icevirt.logic.holes import Holes
from icevirt.logic.new_dimensions import Labels
from icevirt.logic.windows import MAX_REFERENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user asked for."""

    build_id: str
    concat_dim: tuple[str, ...] = ()  # the first is the outermost
    group: str = "/"
    combine_attrs: CombineAttrs = "override"
    duplicates: Duplicates = "refuse"
    holes: Holes = "refuse"
    eras: EraRule = "refuse"
    labels: Mapping[str, Labels] = field(default_factory=dict)  # of new dimensions
    max_references: int = MAX_REFERENCES  # of one manifest
