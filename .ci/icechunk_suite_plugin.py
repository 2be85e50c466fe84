"""A plugin of pytest for `icechunk_suite.py`: puts icevirt in icechunk's place, and notes outcomes.

``ICECHUNK_SUITE_CLIENT`` is ``icechunk`` or ``icevirt``; outcomes go to ``ICECHUNK_SUITE_NOTES``, a
line of JSON for each test.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def _install() -> None:
    """Put icevirt in icechunk's place, but for the strategies that its tests draw from."""
    found = importlib.util.find_spec("icechunk")
    folder = Path(found.origin).parent / "testing"

    import icevirt.icechunk

    icevirt.icechunk.install()
    spec = importlib.util.spec_from_file_location(
        "icechunk.testing", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["icechunk.testing"] = module
    spec.loader.exec_module(module)
    icevirt.icechunk.testing = module


if os.environ["ICECHUNK_SUITE_CLIENT"] == "icevirt":
    _install()


def pytest_runtest_logreport(report: Any) -> None:
    """Note how a test ended: when it ran, or before where it did not come to that."""
    if report.when != "call" and report.outcome == "passed":
        return
    row = {"test": report.nodeid, "outcome": report.outcome, "when": report.when}
    if report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        row["message"] = str(crash.message if crash else report.longrepr)[:500]
    with Path(os.environ["ICECHUNK_SUITE_NOTES"]).open("a") as notes:
        notes.write(json.dumps(row) + "\n")
