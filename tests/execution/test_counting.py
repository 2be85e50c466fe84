"""Tasks that leave nothing behind are counted while they run."""

import time

from icevirt.execution.spark_executor import SparkExecutor, counted


def test_tasks_are_counted_while_they_run_and_those_of_others_are_not(spark):
    executor = SparkExecutor(spark)
    with counted(spark) as other:
        executor.run(str, [1, 2, 3])
        assert other() == 3
    seen = []
    executor.run(time.sleep, [0.5] * 8, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 8
    assert set(seen) & set(range(1, 8)), seen
    assert not spark.sparkContext.getJobTags()
