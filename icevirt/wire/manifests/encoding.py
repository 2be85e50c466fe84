"""Hold how manifests are compressed, as a configuration says: read when a repository is opened.

Spec: config, ``compression`` and ``manifest.virtual_chunk_location_compression``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from icevirt.model.config.document import MAX_LEVEL

if TYPE_CHECKING:
    from icevirt.model.json import JSONObject


class LocationEncoding(Enum):
    """When locations are compressed with a dictionary."""

    plain = "plain"  # never
    smaller = "smaller"  # when a sample says that the file gets smaller
    dictionary = "dictionary"  # whenever the thresholds are met


_RANGES = {  # whatever a configuration says
    "min_num_chunks": (0, 1 << 62),
    "dictionary_max_training_samples": (0, 100_000),
    "dictionary_max_size_bytes": (0, 1 << 20),
    "compression_level": (-(1 << 17), MAX_LEVEL),  # of zstd, whose negative levels are fast
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocationCompression:
    """How locations are compressed; with the fields and defaults of the repository's config.

    Spec: config, ``manifest.virtual_chunk_location_compression``.
    """

    encoding: LocationEncoding = LocationEncoding.smaller
    min_num_chunks: int = 1000
    dictionary_max_training_samples: int = 100
    dictionary_max_size_bytes: int = 2048
    compression_level: int = 3

    @classmethod
    def of_config(cls, document: JSONObject | None) -> LocationCompression:
        """Read the settings out of a persisted configuration; what is not there has its default."""
        found: Any = document or {}
        for key in ("manifest", "virtual_chunk_location_compression"):
            found = found.get(key) if isinstance(found, Mapping) else None
        settings: dict[str, Any] = {
            name: min(max(int(found[name]), least), most)
            for name, (least, most) in _RANGES.items()
            if isinstance(found, Mapping) and isinstance(found.get(name), int)
        }
        return cls(**settings)


DEFAULT_LOCATIONS = LocationCompression()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEncoding:
    """How manifests are compressed, as far as readers do not care."""

    # zstd: references to compressed chunks get as small by it as by level 3, and sooner; those to
    # chunks of one length get a tenth larger
    level: int = 1
    locations: LocationCompression = DEFAULT_LOCATIONS

    @classmethod
    def of_config(cls, document: JSONObject | None) -> ManifestEncoding:
        """Read the settings of a repository's configuration."""
        compression = (document or {}).get("compression")
        level = compression.get("level") if isinstance(compression, Mapping) else None
        return cls(
            level=min(max(level, 0), MAX_LEVEL) if isinstance(level, int) else 1,
            locations=LocationCompression.of_config(document),
        )
