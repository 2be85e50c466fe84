"""Say once of each class what is shown of its values, as text, HTML and JSON, and what comes next.

Commands print by this table, notebooks draw by it, and ``print(value)`` is what the command of the
same name prints.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple


class Description(NamedTuple):
    """What is shown of the values of a class."""

    parts: str = ""  # module and function here that make what terminals and notebooks show
    first: tuple[str, ...] = ()  # what JSON has before the fields: names of properties
    last: tuple[str, ...] = ()  # and behind them
    json: str = ""  # module and function that make JSON where it is not the fields
    steps: Callable[[Any], list[str]] = lambda _: []  # code that shows what to do next


def _back(move: Any) -> list[str]:
    to = f"{move.before.snapshot_id!r}, branch={move.branch!r}, expect={move.after.snapshot_id!r}"
    return [f"icevirt.reset({move.repo!r}, {to})"]


def _of_log(log: Any) -> list[str]:
    if log.next:
        return [f'icevirt.log({log.repo!r}, snapshot_id="{log.next}")']
    return [f"icevirt.diff({log.repo!r}, a)"]


def _of_scan(scan: Any) -> list[str]:
    bad = ["archive.bad_files"] if scan.bad_files else []
    return [*bad, 'plan = archive.combine("time")  # along the dimension of your files']


def _of_session(session: Any) -> list[str]:
    write = [] if session.read_only else ["session.status()", 'session.commit("...")']
    return ["xr.open_zarr(session.store, consolidated=False)", *write]


DESCRIPTIONS = {
    "AppendReport": Description("report:append_report", last=("references",)),
    "ArrayChoices": Description("layouts:array_choices"),
    "BadFiles": Description("report:bad_files"),
    "BranchMove": Description("history:branch_move", steps=_back),
    "BuildPlan": Description(
        "plan:build_plan",
        json="plan:document_plan",
        steps=lambda _: ["report = plan.write(repo)", "plan.changes(repo)", "print(plan)"],
    ),
    "BuildReport": Description(
        "report:build_report", last=("references",), steps=lambda _: ["ds = report.open()"]
    ),
    "CatalogSummary": Description("scan:catalog_summary"),
    "CatalogView": Description(
        "scan:catalog_view",
        json="scan:document_view",
        steps=lambda _: ["view.files().read_pandas()", "view.summary()"],
    ),
    "CheckReport": Description("repository:check_report", last=("ok",)),
    "CommitLog": Description("history:commit_log", steps=_of_log),
    "Era": Description(first=("name",)),
    "Eras": Description("plan:eras"),
    "ExcludedFiles": Description("upkeep:excluded_files", last=("count",)),
    "ExportReport": Description("upkeep:export_report"),
    "IcevirtError": Description(json="document:document_error"),
    "MaintenanceReport": Description("upkeep:maintenance_report", last=("objects", "bytes")),
    "MaterializeReport": Description("upkeep:materialize_report"),
    "NameChange": Description("history:name_change"),
    "NamedVersions": Description("history:named_versions"),
    "OperationLog": Description("history:operation_log"),
    "PlanCost": Description(last=("map", "series")),
    "PlanDifference": Description("plan:plan_difference"),
    "ReadCost": Description(first=("requests",)),
    "RelocateReport": Description("upkeep:relocate_report"),
    "Repository": Description(
        steps=lambda repo: [
            'session = repo.readonly_session("main")',
            f"icevirt.log({repo.storage.url!r})",
        ]
    ),
    "RepositoryStatus": Description(
        "upkeep:repository_status", last=("lag_seconds", "age_seconds")
    ),
    "RepositorySummary": Description(
        "repository:repository_summary",
        steps=lambda summary: [f"icevirt.to_html({summary.repo!r}, 'page.html')"],
    ),
    "ScanReport": Description("scan:scan_report", last=("references", "ok"), steps=_of_scan),
    "ScannedArray": Description("scan:scanned_array", json="scan:document_array"),
    "ScannedFile": Description(
        "scan:scanned_file",
        json="scan:document_file",
        steps=lambda scanned: [f"scanned.array({each.path!r})" for each in scanned.arrays[:1]],
    ),
    "Session": Description(steps=_of_session),
    "UpdateReport": Description("upkeep:update_report", first=("summary",), last=("references",)),
    "UpgradeCopyReport": Description("repository:upgrade_copy_report"),
    "UpgradeReport": Description("repository:upgrade_report"),
    "ValueSource": Description("history:value_source"),
    "VerifyReport": Description("repository:verify_report", last=("ok",)),
    "VersionDiff": Description(
        "history:version_diff",
        last=("chunks_written",),
        steps=lambda diff: [f"icevirt.log({diff.repo!r}, snapshot_id={diff.after.snapshot_id!r})"],
    ),
    "VirtualBuildReport": Description("report:virtual_build_report"),
    "WithdrawReport": Description("upkeep:withdraw_report"),
}
"""By the name of the class, so that none is imported before one of its values is there."""


def describe(value: object) -> tuple[type, Description]:
    """Return what is shown of a value, and the class whose values are shown so.

    That is its own, or the nearest above it that stands in the table.
    """
    for each in type(value).__mro__:
        if each.__name__ in DESCRIPTIONS and each.__module__.startswith("icevirt."):
            return each, DESCRIPTIONS[each.__name__]
    return type(value), Description()


def find_function(name: str) -> Callable[[Any], Any]:
    """Return a function by its module here and its name."""
    module, _, function = name.partition(":")
    found: Callable[[Any], Any] = getattr(
        importlib.import_module(f"icevirt.display.{module}"), function
    )
    return found
