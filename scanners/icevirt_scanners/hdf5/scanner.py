"""Scan HDF5 and NetCDF-4 files.

If zarr cannot express what a file holds, values are never dropped. Datasets of references or
variable-length numbers stop the scan with an error that names them all and says how to leave them
out. Cases that lose no value are reported: datasets without a dataspace, links that lead nowhere or
to other files, second names of groups, attributes without a JSON form.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import h5py
from h5py import h5g, h5l, h5o, h5t

from icevirt.archive.scanned import ScannedFile, Weight
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.scan.contract import ByteSource, Policy, ScannerOptions, SidecarUse
from icevirt.scan.elsewhere import Elsewhere, refuse_changed
from icevirt_scanners.context import no_such_group
from icevirt_scanners.hdf5.attributes import FoundAttributes, attributes_of
from icevirt_scanners.hdf5.datatypes import (
    Element,
    NoDataTypeError,
    decode_element,
    element_of,
)
from icevirt_scanners.hdf5.files import FileContext, explained, hold_open, tell_unclosed
from icevirt_scanners.hdf5.hierarchy import (
    Dimensions,
    FoundDataset,
    FoundGroup,
    VariableAxis,
    Walk,
    innermost_first,
    is_bare_dimension,
    is_scale,
    object_at,
    plain_walk,
)
from icevirt_scanners.hdf5.libhdf5_values import UnfaithfulError
from icevirt_scanners.hdf5.oracle import read_values
from icevirt_scanners.hdf5.patterns import key_of, remember, variables_like
from icevirt_scanners.hdf5.raw.attributes import UNREAD, heaps_of
from icevirt_scanners.hdf5.raw.chunks import layout_of
from icevirt_scanners.hdf5.raw.header import (
    DATATYPE,
    ObjectHeader,
    RawFile,
    SharedMessages,
    only,
    place_values,
)
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, Space
from icevirt_scanners.hdf5.representation import LEAST, represent, weight_of
from icevirt_scanners.hdf5.variable import HDF5Variable, netcdf_shape, variable_of

_MAGIC = b"\x89HDF\r\n\x1a\n"


class Hdf5Scanner:
    """Describes HDF5 and NetCDF-4 files, read by libhdf5."""

    name = "hdf5"
    version = f"6 (HDF5 {h5py.version.hdf5_version})"
    read_values = staticmethod(read_values)  # see `icevirt.scan.contract.Oracle`

    def accepts(self, head: bytes) -> bool:
        """Look for the signature at 0, or behind a user block of 512, 1024, 2048 ... bytes."""
        return any(
            head.startswith(_MAGIC, at) for at in (0, *(512 << n for n in range(len(head) >> 9)))
        )

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The file is damaged, or has no such group.
            UnsupportedError: Something in it has no exact representation.
        """
        if options.sidecar in {SidecarUse.auto, SidecarUse.require} and options.share is None:
            from icevirt_scanners.dmrpp.granule import describe_beside  # reads what few files have

            described = describe_beside(source, options, self, self.scan)
            if described is not None:
                return described
        with _open(source, options) as (walk, context):
            context.findings += walk.findings
            tell_unclosed(context, 0 if context.raw is None else context.raw.space.base)
            groups = []
            for found in walk.groups:
                attributes = _attributes_of_group(found, context)
                _report_attributes(found.path, attributes, context)
                groups.append(ScannedGroup(path=found.path, attributes=attributes.json))
            arrays = tuple(array for _, array in _variables(walk, context, represent))
        refuse_changed(context.beside.values(), seen_from=source.file.url)
        return context.describe(
            self,
            tuple(groups),
            arrays,
            {"": options.max_native_bytes - context.budget.left, **context.tally},
        )

    def outline(self, source: ByteSource, options: ScannerOptions) -> tuple[Weight, ...]:
        """Return what scanning each variable takes; see `icevirt.scan.contract.Divisible`."""
        with _open(source, options) as (walk, context):
            weights = dict(_variables(walk, context, weight_of))
            # the share with a variable without values reports it
            return tuple(
                weights.get(found.path) or Weight(path=found.path, cost=LEAST)
                for found in walk.datasets
                if options.wants(found.path)
            )


@contextmanager
def _open(source: ByteSource, options: ScannerOptions) -> Iterator[tuple[Walk, FileContext]]:
    with (
        Elsewhere(source, options.allow_references_to) as elsewhere,
        hold_open(source) as file,
        explained(source.file.url),
    ):
        raw, walk, url = RawFile.of(source, base=0), None, source.file.url
        if raw is not None and options.group == paths.ROOT:
            with suppress(NotUnderstoodError):
                walk = plain_walk(raw, file, url)
        if raw is None:
            raw = RawFile.of(source, base=file.fid.get_create_plist().get_userblock())
        if walk is None:  # libhdf5 finds what is in the file
            walk = Walk(url).below(_root(file.fid, options.group, url))
        yield walk, FileContext.of(source, options, file=file, raw=raw, elsewhere=elsewhere)


