"""Choose the text for each kind of value."""

from __future__ import annotations

from functools import singledispatch
from io import StringIO

from rich.console import Console, RenderableType

from icevirt.display.history import (
    branch_move,
    commit_log,
    name_change,
    named_versions,
    operation_log,
    value_source,
    version_diff,
)
from icevirt.display.moving import export_report, materialize_report, relocate_report
from icevirt.display.plan import build_plan, eras
from icevirt.display.report import append_report, build_report
from icevirt.display.repository import (
    check_report,
    repository_summary,
    upgrade_copy_report,
    upgrade_report,
    verify_report,
    web_access_report,
)
from icevirt.display.scan import catalog_summary, scan_report, scanned_file
from icevirt.display.text import words
from icevirt.display.update import update_report
from icevirt.display.upkeep import (
    excluded_files,
    maintenance_report,
    repository_status,
    withdraw_report,
)


@singledispatch
def render(value: object) -> RenderableType:
    """Return ``value`` for a terminal; values with ``__rich__`` draw themselves."""
    return value if hasattr(value, "__rich__") else words(value)


for _format in (
    append_report,
    branch_move,
    build_plan,
    build_report,
    check_report,
    commit_log,
    eras,
    excluded_files,
    maintenance_report,
    materialize_report,
    export_report,
    relocate_report,
    name_change,
    named_versions,
    operation_log,
    repository_status,
    repository_summary,
    catalog_summary,
    scan_report,
    scanned_file,
    upgrade_copy_report,
    update_report,
    upgrade_report,
    value_source,
    verify_report,
    version_diff,
    web_access_report,
    withdraw_report,
):
    render.register(_format)  # by the type of its argument


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
    console.print(render(value))
    return stream.getvalue().rstrip("\n")
