"""What an operator sees of a build in Spark, and does to it: names, tags, cancelling, signals."""

import logging
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from icevirt.errors import JobsCancelledError
from icevirt.execution.executor import describe_jobs, job_tags
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.execution.spark_session import count_done
from icevirt.redaction import without_secrets

pytestmark = [pytest.mark.ci, pytest.mark.spark]

DESCRIPTION = "spark.job.description"


def ids_of(context, tag):
    return list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))


def jobs(context, tag):
    """Return the jobs of a tag as the UI shows them."""
    store = context._jsc.sc().statusStore()
    found = [store.job(each) for each in ids_of(context, tag)]
    return [(job.name(), job.description().get()) for job in found]


def tags_of(session):
    with suppress(RuntimeError):
        return set(session.getTags())


@pytest.fixture
def mine(spark):
    """A context with what its user set for own jobs; it has to be there afterwards."""
    context = spark.sparkContext
    context.setJobDescription("mine")
    context.addJobTag("mine")
    context.setLocalProperty("spark.scheduler.pool", "pool")
    with suppress(RuntimeError):  # of Spark 3.5, whose classic sessions have no tags
        spark.addTag("of my session")
    tags_before = tags_of(spark)
    yield context
    kept = {name: context.getLocalProperty(name) for name in (DESCRIPTION, "spark.scheduler.pool")}
    tags = set(context.getJobTags()), tags_of(spark)
    for name in kept:
        context.setLocalProperty(name, None)
    context.removeJobTag("mine")
    with suppress(RuntimeError):
        spark.removeTag("of my session")
    assert kept == {DESCRIPTION: "mine", "spark.scheduler.pool": "pool"}
    assert tags == ({"mine"}, tags_before)


def test_jobs_say_what_they_do_and_the_caller_s_own_marks_stay(spark, mine):
    url = "https://user:CANARY@host/repo?sig=CANARY"
    with job_tags(url, "abc") as label, describe_jobs("scan: 300 files"):
        label.tag("def")
        SparkExecutor(spark).run(str, [1, 2])
    expected = ("icevirt scan", f"icevirt scan: 300 files → {without_secrets(url)}")
    assert "CANARY" not in expected[1]
    for tag in ("icevirt", "icevirt:abc", "icevirt:def"):
        assert expected in jobs(mine, tag)
    assert expected in jobs(mine, "mine")  # what cancels the caller's jobs cancels these
    assert len(jobs(mine, "icevirt:abc")) == 1


def test_an_exception_of_a_signal_ends_the_waiting_and_the_job(spark, mine):
    """Two tasks take all slots for an hour, unless they are cancelled."""

    def ring(*_):
        raise InterruptedError

    def interrupt():
        while not ids_of(mine, "icevirt:hour"):
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, ring)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(InterruptedError), job_tags("", "hour"):
            SparkExecutor(spark).run(time.sleep, [3600, 3600])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert SparkExecutor(spark).run(str, [1, 2, 3]) == ["1", "2", "3"]
    assert spark.range(3).count() == 3  # answers of Java are not mixed up


class BuildIds(logging.Handler):
    """Notes the ids of builds that begin."""

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        if getattr(record, "event", "") == "build-begun":
            self.found.append(record.fields["build_id"])


@pytest.fixture
def ids():
    log, handler = logging.getLogger("icevirt"), BuildIds()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler.found
    log.removeHandler(handler)
    log.setLevel(before)


@pytest.mark.usefixtures("part_of_each_file")
def test_a_build_that_is_cancelled_says_so_and_the_next_goes_on(spark, mine, tmp_path, ids):
    days = write_days(tmp_path / "in", 4)
    note = Path(f"{days[-1]}.wait")
    note.touch()
    shown = []

    def build():
        return icevirt.build(
            days,
            tmp_path / "repo",
            concat_dim="time",
            scan_options={"scanner": "execution.waiting_scanner:WaitingScanner"},
            executor=spark,
        )

    def cancel():
        while not ids or not count_done(mine, f"icevirt:{ids[0]}"):
            time.sleep(0.05)
        tag = f"icevirt:{ids[0]}"
        shown.extend(jobs(mine, tag))
        mine.cancelJobsWithTag(tag)

    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(JobsCancelledError, match="Run the same again") as raised:
        build()
    assert f"icevirt:{ids[0]}" in raised.value.facts["tags"]
    assert ("icevirt scan", f"icevirt scan: 4 files → {(tmp_path / 'repo').as_uri()}") in shown
    note.unlink()
    report = build()
    assert 0 < report.files_reused < 4
    assert_same_dataset(opened(str(tmp_path / "repo")), expected_dataset(days, "time"))
