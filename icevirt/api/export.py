"""Implement `icevirt.export`: one version of a repository in another tool's format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Literal

from icevirt.access.kerchunk import Format, to_kerchunk
from icevirt.access.references import INLINE_NATIVE
from icevirt.archive.reports.relocation import ExportReport
from icevirt.errors import InvalidInputError
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike
from icevirt.versioning.repo_updates import MAIN

_FORMATS: dict[str, Format] = {".json": "json", ".parq": "parquet", ".parquet": "parquet"}


def export(
    repo: StorageLike | Repository,
    path: str | os.PathLike[str],
    *,
    to: Literal["kerchunk"] = "kerchunk",
    format: Format | None = None,  # noqa: A002 - as kerchunk and VirtualiZarr name it
    zarr_format: Literal[2, 3] = 2,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    group: str = "/",
    variables: Sequence[str] = (),
    drop_variables: Sequence[str] = (),
    inline_native: int = INLINE_NATIVE,
) -> ExportReport:
    """Write the references of one version of a repository for readers of kerchunk's format.

    Args:
        repo: Path or URL of the repository, or the repository.
        path: The JSON file, which is replaced, or the Parquet directory, which must not exist.
        to: The format: only kerchunk's.
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

    Raises:
        NodeNotFoundError: There is no such group.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        UnsupportedError: An array cannot be expressed, or has more bytes in the repository.
        AlreadyExistsError: The directory exists.
        InvalidInputError: The format is unknown, or no array has a name given.

    Examples:
        >>> icevirt.export("repo", "references.json").references
        60
    """
    if to != "kerchunk":
        raise InvalidInputError(
            "unknown format to export to",
            do=write_remedy("Pass ", write_code('to="kerchunk"', "--to kerchunk"), "."),
            to=to,
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
