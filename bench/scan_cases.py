"""Count how the odd files of ``fixtures/hdf5_cases`` fare in icevirt and in VirtualiZarr.

Run: ``.venv/bin/python bench/scan_cases.py``. "equal": every variable reads through zarr as h5py
reads it; "refused": an error before anything is read; "fails later": an error when values are read;
"lost": a variable is absent; "WRONG": other values, and no error. Files that hold something zarr
cannot say count as right when they are refused.
"""

# ruff: noqa: E402, I001, ARG001  # the fixtures are no package, and readers share a signature

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import h5py
from fixtures import hdf5_cases
import numpy as np
import zarr
from icevirt.api.scan import scan_file
from icevirt.errors import ScanError

from scanners.materialise import materialise


def texts(values: np.ndarray) -> list[str]:
    """Return strings as str, whatever they are held in."""
    return [
        v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else str(v)
        for v in values.reshape(-1)
    ]


def equal(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Compare values; byte order does not count."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype.kind in "OTU" or wanted.dtype.kind in "OTU":
        return texts(found) == texts(wanted)
    if found.shape != wanted.shape or found.dtype.kind != wanted.dtype.kind:
        return False
    if found.dtype.names:
        return all(equal(found[name], wanted[name]) for name in wanted.dtype.names)
    return bool(np.array_equal(found, wanted, equal_nan=found.dtype.kind in "fcmM"))


def wanted_of(path: Path, case: hdf5_cases.Case) -> dict[str, np.ndarray]:
    """Return what h5py reads, by variable; what it cannot read is as the case says."""
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:

        def visit(name: str, item: object) -> None:
            if not isinstance(item, h5py.Dataset) or item.shape is None:
                return
            title = item.attrs.get("NAME", b"")
            if b"not a netCDF variable" not in (title if isinstance(title, bytes) else b""):
                name = name.replace("_nc4_non_coord_", "").replace("..", "%2E%2E")
                found[name] = case.expected[name] if name in case.expected else item[...]

        file.visititems(visit)
    return found


def by_icevirt(path: Path, names: list[str], case: hdf5_cases.Case) -> dict[str, np.ndarray]:
    """Read through icevirt."""
    scanned = scan_file(path, scan_options={"drop_variables": case.drop})
    return {array.path.strip("/"): materialise(array) for array in scanned.arrays}


def by_virtualizarr(path: Path, names: list[str], case: hdf5_cases.Case) -> dict[str, np.ndarray]:
    """Read through VirtualiZarr's manifest store."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    try:
        parser = HDFParser(drop_variables=[name.strip("/") for name in case.drop])
        group = zarr.open_group(parser(f"file://{path}", registry), mode="r", zarr_format=3)
    except Exception as error:
        raise ScanError(str(error)) from error
    return {name: np.asarray(group[name][...]) for name in names if name in group}


def verdict(read: object, path: Path, case: hdf5_cases.Case) -> str:
    """Say how a reader fares with a file."""
    wanted = {"d": 0} if case.refused else wanted_of(path, case)
    try:
        found = read(path, list(wanted), case)
    except ScanError:
        return "refused, rightly" if case.refused else "refused"
    except Exception:
        return "fails later"
    if case.refused:
        return "WRONG" if found else "lost"
    longer = [n for n in wanted if n in found and found[n].shape != np.shape(wanted[n])]
    if any(not equal(found[n], wanted[n]) for n in wanted if n in found and n not in longer):
        return "WRONG"
    left = {name for name in wanted if any(f"/{name}".startswith(drop) for drop in case.drop)}
    return "lost" if set(wanted) - set(found) - left - set(case.drop) else "equal"


def main() -> None:
    """Print a line for every file on which the two differ, then the counts."""
    warnings.simplefilter("ignore")
    counts = {"icevirt": Counter(), "VirtualiZarr": Counter()}
    for name, case in hdf5_cases.CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "file.nc"
            case.write(path)
            ours, theirs = (verdict(read, path, case) for read in (by_icevirt, by_virtualizarr))
        counts["icevirt"][ours] += 1
        counts["VirtualiZarr"][theirs] += 1
        if ours != theirs or ours == "WRONG":
            print(f"{name:28s} icevirt: {ours:18s} VirtualiZarr: {theirs:16s} {case.odd}")
    for tool, count in counts.items():
        print(tool, dict(count.most_common()))


if __name__ == "__main__":
    main()
