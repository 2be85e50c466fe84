"""A cluster that has no executor yet gets as many tasks as it may have slots, and work for them."""

import pytest

from clusters.standalone import BUCKET, MANY

DEED = """
import icevirt
import icevirt.spark
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.schedule import write_tasks as routes

CombineSpec.__init__.__kwdefaults__["max_references"] = 20  # many windows

class Counting(SparkExecutor):
    def __init__(self, session):
        super().__init__(session)
        self.counts = {}

    def run(self, function, tasks, **how):
        tasks = [*tasks]
        self.counts[function.__name__] = len(tasks)
        return super().run(function, tasks, **how)

def deed(spark, sources, repo):
    executor = Counting(spark)
    slots = executor.parallelism
    icevirt.build(sources, repo, concat_dim="time", executor=executor)
    icevirt.spark.register(spark)
    spark.read.format("icevirt").option("table", "files").load(repo).createOrReplaceTempView("files")
    files = spark.sql("select count(*) from files").first()[0]
    return {"slots": slots, "files": files, **executor.counts}
"""
PARTS = 60  # of the catalog of so many files, which no two tasks scan
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
}


@pytest.fixture(scope="module")
def driver(standalone):
    """A driver that counts the tasks of its builds."""
    with standalone.asking(DEED) as found:
        yield found


@pytest.mark.parametrize("most", [2, 16])
def test_tasks_are_as_many_as_executors_may_become(standalone, driver, many, most):
    settings = standalone.settings() | DYNAMIC
    settings |= {"spark.dynamicAllocation.maxExecutors": str(most)}
    output = driver.ask(settings, sources=many, repo=f"{BUCKET}/grown-{most}")
    found = output.get("result")
    assert found is not None, output
    assert found["slots"] == most
    assert found["files"] == MANY
    assert found["run_scan"] == min(4 * most, PARTS)
    assert most < found["run_write"] <= 4 * most
