"""Decide how to write the locations of a manifest: as strings, or with a dictionary.

Spec: ChunkRef.location and compressed_location. Because equal locations share one string and whole
files are compressed, strings are nearly always smaller and faster; the dictionary pays in the
memory of readers that keep manifests decompressed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import zstandard

from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.config.document import MAX_LEVEL
from icevirt.model.json import JSONObject
from icevirt.model.strings import Strings
from icevirt.wire.manifests.dictionary import MAX_LOCATION, Dictionary
from icevirt.wire.row_order import Places


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
    """How locations are compressed; fields and defaults are those of the repository's config.

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
        told: dict[str, Any] = {
            name: min(max(int(found[name]), least), most)
            for name, (least, most) in _RANGES.items()
            if isinstance(found, Mapping) and isinstance(found.get(name), int)
        }
        return cls(**told)


MIN_SAMPLE = 8  # bytes; when half of the samples are shorter, they are not worth it


def trained(tables: Sequence[ChunkTable], settings: LocationCompression) -> Dictionary | None:
    """Return the dictionary that the locations of these tables are to be compressed with."""
    if settings.encoding is LocationEncoding.plain:
        return None
    virtual = sum(table.count(ChunkType.virtual) for table in tables)
    if virtual < max(settings.min_num_chunks, 1):
        return None
    samples = _samples(tables, settings.dictionary_max_training_samples)
    if 2 * sum(len(sample) < MIN_SAMPLE for sample in samples) >= len(samples):
        return None
    dictionary = Dictionary.train(samples, settings.dictionary_max_size_bytes)
    if dictionary and settings.encoding is LocationEncoding.smaller:
        return dictionary if _is_smaller(samples, dictionary, settings) else None
    return dictionary


@dataclass(frozen=True, slots=True)
class Packed:
    """Locations of one table as they are written: plain strings or frames."""

    hidden: np.ndarray[tuple[int], np.dtype[np.bool_]]  # (m,) those that are frames
    plain: Strings
    frames: tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Places]  # end to end, empty for plain


def packed(locations: Locations, dictionary: Dictionary | None, level: int) -> Packed:
    """Compress what a reader will accept compressed."""
    url = locations.url
    lengths = url.lengths
    if dictionary is None:
        hidden = np.zeros(len(url), np.bool_)
        return Packed(hidden, url, (np.zeros(0, np.uint8), np.zeros(len(url) + 1, np.int64)))
    hidden = (lengths > 0) & (lengths <= MAX_LOCATION)
    rows = np.flatnonzero(hidden)
    chosen = url if len(rows) == len(url) else url[rows]
    data, starts = dictionary.compress(chosen.data, chosen.starts, level)
    sizes = np.zeros(len(url), np.int64)
    sizes[rows] = np.diff(starts)
    return Packed(hidden, url, (data, np.concatenate([[0], np.cumsum(sizes)])))


def _samples(tables: Sequence[ChunkTable], count: int) -> list[bytes]:
    """Return evenly spaced locations: the same ones for the same tables, always."""
    total = sum(len(table.locations) for table in tables)
    wanted = set(np.linspace(0, total - 1, min(count, total)).astype(int).tolist())
    samples, base = [], 0
    for table in tables:
        url = table.locations.url
        samples += [url[at - base].encode() for at in sorted(wanted) if 0 <= at - base < len(url)]
        base += len(url)
    # those that are too long to be compressed teach nothing
    return [sample for sample in samples if len(sample) <= MAX_LOCATION]


def _is_smaller(
    samples: list[bytes], dictionary: Dictionary, settings: LocationCompression
) -> bool:
    level = settings.compression_level
    data = np.frombuffer(b"".join(samples), np.uint8)
    starts = np.concatenate([[0], np.cumsum([len(sample) for sample in samples])])
    frames, _ = dictionary.compress(data, starts, level)
    return len(frames) < len(zstandard.ZstdCompressor(level=level).compress(data.tobytes()))
