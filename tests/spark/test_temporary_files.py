"""What Spark itself puts on disk of tasks, which hold credentials, is readable by its owner only."""

import os
import stat
from pathlib import Path

import icevirt
from icevirt.objects.grants import SourceAccess
from icevirt.spark.runner import run_on_spark

KEYS = icevirt.s3_credentials(access_key_id="CANARYid", secret_access_key="CANARYkey")


def held(task):
    """Be the work of a task that carries credentials."""
    return len(task.grants)


def test_the_files_of_a_job_are_for_their_owner_alone(spark):
    access = SourceAccess.of({"s3://bucket/": KEYS})
    assert run_on_spark(spark, held, [access, access]) == [1, 1]
    context = spark.sparkContext
    manager = context._jsc.sc().env().blockManager().diskBlockManager()
    folders = [str(each) for each in manager.localDirs()] + [context._temp_dir]
    files = [path for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    assert files, "the tasks were shuffled through files"
    assert [str(path) for path in files if not is_private(path)] == []


def is_private(path: Path) -> bool:
    """Say whether nobody else can open a file: it is closed to them, or a folder above it is."""
    places = [path, *path.parents]
    return any(not stat.S_IMODE(os.stat(place).st_mode) & 0o077 for place in places)
