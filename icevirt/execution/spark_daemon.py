"""Run the daemon that Spark forks its Python workers from, in sessions icevirt started.

It imports what workers need before it forks the first: no worker imports it again, and all share
its memory. Spark's own daemon imports nothing, because it cannot know which libraries start
threads. These libraries start none once Arrow is configured, as `tests/execution/test_daemon.py`
checks.
"""

from __future__ import annotations

from icevirt.import_path import take_import_path
from icevirt.tasks.forkserver import SCANNERS, STAGES, prepare

NEEDED = ("pyspark.worker", "pandas", "icevirt.execution.spark_executor", *STAGES, *SCANNERS)
"""What workers import for every function of ours: Spark's serializers want pandas."""


def main() -> None:
    """Import, then do as Spark's own daemon."""
    take_import_path()
    prepare(NEEDED)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
