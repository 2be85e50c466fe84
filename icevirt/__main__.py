"""Run the command line, as ``python -m icevirt`` and as the script of ``spark-submit``.

    spark-submit $(icevirt spark-script) build ...

This file may be copied elsewhere and run there, as ``spark-submit --deploy-mode cluster`` does: it
needs nothing beside it.
"""

from __future__ import annotations

import os
import sys


def _leave_out(folder: str) -> None:
    """Import nothing from our folder, whose modules would hide others of their names."""
    if not os.path.exists(os.path.join(folder, "__init__.py")):  # this file was copied
        return
    real = os.path.realpath(folder)
    sys.path[:] = [each for each in sys.path if os.path.realpath(each or ".") != real]


def main() -> None:
    """Run the command line of this process."""
    _leave_out(os.path.dirname(os.path.abspath(__file__)))
    from icevirt.cli.main import run

    run()


if __name__ == "__main__":
    main()
