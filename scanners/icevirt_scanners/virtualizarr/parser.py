"""Find a parser by its name and run it: the one place that calls VirtualiZarr."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from icevirt.errors import IcevirtError, InvalidInputError, ScanError
from icevirt.scan.contract import ByteSource
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.virtualizarr.store import SourceStore

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
