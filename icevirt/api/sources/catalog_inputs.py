"""Find the files of a build without sources: those requested by the scans of its catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from icevirt.api.arguments import identity_of, recorded_options, shared
from icevirt.api.sources.inputs import Inputs, Sources
from icevirt.catalog.parts import check_mark
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
) -> Inputs:
    """Return the sources, or where there are none, those of the catalog's scans with ``options``.

    Args:
        sources: As for `build`.
        catalog: Of earlier scans.
        options: Of the scan.
        asset: Of STAC items.

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
            "neither sources nor a catalog given",
            do="Name files, directories, globs or lists of files, or a catalog that was scanned.",
        )
    storage = shared(catalog)
    check_mark(storage)
    files = files_asked(storage, identity_of(options))
    if not files:
        raise _no_scan(storage, options)
    return Inputs((), known=files)


def _no_scan(storage: Storage, options: ScannerOptions) -> InvalidInputError:
    scans = described_scans(storage)
    mine = recorded_options(options)
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
