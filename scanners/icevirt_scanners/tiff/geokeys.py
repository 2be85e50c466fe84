"""Read the keys of a GeoTIFF, and name its reference system as CF does.

A system is known by its EPSG code, or described by parameters, of which those that pyproj builds
are named in `_projection`. Others are left out, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from icevirt_scanners.tiff.directories import Directory, TiffDamageError

DIRECTORY, DOUBLES, TEXTS = 34735, 34736, 34737
MODEL_TYPE, RASTER_TYPE, GEOGRAPHIC, PROJECTED, VERTICAL = 1024, 1025, 2048, 3072, 4096
_NAMES = (RASTER_TYPE, 1026, 2049, 3073, 4097)  # and citations
_USER_DEFINED = 32767
_IN_MODEL = {1: PROJECTED, 2: GEOGRAPHIC}


@dataclass(frozen=True, slots=True)
class GeoKeys:
    """Keys of a GeoTIFF and their values: numbers or texts."""

    values: Mapping[int, float | str | tuple[float, ...]]

    @classmethod
    def of(cls, directory: Directory) -> GeoKeys:
        """Read the keys of a directory; none where it has none.

        Raises:
            TiffDamageError: They are damaged.
        """
        raw = directory.integers(DIRECTORY).tolist()
        if not raw:
            return cls({})
        if len(raw) < 4 or len(raw) < 4 + 4 * raw[3]:
            raise TiffDamageError("the directory of GeoKeys is cut short")
        doubles, texts = directory.floats(DOUBLES).tolist(), directory.text(TEXTS)
        found: dict[int, float | str | tuple[float, ...]] = {}
        for at in range(4, 4 + 4 * raw[3], 4):
            key, where, count, value = raw[at : at + 4]
            if where == 0:
                found[key] = value
            elif where == TEXTS:
                found[key] = texts[value : value + count].rstrip("|\0")
            elif where == DOUBLES:
                held = doubles[value : value + count]
                if not held:
                    raise TiffDamageError(f"the GeoKey {key} has no value")
                found[key] = held[0] if count == 1 else tuple(held)
        return cls(found)

    def number(self, key: int) -> int:
        """Return the number of a choice; 0 where there is none."""
        found = self.values.get(key, 0)
        return int(found) if isinstance(found, int | float) else 0

    @property
    def text(self) -> str:
        """What they say of the reference system but for names, as one text."""
        said = {key: self.values[key] for key in sorted(self.values) if key not in _NAMES}
        return " ".join(f"{key}={value}" for key, value in said.items())

    @property
    def epsg(self) -> tuple[int, ...]:
        """The codes of the horizontal and the vertical system; empty where one has none."""
        key = _IN_MODEL.get(self.number(MODEL_TYPE))
        code = self.number(key) if key else 0
        if not code or code == _USER_DEFINED:
            return ()
        vertical = self.number(VERTICAL)
        if vertical == _USER_DEFINED:
            return ()
        return (code, vertical) if vertical else (code,)


def has_system(keys: GeoKeys) -> bool:
    """Say whether a reference system is named or described."""
    return bool(keys.number(MODEL_TYPE) or keys.number(GEOGRAPHIC) or keys.number(PROJECTED))


@lru_cache(64)
def describe_system(codes: tuple[int, ...]) -> Mapping[str, Any]:
    """Return a reference system as attributes of a grid mapping of CF.

    Raises:
        ImportError: pyproj is not installed.
        ValueError: It does not know the code.
    """
    from pyproj import CRS
    from pyproj.crs import CompoundCRS
    from pyproj.exceptions import CRSError

    try:
        each = [CRS.from_epsg(code) for code in codes]
        found = each[0] if len(each) == 1 else CompoundCRS(" + ".join(e.name for e in each), each)
        return {**found.to_cf(), "spatial_ref": found.to_wkt()}
    except CRSError as error:
        raise ValueError(str(error)) from error
