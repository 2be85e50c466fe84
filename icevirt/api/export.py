"""Implement `icevirt.export`: one version of a repository in another tool's format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from icevirt.access.kerchunk import Format, to_kerchunk
from icevirt.access.references import INLINE_NATIVE
from icevirt.archive.reports.relocation import ExportReport
from icevirt.errors import InvalidInputError, refuse_missing
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.authorization import Authorization
from icevirt.repo.made_here import identify, own_or
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.versioning.repo_updates import MAIN

if TYPE_CHECKING:
    from icevirt.execution.selection import ExecutorChoice

_FORMATS: dict[str, Format] = {".json": "json", ".parq": "parquet", ".parquet": "parquet"}


def export(
    repo: StorageLike | Repository,
    path: str | os.PathLike[str],
    *,
    to: Literal["kerchunk", "stac"] = "kerchunk",
    format: Format | None = None,  # noqa: A002 - as kerchunk and VirtualiZarr name it
    zarr_format: Literal[2, 3] = 2,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    group: str = "/",
    variables: Sequence[str] = (),
    drop_variables: Sequence[str] = (),
    inline_native: int = INLINE_NATIVE,
    authorize_virtual_chunk_access: Authorization = None,
    executor: ExecutorChoice = None,
) -> ExportReport:
    """Write one version of a repository for other tools: references, or an entry of a catalog.

    A STAC collection describes one group with the datacube extension, and a table (GeoParquet) has
    an item for each file that it refers to.

    Args:
        repo: Path or URL of the repository, or the repository.
        path: The JSON file, which is replaced, or the Parquet directory, which must not exist. Of
            STAC a directory, which must not exist.
        to: ``kerchunk`` for readers of kerchunk's references, or ``stac`` for catalogs.
        format: ``json`` or ``parquet``; by default what the suffix says (``.json``, ``.parq``,
            ``.parquet``).
        zarr_format: Of the metadata. Version 3 holds every array, but only in JSON, and xarray's
            ``engine="kerchunk"`` reads version 2 alone.
        branch: Export the tip of this branch; by default ``main``.
        tag: Export the version of this name.
        snapshot_id: Export this version.
        group: The group, with everything below it, or one array.
        variables: Names or absolute paths of the only arrays to write, coordinates included.
        drop_variables: Names or absolute paths of arrays to leave out.
        inline_native: Maximum bytes per array of repository chunks to embed.
        authorize_virtual_chunk_access: As for `icevirt.open`; needed only for STAC, and only if
            coordinates themselves lie in source files.
        executor: Reads the manifests for STAC, as in `icevirt.build`.

    Raises:
        NodeNotFoundError: There is no such group.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        UnsupportedError: An array cannot be expressed, or has more bytes in the repository.
        AlreadyExistsError: The directory exists.
        InvalidInputError: The format is unknown, or no array has a name given; or a group without
            variables is to be a collection.

    Examples:
        >>> icevirt.export("repo", "references.json").references
        60
    """
    if to not in ("kerchunk", "stac"):
        raise InvalidInputError(
            "unknown format to export to",
            do=write_remedy(
                "Pass ",
                write_code('to="kerchunk"', "--to kerchunk"),
                " or ",
                write_code('to="stac"', "--to stac"),
                ".",
            ),
            to=to,
        )
    if to == "stac":
        return _to_stac(
            repo,
            Path(path),
            {"branch": branch, "tag": tag, "snapshot_id": snapshot_id},
            group=group,
            drop_variables=list(drop_variables),
            access=authorize_virtual_chunk_access,
            executor=executor,
        )
    found = format or _FORMATS.get(PurePath(path).suffix.lower())
    if found is None:
        raise InvalidInputError(
            "the name of the output does not say its format",
            do=write_remedy(
                "Pass ",
                write_code('format="json" or "parquet"', "--format json or --format parquet"),
                ", or end the name in .json or .parquet.",
            ),
            path=os.fspath(path),
        )
    opened = repo if isinstance(repo, Repository) else Repository.open(repo)
    if branch is None and tag is None and snapshot_id is None:
        branch = MAIN
    session = opened.readonly_session(branch=branch, tag=tag, snapshot_id=snapshot_id)
    report = to_kerchunk(
        session,
        group,
        path,
        format=found,
        zarr_format=zarr_format,
        variables=variables,
        drop_variables=drop_variables,
        inline_native=inline_native,
    )
    return replace(report, repo=opened.storage.url)


def _to_stac(
    repo: StorageLike | Repository,
    path: Path,
    version: dict[str, str | None],
    *,
    group: str,
    drop_variables: list[str],
    access: Authorization,
    executor: ExecutorChoice,
) -> ExportReport:
    with suppress(ImportError):
        import pyproj  # noqa: F401 - behind eccodes, which xarray loads, it ends the process badly
    with refuse_missing("icevirt.export to STAC"):
        import xarray as xr

        from icevirt.api.stac.writing import write_stac
    storage = repo.storage if isinstance(repo, Repository) else storage_of(repo)
    own = own_or(access, identify(storage))
    opened = Repository.open(storage, authorize_virtual_chunk_access=own)
    if not any(version.values()):
        version = {"branch": MAIN}
    session = opened.readonly_session(**version)  # type: ignore[arg-type]  # a name each
    dataset = xr.open_dataset(
        storage,  # type: ignore[arg-type]  # the engine takes a storage
        engine="icevirt",
        group=group,
        snapshot_id=session.snapshot_id,
        drop_variables=drop_variables,
        authorize_virtual_chunk_access=own,
    )
    return write_stac(
        opened,
        session,
        dataset,
        path,
        group=group,
        executor=executor,
        is_latest=version.get("branch") is not None,
    )
