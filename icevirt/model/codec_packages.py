"""Say which package brings a codec that zarr and numcodecs lack."""

from __future__ import annotations

PACKAGES = {
    "numcodecs.pcodec": "pcodec",
    "numcodecs.zfpy": "zfpy",
    "gribberish": "gribberish",
}
"""Codecs that need a package which neither zarr-python nor numcodecs installs."""

PREFIXES = {"imagecodecs_": "imagecodecs-zarr"}
"""Packages that have all codecs whose names begin so."""

DECODING_ONLY = frozenset({"gribberish"})
"""Codecs that have no encoder."""


def package_of(codec: str) -> str | None:
    """Return the package that a codec of this name needs beside zarr-python and numcodecs."""
    found = (package for prefix, package in PREFIXES.items() if codec.startswith(prefix))
    return PACKAGES.get(codec) or next(found, None)
