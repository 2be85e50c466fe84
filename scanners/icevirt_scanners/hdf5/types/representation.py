"""Choose how a variable is represented.

In this order: stored whole (coordinates, strings, scalars, compact layout, short odd lengths),
referenced, referenced except for a few stored chunks, stored chunk by chunk.

`weight_of` estimates what that takes from headers alone, to divide a huge file. Measured on one
core: half a microsecond per chunk of an index, values at 200 MB/s if they are read, 0.1 ms for any
variable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import prod

from h5py import h5d

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray
from icevirt.archive.shares import Weight
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkTable
from icevirt.scan.policy import Policy
from icevirt_scanners import blocks
from icevirt_scanners.encoding import GZIP
from icevirt_scanners.given import digest_of
from icevirt_scanners.hdf5.files import CLOSE_IT, FileContext
from icevirt_scanners.hdf5.index.chunks import layout_of
from icevirt_scanners.hdf5.index.entries import ChunkEntries
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError
from icevirt_scanners.hdf5.types.datatypes import bytes_codec
from icevirt_scanners.hdf5.values.chunked import (
    check_decodable,
    may_leave_edges,
    offset_of,
    reference_chunks,
    store_chunks,
    stored_chunks,
    with_inner,
)
from icevirt_scanners.hdf5.values.digests import digest_of_dataset
from icevirt_scanners.hdf5.values.whole import stored_whole, wants_whole
from icevirt_scanners.hdf5.variable import HDF5Variable
from icevirt_scanners.hdf5.virtual.resolve import Resolved, resolve

_BY_POLICY = "its policy is 'native'"
LEAST = 200
"""References that take as long as the header of a variable."""

_BYTES = 100  # of values that are read in the time of a reference


def represent(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: The values can neither be referenced nor read and stored.
    """
    if variable.layout == h5d.VIRTUAL:
        return _virtual(variable, context)
    if wants_whole(variable, context):
        return stored_whole(variable, context)
    found = stored_chunks(variable, context) if variable.chunk is not None else None
    known, findings = variable.known, len(context.findings)
    if known is not None and found is not None:
        alike = known.array(found, size=context.source.file.size, context=context)
        if alike is not None:
            return alike
    if variable.not_plain or context.options.policy_of(variable.path) is Policy.native:
        array = _natively(variable, found, context, cause=_BY_POLICY)
    elif found is None:
        array = _block(variable, context)
    else:
        array = reference_chunks(variable, found, context) or _natively(variable, found, context)
    if known is not None and found is not None and len(context.findings) == findings:
        more = context.wanted(array) & (Fact.values | Fact.digest)
        if not more and not may_leave_edges(variable):
            known.keep_array(array, found)
    return _with_facts(
        array,
        context,
        values=lambda: stored_whole(variable, context),
        digest=lambda: digest_of_dataset(variable, found, context),
    )


def _with_facts(
    array: ScannedArray,
    context: FileContext,
    *,
    values: Callable[[], ScannedArray],
    digest: Callable[[], str],
) -> ScannedArray:
    """Return the array with the facts that combining files will need."""
    wanted = context.wanted(array)
    if Fact.values in wanted:
        return replace(array, beside=context.values_of(values))
    if Fact.digest in wanted:
        return replace(array, beside=FactsBeside(digest=digest()))
    return array


