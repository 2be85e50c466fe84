"""Keep the files of icevirt's Spark sessions in a folder that only its owner can read.

Tasks carry credentials, and Spark writes tasks to disk: shuffled, spilled. By default those files
are readable by all users, in the shared folder for temporary files.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache

_PLACES = "SPARK_LOCAL_DIRS"  # which Spark prefers to the setting


def private_places() -> dict[str, str]:
    """Return the variable that makes Spark keep its files where only their owner may look.

    There is a folder in each place that the variable names already, else in that for temporary
    files. They go when this process ends.
    """
    said = os.environ.get(_PLACES, "")
    # where Spark has a configuration of its own, it may name a disk that is large enough
    if not said and ("SPARK_CONF_DIR" in os.environ or "SPARK_HOME" in os.environ):
        return {}
    return {_PLACES: ",".join(map(_private, said.split(",") if said else [""]))}


@cache
def _private(place: str) -> str:
    if place:
        os.makedirs(place, exist_ok=True)
    made = tempfile.mkdtemp(prefix="icevirt-spark-", dir=place or None)  # with mode 0700
    atexit.register(_remove, made, os.getpid())
    return made


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a child that was forked
        shutil.rmtree(folder, ignore_errors=True)
