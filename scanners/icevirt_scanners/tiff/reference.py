"""Read images with rasterio or tifffile, for comparisons with what a scan makes of them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import UnsupportedError
from icevirt.scan.contract import ByteSource
from icevirt_scanners.tiff.directories import Directory

type Box = tuple[slice, ...]


class SeekableSource(io.RawIOBase):
    """A file to which a library seeks and of which it reads."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self._at = source, 0

    def seekable(self) -> bool:
        """Say that it is."""
        return True

    def readable(self) -> bool:
        """Say that it is."""
        return True

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        begin = {io.SEEK_CUR: self._at, io.SEEK_END: self._source.file.size}.get(whence, 0)
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read up to the length of the buffer."""
        found = self._source.read(self._at, min(len(buffer), self._source.file.size - self._at))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def read_image(source: ByteSource, directory: Directory, region: Box) -> NDArray[Any]:
    """Return the values of an image (band, y, x) in a box.

    Raises:
        UnsupportedError: Neither library is installed, or can read the image.
    """
    why = []
    for library, read in (("rasterio", _by_rasterio), ("tifffile", _by_tifffile)):
        try:
            return read(source, directory, region)
        except ImportError:
            continue
        except Exception as error:  # noqa: BLE001 - what either library raises
            why.append(f"{library} cannot read the image: {error}")
    lacking = "with the package rasterio or tifffile installed, they are compared with it"
    raise UnsupportedError("; ".join(why) or lacking)


def _by_tifffile(source: ByteSource, directory: Directory, region: Box) -> NDArray[Any]:
    values = read_page(source, directory.number, directory.within)
    samples = directory.integer(277, 1)
    if samples == 1:
        values = values[None]
    elif directory.integer(284, 1) == 1:
        values = np.moveaxis(values, -1, 0)
    return np.asarray(values[region])


def read_page(source: ByteSource, number: int, within: tuple[int, ...] = ()) -> NDArray[Any]:
    """Return an image as tifffile reads it."""
    import tifffile

    opened: Any = SeekableSource(source)
    with tifffile.TiffFile(opened) as file:
        page: Any = file.pages[number]
        for place in within:
            page = page.pages[place]
        values: NDArray[Any] = page.asarray()
        return values


def _by_rasterio(source: ByteSource, directory: Directory, region: Box) -> NDArray[Any]:
    from rasterio.windows import Window

    if directory.within:
        raise UnsupportedError("a directory below another one")
    bands, rows, columns = region
    window: Any = Window(
        columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start
    )
    with open_image(source, directory.number) as image:
        wanted = list(range(bands.start + 1, bands.stop + 1))
        values: NDArray[Any] = image.read(wanted, window=window)
    return values


@contextmanager
def open_image(source: ByteSource, number: int) -> Iterator[Any]:
    """Open an image by its number with rasterio."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning
    from rasterio.io import MemoryFile

    with ExitStack() as held:
        held.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        name = source.local_path
        if name is None:
            name = held.enter_context(MemoryFile(source.read(0, source.file.size))).name
        # GDAL counts the images of a file from 1
        yield held.enter_context(rasterio.open(f"GTIFF_DIR:{number + 1}:{name}"))
