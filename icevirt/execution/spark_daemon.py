"""The process that Spark forks its Python workers from, where icevirt started the session.

It imports what workers need first. Spark's own imports nothing, because it cannot know which
libraries start threads.
"""

from __future__ import annotations

from icevirt.execution.preload import STAGES, prepare
from icevirt.import_path import take_told

NEEDED = ("pyspark.worker", *STAGES)


def main() -> None:
    """Import, then do as Spark's own daemon."""
    take_told()
    prepare(NEEDED)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
