"""Scan DMR++ documents in place of the files that they describe: one request of a granule.

The file is the one beside the document, of the same name without ``.dmrpp``: what a document says
of other places is not followed. A document is another program's work, so the first of each kind
that a process meets, and a sample of the others, are compared with their files (`compared`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np
from h5py import h5z

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import ScanError
from icevirt.model import paths
from icevirt.model.attributes import FILL, Attributes, with_enumeration
from icevirt.model.chunks import ChunkTable
from icevirt.model.paths import dimension_name
from icevirt.scan.contract import ByteSource, Policy, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext, no_such_group
from icevirt_scanners.dmrpp.compared import DIMENSION, compare_with_file, read_from_file
from icevirt_scanners.dmrpp.document import (
    NUMBERS,
    Chunks,
    DapVariable,
    Document,
    number_of,
    read_document,
)
from icevirt_scanners.encoding import bytes_codec, default_fill, spell, with_fit_fill
from icevirt_scanners.given import (
    GivenArray,
    ReferenceColumns,
    complete,
    damage_error,
    tell_unverifiable,
)
from icevirt_scanners.hdf5.filters import Pipeline, pipeline_of

SUFFIX = ".dmrpp"
_FILTERS = {
    "deflate": h5z.FILTER_DEFLATE,
    "shuffle": h5z.FILTER_SHUFFLE,
    "fletcher32": h5z.FILTER_FLETCHER32,
}
_BOOLEANS = {"FALSE": 0, "TRUE": 1}
_LEVEL = 6  # of deflate, where a document does not say it; decoders need none
_ONE_IN = 64  # documents of a known kind that are compared with their files
_KINDS = 256  # that a process remembers
_INSTEAD = "Scan the file itself in place of its DMR++, or leave the variable out."

_known: dict[Hashable, None] = {}  # the kinds that agreed with a file, the latest at the end


class DmrppScanner:
    """Describes files by their DMR++ documents."""

    name = "dmrpp"
    version = "1"

    def accepts(self, head: bytes) -> bool:
        """Look for the name space of DMR++, which the root element declares."""
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<" and b"opendap.org/dap/dmrpp" in head

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file beside the document.

        Raises:
            ScanError: The document is damaged, contradicts its file, or has none beside it.
            UnsupportedError: A variable cannot be represented by what the document says.
        """
        url = source.file.url
        target, suffix = url[: -len(SUFFIX)], url[-len(SUFFIX) :]
        if suffix != SUFFIX:
            raise ScanError(
                "a DMR++ document whose name does not say which file it describes",
                do=f"Name it as its file, with {SUFFIX} at the end, and lay it beside the file.",
                file=url,
            )
        document = read_document(source.read(0, source.file.size), url)
        _check_group(document, options.group, url)
        wanted = _of_group(document.variables, options.group)
        groups = _of_group(document.groups, options.group)
        context = ScanContext.of(source, options)
        context.equal = options.equal_in_files(
            ((path, _names(each), each.attributes) for path, each in wanted.items()),
            groups.items(),
        )
        lacking = {
            path: cause
            for path, each in wanted.items()
            if options.wants(path) and (cause := _find_lack(path, each, document, options))
        }
        said = ((path, each) for path, each in wanted.items() if path not in lacking)
        with Elsewhere(source, options.allow_references_to, reads_servers=True) as elsewhere:
            make = partial(_array, document=document, context=context, target=target)
            arrays = context.arrays(said, partial(make, elsewhere=elsewhere))
            _compare_sample(elsewhere, target, arrays, context)
            if lacking:
                arrays += read_from_file(elsewhere, target, lacking, context)
        tell_unverifiable(context)
        described = tuple(
            ScannedGroup(path=path, attributes=Attributes.of(each)) for path, each in groups.items()
        )
        return context.describe(self, described, arrays)


def _check_group(document: Document, group: str, url: str) -> None:
    if paths.canonical(group) not in document.groups:
        raise no_such_group(url, group, sorted(document.groups))


