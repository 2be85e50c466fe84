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
from icevirt.display.moving import materialize_report, relocate_report
from icevirt.display.plan import build_plan, eras
from icevirt.display.report import append_report, build_report
from icevirt.display.repository import (
    check_report,
    repository_summary,
    upgrade_report,
    verify_report,
)
from icevirt.display.scan import catalog_summary, scan_report, scanned_file
from icevirt.display.text import words


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
    materialize_report,
    relocate_report,
    name_change,
    named_versions,
    operation_log,
    repository_summary,
    catalog_summary,
    scan_report,
    scanned_file,
    upgrade_report,
    value_source,
    verify_report,
    version_diff,
):
    render.register(_format)  # by the type of its argument


def as_text(value: object, *, width: int = 100) -> str:
    """Return a report as text without colors."""
    stream = StringIO()
    console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False)
    console.print(render(value))
    return stream.getvalue().rstrip("\n")
