"""Scan NetCDF-3 files: classic, 64-bit offset and CDF-5.

Values are those that netCDF shows, with two exceptions, where netCDF shows values that were never
written: a file that is shorter than its header says is refused, and "streaming" files, whose header
does not give the number of records, have as many as fit into the file. `read_values` reads with
netCDF4 for verification, and shares only names with the scan.
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
from icevirt_scanners.context import ScanContext, check_dimensions
from icevirt_scanners.encoding import with_fit_fill
from icevirt_scanners.netcdf3.header import (
    MAGIC,
    VERSIONS,
    Attribute,
    DamagedError,
    FileHeader,
    read_header,
    shown,
)
from icevirt_scanners.netcdf3.represent import FileLayout, PlacedVariable, layout_of, represent

_MOST_AXES = 32  # of HDF5, and of many readers


def read_values(source: ByteSource, path: str, region: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Return the values of a variable in a box, neither masked nor scaled.

    Raises:
        UnsupportedError: netCDF4 is not installed, or the file is not on local disk.
        ScanError: netCDF4 cannot read it.
    """
    try:
        import netCDF4
    except ImportError as error:
        raise UnsupportedError(
            "values of NetCDF-3 files are compared by netCDF4, which is not installed",
            do="Run `pip install netCDF4`.",
            file=source.file.url,
        ) from error
    if source.local_path is None:
        raise UnsupportedError(
            "netCDF4 can only read local files",
            do="Check the references only, or verify where the files are mounted.",
            file=source.file.url,
        )
    try:
        with netCDF4.Dataset(source.local_path) as file:
            variable = _variable(file, path.strip("/"))
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            return np.asarray(variable[region])
    except (OSError, RuntimeError, KeyError, IndexError) as error:
        raise ScanError(
            "netCDF4 cannot read the variable",
            do="Fetch the file again, or leave it out.",
            file=source.file.url,
            variable=path,
            cause=str(error),
        ) from error


def _variable(file: Any, name: str) -> Any:
    """Find a variable by its node name, which may be escaped. Raises ``KeyError``."""
    if name in file.variables:
        return file.variables[name]
    own = next((own for own in file.variables if node_name(own.encode())[0] == name), name)
    return file.variables[own]


class NetCDF3Scanner:
    """Describes NetCDF-3 files."""

    name = "netcdf3"
    version = "3"
    read_values = staticmethod(read_values)  # see `icevirt.scan.contract.Oracle`

    def accepts(self, head: bytes) -> bool:
        """Look for the signature: ``CDF`` and the number of a version."""
        return head.startswith(MAGIC) and len(head) > 3 and head[3] in VERSIONS

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The file is damaged, or the options name a group, which it cannot have.
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
        root = _root(header, context)
        variables = ((placed.path, placed) for placed in layout.variables)
        arrays = context.arrays(variables, partial(_array, context))
        return context.described(self, (root,), arrays)


def _equal(header: FileHeader, layout: FileLayout, options: ScannerOptions) -> frozenset[str]:
    if not options.stack:
        return options.equal_in_files(())

    def values(attributes: Sequence[Attribute]) -> dict[str, Any]:
        return shown(attributes, lambda *_: None)  # findings are reported when arrays are made

    variables = ((p.path, p.dimensions, values(p.variable.attributes)) for p in layout.variables)
    return options.equal_in_files(variables, [(paths.ROOT, values(header.attributes))])


def _tell_records(header: FileHeader, layout: FileLayout, context: ScanContext) -> None:
    if header.records is None:
        message = f"the header leaves the number of records open; the file holds {layout.records}"
        context.tell(paths.ROOT, "records-counted", message)
    elif layout.room > layout.records:
        message = f"the file has room for {layout.room} records, its header says {layout.records}"
        context.warn(paths.ROOT, "records-beyond-count", message)


def _root(header: FileHeader, context: ScanContext) -> ScannedGroup:
    found = shown(header.attributes, partial(context.tell, paths.ROOT))
    return ScannedGroup(path=paths.ROOT, attributes=Attributes.of(found))


def _array(context: ScanContext, path: str, placed: PlacedVariable) -> ScannedArray:
    variable = placed.variable
    if len(placed.shape) > _MOST_AXES:
        raise context.refusal(
            path,
            f"a variable of more than {_MOST_AXES} dimensions",
        )
    if node_name(variable.name)[1]:
        context.tell(
            path, "renamed", f"the name {variable.name!r} is not a valid node name in Zarr"
        )
    found = shown(variable.attributes, partial(context.tell, path))
    attributes = with_fit_fill(found, placed.kind.dtype, partial(context.warn, path))
    return represent(placed, attributes, context)
