"""How many tasks there are, and that each is alone in its partition."""

import os

import pytest

from icevirt.errors import InvalidInputError
from icevirt.execution.spark_executor import MOST, TASKS, UNKNOWN, SparkExecutor, spread


class Settings:
    """A session of a cluster, as far as it is asked about its size.

    ``slots`` are those of now; None: the session has no context, as that of Spark Connect. Where
    ``refuses`` is set, the platform shows its settings to no one.
    """

    createDataFrame = None  # by which a session is known

    def __init__(self, settings, *, slots=None, refuses=False):
        self.conf = self
        self._settings, self._slots, self._refuses = settings, slots, refuses

    def get(self, name, default):
        if self._refuses:
            from pyspark.errors import PySparkException

            raise PySparkException("[CONFIG_NOT_AVAILABLE] this is not available")
        return self._settings.get(f"spark.{name.removeprefix('spark.')}", default)

    @property
    def sparkContext(self):
        if self._slots is None:
            raise RuntimeError("[JVM_ATTRIBUTE_NOT_SUPPORTED]")
        return self

    @property
    def defaultParallelism(self):
        return self._slots


DYNAMIC = "spark.dynamicAllocation.enabled"
GROWS = "spark.dynamicAllocation.maxExecutors"
CORES = "spark.executor.cores"
CPUS = "spark.task.cpus"
CLUSTERS = {
    "of a fixed size": ({}, {"slots": 12}, 12),
    "of Connect": ({}, {}, UNKNOWN),
    "of Connect, which says its size": ({"spark.default.parallelism": "24"}, {}, 24),
    "that says nonsense": ({"spark.default.parallelism": "many"}, {}, UNKNOWN),
    "that shows no settings": ({}, {"refuses": True}, UNKNOWN),
    "that shows no settings, but a size": ({}, {"refuses": True, "slots": 7}, 7),
    "that grows without bound": ({DYNAMIC: "true"}, {"slots": 2}, UNKNOWN),
    "whose bound is Spark's greatest number": (
        {DYNAMIC: "true", GROWS: "2147483647"},
        {"slots": 2},
        UNKNOWN,
    ),
    "that is larger now than is known of it": ({DYNAMIC: "true"}, {"slots": 320}, 320),
    "that grows to ten executors": ({DYNAMIC: "true", GROWS: "10"}, {"slots": 2}, 10),
    "of ten executors of four cores": (
        {DYNAMIC: "true", GROWS: "10", CORES: "4"},
        {"slots": 2},
        40,
    ),
    "whose tasks take two cores": (
        {DYNAMIC: "true", GROWS: "10", CORES: "5", CPUS: "2"},
        {"slots": 2},
        20,
    ),
    "whose executors have all cores of a worker": (
        {DYNAMIC: "true", GROWS: "4"},
        {"slots": 64},
        64,
    ),
    "that is Connect and grows": ({DYNAMIC: "true", GROWS: "10", CORES: "4"}, {}, 40),
    "that grows beyond reason": (
        {DYNAMIC: "true", GROWS: "100000", CORES: "8"},
        {"slots": 2},
        MOST,
    ),
}


@pytest.mark.parametrize(("settings", "how", "slots"), CLUSTERS.values(), ids=CLUSTERS)
def test_as_many_tasks_run_at_a_time_as_a_cluster_may_have_slots(settings, how, slots, monkeypatch):
    monkeypatch.delenv(TASKS, raising=False)
    assert SparkExecutor(Settings(settings, **how)).parallelism == slots


def test_who_sets_the_number_is_obeyed(monkeypatch):
    monkeypatch.setenv(TASKS, "5")
    assert SparkExecutor(Settings({DYNAMIC: "true"}, slots=2)).parallelism == 5


@pytest.mark.parametrize("text", ["0", "-3", "many", "1.5"])
def test_a_number_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv(TASKS, text)
    with pytest.raises(InvalidInputError, match=f"{TASKS} must be a positive number.*'{text}'"):
        SparkExecutor(Settings({}, slots=2)).parallelism  # noqa: B018


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000])
def test_each_partition_has_a_number_of_its_own(count):
    numbers = spread(count)
    assert len(set(numbers)) == count
    assert all(0 <= number < 1 << 31 for number in numbers)


def partition_of(rows):
    """Return where each row is, as Spark runs it."""
    import pyarrow as pa
    from pyspark import TaskContext

    here = TaskContext.get().partitionId()
    for batch in rows:
        yield pa.record_batch([batch["number"], pa.array([here] * len(batch))], ["number", "at"])


@pytest.mark.ci
@pytest.mark.spark
def test_spark_sends_one_row_to_each_partition(spark):
    """The numbers are those of Spark's own hash: row n is alone in partition n."""
    for count in (1, 3, 64):
        rows = spark.createDataFrame([(n,) for n in spread(count)], "number int")
        sent = rows.repartition(count, "number").mapInArrow(partition_of, "number int, at long")
        found = {row["at"]: row["number"] for row in sent.collect()}
        assert found == dict(enumerate(spread(count)))


def process(_):
    """Return which process runs a task."""
    return os.getpid()


@pytest.mark.ci
@pytest.mark.spark
def test_tasks_are_a_partition_each(spark):
    executor = SparkExecutor(spark)
    assert len(executor.run(process, range(5))) == 5
    assert executor.run(process, []) == []
