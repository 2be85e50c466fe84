"""Define which readers decode the chunks of an array, for plans and reports."""

from __future__ import annotations

from dataclasses import dataclass

GDAL = "GDAL 3.14"
"""The release that `Readers` speaks of: the first one with a driver for Icechunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """What readers lack to decode an array; nothing where they decode it."""

    zarr_lacks: tuple[str, ...] = ()  # zarr-python, alone or over the official icechunk client
    gdal_lacks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The readers in words, like ``zarr, GDAL`` or ``zarr with pcodec``."""
        zarr = f"zarr with {' and '.join(self.zarr_lacks)}" if self.zarr_lacks else "zarr"
        return zarr if self.gdal_lacks else f"{zarr}, GDAL"

    def __or__(self, other: Readers) -> Readers:
        """Return the readers of two arrays that become one: what is lacked for either."""
        return Readers(
            zarr_lacks=_joined(self.zarr_lacks, other.zarr_lacks),
            gdal_lacks=_joined(self.gdal_lacks, other.gdal_lacks),
        )


def _joined(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one + other))
