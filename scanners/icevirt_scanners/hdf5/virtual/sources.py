"""Find the source datasets of a virtual dataset where HDF5 would, or refuse them.

Sources lie in the directory of the scanned file or below it, or where the options allow; a file
that could name any path would copy that path's content into a repository. libhdf5 also searches the
working directory and a directory from an environment variable, which mean nothing on an executor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from h5py import h5d, h5o

from icevirt.errors import ScanError, UnsupportedError
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import beside
from icevirt_scanners.hdf5.elsewhere import REMEDY, outside
from icevirt_scanners.hdf5.files import FileContext, HeldFile, explained, held
from icevirt_scanners.hdf5.hierarchy.dimensions import VariableAxis
from icevirt_scanners.hdf5.hierarchy.links import object_at
from icevirt_scanners.hdf5.hierarchy.walk import found_dataset
from icevirt_scanners.hdf5.raw.file import RawFile
from icevirt_scanners.hdf5.types.attributes import FoundAttributes
from icevirt_scanners.hdf5.types.datatypes import NoDataTypeError, element_of
from icevirt_scanners.hdf5.variable import HDF5Variable, variable_of

_PREFIX = "HDF5_VDS_PREFIX"
_DEEPEST = 8  # virtual datasets over each other


@contextmanager
def source_file(context: FileContext, name: str, facts: dict[str, Any]) -> Iterator[Any]:
    """Open the file that a virtual dataset of the context's file names; None where it is missing.

    Raises:
        UnsupportedError: It lies where it may not, or libhdf5 would look for it elsewhere.
        ScanError: It is damaged.
    """
    if name == ".":
        yield context
        return
    try:
        source = _found(context, name, facts)
    except UnsupportedError as error:
        raise outside(error, facts) from error
    if source is None:
        yield None
        return
    with source:
        for known in (context, *context.parents):
            if source.file.url == known.source.file.url:
                yield known
                return
        context.beside[source.file.url] = source.file
        with held(source, again=True) as file, explained(source.file.url):
            yield _nested(context, source, file)


def _found(context: FileContext, name: str, facts: dict[str, Any]) -> Any:
    path = context.source.local_path
    if path is None:
        url = beside(context.source.file.url, name)
        if url is None:
            raise UnsupportedError("a source whose name is not a relative path", source=name)
        return context.elsewhere.source(url)
    if _PREFIX in os.environ:
        raise ScanError(
            f"the environment variable {_PREFIX} says where sources of virtual datasets lie",
            do="Unset it: the source of values must not depend on the process.",
            **facts,
        )
    directory = Path(path).parent
    places = [directory / name]  # of an absolute name it is the name itself
    if os.path.isabs(name):
        places.append(directory / Path(name).name)
    if os.path.isabs(name) and not os.path.lexists(name):
        del places[0]  # libhdf5 goes on as well, and files with such names were often moved
    for place in places:
        found = context.elsewhere.source(str(place))
        if found is not None:
            return found
    if not os.path.isabs(name) and os.path.lexists(name):
        raise ScanError(
            "a source of the values is missing beside the file, and found in the working directory",
            do=f"Move it beside the file, or scan from another directory. {REMEDY}",
            **facts,
            source=name,
        )
    return None


def _nested(context: FileContext, source: ByteSource, file: HeldFile) -> FileContext:
    inner = FileContext.of(
        source,
        replace(context.options, concat_dim=None, pad=()),
        file=file,
        raw=RawFile.of(source, base=file.fid.get_create_plist().get_userblock()),
        elsewhere=context.elsewhere,
        beside=context.beside,
        parents=(context, *context.parents),
        above=context.above,
    )
    inner.budget = context.budget
    return inner


def source_dataset(context: FileContext, name: str, facts: dict[str, Any]) -> HDF5Variable:
    """Return a dataset of a source file as it lies there, without anything of netCDF.

    Its path is that of the virtual dataset, which is what a person can leave out.

    Raises:
        ScanError: It is missing, or leads back to itself.
        UnsupportedError: Its values lie in raw files, or zarr has no type for them.
    """
    found = object_at(context.fid, name.encode("utf-8", "surrogateescape"))
    if not isinstance(found, h5d.DatasetID):
        raise ScanError("a source of the values is missing", do=REMEDY, **facts, dataset=name)
    address = h5o.get_info(found).addr
    dataset = found_dataset(found, facts["variable"], b"", address)
    dataset.header = context.header(address)
    plist = found.get_create_plist()
    if plist.get_external_count():
        raise UnsupportedError("a virtual dataset over raw files", do=REMEDY, **facts, dataset=name)
    if plist.get_layout() == h5d.VIRTUAL:
        key = (context.source.file.url, dataset.address)
        if key in context.above or len(context.above) >= _DEEPEST:
            raise ScanError(
                "a virtual dataset that refers to itself, or through too many others",
                do=REMEDY,
                **facts,
                dataset=name,
            )
    try:
        element = element_of(found.get_type())
    except NoDataTypeError as error:
        raise UnsupportedError(str(error), do=REMEDY, **facts, dataset=name) from error
    shape = (*(dataset.shape or ()), *element.inner)
    axes = tuple(VariableAxis("") for _ in shape)
    return variable_of(
        dataset, FoundAttributes(), element=element, axes=axes, shape=shape, context=context
    )
