"""Configure how manifests are split and how their locations are compressed.

Names are icechunk's, so a configuration written for icechunk works here. Spec: `Repo.config`,
`manifest`. Keys without a name here stay in the document, see `Section.onto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any as Anything
from typing import Self

from icevirt.errors import InvalidInputError
from icevirt.model.config.conditions import ArrayCondition, not_understood
from icevirt.model.config.preload import ManifestPreloadConfig
from icevirt.model.config.sections import Section

_ANY_ARRAY, _ANY_DIMENSION = "any_array", "Any"
_MAX_CHUNKS = (1 << 32) - 1


_SETTING = "manifest.splitting"


@dataclass(frozen=True, slots=True)
class ManifestSplitCondition(ArrayCondition):
    """Which arrays a rule is about."""

    setting = _SETTING
    words = (_ANY_ARRAY,)

    @classmethod
    def AnyArray(cls) -> Self:  # noqa: N802 - icechunk's name
        """Match every array."""
        return cls(_ANY_ARRAY)


class ManifestSplitDimCondition:
    """Selects the axes that a number of chunks applies to."""

    @dataclass(frozen=True, slots=True)
    class Axis:
        """The axis of this number, from 0."""

        axis: int

    @dataclass(frozen=True, slots=True)
    class DimensionName:
        """Axes whose dimension name contains the expression."""

        regex: str

    @dataclass(frozen=True, slots=True)
    class Any:
        """Every axis."""


type DimCondition = (
    ManifestSplitDimCondition.Axis
    | ManifestSplitDimCondition.DimensionName
    | ManifestSplitDimCondition.Any
)
type SplitSizes = tuple[tuple[ManifestSplitCondition, tuple[tuple[DimCondition, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class ManifestSplittingConfig:
    """Rules in order: of which arrays, how many chunks per manifest and axis."""

    split_sizes: SplitSizes

    @staticmethod
    def from_dict(
        split_sizes: Mapping[ManifestSplitCondition, Mapping[DimCondition, int]],
    ) -> ManifestSplittingConfig:
        """Make rules; the first rule that selects an axis applies to it.

        Raises:
            InvalidInputError: A number of chunks is not between 1 and 2^32 - 1.
        """
        for sizes in split_sizes.values():
            for number in sizes.values():
                if not 1 <= number <= _MAX_CHUNKS:
                    raise InvalidInputError(
                        "a manifest must hold between 1 and 2^32 - 1 chunks along each axis",
                        do="Omit the axis to keep it in one piece.",
                        num_chunks=number,
                    )
        return ManifestSplittingConfig(
            tuple((condition, tuple(sizes.items())) for condition, sizes in split_sizes.items())
        )

    def to_dict(self) -> dict[ManifestSplitCondition, dict[DimCondition, int]]:
        """Return what `from_dict` takes."""
        return {condition: dict(sizes) for condition, sizes in self.split_sizes}

    def onto(self, document: Mapping[str, Anything]) -> dict[str, Anything]:
        """Return the persisted form, with all other keys as in ``document``."""
        sizes = [
            [
                condition.onto(None),
                [{"condition": _dim_document(dim), "num_chunks": n} for dim, n in sizes],
            ]
            for condition, sizes in self.split_sizes
        ]
        return {**document, "split_sizes": sizes}

    @classmethod
    def from_document(cls, document: Mapping[str, Anything]) -> ManifestSplittingConfig:
        """Read the persisted form. Raises ``InvalidInputError``."""
        return cls(tuple(_rule(entry) for entry in document.get("split_sizes") or ()))


@dataclass(frozen=True, slots=True)
class ManifestVirtualChunkLocationCompressionConfig(Section):
    """When and how the locations of virtual chunks are compressed; None is the default."""

    min_num_chunks: int | None = None  # 1000: manifests of fewer references are left plain
    dictionary_max_training_samples: int | None = None  # 100
    dictionary_max_size_bytes: int | None = None  # 2048
    compression_level: int | None = None  # 3


@dataclass(frozen=True, slots=True)
class ManifestConfig(Section):
    """The settings of manifests; None is the default. icevirt does not use ``preload`` itself."""

    preload: ManifestPreloadConfig | None = None
    splitting: ManifestSplittingConfig | None = None
    virtual_chunk_location_compression: ManifestVirtualChunkLocationCompressionConfig | None = None
    max_concurrent_manifest_fetches_during_commit: int | None = None


def _rule(entry: object) -> tuple[ManifestSplitCondition, tuple[tuple[DimCondition, int], ...]]:
    match entry:
        case [condition, [*sizes]]:
            return ManifestSplitCondition.from_document(condition), tuple(map(_size, sizes))
        case _:
            raise not_understood(_SETTING, entry)


def _size(entry: object) -> tuple[DimCondition, int]:
    match entry:
        case {"condition": condition, "num_chunks": int(number)}:
            return _dim_condition(condition), number
        case _:
            raise not_understood(_SETTING, entry)


def _dim_document(condition: DimCondition) -> Anything:
    match condition:
        case ManifestSplitDimCondition.Axis(axis):
            return {"Axis": axis}
        case ManifestSplitDimCondition.DimensionName(regex):
            return {"DimensionName": regex}
        case ManifestSplitDimCondition.Any():
            return _ANY_DIMENSION


def _dim_condition(document: object) -> DimCondition:
    match document:
        case "Any":
            return ManifestSplitDimCondition.Any()
        case {"Axis": int(axis)}:
            return ManifestSplitDimCondition.Axis(axis)
        case {"DimensionName": str(regex)}:
            return ManifestSplitDimCondition.DimensionName(regex)
        case _:
            raise not_understood(_SETTING, document)
