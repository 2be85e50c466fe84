"""Write the table of TIFF in docs/sources.md: writer, compression, what a build makes of it.

    python docs/make_tiff_sources.py    # `just sources`

Images are written by GDAL (drivers GTiff and COG) and by tifffile, with all their types, orders of
bytes and layouts. Values are compared with rasterio, bit for bit, through icevirt and through the
official client in a fresh process.
"""

from __future__ import annotations

import datetime as dt
import pickle
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import tifffile
import zarr

import icevirt
from icevirt import local_filesystem_store
from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig

PAGE = Path(__file__).parent / "sources.md"
BEGIN, END = "<!-- made by make_tiff_sources.py -->", "<!-- end of TIFF -->"
DTYPES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
COMPRESSIONS = (
    *("none", "packbits", "deflate", "lzw", "zstd", "lerc", "lerc_deflate", "lerc_zstd"),
    *("jpeg", "webp", "lzma"),
)
PREDICTED = ("deflate", "lzw", "zstd", "lzma")
LAYOUTS = (
    {"TILED": "YES", "BLOCKXSIZE": 32, "BLOCKYSIZE": 32},
    {"BLOCKYSIZE": 16},
    {"BLOCKYSIZE": 70},
)
OFFICIAL = """
import sys, pickle
import icechunk, numpy as np, zarr
from icechunk.credentials import LocalFileSystemAccess
storage = icechunk.local_filesystem_storage(sys.argv[1])
prefixes = icechunk.Repository.open(storage).config.virtual_chunk_containers
access = dict.fromkeys(prefixes, LocalFileSystemAccess)
repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
root = zarr.open_group(repo.readonly_session("main").store, mode="r")
members = [each for each in root.members(max_depth=None) if each[0].endswith("band_data")]
found = {name: np.asarray(array[...]).tobytes() for name, array in members}
pickle.dump(found, open(sys.argv[2], "wb"))
"""

type Case = tuple[str, str, Callable[[Path], None]]
"""Writer, what is written, and what writes it."""


def values(dtype: str, shape: tuple[int, ...] = (3, 70, 90)) -> Any:
    """Return numbers of all sizes."""
    draw, kind = np.random.default_rng(0), np.dtype(dtype)
    if kind.kind in "ui":
        limits = np.iinfo(kind)
        return draw.integers(limits.min, limits.max, shape, kind, endpoint=True)
    return (draw.standard_normal(shape) * 1000).astype(kind)


def by_gdal(path: Path, *, data: Any, driver: str = "GTiff", **how: Any) -> None:
    """Write an image by GDAL."""
    count, height, width = data.shape
    shape = {"count": count, "height": height, "width": width, "dtype": data.dtype.name}
    place = rasterio.transform.from_origin(5, 5, 1, 1)
    with rasterio.open(path, "w", driver=driver, crs=4326, transform=place, **shape, **how) as file:
        file.write(data)


def by_tifffile(path: Path, *, data: Any, planar: str, **how: Any) -> None:
    """Write an image by tifffile."""
    image = data if planar == "separate" else np.moveaxis(data, 0, -1)
    tifffile.imwrite(path, image, photometric="minisblack", planarconfig=planar, **how)


