"""Builds without sources: of the files that the scans of a catalog were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from icevirt.api.inputs import Inputs, Sources
from icevirt.api.request import identity_of, shared, told_of
from icevirt.errors import InvalidInputError
from icevirt.scan.contract import ScanOptions
from icevirt.spark.asked import files_asked
from icevirt.spark.catalog import check_mark
from icevirt.spark.described import described_scans
from icevirt.storage.protocol import Storage
from icevirt.storage.resolve import StorageLike


def inputs_of(
    sources: Sources | None,
    catalog: StorageLike | None,
    options: ScanOptions,
    *,
    asset: str | None,
) -> Inputs:
    """Return the sources, or where there are none, those of the catalog's scans with ``options``.

    Raises:
        InvalidInputError: There is neither, or the catalog has no scan with these options.
        NotFoundError: There is no such catalog.
        AlreadyExistsError: Its path holds something else.
        FormatError: It is of another version, or damaged.
    """
    if sources is not None:
        return Inputs(sources, asset=asset)
    if catalog is None:
        raise InvalidInputError(
            "neither sources nor a catalog",
            do="Name files, directories, globs or lists of files, or a catalog that was scanned.",
        )
    storage = shared(catalog)
    check_mark(storage)
    files = files_asked(storage, identity_of(options))
    if not files:
        raise _no_scan(storage, options)
    return Inputs((), known=files)


def _no_scan(storage: Storage, options: ScanOptions) -> InvalidInputError:
    scans = described_scans(storage)
    mine = told_of(options)
    return InvalidInputError(
        "the catalog knows of no files that were scanned as this build scans",
        do="Give the build the options of the scan (`icevirt catalog` shows them), or name the"
        " sources.",
        catalog=storage.url,
        differences=[
            {name: f"{there} in the catalog, here {here}" for name, there, here in found}
            for told in scans.values()
            if (found := list(_differences(told, mine)))
        ],
    )


def _differences(
    told: Mapping[str, Any], mine: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield in which options and versions of scanners a scan differs, as far as both know them."""
    for kind in ("options", "scanners"):
        theirs, ours = told.get(kind, {}), mine[kind]
        for name in sorted({*theirs, *ours}):
            here = ours.get(name)
            here = list(here) if isinstance(here, tuple) else here
            if theirs.get(name) != here:
                yield name, theirs.get(name), here
