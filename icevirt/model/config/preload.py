"""Configure which manifests an icechunk client fetches in advance.

icevirt persists these settings for such clients, but itself fetches manifests when it needs them.
Names are icechunk's. Spec: `Repo.config`, ``manifest.preload``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from icevirt.model.config.conditions import ArrayCondition, not_understood
from icevirt.model.config.sections import Section

_SETTING = "manifest.preload"


@dataclass(frozen=True, slots=True)
class ManifestPreloadCondition(ArrayCondition):
    """Which arrays, or which manifests of them."""

    setting = _SETTING
    words = ("true", "false")
    bounds: tuple[int | None, int | None] = (None, None)  # of "num_refs": from, up to but without

    @classmethod
    def num_refs(cls, from_refs: int | None, to_refs: int | None) -> Self:
        """Match manifests of so many references, ``to_refs`` excluded; None means unbounded."""
        return cls("num_refs", bounds=(from_refs, to_refs))

    @classmethod
    def true(cls) -> Self:
        """Match every array."""
        return cls("true")

    @classmethod
    def false(cls) -> Self:
        """Match none."""
        return cls("false")

    def onto(self, document: object) -> Any:
        """Return the persisted form."""
        if self.kind != "num_refs":
            return ArrayCondition.onto(self, document)
        low, high = self.bounds
        return {
            "num_refs": {
                "from": "Unbounded" if low is None else {"Included": low},
                "to": "Unbounded" if high is None else {"Excluded": high},
            }
        }

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read the persisted form. Raises ``InvalidInputError``."""
        match document:
            case {"num_refs": {"from": low, "to": high}}:
                return cls.num_refs(_bound(low, above=0), _bound(high, above=1))
            case _:
                return super(ManifestPreloadCondition, cls).from_document(document)


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
            raise not_understood(_SETTING, document)