def _of_group[T](nodes: Mapping[str, T], group: str) -> dict[str, T]:
    """Return the nodes of a group and below, by the paths that they have there."""
    top = paths.canonical(group)
    if top == paths.ROOT:
        return dict(nodes)
    return {
        path.removeprefix(top) or paths.ROOT: node
        for path, node in nodes.items()
        if path == top or path.startswith(f"{top}/")
    }


def _find_lack(
    path: str, variable: DapVariable, document: Document, options: ScannerOptions
) -> str:
    """Return why a variable is read from the file itself; "" where the document says all of it."""
    chunks = variable.chunks or Chunks()
    is_stored = bool(chunks.offset) or chunks.inline is not None
    lacks = {
        "a policy that stores it": options.policy_of(path) in (Policy.native, Policy.inline),
        f"values of type {variable.kind}": _type_of(variable, document) is None,
        ", ".join(sorted(set(variable.unknown))): bool(variable.unknown),
        "no chunks": variable.chunks is None,
        f"filters {' '.join(chunks.filters)}": not _FILTERS.keys() >= set(chunks.filters),
        "dimensions without names": not all(name for name, _ in variable.dims),
        "chunks that were never written, and no fill value": not chunks.fill
        and chunks.inline is None
        and len(chunks.offset) < _count_chunks(variable),
        DIMENSION: not is_stored and [name for name, _ in variable.dims] == [variable.path],
    }
    return next((cause for cause, lacks_it in lacks.items() if lacks_it), "")


