"""Configure which manifests an icechunk client fetches in advance.

icevirt persists these settings for such clients, but itself fetches manifests when it needs them.
Names are icechunk's. Spec: `Repo.config`, ``manifest.preload``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icevirt.errors import InvalidInputError
from icevirt.model.config.sections import Section


@dataclass(frozen=True, slots=True)
class ManifestPreloadCondition:
    """Selects arrays. Regular expressions are searched, not anchored."""

    kind: str  # "true", "false", "path_matches", "name_matches", "num_refs", "or", "and"
    regex: str | None = None  # of path_matches and name_matches
    bounds: tuple[int | None, int | None] = (None, None)  # of num_refs: from, up to but without
    conditions: tuple[ManifestPreloadCondition, ...] = ()  # of "or" and "and"

    @staticmethod
    def or_conditions(conditions: Sequence[ManifestPreloadCondition]) -> ManifestPreloadCondition:
        """Match arrays that any of the conditions matches."""
        return ManifestPreloadCondition("or", conditions=tuple(conditions))

    @staticmethod
    def and_conditions(conditions: Sequence[ManifestPreloadCondition]) -> ManifestPreloadCondition:
        """Match arrays that all of the conditions match."""
        return ManifestPreloadCondition("and", conditions=tuple(conditions))

    @staticmethod
    def path_matches(regex: str) -> ManifestPreloadCondition:
        """Match arrays whose path contains the expression."""
        return ManifestPreloadCondition("path_matches", regex)

    @staticmethod
    def name_matches(regex: str) -> ManifestPreloadCondition:
        """Match arrays whose name contains the expression."""
        return ManifestPreloadCondition("name_matches", regex)

    @staticmethod
    def num_refs(from_refs: int | None, to_refs: int | None) -> ManifestPreloadCondition:
        """Match manifests of so many references, ``to_refs`` excluded; None is no bound."""
        return ManifestPreloadCondition("num_refs", bounds=(from_refs, to_refs))

    @staticmethod
    def true() -> ManifestPreloadCondition:
        """Match every array."""
        return ManifestPreloadCondition("true")

    @staticmethod
    def false() -> ManifestPreloadCondition:
        """Match none."""
        return ManifestPreloadCondition("false")

    def __or__(self, other: ManifestPreloadCondition) -> ManifestPreloadCondition:
        return self.or_conditions([self, other])

    def __and__(self, other: ManifestPreloadCondition) -> ManifestPreloadCondition:
        return self.and_conditions([self, other])

    def onto(self, document: object) -> Any:  # noqa: ARG002 - a condition has no other keys
        """Return the persisted form."""
        match self.kind:
            case "true" | "false":
                return self.kind
            case "num_refs":
                low, high = self.bounds
                return {
                    "num_refs": {
                        "from": "Unbounded" if low is None else {"Included": low},
                        "to": "Unbounded" if high is None else {"Excluded": high},
                    }
                }
            case "or" | "and":
                return {self.kind: [each.onto(None) for each in self.conditions]}
            case _:
                return {self.kind: {"regex": self.regex}}

    @classmethod
    def from_document(cls, document: object) -> ManifestPreloadCondition:
        """Read the persisted form. Raises ``InvalidInputError``."""
        match document:
            case "true" | "false":
                return cls(document)
            case {"path_matches": {"regex": str(regex)}}:
                return cls("path_matches", regex)
            case {"name_matches": {"regex": str(regex)}}:
                return cls("name_matches", regex)
            case {"num_refs": {"from": low, "to": high}}:
                return cls.num_refs(_bound(low, above=0), _bound(high, above=1))
            case {"or": [*parts]}:
                return cls.or_conditions([cls.from_document(part) for part in parts])
            case {"and": [*parts]}:
                return cls.and_conditions([cls.from_document(part) for part in parts])
            case _:
                raise _unknown(document)


@dataclass(frozen=True, slots=True)
class ManifestPreloadConfig(Section):
    """Which manifests are fetched early, and how many at most."""

    max_total_refs: int | None = None
    preload_if: ManifestPreloadCondition | None = None
    max_arrays_to_scan: int | None = None


def _bound(document: object, *, above: int) -> int | None:
    """Read a bound; ``above`` 0 says that it is the lower one, which is included."""
    match document:
        case "Unbounded":
            return None
        case {"Included": int(number)}:
            return number + above
        case {"Excluded": int(number)}:
            return number + 1 - above
        case _:
            raise _unknown(document)


def _unknown(found: object) -> InvalidInputError:
    return InvalidInputError(
        "a preload condition is not valid",
        do="Correct `manifest.preload` in the repository's config, or upgrade icevirt.",
        found=found,
    )
