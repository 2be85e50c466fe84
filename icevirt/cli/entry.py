"""Start the command: answer at once what needs no program, or run the program.

Importing the program takes longer than anybody wants to wait for its help, and longer than to read
a repository. `docs/make_help.py` makes the text of the help, and a test compares it with what the
program prints.
"""

from __future__ import annotations

import os
import sys

HELP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "help", "program.txt")
WIDTH = 80
"""Columns that the text is made for; the program fills no more, and fewer if there are fewer."""


def run() -> None:
    """Run the command line of this process."""
    if os.path.basename(sys.argv[0]) != "icevirt" or not _answered():
        from icevirt.cli.main import run as run_program

        run_program()


def _answered() -> bool:
    """Answer if that needs no program; False where the program has to."""
    match sys.argv[1:]:
        case ["--help"]:
            return _helped()
        case ["info", repo] if not repo.startswith("-"):
            return _informed(repo)
        case _:
            return False


def _helped() -> bool:
    """Print the help that was made beforehand, if it fits on the terminal."""
    import shutil

    if shutil.get_terminal_size().columns < WIDTH:
        return False
    with open(HELP, encoding="utf-8") as file:
        text = file.read()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        from icevirt.cli.output import answering

        with answering():
            raise
    return True


def _informed(repo: str) -> bool:
    """Print what `icevirt info REPO` prints, unless there is more to say than that."""
    from icevirt.cli.output import CommandResult, show
    from icevirt.cli.process import prepare

    prepare()
    try:
        from icevirt.api.repository import info

        value = info(repo)
    except Exception:  # noqa: BLE001 - the program meets it again, and says it
        return False
    show(CommandResult(value=value))
    return True
