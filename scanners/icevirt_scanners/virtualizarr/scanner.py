"""Scan a file with a VirtualiZarr parser: ``virtualizarr:FITSParser``.

It is never chosen by content, only by name. References are checked against grids and lengths of
files and get checksums. The parser alone answers for what they decode to, and the scan says so. For
HDF5 and NetCDF, icevirt's own scanners decode more files, and know which they cannot decode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module, metadata
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.archive.sources import SourceFile
from icevirt.errors import IcevirtError, InvalidInputError, ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.paths import node_name
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext, no_such_group
from icevirt_scanners.given import GivenArray, ReferenceColumns, complete, tell_unverifiable
from icevirt_scanners.kerchunk.scanner import regular_array
from icevirt_scanners.virtualizarr.messages import Points
from icevirt_scanners.virtualizarr.reference_libraries import read_values
from icevirt_scanners.virtualizarr.vouching import vouch

_PARSERS = "virtualizarr.parsers"
_INSTALL = "Run `pip install virtualizarr obspec-utils`."

type Parser = Callable[..., Any]
"""Called with ``url`` and ``registry``; returns a ``ManifestStore``."""


def find_version() -> str:
    """Return VirtualiZarr's version, "" where it is not installed."""
    try:
        return metadata.version("virtualizarr")
    except metadata.PackageNotFoundError:
        return ""


def parser_of(named: str) -> Parser:
    """Return the parser of a name: of VirtualiZarr's own, or ``package.module.name``.

    What is named may be a class, which is then called without arguments, or a parser already made.

    Raises:
        InvalidInputError: No repository there.
        ScanError: VirtualiZarr, or what the parser itself needs, is not installed.
    """
    if not find_version():
        raise ScanError("VirtualiZarr is not installed", do=_INSTALL, parser=named)
    module, _, name = named.rpartition(".")
    try:
        found = getattr(import_module(module or _PARSERS), name)
        parser: Parser = found() if isinstance(found, type) else found
    except ModuleNotFoundError as error:
        raise ScanError(
            "a VirtualiZarr parser cannot be loaded",
            do=f"Install {error.name}, or correct the name.",
            parser=named,
            cause=str(error),
        ) from error
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            "no such parser",
            do="Name one of VirtualiZarr's parsers, or your own as package.module.name.",
            parser=named,
            there=sorted(import_module(_PARSERS).__all__),
            cause=str(error),
        ) from error
    if not callable(parser):
        raise InvalidInputError("this is not a parser", do="Name a callable.", parser=named)
    return parser


def parse(parser: Parser, source: ByteSource, elsewhere: Elsewhere) -> Any:
    """Run a parser on a file and return the group at the root of what it found.

    A local file is read by the parser itself; one on a server, and what lies beside it, as
    ``source`` and ``elsewhere`` read.

    Raises:
        ScanError: It fails, whatever it raises.
        StorageError: The server fails.
    """
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    file, path = source.file.url, source.local_path
    stores: dict[str, Any] = {"file://": LocalStore()}
    remote = None
    if path is None:
        remote = SourceStore(source, elsewhere)
        stores = {remote.root: remote}
    registry: Any = ObjectStoreRegistry(stores)
    try:
        url = file if path is None else f"file://{path}"
        return parser(url=url, registry=registry)._group  # noqa: SLF001 - as VirtualiZarr
    except (IcevirtError, MemoryError):
        raise
    except ImportError as error:
        raise ScanError(
            "a parser of VirtualiZarr lacks a package",
            do=f"Install {error.name}.",
            file=file,
            cause=str(error),
        ) from error
    except Exception as error:
        if remote is not None and remote.error is not None:
            raise remote.error from error
        raise ScanError(
            f"VirtualiZarr cannot read the file: {type(error).__name__}",
            do="Leave it out, or name another scanner.",
            file=file,
            cause=str(error),
        ) from error


class Whole:
    """The answer to a request for all of a file."""

    def __init__(self, body: bytes, meta: dict[str, Any]) -> None:
        self._body = body
        self.meta = meta
        self.attributes: dict[str, str] = {}
        self.range = (0, len(body))

    def buffer(self) -> memoryview:
        """Return the bytes."""
        return memoryview(self._body)

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    def bytes(self) -> bytes:
        """Return the bytes."""
        return self._body


