"""Define the user's choices for combining files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from icevirt.archive.eras import EraRule
from icevirt.errors import InvalidInputError
from icevirt.planning.axes.duplicates import Duplicates
from icevirt.planning.axes.gaps import Holes
from icevirt.planning.axes.new_dimensions import Labels
from icevirt.planning.combine.combine_attrs import CombineAttrs
from icevirt.planning.combine.data_vars import DataVars, DimensionRules, Kept
from icevirt.planning.combine.deviation_rules import Rules
from icevirt.planning.edits.label_edits import LabelEdits
from icevirt.planning.schedule.windows import MAX_REFERENCES

type Combine = Literal["by_coords", "nested"]


def check_combine(rule: str) -> None:
    """Raise ``InvalidInputError`` unless ``rule`` is one of ours."""
    known = get_args(Combine.__value__)
    if rule not in known:
        raise InvalidInputError(
            "unknown value for combine", do=f"Use one of {', '.join(known)}.", combine=rule
        )


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
    label_edits: LabelEdits | None = None  # attributes of these
    combine: Combine = "by_coords"
    nest: Mapping[str, tuple[int, ...]] | None = None  # URL -> place along each of concat_dim
    regular: Mapping[str, str | float] = field(default_factory=dict)  # dimension -> spacing
    data_vars: DataVars = field(default_factory=dict)  # which get a dimension that they lack
    kept: Kept = field(default_factory=Kept)
    pad: tuple[str, ...] = ()  # dimensions whose lengths may differ
    rules: Rules = field(default_factory=Rules)
    tolerance: Mapping[str, float] = field(default_factory=dict)  # of what must be alike, by name
    max_references: int = MAX_REFERENCES  # of one manifest

    @property
    def dimension_rules(self) -> DimensionRules:
        """What decides which variables get a dimension that they do not have."""
        return DimensionRules(dimensions=self.concat_dim, asked=self.data_vars, kept=self.kept)

    def __post_init__(self) -> None:
        """Refuse options of which one makes another void.

        Raises:
            InvalidInputError: Files are to lie where they stand, and to be placed by coordinates.
        """
        void = {"duplicates": self.duplicates != "refuse", "regular": bool(self.regular)}
        if self.combine == "nested" and any(void.values()):
            names = " and ".join(name for name, is_set in void.items() if is_set)
            raise InvalidInputError(
                f'{names} cannot be used with combine="nested", which ignores coordinates',
                do=f'Leave {names} out, or place files with combine="by_coords".',
            )
