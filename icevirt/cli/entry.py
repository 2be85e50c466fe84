"""Start the command: answer with text that was made beforehand, or run the program.

Importing the program takes longer than anybody wants to wait for its help. `docs/make_help.py`
makes the text, and a test compares it with what the program prints.
"""

from __future__ import annotations

import os
import sys


def run() -> None:
    """Run the command line of this process."""
    if (text := _made_beforehand()) is None:
        from icevirt.cli.main import run as run_program

        run_program()
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        from icevirt.cli.output import answering

        with answering():
            raise


def _made_beforehand() -> str | None:
    """Return the whole answer; None where the program has to make it."""
    if sys.argv[1:] != ["--help"] or os.path.basename(sys.argv[0]) != "icevirt":
        return None
    import shutil

    if shutil.get_terminal_size().columns < WIDTH:
        return None
    with open(HELP, encoding="utf-8") as file:
        return file.read()


HELP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "help", "program.txt")
WIDTH = 80
"""Columns that the text is made for; the program fills no more, and fewer if there are fewer."""
