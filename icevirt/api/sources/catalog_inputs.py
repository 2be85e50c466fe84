"""Find the files of a build without sources: those requested by the scans of its catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from icevirt.api.arguments import identity_of, recorded_options, shared
from icevirt.api.sources.inputs import Inputs, Sources
from icevirt.archive.catalog import BEFORE
from icevirt.catalog.parts import check_mark, version_of
from icevirt.catalog.scan_notes import described_scans, files_asked
from icevirt.errors import InvalidInputError
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.constructors import StorageLike
from icevirt.storage.protocol import Storage


def inputs_of(
    sources: Sources | None,
    catalog: StorageLike | None,
    options: ScannerOptions,
    *,
    asset: str | None,
    infers: bool,
) -> tuple[Inputs, ScannerOptions]:
    """Return the sources, or where there are none, those of the catalog's scans with ``options``.

    Args:
        sources: As for `build`.
        catalog: Of earlier scans.
        options: Of the scan.
        asset: Of STAC items.
        infers: The options name no dimension: without sources, take those of the only scan that
            is alike otherwise, where scans belong to dimensions.

    Raises:
        InvalidInputError: There is neither, or the catalog has no scan with these options.
        NotFoundError: There is no such catalog.
        AlreadyExistsError: Its path holds something else.
        FormatError: It is of another version, or damaged.
    """
    if sources is not None:
        return Inputs(sources, asset=asset), options
    if catalog is None:
        raise InvalidInputError(
            "neither sources nor a catalog given",
            do="Name files, directories, globs or lists of files, or a catalog that was scanned.",
        )
    storage = shared(catalog)
    check_mark(storage)
    version = version_of(storage)
    known = scans_alike(storage, options) if infers and version == BEFORE else []
    if len(known) > 1:
        raise _several(storage, known)
    options = known[0] if known else options
    files = files_asked(storage, identity_of(options, version))
    if not files:
        raise _no_scan(storage, options, version)
    return Inputs((), known=files), options


def scans_alike(storage: Storage, options: ScannerOptions) -> list[ScannerOptions]:
    """Return the options of a catalog's scans that differ from these in the dimensions alone.

    Only catalogs of version 4 have scans that belong to dimensions.
    """
    if version_of(storage) != BEFORE:
        return []
    there = described_scans(storage)
    dimensions = {_tupled(recorded["options"]["concat_dim"]) for recorded in there.values()}
    tried = [replace(options, concat_dim=each) for each in dimensions]
    return [each for each in tried if identity_of(each, BEFORE) in there]


def _tupled(recorded: str | list[str] | None) -> str | tuple[str, ...] | None:
    return tuple(recorded) if isinstance(recorded, list) else recorded


def _several(storage: Storage, known: list[ScannerOptions]) -> InvalidInputError:
    return InvalidInputError(
        "the catalog holds scans for several dimensions",
        do="Choose one with concat_dim (--concat-dim), or name the sources.",
        catalog=storage.url,
        dimensions=sorted(list(each.concat_dims) for each in known),
    )


def _no_scan(storage: Storage, options: ScannerOptions, version: int) -> InvalidInputError:
    scans = described_scans(storage)
    mine = recorded_options(options, version)
    return InvalidInputError(
        "the catalog has no scan with the options of this build",
        do="Pass the options of the scan to the build (`icevirt catalog` shows them), or name the "
        "sources.",
        catalog=storage.url,
        differences=[
            {name: f"{there} in the catalog, here {here}" for name, there, here in found}
            for recorded in scans.values()
            if (found := list(_differences(recorded, mine)))
        ],
    )


def _differences(
    recorded: Mapping[str, Any], mine: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield in which options and versions of scanners a scan differs, as far as both know them."""
    for kind in ("options", "scanners"):
        theirs, ours = recorded.get(kind, {}), mine[kind]
        for name in sorted({*theirs, *ours}):
            here = ours.get(name)
            here = list(here) if isinstance(here, tuple) else here
            if theirs.get(name) != here:
                yield name, theirs.get(name), here
