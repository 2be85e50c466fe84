"""What tasks run on where there are few files: processes that die, hang and fail as Spark's do."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from icevirt.archive.scanned import SourceFile
from icevirt.errors import FormatError, SparkJobError
from icevirt.execution.process_pool import FEW_FILES, LARGE, ProcessPool
from icevirt.execution.spark_daemon import STAGES
from icevirt.execution.spark_runner import run_on_spark, slots
from icevirt.execution.spark_session import spark_or_local
from icevirt.tasks.limit_enforcement import in_worker

pytestmark = [pytest.mark.ci, pytest.mark.slow]


@pytest.fixture
def workers():
    with ProcessPool(2) as made:
        yield made
    assert all(family._process.poll() is not None for family in made._families)


def whose(_):
    time.sleep(0.2)
    return os.getpid(), in_worker(), "pyspark" in sys.modules


def imported(name):
    return name in sys.modules


def refused(task):
    raise FormatError("damaged", do="Repair it.", task=task)


def failing(task):
    raise ZeroDivisionError(task)


def dying_once(path):
    if not os.path.exists(path):
        Path(path).touch()
        os.write(2, b"it hurts\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    return path


def dying(_):
    os.write(2, b"it hurts\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def waiting(_):
    time.sleep(60)


def test_tasks_run_side_by_side_in_processes_that_stay(workers):
    found = [run_on_spark(workers, whose, range(6)) for _ in range(2)]
    pids = {pid for each in found for pid, *_ in each}
    assert len(pids) == slots(workers) == 2
    assert os.getpid() not in pids
    assert {tuple(rest) for each in found for _, *rest in each} == {(True, False)}


def test_processes_are_forked_with_all_they_need(workers):
    assert all(run_on_spark(workers, imported, STAGES))


def test_processes_outlive_the_one_that_forked_them(workers, tmp_path):
    run_on_spark(workers, whose, range(2))
    workers._families[0]._process.kill()
    workers._families[0]._process.wait()
    paths = [str(tmp_path / name) for name in "abc"]
    assert run_on_spark(workers, dying_once, paths) == paths


def test_an_error_of_ours_is_raised_as_itself_the_first_task_first(workers):
    with pytest.raises(FormatError, match="damaged") as raised:
        run_on_spark(workers, refused, [3, 4])
    assert raised.value.facts == {"task": 3}
    assert run_on_spark(workers, str, [1]) == ["1"]


def test_a_task_whose_process_dies_is_tried_again_in_another(workers, tmp_path):
    paths = [str(tmp_path / name) for name in "abc"]
    assert run_on_spark(workers, dying_once, paths) == paths


@pytest.mark.parametrize(("task", "told"), [(dying, "it hurts"), (failing, "ZeroDivisionError")])
def test_a_task_that_always_fails_ends_the_job_with_its_cause(workers, task, told):
    with pytest.raises(SparkJobError) as raised:
        run_on_spark(workers, task, [1])
    assert told in raised.value.facts["cause"]


def test_who_is_interrupted_leaves_no_process_behind():
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 3)
    made = ProcessPool(2)
    with pytest.raises(KeyboardInterrupt), made:
        run_on_spark(made, waiting, [1, 2, 3])
    signal.signal(signal.SIGALRM, before)
    assert all(family._process.poll() is not None for family in made._families)


def test_few_files_are_built_without_spark_and_the_same_way(tmp_path, monkeypatch):
    """The same manifests under the same names as with Spark's functions in this process."""
    from icevirt.execution import spark_session

    def no_spark(**_):
        raise AssertionError("Spark is started")

    monkeypatch.setattr(spark_session, "local_session", no_spark)
    monkeypatch.setattr(spark_session, "running_session", lambda: None)
    days = write_days(tmp_path / "in", 3)
    report = icevirt.build(days, tmp_path / "repo", concat_dim="time", commit_options={"verify": 5})
    assert report.files_scanned == 3
    assert_same_dataset(opened(str(tmp_path / "repo")), expected_dataset(days, "time"))
    small, large = (SourceFile(url="file:///f", size=n, last_modified=0) for n in (9, LARGE))
    with spark_or_local(files=[small] * FEW_FILES) as found:
        assert slots(found) == len(os.sched_getaffinity(0))
    with spark_or_local(files=[small]) as found:
        assert slots(found) == 1
    for many in ([small] * (FEW_FILES + 1), [large] * (FEW_FILES // 2 + 1)):
        with pytest.raises(AssertionError, match="Spark is started"), spark_or_local(files=many):
            pass


def test_a_session_that_is_there_is_used_for_few_files_too(spark):
    with spark_or_local(files=[]) as found:
        assert found is spark
