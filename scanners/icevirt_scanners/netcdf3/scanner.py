"""Scan NetCDF-3 files: classic, 64-bit offset and CDF-5.

Values are those that netCDF shows, with two exceptions, where netCDF shows values that were never
written: a file that is shorter than its header says is refused, and "streaming" files, whose header
does not give the number of records, have as many as fit into the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray, ScannedFile, ScannedGroup
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.paths import node_name
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.distinct import check_dimensions
from icevirt_scanners.cf import with_fit_fill
from icevirt_scanners.context import ScanContext
from icevirt_scanners.netcdf3.attributes import shown
from icevirt_scanners.netcdf3.cursor import DamagedError
from icevirt_scanners.netcdf3.header import MAGIC, VERSIONS, Attribute, FileHeader, read_header
from icevirt_scanners.netcdf3.layout import FileLayout, PlacedVariable, layout_of
from icevirt_scanners.netcdf3.oracle import read_values
from icevirt_scanners.netcdf3.represent import represent

_MOST_AXES = 32  # of HDF5, and of many readers


class NetCDF3Scanner:
    """Describes NetCDF-3 files."""

    name = "netcdf3"
    version = "3"

    def accepts(self, head: bytes) -> bool:
        """Look for the signature: ``CDF`` and the number of a version."""
        return head.startswith(MAGIC) and len(head) > 3 and head[3] in VERSIONS

    def read_values(
        self, source: ByteSource, path: str, region: tuple[slice, ...]
    ) -> np.ndarray[Any, Any]:
        """Return what netCDF4 reads; see `icevirt.scan.oracle.Oracle`."""
        return read_values(source, path, region)

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The file is damaged, or was asked for a group, which it cannot have.
            UnsupportedError: Something in it has no exact representation.
        """
        file = source.file
        if paths.canonical(options.group) != paths.ROOT:
            raise ScanError(
                "the file has no such group",
                do="NetCDF-3 has no groups; leave the argument out.",
                file=file.url,
                group=options.group,
            )
        context = ScanContext.of(source, options)
        try:
            header = read_header(source)
            layout = layout_of(header, size=file.size, url=file.url)
        except DamagedError as error:
            raise ScanError(
                f"damaged NetCDF-3: {error}", do="Fetch it again, or leave it out.", file=file.url
            ) from error
        check_dimensions((node_name(each.name)[0] for each in header.dimensions), file.url)
        _tell_records(header, layout, context)
        context.equal = _equal(header, layout, options)
        return context.described(self, (_root(header, context),), _arrays(layout, context))


def _equal(header: FileHeader, layout: FileLayout, options: ScannerOptions) -> frozenset[str]:
    if not options.stack:
        return options.equal_in_files(())

    def told(attributes: Sequence[Attribute]) -> dict[str, Any]:
        return shown(attributes, lambda *_: None)  # what is odd is told where they are taken

    variables = ((p.path, p.dimensions, told(p.variable.attributes)) for p in layout.variables)
    return options.equal_in_files(variables, [(paths.ROOT, told(header.attributes))])


def _tell_records(header: FileHeader, layout: FileLayout, context: ScanContext) -> None:
    if header.records is None:
        message = f"the header leaves the number of records open; the file holds {layout.records}"
        context.tell(paths.ROOT, "records-counted", message)
    elif layout.room > layout.records:
        message = f"the file has room for {layout.room} records, its header says {layout.records}"
        context.warn(paths.ROOT, "records-beyond-count", message)


def _root(header: FileHeader, context: ScanContext) -> ScannedGroup:
    found = shown(header.attributes, lambda code, text: context.tell(paths.ROOT, code, text))
    return ScannedGroup(path=paths.ROOT, attributes=Attributes.of(found))


def _arrays(layout: FileLayout, context: ScanContext) -> tuple[ScannedArray, ...]:
    wanted = [placed for placed in layout.variables if context.wants(placed.path)]
    found = (
        context.represented(placed.path, partial(_array, placed, context)) for placed in wanted
    )
    return tuple(array for array in found if array is not None)


def _array(placed: PlacedVariable, context: ScanContext) -> ScannedArray:
    path, variable = placed.path, placed.variable
    if len(placed.shape) > _MOST_AXES:
        raise UnsupportedError(
            f"a variable of more than {_MOST_AXES} dimensions",
            do="Leave it out with drop_variables.",
            file=context.source.file.url,
            variable=path,
        )
    if node_name(variable.name)[1]:
        context.tell(
            path, "renamed", f"the name {variable.name!r} is not a valid node name in Zarr"
        )
    found = shown(variable.attributes, lambda code, text: context.tell(path, code, text))
    attributes = with_fit_fill(
        found, placed.kind.dtype, lambda code, text: context.warn(path, code, text)
    )
    return represent(placed, attributes, context)
