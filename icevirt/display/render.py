"""Choose the text for each kind of value."""

from __future__ import annotations

import importlib
from io import StringIO
from typing import cast

from rich.console import Console, Group, RenderableType

from icevirt.display.blocks import paste_lines, words
from icevirt.display.document import of_class

FORMATS = {  # by the name of the class: what formats one kind of value is imported for it
    "BranchMove": "history:branch_move",
    "CommitLog": "history:commit_log",
    "NameChange": "history:name_change",
    "NamedVersions": "history:named_versions",
    "OperationLog": "history:operation_log",
    "BadFiles": "report:bad_files",
    "CatalogView": "scan:catalog_view",
    "ValueSource": "history:value_source",
    "VersionDiff": "history:version_diff",
    "ExportReport": "upkeep:export_report",
    "MaterializeReport": "upkeep:materialize_report",
    "RelocateReport": "upkeep:relocate_report",
    "BuildPlan": "plan:build_plan",
    "Eras": "plan:eras",
    "AppendReport": "report:append_report",
    "BuildReport": "report:build_report",
    "CheckReport": "repository:check_report",
    "RepositorySummary": "repository:repository_summary",
    "UpgradeCopyReport": "repository:upgrade_copy_report",
    "UpgradeReport": "repository:upgrade_report",
    "VerifyReport": "repository:verify_report",
    "CatalogSummary": "scan:catalog_summary",
    "ScanReport": "scan:scan_report",
    "ScannedFile": "scan:scanned_file",
    "UpdateReport": "upkeep:update_report",
    "ExcludedFiles": "upkeep:excluded_files",
    "MaintenanceReport": "upkeep:maintenance_report",
    "RepositoryStatus": "upkeep:repository_status",
    "WithdrawReport": "upkeep:withdraw_report",
}


def render(value: object) -> RenderableType:
    """Return ``value`` for a terminal; values with ``__rich__`` draw themselves."""
    if (form := of_class(value, FORMATS)) is None:
        return value if hasattr(value, "__rich__") else words(value)
    module, _, function = form.partition(":")
    found = importlib.import_module(f"icevirt.display.{module}")
    return cast("RenderableType", getattr(found, function)(value))


def next_step(command: str) -> RenderableType:
    """Return a command to go on with, for a terminal."""
    return Group(*paste_lines("Build it", command))


def as_text(value: object, *, width: int = 100) -> str:
    """Return a report as text without colors."""
    stream = StringIO()
    console = Console(
        file=stream,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        color_system=None,  # whatever the environment asks of terminals
        force_jupyter=False,  # else a notebook would show it at once, and the text would be empty
    )
    console.print(render(value), crop=False)  # lines to paste are long
    return stream.getvalue().rstrip("\n")
