"""Compute places on maps: the formulas of Snyder (1987), for spheres and ellipsoids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import cos, log, pi, radians, sin, sqrt, tan

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Earth:
    """The shape of the earth: its half axes in meters."""

    major: float
    minor: float

    @cached_property
    def eccentricity(self) -> float:
        """0 of a sphere."""
        return sqrt(max(0.0, 1 - (self.minor / self.major) ** 2))

    def _m(self, latitude: float) -> float:
        return cos(latitude) / sqrt(1 - (self.eccentricity * sin(latitude)) ** 2)

    def _t(self, latitude: float) -> float:
        e = self.eccentricity * sin(latitude)
        flattened: float = ((1 - e) / (1 + e)) ** (self.eccentricity / 2)
        return tan(pi / 4 - latitude / 2) / flattened

    def lambert(  # noqa: D102 - as the next ones: meters east and north of the origin
        self,
        latitude: float,
        longitude: float,
        *,
        parallels: tuple[float, float],
        origin: tuple[float, float],
    ) -> tuple[float, float]:
        first, second = map(radians, parallels)
        if abs(first - second) < 1e-9:
            n = sin(first)
        else:
            n = log(self._m(first) / self._m(second)) / log(self._t(first) / self._t(second))
        scale = self.major * self._m(first) / (n * self._t(first) ** n)
        radius = scale * self._t(radians(latitude)) ** n
        angle = n * radians(_turn(longitude - origin[1]))
        return radius * sin(angle), scale * self._t(radians(origin[0])) ** n - radius * cos(angle)

    def stereographic(  # noqa: D102
        self, latitude: float, longitude: float, *, true_scale: float, meridian: float, south: bool
    ) -> tuple[float, float]:
        sign = -1 if south else 1
        true = sign * radians(true_scale)
        e = self.eccentricity
        if abs(true - pi / 2) < 1e-9:
            factor = 2 / sqrt((1 + e) ** (1 + e) * (1 - e) ** (1 - e))
        else:
            factor = self._m(true) / self._t(true)
        radius = self.major * factor * self._t(sign * radians(latitude))
        angle = radians(_turn(longitude - meridian))
        return radius * sin(angle), -sign * radius * cos(angle)

    def mercator(  # noqa: D102
        self, latitude: float, longitude: float, *, true_scale: float
    ) -> tuple[float, float]:
        factor = self.major * self._m(radians(true_scale))
        return factor * radians(longitude), -factor * log(self._t(radians(latitude)))


def _turn(degrees: float) -> float:
    return (degrees + 180) % 360 - 180


def unrotate(
    latitude: NDArray[np.float64], longitude: NDArray[np.float64], *, pole: tuple[float, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the places of points of a grid whose southern pole is at ``pole``."""
    tilt, phi, lam = radians(-90 - pole[0]), np.radians(latitude), np.radians(longitude)
    x, y, z = np.cos(lam) * np.cos(phi), np.sin(lam) * np.cos(phi), np.sin(phi)
    east, up = cos(tilt) * x + sin(tilt) * z, cos(tilt) * z - sin(tilt) * x
    found = np.degrees(np.arctan2(y, east)) + pole[1]
    return np.degrees(np.arcsin(np.clip(up, -1, 1))), (found + 180) % 360 - 180


@lru_cache(16)
def gaussian_latitudes(parallels: int) -> NDArray[np.float64]:
    """Return the latitudes of a Gaussian grid of so many parallels between pole and equator.

    They are the zeros of a Legendre polynomial, from north to south.
    """
    count = 2 * parallels
    x = np.cos(pi * (np.arange(1, parallels + 1) - 0.25) / (count + 0.5))
    for _ in range(20):
        before, value = np.ones_like(x), x.copy()
        for degree in range(2, count + 1):
            before, value = value, ((2 * degree - 1) * x * value - (degree - 1) * before) / degree
        change = value * (x * x - 1) / (count * (x * value - before))
        x = x - change
        if np.abs(change).max() < 1e-15:
            break
    north = np.degrees(np.arcsin(x))
    found = np.concatenate([north, -north[::-1]])
    found.flags.writeable = False
    return found
