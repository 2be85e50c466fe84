"""Define conditions that select arrays in manifest settings, under icechunk's names.

Spec: `Repo.config`, ``manifest.splitting`` and ``manifest.preload``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from icevirt.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class ArrayCondition:
    """Which arrays a setting is about. Regular expressions are searched for, not anchored."""

    setting: ClassVar[str]
    words: ClassVar[tuple[str, ...]]  # kinds without arguments
    kind: str  # one of `words`, "path_matches", "name_matches", "or", "and"
    regex: str | None = None  # of path_matches, over "/group/array", and name_matches
    conditions: tuple[Self, ...] = ()  # of "or" and "and"

    @classmethod
    def path_matches(cls, regex: str) -> Self:
        """Match arrays whose path contains the expression."""
        return cls("path_matches", regex)

    @classmethod
    def name_matches(cls, regex: str) -> Self:
        """Match arrays whose name (the last part of the path) contains the expression."""
        return cls("name_matches", regex)

    @classmethod
    def or_conditions(cls, conditions: Sequence[Self]) -> Self:
        """Match arrays that any of the conditions matches."""
        return cls("or", conditions=tuple(conditions))

    @classmethod
    def and_conditions(cls, conditions: Sequence[Self]) -> Self:
        """Match arrays that all of the conditions match."""
        return cls("and", conditions=tuple(conditions))

    def __or__(self, other: Self) -> Self:
        return self.or_conditions([self, other])

    def __and__(self, other: Self) -> Self:
        return self.and_conditions([self, other])

    def onto(self, document: object) -> Any:  # noqa: ARG002 - a condition has no other keys
        """Return the persisted form."""
        if self.kind in self.words:
            return self.kind
        if self.regex is not None:
            return {self.kind: {"regex": self.regex}}
        return {self.kind: [each.onto(None) for each in self.conditions]}

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read the persisted form. Raises ``InvalidInputError``."""
        match document:
            case str(word) if word in cls.words:
                return cls(word)
            case {"path_matches": {"regex": str(regex)}}:
                return cls("path_matches", regex)
            case {"name_matches": {"regex": str(regex)}}:
                return cls("name_matches", regex)
            case {"or": [*parts]}:
                return cls.or_conditions([cls.from_document(part) for part in parts])
            case {"and": [*parts]}:
                return cls.and_conditions([cls.from_document(part) for part in parts])
            case _:
                raise not_understood(cls.setting, document)


def not_understood(setting: str, found: object) -> InvalidInputError:
    """Return the error of a part of a setting that has none of its forms."""
    return InvalidInputError(
        f"the repository's config holds a part of {setting} that is not understood",
        do=f"Correct `{setting}` in the config, or upgrade icevirt.",
        found=found,
    )