def cases() -> Iterator[Case]:
    """Yield every combination, whether a writer has it or not."""
    options = product(DTYPES, ("pixel", "band"), LAYOUTS, ("LITTLE", "BIG"), ("YES", "NO"))
    for dtype, interleave, layout, order, big in options:
        data = values(dtype)
        shared = {"interleave": interleave, "ENDIANNESS": order, "BIGTIFF": big, **layout}
        for name, predictor in product(COMPRESSIONS, (1, 2, 3)):
            if predictor > 1 and name not in PREDICTED:
                continue
            more = {"PREDICTOR": predictor} if predictor > 1 else {}
            what = f"{name}, predictor {predictor}" if predictor > 1 else name
            yield "GDAL, GTiff", what, partial(by_gdal, data=data, compress=name, **shared, **more)
    for bits in range(1, 32):
        dtype = f"uint{next(n for n in (8, 16, 32) if bits <= n)}"
        data = values(dtype) & np.array(2**bits - 1, dtype)
        for layout in LAYOUTS:
            how = {"compress": "deflate", "NBITS": bits, **layout}
            yield "GDAL, GTiff", "deflate, odd numbers of bits", partial(by_gdal, data=data, **how)
    for dtype, name, predictor in product(DTYPES, COMPRESSIONS, ("NO", "YES")):
        if predictor == "NO" or name in PREDICTED:
            what = f"{name}, predictor" if predictor == "YES" else name
            how = {"compress": name, "PREDICTOR": predictor, "BLOCKSIZE": 128}
            data = values(dtype, (2, 300, 290))
            yield "GDAL, COG", what, partial(by_gdal, data=data, driver="COG", **how)
    kinds = product(DTYPES, ("zlib", "lzw", "zstd", "packbits", "lerc", "png"), (1, 2, 3), "<>")
    for dtype, name, predictor, order in kinds:
        what = f"{name}, predictor {predictor}" if predictor > 1 else name
        how = {"compression": name, "byteorder": order, "predictor": predictor}
        for planar, tile in product(("contig", "separate"), ((32, 32), None)):
            more = {"planar": planar, "tile": tile, "rowsperstrip": None if tile else 16}
            yield "tifffile", what, partial(by_tifffile, data=values(dtype), **how, **more)


def main() -> None:
    """Write the table."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        table = rows(Path(name))
    text = PAGE.read_text()
    said = (
        f"Run on {dt.datetime.now(dt.UTC).date()} with icevirt {icevirt.__version__}, rasterio"
        f" {rasterio.__version__} (GDAL {rasterio.__gdal_version__}), tifffile"
        f" {tifffile.__version__}, zarr-python {zarr.__version__}. Numbers count images."
    )
    head = "| writer | compression | equal in both clients | refused |\n| --- | --- | --- | --- |\n"
    made = f"{BEGIN}\n{said}\n\n{head}{''.join(table)}{END}"
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, text, flags=re.DOTALL))


def rows(folder: Path) -> Iterator[str]:
    """Yield the rows of the table. Raises `AssertionError` if values differ."""
    container = VirtualChunkContainer(f"{folder.as_uri()}/", local_filesystem_store(str(folder)))
    config = RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    repo = icevirt.Repository.create(folder / "repo", config=config)
    session = repo.writable_session("main")
    equal, refused = Counter[tuple[str, str]](), defaultdict[Any, Counter[str]](Counter)
    wanted: dict[str, bytes] = {}
    for number, (writer, what, write) in enumerate(cases()):
        path, key = folder / f"{number}.tif", (writer, what)
        try:
            write(path)
            with rasterio.open(path) as file:
                theirs = file.read()
        except Exception:  # noqa: BLE001 - a combination that the writer, or GDAL, does not have
            path.unlink(missing_ok=True)
            continue
        try:
            scanned = scan_file(path)
        except IcevirtError as error:
            refused[key][str(error.facts.get("cause", error.what))] += 1
            continue
        wanted[f"{number}/band_data"] = theirs.tobytes()
        equal[key] += 1
        scanned.write_to(session, f"/{number}")
    session.commit("images")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OFFICIAL, folder / "repo", folder / "found"],
        check=True,
    )
    official = pickle.loads((folder / "found").read_bytes())  # noqa: S301 - made here
    mine = icevirt.Repository.open(
        folder / "repo", authorize_virtual_chunk_access=[str(folder)]
    ).readonly_session("main")
    root: Any = zarr.open_group(mine.store, mode="r")
    for path, raw in wanted.items():
        assert official[path] == raw, path
        assert np.asarray(root[path][...]).tobytes() == raw, path
    for key in dict.fromkeys([*equal, *refused]):
        causes = "; ".join(f"{count}: {cause}" for cause, count in sorted(refused[key].items()))
        yield f"| {' | '.join(key)} | {equal[key] or ''} | {causes} |\n"


if __name__ == "__main__":
    main()
