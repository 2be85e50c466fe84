"""Parsers with VirtualiZarr's interface over icevirt's scanners."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from icevirt.access.virtualizarr import manifest_group_of
from icevirt.api.choices import ScanOptionsLike, scanner_options
from icevirt.archive.scanned import ScannedFile, Severity
from icevirt.errors import InvalidInputError
from icevirt.objects.source import OpenedSource
from icevirt.objects.source_access import grant_access
from icevirt.scan import registry as scanners
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.options import ScanOptions
from icevirt.virtualizarr.errors import UnparsableError, caught_by_virtualizarr
from icevirt.virtualizarr.registry_access import ReaderSource, RegistryAccess

if TYPE_CHECKING:
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.manifests import ManifestStore

type ReaderFactory = Callable[[Any, str], Any]
"""Called with a store and a path; returns a file object."""


class FileParser:
    """Read a file of any kind that icevirt scans; its first bytes decide which.

    Files are read through the registry's stores, and through nothing else.

    Args:
        group: Take only what is below this group of the file, which becomes the root.
        drop_variables: Names or absolute paths of variables to leave out. A name that is not there
            is no error.
        reader_factory: Called with a store and a path; returns a file object. By default icevirt
            reads by itself, with few requests, and local files directly.
        scan_options: What else a scan does: `icevirt.ScanOptions`, or a mapping like
            ``{"variable_policy": "skip"}``.

    Raises:
        InvalidInputError: An option is wrong, or named in ``scan_options`` too.
    """

    _scanner: ClassVar[str] = ""

    def __init__(
        self,
        group: str | None = None,
        drop_variables: Iterable[str] | None = None,
        reader_factory: ReaderFactory | None = None,
        *,
        scan_options: ScanOptionsLike = None,
    ) -> None:
        self.group, self.reader_factory = group, reader_factory
        self.drop_variables = None if drop_variables is None else tuple(drop_variables)
        self._options = _options(
            self._scanner,
            ScanOptions.of(scan_options),
            {"source_group": group or None, "drop_variables": self.drop_variables},
        )

    def __call__(self, url: str, registry: ObjectStoreRegistry[Any]) -> ManifestStore:
        """Describe a file as a store of manifests.

        Raises:
            InvalidInputError: The registry has no store for the file, or for one it refers to.
            MissingFileError: There is no such file; a ``FileNotFoundError`` too.
            ParseError: It is damaged, or of another kind; a ``ValueError`` too.
            StorageError: A store refuses, or does not answer.
            UnparsableError: Something in it has no exact representation; a ``NotImplementedError``
                too.
        """
        from virtualizarr.manifests import ManifestStore

        access = RegistryAccess(registry=registry)
        with (
            caught_by_virtualizarr(),
            grant_access(access),
            self._open(access, url) as source,
        ):
            scanned = scanners.scan(source, self._options)
        own = scanned.source.url
        for target in _targets(scanned) - {own}:
            access.resolve(target)
        for finding in scanned.findings:
            if finding.severity is Severity.warning:
                warnings.warn(f"{url}: {finding.path}: {finding.message}", stacklevel=2)
        group = manifest_group_of(scanned, {own: url})
        return ManifestStore(registry=registry, group=group)

    def _open(self, access: RegistryAccess, url: str) -> OpenedSource:
        if self.reader_factory is None:
            return access.open(url)
        return ReaderSource(url, self.reader_factory(*access.resolve(url)))

    def __repr__(self) -> str:
        shown = {"group": self.group, "drop_variables": self.drop_variables}
        given = ", ".join(f"{name}={value!r}" for name, value in shown.items() if value)
        return f"icevirt.virtualizarr.{type(self).__name__}({given})"


class Hdf5Parser(FileParser):
    """Read HDF5 and NetCDF-4 files, as ``virtualizarr.parsers.HDFParser`` does.

    Args:
        group: Take only what is below this group of the file, which becomes the root.
        drop_variables: Names or absolute paths of variables to leave out. A name that is not there
            is no error.
        reader_factory: Called with a store and a path; returns a file object. By default icevirt
            reads by itself, with few requests, and local files directly.
        links_and_references: Only False: VirtualiZarr's draft of a convention.
        scan_options: What else a scan does: `icevirt.ScanOptions`, or a mapping like
            ``{"variable_policy": "skip"}``.

    Raises:
        InvalidInputError: An option is wrong, or named in ``scan_options`` too.
        UnparsableError: ``links_and_references`` is true.
    """

    _scanner = "hdf5"

    def __init__(
        self,
        group: str | None = None,
        drop_variables: Iterable[str] | None = None,
        reader_factory: ReaderFactory | None = None,
        links_and_references: bool = False,
        *,
        scan_options: ScanOptionsLike = None,
    ) -> None:
        if links_and_references:
            raise UnparsableError(
                "the draft convention of links and references is not supported",
                do="Parse such files with virtualizarr.parsers.HDFParser, or leave their variables"
                ' out: scan_options={"variable_policy": "skip"}.',
            )
        super().__init__(group, drop_variables, reader_factory, scan_options=scan_options)


class NetCDF3Parser(FileParser):
    """Read NetCDF-3 files (classic, 64-bit offset, CDF-5), as VirtualiZarr's parser does.

    Args:
        group: Only None or the root: there are no groups.
        skip_variables: Names of variables to leave out.
        reader_factory: Called with a store and a path; returns a file object.
        scan_options: What else a scan does: `icevirt.ScanOptions`, or a mapping.

    Raises:
        InvalidInputError: An option is wrong, or named in ``scan_options`` too.
    """

    _scanner = "netcdf3"

    def __init__(
        self,
        group: str | None = None,
        skip_variables: Iterable[str] | None = None,
        reader_factory: ReaderFactory | None = None,
        *,
        scan_options: ScanOptionsLike = None,
    ) -> None:
        super().__init__(group, skip_variables, reader_factory, scan_options=scan_options)

    @property
    def skip_variables(self) -> tuple[str, ...] | None:
        """Variables that are left out."""
        return self.drop_variables


def _options(scanner: str, given: ScanOptions, named: Mapping[str, Any]) -> ScannerOptions:
    """Return what the scanner is given, from options under VirtualiZarr's names and ours."""
    chosen = given.list_chosen()
    twice = [name for name, value in named.items() if value is not None and name in chosen]
    if twice or (scanner and "scanner" in chosen):
        raise InvalidInputError(
            "an option is given twice, to the parser and in scan_options",
            do="Leave it out of scan_options.",
            options=twice or ["scanner"],
        )
    more = {name: value for name, value in named.items() if value is not None}
    options = scanner_options(ScanOptions.of({**chosen, **more}))
    return replace(options, scanner=scanner) if scanner else options


def _targets(scanned: ScannedFile) -> set[str]:
    """Return the URLs that references lead to."""
    return {url for array in scanned.arrays for url in array.references.locations.url}