def _virtual(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Reference the chunks of the sources of a virtual dataset, or store its values."""
    resolved = resolve(variable, context)
    if context.options.policy_of(variable.path) is Policy.native:
        resolved = replace(resolved, array=None, reason=resolved.reason or _BY_POLICY)
    if resolved.missing:
        message = f"{len(resolved.missing)} source files are missing, first {resolved.missing[0]}:"
        context.warn(
            variable.path, "virtual-source-missing", f"{message} it reads as its fill value there"
        )
    array = resolved.array
    why = "" if array is not None else f"{variable.elsewhere}: {resolved.reason}"
    variable = replace(variable, elsewhere=why)

    def whole() -> ScannedArray:
        _check_here(variable, resolved, context)
        return stored_whole(variable, context)

    def digest() -> str:
        if resolved.array is None:
            return digest_of_dataset(variable, None, context)
        return digest_of(resolved.array, variable.element.dtype, context.elsewhere)

    if wants_whole(variable, context):
        return whole()
    if array is None:
        _check_here(variable, resolved, context)
        array = _natively(variable, None, context)
    else:
        message = f"its chunks are those of datasets in {resolved.files} files"
        context.tell(variable.path, "virtual-dataset", message)
    return _with_facts(array, context, values=whole, digest=digest)


def _check_here(variable: HDF5Variable, resolved: Resolved, context: FileContext) -> None:
    """Refuse to read a virtual dataset through libhdf5 where that would open the wrong file."""
    remote = context.source.local_path is None
    if not remote and context.file.is_detached:
        what = "values of a virtual dataset must be read, and this process has the file open"
        raise ScanError(what, do=CLOSE_IT, file=context.source.file.url, variable=variable.path)
    if not remote and not resolved.by_own_name:
        return
    cause = variable.elsewhere or "its values are needed while scanning"
    raise context.refusal(
        variable.path,
        "values of a virtual dataset in a remote file must be read"
        if remote
        else "values of a virtual dataset over its own file (named by file name) must be read",
        do="Copy it and its sources to local disk, or leave it out with drop_variables."
        if remote
        else 'Name the file "." in the virtual dataset, or leave it out with drop_variables.',
        cause=cause,
    )


def _block(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Reference a contiguous dataset, split into chunks of a readable size."""
    itemsize = variable.element.dtype.itemsize
    chunk = blocks.grid_of_block(variable.shape, itemsize)
    offset = offset_of(variable, context)
    table = ChunkTable.empty(len(variable.shape))
    if offset is not None and variable.nbytes:
        index, offsets, length = blocks.block_chunks(variable.shape, chunk, itemsize, offset)
        table = blocks.virtual(variable.path, index, offsets, length, context)
    return variable.array(chunk, (variable.element.codec(),), table, contiguous=True)


def _natively(
    variable: HDF5Variable,
    found: ChunkEntries | None,
    context: FileContext,
    *,
    cause: str = "filters that libhdf5 skips",
) -> ScannedArray:
    """Read and store all chunks."""
    cause = variable.not_plain or cause
    check_decodable(variable, context, cause)
    contiguous = variable.chunk is None or found is None
    if variable.chunk is not None and found is not None:
        chunk = variable.chunk
        index = with_inner(found.index, len(variable.shape))
    else:
        chunk = blocks.grid_of_block(variable.shape, variable.element.dtype.itemsize)
        edges = zip(variable.shape, chunk, strict=True)
        index = blocks.all_chunks(tuple(-(-length // edge) for length, edge in edges))
    table = store_chunks(variable, chunk, index, budget=context.budget, cause=cause)
    context.tell(variable.path, "stored-natively", cause)
    codecs = (bytes_codec(variable.element), GZIP)
    return variable.array(chunk, codecs, table, contiguous=contiguous)


def weight_of(variable: HDF5Variable, context: FileContext) -> Weight:
    """Return what a variable takes, and whether its chunk index can be read in runs."""
    options, path = context.options, variable.path
    if variable.layout == h5d.VIRTUAL:
        return Weight(path=path, cost=LEAST + variable.nbytes // _BYTES)
    places = 0
    if variable.chunk is not None:
        edges = zip(variable.own_shape, variable.own_chunk, strict=True)
        places = prod(-(-length // edge) for length, edge in edges)
    stored = (
        wants_whole(variable, context)
        or bool(variable.not_plain)
        or options.policy_of(path) in (Policy.native, Policy.inline)
    )
    if stored or context.wanted(_described(variable)):
        return Weight(path=path, cost=LEAST + places + variable.nbytes // _BYTES)
    plain = not variable.unfilled and variable.shape == variable.own_shape
    runs = places if plain and _has_runs(variable, context) else 0
    return Weight(path=path, cost=LEAST + places, chunks=runs)


def _described(variable: HDF5Variable) -> ScannedArray:
    """Return the array without references."""
    contiguous = variable.chunk is None
    size = variable.element.dtype.itemsize
    chunk = variable.chunk or blocks.grid_of_block(variable.shape, size)
    table = ChunkTable.empty(len(variable.shape))
    return variable.array(chunk, (), table, contiguous=contiguous)


def _has_runs(variable: HDF5Variable, context: FileContext) -> bool:
    """Say whether places in the index follow each other as those in the chunk grid do."""
    with suppress(NotUnderstoodError):
        if variable.header is not None and context.raw is not None:
            kind = layout_of(variable.header.layout, context.raw.space).kind
            return kind == "btree1" or (kind == "fixed" and variable.limits == variable.own_shape)
    return False
