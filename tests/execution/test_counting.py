"""Tasks that leave nothing behind are counted while they run."""

import time

from icevirt.execution.spark_progress import counted
from icevirt.execution.spark_runner import run_on_spark


def test_tasks_are_counted_while_they_run_and_those_of_others_are_not(spark):
    with counted(spark) as other:
        run_on_spark(spark, str, [1, 2, 3])
        assert other() == 3
    seen = []
    with counted(spark) as done:
        run_on_spark(spark, time.sleep, [0.5] * 8, progress=lambda: seen.append(done()))
    assert seen == sorted(seen)
    assert seen[-1] == 8
    assert set(seen) & set(range(1, 8)), seen
    assert not spark.sparkContext.getJobTags()