def _root(fid: Any, group: str, url: str) -> Any:
    found = object_at(fid, paths.canonical(group).encode())
    if found is None:
        there = sorted(found.path for found in Walk(url).below(h5o.open(fid, b"/")).groups)
        raise no_such_group(url, group, there)
    if not isinstance(found, h5g.GroupID):
        raise ScanError("this is an array, not a group", file=url, group=group)
    return found


def _attributes_of_group(found: FoundGroup, context: FileContext) -> FoundAttributes:
    return attributes_of(lambda: found.gid, context.header(found.address))


def _report_attributes(path: str, attributes: FoundAttributes, context: FileContext) -> None:
    for name, why in attributes.lost.items():
        context.warn(path, "attribute-left-out", f"attribute {name!r}: {why}")
    for name, what in attributes.changed.items():
        context.tell(path, "attribute-changed", f"attribute {name!r}: {what}")
    for name in attributes.latin:
        context.tell(path, "attribute-latin1", f"attribute {name!r} is not UTF-8")


def _variables[T](
    walk: Walk, context: FileContext, make: Callable[[HDF5Variable, FileContext], T]
) -> Iterator[tuple[str, T]]:
    """Yield what is made of each variable, but for those that may be left out and cannot be."""
    announce([found for found in walk.datasets if context.options.wants(found.path)], context)
    key = key_of(walk, context)
    known = variables_like(key, walk, context)
    described = _describe(walk, context, key) if known is None else known
    for path, describe in described:

        def make_array(path: str = path, describe: Callable[[], HDF5Variable] = describe) -> T:
            try:
                with explained(context.source.file.url, path):
                    return make(describe(), context)
            except UnfaithfulError as error:
                what = "zarr cannot represent these values exactly"
                raise context.refusal(path, what, cause=str(error)) from error

        one = context.represent(path, make_array)
        if one is not None:
            yield path, one


def _describe(
    walk: Walk, context: FileContext, key: Hashable | None
) -> Iterator[tuple[str, Callable[[], HDF5Variable]]]:
    """Yield what describes each variable; all that is found goes into a pattern under ``key``."""
    said, left_out = len(context.findings), len(context.left_out)
    attributes = {found: _attributes(found, context) for found in walk.datasets}
    dimensions = Dimensions(context.file)
    for found in walk.datasets:
        if is_scale(attributes[found]):
            dimensions.add_scale(found, attributes[found])
    dimensions.check_distinct(context.source.file.url)
    elements = _with_type_names(_elements(walk.datasets, context), walk)
    axes = _axes(walk, elements, attributes, dimensions, context)
    context.equal = context.options.equal_in_files(())
    if context.options.stack:  # whatever is left out
        context.equal = context.options.equal_in_files(
            [
                (found.path, tuple(axis.name for axis in placed), attributes[found].json.values)
                for found, placed in axes.items()
            ],
            [(each.path, _attributes_of_group(each, context).json.values) for each in walk.groups],
        )
    wanted = [
        found
        for found in walk.datasets
        if found in elements and found in axes and not is_bare_dimension(attributes[found])
    ]
    # what libhdf5 was asked for, or must be said of each file, makes no pattern
    opened = any(found.handle.is_open for found in walk.datasets)
    is_plain = key is not None and not opened and len(context.findings) == said
    names = tuple(context.left_out[left_out:])
    variables: dict[FoundDataset, HDF5Variable] = {}

    def describe(found: FoundDataset) -> HDF5Variable:
        element, placed = elements[found], axes[found]
        findings = len(context.findings)
        shape = netcdf_shape(found, element, placed, dimensions, context)
        variable = variable_of(
            found,
            attributes[found],
            element=element,
            axes=placed,
            shape=shape,
            context=context,
        )
        if not found.handle.is_open and len(context.findings) == findings:
            variables[found] = variable
        return variable

    for found in wanted:
        yield found.path, partial(describe, found)
    if is_plain and len(variables) == len(wanted):
        remember(key, walk, context, variables, names)


def _attributes(found: FoundDataset, context: FileContext) -> FoundAttributes:
    with explained(context.source.file.url, found.path):
        found.header = context.header(found.address)
        attributes = attributes_of(lambda: found.dsid, found.header)
    _report_attributes(found.path, attributes, context)
    return attributes