class SourceStore:
    """Serves the scanned file, and files beside it.

    Args:
        source: The scanned file, on a server.
        elsewhere: Says what else may be read.

    Attributes:
        root: The URL that paths are below: scheme and host.
        error: What went wrong first. Libraries that read through this store hide it in their own.
    """

    def __init__(self, source: ByteSource, elsewhere: Elsewhere) -> None:
        scheme, _, rest = source.file.url.partition("://")
        self.root = f"{scheme}://{rest.partition('/')[0]}"
        self.error: IcevirtError | None = None
        self._elsewhere = elsewhere
        self._sources: dict[str, ByteSource] = {rest.partition("/")[2]: source}

    def head(self, path: str) -> dict[str, Any]:
        """Return what is known of a file. Raises ``FileNotFoundError``."""
        file = self._source(path).file
        seconds = file.last_modified / 1_000_000_000
        return {
            "path": path,
            "size": file.size,
            "e_tag": file.etag or None,
            "last_modified": datetime.fromtimestamp(seconds, UTC),
            "version": None,
        }

    def get(self, path: str, *, options: Any = None) -> Whole:
        """Return all of a file. Raises ``FileNotFoundError``."""
        del options  # conditions on a file that is the same all the time
        meta = self.head(path)
        return Whole(self._read(path, 0, meta["size"]), meta)

    def get_range(
        self, path: str, *, start: int, end: int | None = None, length: int | None = None
    ) -> bytes:
        """Return a range of a file: up to ``end``, or ``length`` bytes."""
        count = length if end is None else end - start
        return self._read(path, start, count or 0)

    def get_ranges(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return several ranges of a file."""
        counts = (
            lengths or ()
            if ends is None
            else [end - start for start, end in zip(starts, ends, strict=True)]
        )
        return [self._read(path, start, count) for start, count in zip(starts, counts, strict=True)]

    async def head_async(self, path: str) -> dict[str, Any]:
        """Do as `head`."""
        return self.head(path)

    async def get_async(self, path: str, *, options: Any = None) -> Whole:
        """Do as `get`."""
        return self.get(path, options=options)

    async def get_range_async(self, path: str, **where: Any) -> bytes:
        """Do as `get_range`."""
        return self.get_range(path, **where)

    async def get_ranges_async(self, path: str, **where: Any) -> list[bytes]:
        """Do as `get_ranges`."""
        return self.get_ranges(path, **where)

    # -- inside ----------------------------------------------------------------------------------

    def _source(self, path: str) -> ByteSource:
        key = path.lstrip("/")
        if key not in self._sources:
            found = self._note(lambda: self._elsewhere.source(f"{self.root}/{key}"))
            if found is None:
                raise FileNotFoundError(f"{self.root}/{key}")
            self._sources[key] = found
        return self._sources[key]

    def _read(self, path: str, offset: int, length: int) -> bytes:
        source = self._source(path)
        return self._note(lambda: source.read(offset, length))

    def _note[T](self, call: Callable[[], T]) -> T:
        try:
            return call()
        except IcevirtError as error:
            self.error = self.error or error
            raise


_INLINE = "__inlined__"  # VirtualiZarr's word for a chunk whose bytes are in the manifest


class VirtualizarrScanner:
    """Describes files as a parser of VirtualiZarr does.

    Args:
        parser: The parser, or its name: one of VirtualiZarr's, or ``package.module.name``.

    Raises:
        InvalidInputError: There is no such parser.
        ScanError: VirtualiZarr is not installed.
    """

    name = "virtualizarr"

    def __init__(self, parser: Parser | str = "") -> None:
        self._parser = parser_of(parser) if isinstance(parser, str) and parser else parser
        self._label = parser if isinstance(parser, str) else type(parser).__name__
        self._last: tuple[SourceFile, Points] | None = None
        self.version = f"4 (VirtualiZarr {find_version()} {self._label})"

    def accepts(self, head: bytes) -> bool:  # noqa: ARG002
        """Say no: this scanner is only used where it is named."""
        return False

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file.

        Raises:
            ScanError: The parser fails, or refers to bytes that are not there.
            UnsupportedError: It refers to where it may not.
        """
        return self._scan(source, options, is_vouched=True)

    def read_values(
        self, source: ByteSource, path: str, region: tuple[slice, ...]
    ) -> np.ndarray[Any, Any]:
        """Return the undecoded values of a box, by the reference library of the format.

        Raises:
            UnsupportedError: There is none, or it is not installed.
            ScanError: The file is not as it is described.
        """
        return read_values(partial(self._describe, source), source, path, region)

    def _describe(self, source: ByteSource) -> Points:
        """Return the arrays of the file that was read last, and where their points are."""
        if self._last is None or self._last[0] != source.file:
            found = self._scan(source, ScannerOptions(), is_vouched=False)
            self._last = source.file, Points({each.path: each for each in found.arrays})
        return self._last[1]

    def _scan(
        self, source: ByteSource, options: ScannerOptions, *, is_vouched: bool
    ) -> ScannedFile:
        context = ScanContext.of(source, options)
        context.tell(paths.ROOT, "by-virtualizarr", f"described by VirtualiZarr's {self._label}")
        with Elsewhere(source, options.allow_references_to) as elsewhere:
            root = self._root(source, elsewhere, options.group)
            nodes = list(_below(paths.ROOT, root, context))
            context.equal = options.equal_in_files(
                (
                    (path, node.metadata.dimension_names or (), node.metadata.attributes)
                    for path, node in nodes
                    if not _is_group(node)
                ),
                ((path, node.metadata.attributes) for path, node in nodes if _is_group(node)),
            )

            def make(path: str, node: Any) -> ScannedArray:
                array = _describe(path, node, source.file.url)
                return complete(array, _columns_of(node.manifest), context, elsewhere)

            scanned = ((path, node) for path, node in nodes if not _is_group(node))
            arrays = context.arrays(scanned, make)
            if is_vouched:
                arrays = vouch(arrays, context, elsewhere)
            tell_unverifiable(context)
        return context.describe(
            self,
            tuple(
                ScannedGroup(path=path, attributes=Attributes.of(node.metadata.attributes))
                for path, node in nodes
                if _is_group(node)
            ),
            arrays,
        )

    def _root(self, source: ByteSource, elsewhere: Elsewhere, group: str) -> Any:
        url = source.file.url
        if isinstance(self._parser, str):
            raise InvalidInputError(
                "the name of the parser is missing",
                do="Name one: virtualizarr:HDFParser.",
                file=url,
            )
        node = parse(self._parser, source, elsewhere)
        for name in paths.canonical(group).split("/")[1:]:
            if name and name not in node.groups:
                there = sorted(node.groups)
                raise no_such_group(url, group, there)
            node = node.groups[name] if name else node
        return node


def _is_group(node: Any) -> bool:
    return hasattr(node, "groups")


def _below(path: str, group: Any, context: ScanContext) -> Iterator[tuple[str, Any]]:
    """Yield a group, then what is in it, then what is below."""
    yield path, group
    for name, array in sorted(group.arrays.items(), key=_first_byte):
        yield _inside(path, name, context), array
    for name, inner in group.groups.items():
        yield from _below(_inside(path, name, context), inner, context)


def _first_byte(item: tuple[str, Any]) -> int:
    """Return where an array begins in its file: parsers may give arrays in another order each time.

    Those of which no byte is in a file come first.
    """
    manifest = item[1].manifest
    linked = (manifest._paths != "") & (manifest._paths != _INLINE)  # noqa: SLF001
    return int(manifest._offsets[linked].min()) if linked.any() else -1  # noqa: SLF001


def _inside(path: str, name: object, context: ScanContext) -> str:
    own, escaped = node_name(str(name).encode("utf-8", "surrogatepass"))
    inside = paths.join(path, own)
    if escaped:
        context.tell(inside, "renamed", f"the name {name!r} is not a valid node name in Zarr")
    return inside


def _describe(path: str, array: Any, file: str) -> GivenArray:
    """Describe a manifest array. Raises `UnsupportedError`."""
    from zarr.core.buffer import default_buffer_prototype

    documents = array.metadata.to_buffer_dict(default_buffer_prototype())
    document: dict[str, Any] = json.loads(documents["zarr.json"].to_bytes())
    if document["chunk_grid"]["name"] != "regular":
        raise UnsupportedError(
            "an array with a chunk grid that is not regular",
            do="Leave it out with drop_variables.",
            file=file,
            variable=path,
        )
    dtype = array.dtype if array.dtype.kind != "T" else np.dtype(object)
    dtype = dtype.newbyteorder("=") if dtype.names is None else dtype
    return regular_array(path, document, dtype, array.metadata.attributes)


def _columns_of(manifest: Any) -> ReferenceColumns:
    # what is public of a manifest is an object for each chunk
    located = manifest._paths  # noqa: SLF001
    linked = (located != "") & (located != _INLINE)
    index = np.argwhere(linked).reshape(int(linked.sum()), located.ndim)
    names, codes = np.unique(located[linked], return_inverse=True)
    inline = dict(manifest._inlined)  # noqa: SLF001
    return ReferenceColumns(
        index=index.astype(np.int64),
        name=codes.astype(np.int64).reshape(-1),
        names=tuple(str(name) for name in names),
        offset=manifest._offsets[linked].astype(np.int64).reshape(-1),  # noqa: SLF001
        length=manifest._lengths[linked].astype(np.int64).reshape(-1),  # noqa: SLF001
        inline_index=np.array(list(inline), np.int64).reshape(len(inline), located.ndim),
        inline=tuple(bytes(body) for body in inline.values()),
    )
