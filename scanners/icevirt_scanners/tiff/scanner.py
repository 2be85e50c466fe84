"""Scan TIFF: strips and tiles become chunks of a variable ``band_data`` (band, y, x).

That is what rioxarray shows of a file. Overviews are groups, with dimensions of their own, so that
they are one tree with the image. `read_values` reads with rasterio or tifffile for verification; it
shares with the scan which directory is which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.multiscales import describe_level, say
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt_scanners.context import ScanContext, no_such_group
from icevirt_scanners.stored import hold
from icevirt_scanners.tiff import reference
from icevirt_scanners.tiff.directories import MAGICS, Directory, TiffDamageError, TiffFile
from icevirt_scanners.tiff.geokeys import GeoKeys, describe_system, has_system
from icevirt_scanners.tiff.pages import Page, arrange, describe_lengths
from icevirt_scanners.tiff.places import Transform, find_transform
from icevirt_scanners.tiff.variables import (
    DIMENSIONS,
    MAPPING,
    MASK,
    VARIABLE,
    Names,
    make_mask,
    make_variable,
)


def _arrays(
    page: Page, level: str, group: str, directory: Directory, context: ScanContext
) -> Iterator[ScannedArray]:
    """Yield the arrays of one level of a page: its variable, and where its pixels are."""
    full, own = describe_lengths(page.image), describe_lengths(directory)
    keys = GeoKeys.of(page.image)
    transform, why = find_transform(page.image, keys)
    if transform is not None and directory is not page.image:
        transform = transform.scale(full[2] / own[2], full[1] / own[1])
    has_mapping = has_system(keys) or transform is not None
    beside = (MAPPING,) if has_mapping else ()
    names = DIMENSIONS if directory is page.image else _name_axes(level)
    image = partial(
        make_variable,
        directory=directory,
        full=page.image,
        keys=keys,
        beside=beside,
        placed_by=_find_place(keys, paths.join(group, MAPPING), context),
    )
    made: dict[str, Callable[..., ScannedArray]] = {VARIABLE: image}
    if (mask := page.mask_of(directory)) is not None:
        made[MASK] = partial(make_mask, directory=mask)
    variables = ((paths.join(group, name), make) for name, make in made.items())
    yield from context.arrays(
        variables, lambda path, make: make(path, names=names, context=context)
    )
    lengths = dict(zip(names, own, strict=True))
    for name, values in _coordinates(group, lengths, transform, why, context).items():
        yield hold(paths.join(group, name), (name,), values, _CF.get(name[0], {}))
    path = paths.join(group, MAPPING)
    if has_mapping and context.wants(path):
        found = hold(path, (), np.int64(0), _mapping(path, keys, transform, context))
        yield replace(found, placed_by={})


def _name_axes(level: str) -> Names:
    """Return the dimensions of an overview: in one tree, those above it have other lengths."""
    band, y, x = DIMENSIONS
    return band, f"{y}_{paths.name(level)}", f"{x}_{paths.name(level)}"


def _levels(page: Page, group: str) -> Attributes:
    """Return the attributes of a group: which overviews its image has."""
    if group != page.group or not page.overviews:
        return Attributes()
    _, rows, columns = describe_lengths(page.image)
    layout = [describe_level(VARIABLE, VARIABLE, [1.0, 1.0, 1.0])]
    for path, directory in page.levels():
        if path != group:
            asset = f"{paths.name(path)}/{VARIABLE}"
            _, down, across = describe_lengths(directory)
            layout.append(describe_level(asset, VARIABLE, [1.0, rows / down, columns / across]))
    return Attributes.of(say(layout))


_KEYS = "geotiff_keys"
_CF: Mapping[str, Mapping[str, Any]] = {
    "x": {"axis": "X"},
    "y": {"axis": "Y"},
}


def _coordinates(
    group: str,
    lengths: Mapping[str, int],
    transform: Transform | None,
    why: str,
    context: ScanContext,
) -> dict[str, NDArray[Any]]:
    """Return the coordinates that are wanted: band, and y and x where they are known.

    Args:
        group: Their group.
        lengths: Of the dimensions band, y and x, by what they are called.
        transform: Where pixels are, if that is known.
        why: Why it is not.
        context: Of the scan.
    """
    if transform is not None and not transform.is_rectilinear:
        why = "its rows and columns are turned against x and y"
    (band, bands), (y, height), (x, width) = lengths.items()
    known = (band,) if why else lengths
    if why:
        context.tell(group, "no-coordinates", f"its pixels have no x and y: {why}")
    wanted = [name for name in known if context.wants(paths.join(group, name))]
    for name in wanted:
        path = paths.join(group, name)
        context.budget.spend(8 * lengths[name], variable=path, cause="stored whole")
    found: dict[str, NDArray[Any]] = {band: np.arange(1, bands + 1)}
    if transform is not None and not why:
        found |= dict(zip((y, x), transform.coordinates(height, width), strict=True))
    return {name: found[name] for name in wanted if name in found}


def _find_place(keys: GeoKeys, path: str, context: ScanContext) -> dict[str, str] | None:
    """Return what says the reference system, if its grid mapping is left out."""
    if context.options.selects(path):
        return None
    return {_KEYS: keys.text} if has_system(keys) else {}


def _mapping(
    path: str, keys: GeoKeys, transform: Transform | None, context: ScanContext
) -> dict[str, Any]:
    """Return the attributes of the grid mapping of an image."""
    shown: dict[str, Any] = {}
    if has_system(keys):
        try:
            if not keys.epsg:
                raise ValueError("it has no EPSG code")  # noqa: TRY301
            shown = dict(describe_system(keys.epsg))
        except ImportError as error:
            raise context.refusal(
                path,
                "the reference system of an image is named with the package pyproj",
                do=write_remedy(
                    "Install it (pip install pyproj), or leave it out: ",
                    write_option("drop_variables", [path]),
                    ".",
                ),
                cause=str(error),
            ) from error
        except ValueError as error:
            text = f"the reference system of the file is shown by its GeoKeys alone: {error}"
            context.warn(path, "system-left-out", text)
            shown = {_KEYS: keys.text}
    if transform is not None:
        shown["GeoTransform"] = transform.text
    return shown


class TiffScanner:
    """Describes TIFF, GeoTIFF and COG."""

    name = "tiff"
    version = "1"

    def accepts(self, head: bytes) -> bool:
        """Look for the signature of classic TIFF or BigTIFF."""
        return head[:4] in MAGICS

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: It is damaged, or has no such group.
            UnsupportedError: Something in it has no exact representation.
        """
        try:
            return self._scan(source, ScanContext.of(source, options))
        except TiffDamageError as error:
            raise _damaged(source, error) from error

    def _scan(self, source: ByteSource, context: ScanContext) -> ScannedFile:
        pages = arrange(TiffFile.open(source).directories())
        groups = {group: (page, one) for page in pages for group, one in page.levels()}
        top = paths.canonical(context.options.group)
        if top not in groups:
            raise no_such_group(source.file.url, top, list(groups))
        for page in pages:
            if lost := page.masks_of_others():
                text = f"{len(lost)} masks of other lengths than its image are left out"
                context.warn(page.group, "mask-left-out", text)
        kept = {group: held for group, held in groups.items() if _is_below(group, top)}
        arrays: list[ScannedArray] = []
        found: list[ScannedGroup] = []
        for group, (page, directory) in kept.items():
            name = _under(group, top)
            found.append(ScannedGroup(path=name, attributes=_levels(page, group)))
            arrays += _arrays(page, group, name, directory, context)
        return context.describe(self, tuple(found), arrays)

    def read_values(self, source: ByteSource, path: str, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the values of a variable in a box, see `icevirt.scan.contract.Oracle`."""
        group, name = paths.parent(path), paths.name(path)
        try:
            pages = arrange(TiffFile.open(source).directories())
            levels = {group: (page, one) for page in pages for group, one in page.levels()}
            if name == VARIABLE and group in levels:
                return reference.read_image(source, levels[group][1], region)
            if name == MASK and group in levels:
                page, one = levels[group]
                if (mask := page.mask_of(one)) is not None:
                    return reference.read_image(source, mask, (slice(0, 1), *region)).squeeze(0)
        except TiffDamageError as error:
            raise _damaged(source, error) from error
        options = replace(ScannerOptions(), drop_variables=(VARIABLE,))
        for array in self.scan(source, options).arrays:
            if array.path == path:
                held = array.references.inline.tobytes()
                values = np.frombuffer(held, str(array.data_type)).reshape(array.shape)
                return values[region]
        raise ScanError(
            "the file has no such variable",
            do="Check its name.",
            file=source.file.url,
            variable=path,
        )


def _is_below(group: str, top: str) -> bool:
    return top in (paths.ROOT, group) or group.startswith(top + "/")


def _under(group: str, top: str) -> str:
    return paths.canonical(group.removeprefix(top.rstrip("/")))


def _damaged(source: ByteSource, error: TiffDamageError) -> ScanError:
    return ScanError(
        "a damaged TIFF file",
        do="Fetch it again, or leave it out.",
        file=source.file.url,
        cause=str(error),
    )
