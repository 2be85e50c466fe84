"""Describe a file by its DMR++ document: one request for all that scanning takes of a granule.

A document is another program's work, so the first of each kind that a process meets, and a sample
of the others, are compared with their files (`compared`). What it does not say is read from the
file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
from h5py import h5z

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.archive.sources import SourceFile
from icevirt.errors import ScanError, StorageError, UnauthorizedError
from icevirt.model import paths
from icevirt.model.attributes import FILL, Attributes, with_enumeration
from icevirt.model.chunks import ChunkTable
from icevirt.model.paths import dimension_name
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.scan.contract import ByteSource, Policy, Scanner, ScannerOptions, SidecarUse
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext, no_such_group
from icevirt_scanners.dmrpp.compared import (
    DIMENSION,
    GranuleFile,
    compare_with_file,
    read_from_file,
)
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

# the kinds that agreed with a file, and the variables of that, the latest at the end
_known: dict[Hashable, frozenset[str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Granule:
    """A file, and the document that describes it."""

    document: Document
    written: SourceFile  # the document
    described: GranuleFile
    context: ScanContext
    elsewhere: Elsewhere

    def describe(self) -> tuple[tuple[ScannedGroup, ...], tuple[ScannedArray, ...]]:
        """Return the groups and arrays of the file.

        Raises:
            ScanError: The document is damaged, contradicts its file, or has none beside it.
            UnsupportedError: A variable cannot be represented.
        """
        document, context, options = self.document, self.context, self.context.options
        _check_group(document, options.group, self.written.url)
        wanted = _of_group(document.variables, options.group)
        groups = _of_group(document.groups, options.group)
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
        arrays = context.arrays(said, partial(_array, granule=self))
        there = _compare_sample(self, arrays)
        unsaid = sorted(path for path in there - wanted.keys() if options.wants(path))
        lacking |= dict.fromkeys(unsaid, "nothing of it")
        if lacking:
            arrays += read_from_file(self.described, lacking, context)
        tell_unverifiable(context)
        described = tuple(
            ScannedGroup(path=path, attributes=Attributes.of(each)) for path, each in groups.items()
        )
        return described, arrays


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
    found, filters = _type_of(variable, document), set(chunks.filters)
    lacks = {
        "a policy that stores it": options.policy_of(path) in (Policy.native, Policy.inline),
        f"values of type {variable.kind}": found is None,
        ", ".join(sorted(set(variable.unknown))): bool(variable.unknown),
        "no chunks": variable.chunks is None,
        f"filters {' '.join(chunks.filters)}": not _FILTERS.keys() >= filters
        or (found is not None and bool(_pipeline(chunks, found[0], _edges(variable)).not_plain)),
        "dimensions without names": not all(name for name, _ in variable.dims),
        "chunks that were never written, and no fill value": not chunks.fill
        and chunks.inline is None
        and len(chunks.offset) < _count_chunks(variable),
        DIMENSION: not is_stored and [name for name, _ in variable.dims] == [variable.path],
    }
    return next((cause for cause, lacks_it in lacks.items() if lacks_it), "")


def _edges(variable: DapVariable) -> tuple[int, ...]:
    """Return the lengths of a chunk, or of a variable that is not in chunks."""
    edges = variable.chunks.edges if variable.chunks else ()
    return tuple(max(each, 1) for each in edges or (length for _, length in variable.dims))


def _count_chunks(variable: DapVariable) -> int:
    lengths = (length for _, length in variable.dims)
    return math.prod(-(-n // edge) for n, edge in zip(lengths, _edges(variable), strict=False))


def _compare_sample(granule: Granule, arrays: tuple[ScannedArray, ...]) -> frozenset[str]:
    """Compare a document with its file: if one may not be the other's, or its kind is new.

    Returns:
        The variables of the file, or of the last one of its kind that was compared.

    Raises:
        ScanError: It contradicts its file. Then the next one of its kind is compared, too.
    """
    kind = tuple(
        (each.path, each.shape, each.chunk_shape, repr(each.data_type), repr(each.codecs))
        for each in arrays
    )
    there = _known.pop(kind, None) if kind else None
    digest = hashlib.blake2b(
        granule.written.url.encode(errors="surrogatepass"), digest_size=8
    ).digest()
    written = granule.written.last_modified_seconds
    is_doubtful = any((each.references.locations.last_modified > written).any() for each in arrays)
    is_doubtful |= _names_another(granule.document.name, granule.described.url)
    if is_doubtful or there is None or int.from_bytes(digest) % _ONE_IN == 0:
        there = compare_with_file(granule.described, arrays, granule.context, granule.elsewhere)
    _known[kind] = there
    if len(_known) > _KINDS:
        del _known[next(iter(_known))]
    return there


def _names_another(name: str, url: str) -> bool:
    """Say whether a document names another file than the one beside it; it may name none."""
    own = url.rpartition("/")[2]
    return bool(name) and name.rpartition("/")[2] not in (own, unquote(own))


def _names(variable: DapVariable) -> tuple[str, ...]:
    return tuple(paths.name(path) for path, _ in variable.dims)


def _array(path: str, variable: DapVariable, *, granule: Granule) -> ScannedArray:
    """Make the array of a variable.

    Raises:
        ScanError: The document contradicts itself, or the file is missing.
        UnsupportedError: The document does not say all that reading takes.
    """
    context, url = granule.context, granule.written.url
    found, chunks = _type_of(variable, granule.document), variable.chunks
    if found is None or chunks is None:
        raise LookupError(path)  # such variables are read from the file
    dtype, named = found
    shape = tuple(length for _, length in variable.dims)
    edges = _edges(variable)
    if len(edges) != len(shape):
        raise damage_error(url, variable=path, chunks=edges, shape=shape)
    is_inline = chunks.inline is not None
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
                *_pipeline(chunks, dtype, edges).keep(),
            ),
            fill_value=spell(_fill(variable, dtype, url), dtype),
            attributes=with_enumeration(attributes, named, dtype),
            references=ChunkTable.empty(len(shape)),
            contiguous=bool(shape) and not (is_inline or chunks.edges or chunks.filters),
        ),
        dtype=dtype,
    )
    columns = _references(path, given, chunks, granule)
    return complete(given, columns, context, granule.elsewhere)


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


def _fill(variable: DapVariable, dtype: np.dtype[Any], url: str) -> Any:
    """Return the fill value; documents have six digits of it, attributes may have all."""
    text = variable.chunks.fill if variable.chunks else ""
    if not text:
        return dtype.type(0)
    try:
        found = number_of(text, dtype)
    except ValueError as error:
        cause = f"the fill value {text!r}"
        raise damage_error(url, variable=variable.path, cause=cause) from error
    if dtype.kind != "f":
        return found
    stated = variable.attributes.get(FILL)
    exact = (
        each for each in (stated, default_fill(dtype)) if isinstance(each, float | np.floating)
    )
    return next((dtype.type(each) for each in exact if f"{each:.6g}" == f"{found:.6g}"), found)


def _references(path: str, given: GivenArray, chunks: Chunks, granule: Granule) -> ReferenceColumns:
    """Return the references of an array to the file beside the document."""
    ndim, url = len(given.scanned.shape), granule.written.url
    if chunks.inline is not None:
        nbytes = math.prod(given.scanned.shape) * given.dtype.itemsize
        if (raw := chunks.values(nbytes)) is None:
            cause = "values in the document that are more or fewer than the array has"
            raise damage_error(url, variable=path, cause=cause)
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
        raise damage_error(url, variable=path, cause=str(error)) from error
    if bool((first % edges).any()):
        cause = "a chunk between the places of the chunk grid"
        raise damage_error(url, variable=path, cause=cause)
    return ReferenceColumns(
        index=first // edges,
        name=np.zeros(len(first), np.int64),
        names=(granule.described.url,) if len(first) else (),
        offset=np.array(chunks.offset, np.int64),
        length=np.array(chunks.length, np.int64),
        inline_index=np.zeros((0, ndim), np.int64),
        inline=(),
    )


def describe_beside(
    source: ByteSource,
    options: ScannerOptions,
    scanner: Scanner,
    scanning: Callable[[ByteSource, ScannerOptions], ScannedFile],
) -> ScannedFile | None:
    """Describe a file by the document beside it, whose name is the file's with ``.dmrpp`` behind.

    Args:
        source: The file.
        options: Of the scan.
        scanner: That describes files of its format.
        scanning: What it does without a document.

    Returns:
        None where there is no document, and none is required.

    Raises:
        ScanError: There is none, or it is damaged, or contradicts the file.
    """
    name = f"{source.local_path or source.file.url}{SUFFIX}"
    with Elsewhere(source, options.allow_references_to) as elsewhere:
        if (body := _read_beside(elsewhere, name)) is None:
            if options.sidecar != SidecarUse.require:
                return None
            raise ScanError(
                "the file has no sidecar",
                do=write_remedy("Leave ", write_option("sidecar", "require"), " out."),
                file=source.file.url,
                looked_for=[name.rpartition("/")[2]],
            )
        raw, written = body
        context = ScanContext.of(source, options)
        granule = Granule(
            document=read_document(raw, written.url),
            written=written,
            described=GranuleFile(
                url=source.file.url,
                document=written.url,
                open=lambda: nullcontext(source),
                scanning=scanning,
                instead=write_remedy(
                    ": ", write_code('scan_options={"sidecar": "ignore"}', "--sidecar ignore")
                ),
            ),
            context=context,
            elsewhere=elsewhere,
        )
        groups, arrays = granule.describe()
        context.tell(paths.ROOT, "by-sidecar", "a DMR++ document beside the file describes it")
    return context.describe(scanner, groups, arrays)


def _read_beside(elsewhere: Elsewhere, name: str) -> tuple[bytes, SourceFile] | None:
    """Return a document and what is known of it; None where there is none, or nobody says."""
    if elsewhere.is_far and name.startswith("file://"):
        return None  # no file of this machine is read for one that is none of it
    try:
        opened = elsewhere.source(name)
    except (StorageError, UnauthorizedError):  # buckets that may not be listed
        return None
    if opened is None:
        return None
    with opened:
        return opened.read(0, opened.file.size), opened.file
