"""The scanner for HDF5 and NetCDF-4.

Policy, where zarr cannot say what a file holds: values are never dropped. Datasets of references or
variable-length numbers stop the scan with an error that names them all and says how to leave them
out. Reported instead of raised, because no value is lost: datasets without a dataspace, links that
lead nowhere or to other files, second names of groups, attributes without a JSON form.
"""

from __future__ import annotations

from typing import Any

import h5py
from h5py import h5g, h5o, h5s

from icevirt.archive.attributes import Attributes
from icevirt.archive.scanned import ScannedArray, ScannedFile, ScannedGroup
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.scan.contract import ByteSource, ScanOptions
from icevirt_scanners.hdf5.attributes import FoundAttributes, attributes_of
from icevirt_scanners.hdf5.context import FileContext
from icevirt_scanners.hdf5.datatypes import Element, NoDataTypeError, element_of
from icevirt_scanners.hdf5.dimensions import Dimensions, is_bare_dimension, is_scale
from icevirt_scanners.hdf5.files import explained, opened
from icevirt_scanners.hdf5.represent import represent
from icevirt_scanners.hdf5.values import UnfaithfulError
from icevirt_scanners.hdf5.variable import Variable, describe
from icevirt_scanners.hdf5.walk import FoundDataset, Walk

_MAGIC = b"\x89HDF\r\n\x1a\n"


class Hdf5Scanner:
    """Describes HDF5 and NetCDF-4 files, read by libhdf5."""

    name = "hdf5"
    version = f"1 (HDF5 {h5py.version.hdf5_version})"

    def accepts(self, head: bytes) -> bool:
        """Look for the signature at 0, or behind a user block of 512, 1024, 2048 ... bytes."""
        return any(
            head.startswith(_MAGIC, at) for at in (0, *(512 << n for n in range(len(head) >> 9)))
        )

    def scan(self, source: ByteSource, options: ScanOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The file is damaged, or has no such group.
            UnsupportedError: Something in it has no exact representation.
        """
        url = source.file.url
        with opened(source) as fid, explained(url):
            context = FileContext.of(source, fid, options)
            walk = Walk().below(_root(fid, options.group, url))
            context.findings += walk.findings
            groups = tuple(_group(found.path, found.gid, context) for found in walk.groups)
            arrays = _arrays(walk.datasets, context)
        return ScannedFile(
            source=source.file,
            scanner=self.name,
            scanner_version=self.version,
            groups=groups,
            arrays=arrays,
            findings=tuple(context.findings),
        )


def _root(fid: Any, group: str, url: str) -> Any:
    path = paths.canonical(group).encode()
    try:
        found = h5o.open(fid, path)
    except KeyError as error:
        raise ScanError("the file has no such group", file=url, group=group) from error
    if not isinstance(found, h5g.GroupID):
        raise ScanError("this is no group but an array", file=url, group=group)
    return found


def _group(path: str, gid: Any, context: FileContext) -> ScannedGroup:
    attributes = attributes_of(gid)
    _tell_attributes(path, attributes, context)
    return ScannedGroup(path=path, attributes=Attributes.of(attributes.shown))


def _tell_attributes(path: str, attributes: FoundAttributes, context: FileContext) -> None:
    for name, why in attributes.lost.items():
        context.warn(path, "attribute-left-out", f"attribute {name!r}: {why}")
    for name in attributes.latin:
        context.tell(path, "attribute-latin1", f"attribute {name!r} is not UTF-8")


def _arrays(datasets: list[FoundDataset], context: FileContext) -> tuple[ScannedArray, ...]:
    attributes = [_attributes(found, context) for found in datasets]
    dimensions = Dimensions(context.fid)
    for found, held in zip(datasets, attributes, strict=True):
        if is_scale(held):
            dimensions.add_scale(found, held)
    variables = _variables(list(zip(datasets, attributes, strict=True)), dimensions, context)
    arrays: list[ScannedArray] = []
    for variable in variables:
        with explained(context.source.file.url, variable.path):
            arrays.append(_represented(variable, context))
    return tuple(arrays)


def _attributes(found: FoundDataset, context: FileContext) -> FoundAttributes:
    with explained(context.source.file.url, found.path):
        attributes = attributes_of(found.dsid)
    _tell_attributes(found.path, attributes, context)
    return attributes


def _variables(
    datasets: list[tuple[FoundDataset, FoundAttributes]],
    dimensions: Dimensions,
    context: FileContext,
) -> list[Variable]:
    """Describe the datasets that are variables and wanted."""
    kept: list[tuple[FoundDataset, FoundAttributes, Element, Any]] = []
    impossible: dict[str, str] = {}
    for found, attributes in datasets:
        with explained(context.source.file.url, found.path):
            if _dropped(found.path, context.options.drop_variables) or _is_null(found, context):
                continue
            try:
                element = element_of(found.dsid.get_type())
            except NoDataTypeError as error:
                impossible[found.path] = str(error)
                continue
            shape = (*found.dsid.shape, *element.inner)
            axes, several = dimensions.axes_of(found, attributes, shape)
            if several:
                context.warn(found.path, "several-scales", "an axis has several scales; the first")
            if not is_bare_dimension(attributes):
                kept.append((found, attributes, element, axes))
    if impossible:
        raise UnsupportedError(
            "variables of types that zarr does not have",
            do=f"Leave them out: drop_variables={sorted(impossible)}.",
            file=context.source.file.url,
            variables=impossible,
        )
    described: list[Variable] = []
    for found, attributes, element, axes in kept:
        with explained(context.source.file.url, found.path):
            described.append(
                describe(
                    found,
                    attributes,
                    element=element,
                    axes=axes,
                    dimensions=dimensions,
                    context=context,
                )
            )
    return described


def _dropped(path: str, drop: tuple[str, ...]) -> bool:
    """Say whether a variable is named, or lies below a path that is."""
    return any(
        path == name or path.startswith(name.rstrip("/") + "/")
        if name.startswith("/")
        else paths.name(path) == name
        for name in drop
    )


def _is_null(found: FoundDataset, context: FileContext) -> bool:
    if found.dsid.get_space().get_simple_extent_type() != h5s.NULL:
        return False
    context.warn(found.path, "null-dataspace", "a dataset without dataspace holds no values")
    return True


def _represented(variable: Variable, context: FileContext) -> ScannedArray:
    try:
        return represent(variable, context)
    except UnfaithfulError as error:
        raise UnsupportedError(
            "values that zarr cannot hold exactly",
            do="Leave the variable out with drop_variables.",
            file=context.source.file.url,
            variable=variable.path,
            cause=str(error),
        ) from error
