"""Choose the text for each kind of value."""

from __future__ import annotations

from functools import singledispatch

from rich.console import RenderableType

from icevirt.archive.eras import Eras
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import BuildReport, RepositorySummary
from icevirt.archive.reports.scan import CatalogSummary, ScanReport
from icevirt.archive.reports.verification import VerifyReport
from icevirt.archive.scanned import ScannedFile
from icevirt.display.check import check_report
from icevirt.display.eras import eras
from icevirt.display.plan import build_plan
from icevirt.display.report import build_report
from icevirt.display.repository import repository_summary
from icevirt.display.scan_report import catalog_summary, scan_report
from icevirt.display.scanned import scanned_file
from icevirt.display.text import words
from icevirt.display.upgrade import upgrade_report
from icevirt.display.verify import verify_report
from icevirt.repo.maintenance.check import CheckReport
from icevirt.repo.v1.upgrade import UpgradeReport


@singledispatch
def render(value: object) -> RenderableType:
    """Return ``value`` for a terminal; values with a ``__rich__`` of their own draw themselves."""
    return value if hasattr(value, "__rich__") else words(value)


render.register(BuildPlan, build_plan)
render.register(BuildReport, build_report)
render.register(CheckReport, check_report)
render.register(Eras, eras)
render.register(RepositorySummary, repository_summary)
render.register(CatalogSummary, catalog_summary)
render.register(ScanReport, scan_report)
render.register(ScannedFile, scanned_file)
render.register(UpgradeReport, upgrade_report)
render.register(VerifyReport, verify_report)
