"""Find a parser by its name and run it: the one place that calls VirtualiZarr.

Parsers read through a registry of stores with the methods of ``obspec``. `SourceStore` reads
through the byte source of the scan: its access grants apply, each answer is of the file as it was
opened, and requests are counted. Other files exist only if references of the scanned file may lead
to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module, metadata
from typing import Any

from icevirt.errors import IcevirtError, InvalidInputError, ScanError
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import Elsewhere

_PARSERS = "virtualizarr.parsers"
_INSTALL = "Run `pip install virtualizarr obspec-utils`."

type Parser = Callable[..., Any]
"""Called with ``url`` and ``registry``; returns a ``ManifestStore``."""


def installed_version() -> str:
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
    if not installed_version():
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


def parsed(parser: Parser, source: ByteSource, elsewhere: Elsewhere) -> Any:
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
            found = self._noted(lambda: self._elsewhere.source(f"{self.root}/{key}"))
            if found is None:
                raise FileNotFoundError(f"{self.root}/{key}")
            self._sources[key] = found
        return self._sources[key]

    def _read(self, path: str, offset: int, length: int) -> bytes:
        source = self._source(path)
        return self._noted(lambda: source.read(offset, length))

    def _noted[T](self, call: Callable[[], T]) -> T:
        try:
            return call()
        except IcevirtError as error:
            self.error = self.error or error
            raise