def _count_chunks(variable: DapVariable) -> int:
    lengths = [length for _, length in variable.dims]
    edges = variable.chunks.edges if variable.chunks and variable.chunks.edges else lengths
    return math.prod(-(-n // max(edge, 1)) for n, edge in zip(lengths, edges, strict=False))


def _compare_sample(
    elsewhere: Elsewhere, target: str, arrays: tuple[ScannedArray, ...], context: ScanContext
) -> None:
    """Compare a document with its file: if it is older, if no other of its kind agreed, by sample.

    Raises:
        ScanError: It contradicts its file. Then the next one of its kind is compared, too.
    """
    kind = tuple(
        (each.path, each.shape, each.chunk_shape, repr(each.data_type), repr(each.codecs))
        for each in arrays
    )
    is_known = _known.pop(kind, False) is None
    digest = hashlib.blake2b(
        context.source.file.url.encode(errors="surrogatepass"), digest_size=8
    ).digest()
    written = context.source.file.last_modified_seconds
    is_older = any((each.references.locations.last_modified > written).any() for each in arrays)
    if is_older or not is_known or int.from_bytes(digest) % _ONE_IN == 0:
        compare_with_file(elsewhere, target, arrays, context)
    _known[kind] = None
    if len(_known) > _KINDS:
        del _known[next(iter(_known))]


def _names(variable: DapVariable) -> tuple[str, ...]:
    return tuple(paths.name(path) for path, _ in variable.dims)


def _array(
    path: str,
    variable: DapVariable,
    *,
    document: Document,
    context: ScanContext,
    target: str,
    elsewhere: Elsewhere,
) -> ScannedArray:
    """Make the array of a variable.

    Raises:
        ScanError: The document contradicts itself, or the file is missing.
        UnsupportedError: The document does not say all that reading takes.
    """
    found, chunks = _type_of(variable, document), variable.chunks
    if found is None or chunks is None:
        raise LookupError(path)  # such variables are read from the file
    dtype, named = found
    shape = tuple(length for _, length in variable.dims)
    edges = tuple(max(each, 1) for each in (chunks.edges or shape))
    if len(edges) != len(shape):
        raise damage_error(context.source.file.url, variable=path, chunks=edges, shape=shape)
    is_inline = chunks.inline is not None
    pipeline = _pipeline(chunks, dtype, edges)
    if pipeline.not_plain:
        what = "a variable cannot be represented by what its DMR++ says"
        raise context.refusal(path, what, do=_INSTEAD, cause=pipeline.not_plain)
    attributes = with_fit_fill(dict(variable.attributes), dtype, partial(context.warn, path))
    given = GivenArray(
        scanned=ScannedArray(
            path=path,
            dimension_names=tuple(map(dimension_name, _names(variable))),
            shape=shape,
            chunk_shape=edges,
            data_type=dtype.name,
            codecs=(
                bytes_codec(dtype, "big" if chunks.is_big_endian and not is_inline else "little"),
                *pipeline.keep(),
            ),
            fill_value=spell(_fill(variable, dtype, context), dtype),
            attributes=with_enumeration(attributes, named, dtype),
            references=ChunkTable.empty(len(shape)),
            contiguous=bool(shape) and not (is_inline or chunks.edges or chunks.filters),
        ),
        dtype=dtype,
    )
    return complete(given, _references(path, given, chunks, target, context), context, elsewhere)


def _type_of(
    variable: DapVariable, document: Document
) -> tuple[np.dtype[Any], Mapping[str, Any] | None] | None:
    """Return the type of a variable, and what its numbers are called; None: it has no numbers."""
    kind, named = variable.kind, None
    if kind == "Enum" and variable.enumeration in document.enumerations:
        kind, members = document.enumerations[variable.enumeration]
        if members == _BOOLEANS:
            return None  # h5py's type for what is true or false
        named = {"enum": dict(members), "enum_name": paths.name(variable.enumeration)}
    return (np.dtype(NUMBERS[kind]), named) if kind in NUMBERS else None


def _pipeline(chunks: Chunks, dtype: np.dtype[Any], edges: tuple[int, ...]) -> Pipeline:
    """Return the filters in the order of the file."""
    levels = iter(chunks.levels)
    filters = []
    for name in chunks.filters:
        values = {"deflate": (next(levels, _LEVEL),), "shuffle": (dtype.itemsize,)}.get(name, ())
        filters.append((_FILTERS[name], 0, values, name.encode()))
    return pipeline_of(filters, math.prod(edges) * dtype.itemsize)


def _fill(variable: DapVariable, dtype: np.dtype[Any], context: ScanContext) -> Any:
    """Return the fill value; documents have six digits of it, attributes may have all."""
    text = variable.chunks.fill if variable.chunks else ""
    if not text:
        return dtype.type(0)
    try:
        found = number_of(text, dtype)
    except ValueError as error:
        cause = f"the fill value {text!r}"
        url = context.source.file.url
        raise damage_error(url, variable=variable.path, cause=cause) from error
    if dtype.kind != "f":
        return found
    stated = variable.attributes.get(FILL)
    exact = (
        each for each in (stated, default_fill(dtype)) if isinstance(each, float | np.floating)
    )
    return next((dtype.type(each) for each in exact if f"{each:.6g}" == f"{found:.6g}"), found)


def _references(
    path: str, given: GivenArray, chunks: Chunks, target: str, context: ScanContext
) -> ReferenceColumns:
    """Return the references of an array to the file beside the document."""
    ndim = len(given.scanned.shape)
    if chunks.inline is not None:
        nbytes = math.prod(given.scanned.shape) * given.dtype.itemsize
        if (raw := chunks.values(nbytes)) is None:
            cause = "values in the document that are more or fewer than the array has"
            raise damage_error(context.source.file.url, variable=path, cause=cause)
        return ReferenceColumns(
            index=np.zeros((0, ndim), np.int64),
            name=np.zeros(0, np.int64),
            names=(),
            offset=np.zeros(0, np.int64),
            length=np.zeros(0, np.int64),
            inline_index=np.zeros((1, ndim), np.int64),
            inline=(raw,),
        )
    edges = np.array(given.scanned.chunk_shape, np.int64)
    try:
        first = chunks.positions(ndim)
    except ValueError as error:
        raise damage_error(context.source.file.url, variable=path, cause=str(error)) from error
    if bool((first % edges).any()):
        cause = "a chunk between the places of the chunk grid"
        raise damage_error(context.source.file.url, variable=path, cause=cause)
    return ReferenceColumns(
        index=first // edges,
        name=np.zeros(len(first), np.int64),
        names=(target,) if len(first) else (),
        offset=np.array(chunks.offset, np.int64),
        length=np.array(chunks.length, np.int64),
        inline_index=np.zeros((0, ndim), np.int64),
        inline=(),
    )
