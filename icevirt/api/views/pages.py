"""Implement `icevirt.to_html`: a page about a plan, a build or a repository."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from icevirt.api.history.log import log
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import BuildReport, RepositorySummary
from icevirt.display.page import plan_page, repository_page
from icevirt.display.report import opening, opening_of
from icevirt.errors import IcevirtError, StorageError
from icevirt.ids import ObjectId12
from icevirt.planning.coverage import GroupCoverage
from icevirt.repo.repository import Repository
from icevirt.repo.summary import coverage_of, summary
from icevirt.storage.constructors import StorageLike

_COMMITS = 100  # of the history
_LABELED = 40  # groups whose coordinates are read; steps of others are numbers


def to_html(
    what: BuildPlan | BuildReport | StorageLike,
    path: str | os.PathLike[str],
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> None:
    """Write a page about a plan, a build or a repository: one HTML file that needs no network.

    It shows which steps each array covers and where the bytes lie, the arrays, what reading them
    costs, the files that were left out, the findings, and the history of a repository. For the
    page about a build or a repository, every manifest of the version is read, one at a time.

    Args:
        what: A plan, the report of a build, or the path or URL of a repository.
        path: The file to write; one that is there is replaced.
        branch: Of a repository: the branch whose newest version is shown; by default ``main``.
        tag: Of a repository: the tag whose version is shown.
        snapshot_id: Of a repository: the version that is shown.

    Raises:
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        StorageError: The file cannot be written.

    Examples:
        >>> icevirt.to_html("repo", "repo.html")  # open it in a browser
    """
    if isinstance(what, BuildPlan):
        html = plan_page(what)
    else:
        report: BuildReport | None = None
        place: Any = what
        at: dict[str, Any] = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id}
        if isinstance(what, BuildReport):
            report, place = what, what.opening.place(what.repo)
            at = {"snapshot_id": what.snapshot_id}
        html = _of_repository(place, report, at)
    try:
        Path(path).write_text(html, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"the page cannot be written: {error.strerror}",
            do="Name a file in a directory that exists and that you may write to.",
            path=os.fspath(path),
        ) from error


def _of_repository(place: StorageLike, report: BuildReport | None, at: dict[str, Any]) -> str:
    repo = Repository.open(place)
    found = summary(repo, **at)
    history = log(repo, snapshot_id=found.snapshot_id, n=_COMMITS)
    covered = coverage_of(repo.assets, ObjectId12.parse(found.snapshot_id))
    if covered is not None:
        groups = (
            each
            if number >= _LABELED
            else replace(each, labels=_labels(place, found, each, covered.dimension))
            for number, each in enumerate(covered.groups)
        )
        covered = replace(covered, groups=tuple(groups))
    snippet = opening_of(found) if report is None else opening(report)
    return repository_page(found, covered, history, report=report, snippet=snippet)


def _labels(
    place: StorageLike, found: RepositorySummary, group: GroupCoverage, dimension: str
) -> dict[int, str]:
    """Return what the coordinate says at some steps; nothing where it cannot be read as it is.

    Only coordinates that the repository stores are read: pages authorize nothing.
    """
    import xarray as xr

    path = f"{group.group.rstrip('/')}/{dimension}"
    if not any(each.path == path and each.shape == (group.steps,) for each in found.arrays):
        return {}
    wanted = list(group.marked)
    with suppress(IcevirtError, OSError, ValueError, KeyError):
        with xr.open_dataset(
            place,  # type: ignore[arg-type]  # the engine takes storages
            engine="icevirt",
            group=group.group,
            snapshot_id=found.snapshot_id,
            chunks=None,
        ) as dataset:
            values = dataset[dimension].isel({dimension: wanted}).values
        return {step: _label(value) for step, value in zip(wanted, values, strict=True)}
    return {}


def _label(value: Any) -> str:
    text = str(value)
    return text.removesuffix("000000000").rstrip(".").removesuffix("T00:00:00")