def _elements(datasets: list[FoundDataset], context: FileContext) -> dict[FoundDataset, Element]:
    """Return the types of the datasets that hold values and are wanted."""
    elements: dict[FoundDataset, Element] = {}
    impossible: dict[str, str] = {}
    for found in datasets:
        if not context.wants(found.path):
            continue
        if found.shape is None:
            context.warn(found.path, "null-dataspace", "it holds no values")
            continue
        with explained(context.source.file.url, found.path):
            try:
                elements[found] = _element(found)
            except NoDataTypeError as error:
                if context.options.policy_of(found.path) is Policy.skip:
                    context.skip(found.path, str(error))
                else:
                    impossible[found.path] = str(error)
                continue
        if elements[found].note:
            context.tell(found.path, "values-have-names", elements[found].note)
    if impossible:
        raise UnsupportedError(
            "variables have types that zarr lacks",
            do=write_remedy(
                "Leave them out: ",
                write_option("drop_variables", sorted(impossible)),
                ", or all that cannot be represented: ",
                write_code('variable_policy="skip"', "--variable-policy skip"),
                ".",
            ),
            file=context.source.file.url,
            variables=impossible,
        )
    return elements


def _with_type_names(
    elements: dict[FoundDataset, Element], walk: Walk
) -> dict[FoundDataset, Element]:
    """Return types with the names that netCDF shows for enumerations: of a stored type like it."""
    found = {
        each for each, one in elements.items() if one.named is not None and not one.dtype.names
    }
    stored = [(name, tid) for group in walk.groups if found for name, tid in _types_in(group)]
    made = dict(elements)
    for each in found if stored else ():
        tid, said = each.dsid.get_type(), elements[each].named or {}
        name = next((name for name, one in stored if one == tid), None)
        if name is not None:
            made[each] = replace(elements[each], named={**said, "enum_name": name})
    return made


def _types_in(group: FoundGroup) -> Iterator[tuple[str, Any]]:
    """Yield the types that are stored in a group, with their names."""
    names: list[bytes] = []
    group.gid.links.iterate(names.append)
    for name in names:
        is_hard = group.gid.links.get_info(name).type == h5l.TYPE_HARD
        if is_hard and h5g.get_objinfo(group.gid, name).type == h5g.TYPE:
            yield name.decode("utf-8", "replace"), h5t.open(group.gid, name)


def _element(found: FoundDataset) -> Element:
    with suppress(NotUnderstoodError):
        if found.header is not None:
            return found.header.shared.once(_decode_element)
    return element_of(found.dsid.get_type())


def _decode_element(shared: SharedMessages) -> Element:
    return decode_element(only(shared.messages, DATATYPE))


def _axes(
    walk: Walk,
    elements: dict[FoundDataset, Element],
    attributes: dict[FoundDataset, FoundAttributes],
    dimensions: Dimensions,
    context: FileContext,
) -> dict[FoundDataset, tuple[VariableAxis, ...]]:
    """Return the axes of all datasets; phony ones are numbered from the innermost groups.

    Those that are left out count too, for numbers and for the lengths of dimensions: what is left
    out changes nothing of the others.
    """
    rank = innermost_first([group.path for group in walk.groups])
    axes: dict[FoundDataset, tuple[VariableAxis, ...]] = {}
    for found in sorted(walk.datasets, key=lambda found: rank[paths.parent(found.path)]):
        if found.shape is None:
            continue
        wanted = found in elements
        inner: tuple[int, ...] = ()
        with suppress(NoDataTypeError):
            inner = (elements[found] if wanted else _element(found)).inner
        with explained(context.source.file.url, found.path):
            placed, odd = dimensions.axes_of(found, attributes[found], (*found.shape, *inner))
        axes[found] = placed
        if wanted and odd:
            context.warn(found.path, "odd-dimension-scales", odd)
    return axes


_INDEX = 4096  # bytes that hold the root of most chunk indices
_HEAP = 4096  # bytes of most heaps
_SMALL = 64 * 1024  # bytes of values that a scan may want


def announce(datasets: list[FoundDataset], context: FileContext) -> None:
    """Announce chunk indices, heaps of attributes, and values that are few."""
    raw = context.raw
    if raw is None or raw.space.announce is None:
        return
    headers = (context.header(found.address) for found in datasets)
    raw.space.soon(place for header in headers if header for place in _places(header, raw.space))


def _places(header: ObjectHeader, space: Space) -> Iterator[tuple[int, int]]:
    with suppress(NotUnderstoodError):
        yield from ((heap, _HEAP) for heap in set(heaps_of(header.messages, UNREAD)))
    with suppress(NotUnderstoodError):
        message = header.layout
        with suppress(NotUnderstoodError):
            layout = layout_of(message, space)
            if layout.address is not None:
                yield layout.address, _INDEX
            return
        values = place_values(message, space)
        if values.address is not None and values.nbytes <= _SMALL:
            yield values.address, values.nbytes
