"""Measure scans of COGs beside virtual-tiff through VirtualiZarr and kerchunk: processor time.

    python bench/scan_tiff.py [pixels] [files] [rounds]

Each file has tiles of 256 × 256 pixels and overviews. A tool makes references to all of them, in
one process, in turns; medians are printed. kerchunk needs tifffile.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import rasterio


def write(folder: Path, pixels: int, files: int) -> list[Path]:
    """Write COGs of one band."""
    paths = [folder / f"{number}.tif" for number in range(files)]
    place = rasterio.transform.from_origin(0, 0, 10, 10)
    shape = {"count": 1, "height": pixels, "width": pixels, "dtype": "uint16"}
    how = {"compress": "deflate", "blocksize": 256, "predictor": "YES", "overviews": "AUTO"}
    for path in paths:
        data = np.arange(pixels * pixels, dtype="u2").reshape(1, pixels, pixels) % 977
        about = {"driver": "COG", "crs": 32633, "transform": place}
        with rasterio.open(path, "w", **about, **shape, **how) as file:
            file.write(data)
    return paths


def by_icevirt(path: Path) -> int:
    """Scan with icevirt; return the number of references."""
    from icevirt.api.scan import scan_file

    return sum(len(array.references) for array in scan_file(path).arrays)


def by_virtual_tiff(path: Path) -> int:
    """Scan the full size with virtual-tiff, through VirtualiZarr."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtual_tiff import VirtualTIFF
    from virtualizarr import open_virtual_dataset

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    found = open_virtual_dataset(path.as_uri(), registry=registry, parser=VirtualTIFF(ifd=0))
    return sum(v.data.manifest.shape_chunk_grid[-1] for v in found.variables.values())


def by_kerchunk(path: Path) -> int:
    """Make references with kerchunk."""
    from kerchunk.tiff import tiff_to_zarr

    return len(tiff_to_zarr(str(path)))


def seconds(scan: Callable[[Path], int], paths: list[Path]) -> float:
    """Return processor time of a scan of all files, without children."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    for path in paths:
        scan(path)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def main(pixels: int = 10980, files: int = 4, rounds: int = 5) -> None:
    """Print milliseconds a file."""
    warnings.simplefilter("ignore")
    tools = {"icevirt": by_icevirt, "virtual-tiff": by_virtual_tiff, "kerchunk": by_kerchunk}
    with tempfile.TemporaryDirectory() as name:
        paths = write(Path(name), pixels, files)
        taken: dict[str, list[float]] = {tool: [] for tool in tools}
        for scan in tools.values():
            scan(paths[0])  # imports
        for _ in range(rounds):
            for tool, scan in tools.items():
                taken[tool].append(1000 * seconds(scan, paths) / files)
        print(f"{by_icevirt(paths[0])} references a file with all levels, ms of processor time")
        for tool, times in taken.items():
            print(f"{tool:14} {statistics.median(times):8.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
