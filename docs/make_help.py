"""Write the help that `icevirt --help` prints: `python docs/make_help.py`."""

from __future__ import annotations

import os
from pathlib import Path

from typer.main import get_command

from icevirt.cli.entry import HELP, WIDTH
from icevirt.cli.main import app


def text() -> str:
    """Return what the program prints on a wide terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        program = get_command(app)
        with program.make_context("icevirt", [], resilient_parsing=True) as context:
            return program.get_help(context) + "\n"
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


if __name__ == "__main__":
    Path(HELP).write_text(text(), encoding="utf-8")
