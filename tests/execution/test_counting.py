"""Tasks that leave nothing behind are counted while they run."""

import time

import pytest

from icevirt.execution.spark_executor import SparkExecutor
from icevirt.execution.spark_session import count_done


@pytest.mark.ci
def test_tasks_are_counted_while_they_run_and_those_of_others_are_not(spark):
    executor, context = SparkExecutor(spark), spark.sparkContext
    context.addJobTag("others")
    executor.run(str, [1, 2, 3])
    assert count_done(context, "others") == 3
    context.removeJobTag("others")
    seen = []
    executor.run(time.sleep, [0.5] * 8, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 8
    assert set(seen) & set(range(1, 8)), seen
    assert count_done(context, "others") == 3
    assert not context.getJobTags()
