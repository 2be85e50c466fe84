"""Read the numbers of a grid section."""

from __future__ import annotations

from dataclasses import dataclass

from icevirt_scanners.grib.projections import Earth

_ALTERNATING, _SHIFTED = 0x10, 0x0F  # of a scanning mode (table 3.4)
# half axes in meters by table 3.2; shapes whose numbers the section has, and their unit
_EARTHS = {
    0: (6367470.0, 6367470.0),
    2: (6378160.0, 6356775.0),
    4: (6378137.0, 6356752.314),
    5: (6378137.0, 6356752.314245),
    6: (6371229.0, 6371229.0),
    8: (6371200.0, 6371200.0),
    9: (6377563.396, 6356256.909),
}
_SPHERE, _ELLIPSOIDS = 1, {3: 1000, 7: 1}


class UnreadGridError(Exception):
    """A grid that is not read; the message says which."""


@dataclass(frozen=True, slots=True)
class Octets:
    """A section 3; octets count from 0."""

    section: bytes

    def number(self, at: int, length: int) -> int:
        """Return an unsigned number."""
        return int.from_bytes(self.section[at : at + length], "big")

    def signed(self, at: int, length: int = 4) -> int:
        """Return a number whose first bit is its sign."""
        raw, sign = self.number(at, length), 1 << 8 * length - 1
        return -(raw - sign) if raw & sign else raw

    def degrees(self, at: int, unit: float = 1e6) -> float:
        """Return an angle."""
        return self.signed(at) / unit

    def unit(self) -> float:
        """Return how many units an angle of one degree has, on a grid of latitudes."""
        unset = (0, 0xFFFFFFFF)
        basic, parts = self.number(38, 4), self.number(42, 4)
        if (basic in unset) != (parts in unset):
            raise UnreadGridError(f"a grid of basic angle {basic} in {parts} parts")
        return 1e6 if basic in unset else parts / basic

    def scaled(self, at: int) -> float:
        """Return a value behind its scale factor."""
        return self.number(at + 1, 4) / 10.0 ** self.signed(at, 1)

    def scan(self, at: int) -> int:
        """Return the scanning mode, but for whether rows are scanned in alternating directions.

        Raises:
            UnreadGridError: It is one that is not read.
        """
        flags = self.number(at, 1)
        if flags & _SHIFTED:
            raise UnreadGridError("a grid whose rows are shifted against each other")
        return flags & ~_ALTERNATING

    def is_alternating(self, at: int) -> bool:
        """Say whether rows are scanned in alternating directions."""
        return bool(self.number(at, 1) & _ALTERNATING)

    def earth(self) -> Earth:
        """Return the shape of the earth (table 3.2)."""
        shape = self.number(14, 1)
        if shape in _EARTHS:
            return Earth(*_EARTHS[shape])
        if shape == _SPHERE:
            return Earth(self.scaled(15), self.scaled(15))
        if shape in _ELLIPSOIDS:
            unit = _ELLIPSOIDS[shape]
            return Earth(self.scaled(20) * unit, self.scaled(25) * unit)
        raise UnreadGridError(f"an earth of shape {shape}")
