"""What tasks run on where there are few files: processes that die, hang and fail as Spark's do."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.errors import FormatError, InvalidInputError, SparkJobError
from icevirt.execution import selection
from icevirt.execution.executor import usable_cores
from icevirt.execution.local_executors import InProcessExecutor, ProcessExecutor
from icevirt.execution.selection import (
    LARGE,
    default_executor,
    executor_of,
    suitable,
    work_of,
)
from icevirt.tasks.forkserver import STAGES, in_worker

pytestmark = [pytest.mark.ci, pytest.mark.slow]


@pytest.fixture(scope="module")
def workers():
    """Processes that several tests share; a job that fails replaces them."""
    with ProcessExecutor(2) as made:
        yield made
    assert all(child._code is not None for child in made._children)


@pytest.fixture
def workers_of_one_test():
    with ProcessExecutor(2) as made:
        yield made
    assert all(child._code is not None for child in made._children)


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
    found = [workers.run(whose, range(6)) for _ in range(2)]
    pids = {pid for each in found for pid, *_ in each}
    assert len(pids) == workers.parallelism == 2
    assert os.getpid() not in pids
    assert {tuple(rest) for each in found for _, *rest in each} == {(True, False)}


def test_processes_are_forked_with_all_they_need(workers):
    assert all(workers.run(imported, STAGES))


def test_processes_outlive_the_one_that_forked_them(workers_of_one_test, tmp_path):
    workers = workers_of_one_test
    workers.run(whose, range(2))
    workers._children[0]._server.process.kill()
    workers._children[0]._server.process.wait()
    paths = [str(tmp_path / name) for name in "abc"]
    assert workers.run(dying_once, paths) == paths


def test_an_error_of_ours_is_raised_as_itself_the_first_task_first(workers):
    with pytest.raises(FormatError, match="damaged") as raised:
        workers.run(refused, [3, 4])
    assert raised.value.facts == {"task": 3}
    assert workers.run(str, [1]) == ["1"]


def test_a_task_whose_process_dies_is_tried_again_in_another(workers, tmp_path):
    paths = [str(tmp_path / name) for name in "abc"]
    assert workers.run(dying_once, paths) == paths


@pytest.mark.parametrize(("task", "output"), [(dying, "it hurts"), (failing, "ZeroDivisionError")])
def test_a_task_that_always_fails_ends_the_job_with_its_cause(workers_of_one_test, task, output):
    with pytest.raises(SparkJobError) as raised:
        workers_of_one_test.run(task, [1])
    assert output in raised.value.facts["cause"]


def test_the_next_job_after_one_that_failed_gets_other_processes(workers_of_one_test):
    """What a failed job printed is not in the cause of the next failure."""
    ended = list(workers_of_one_test._children)
    with pytest.raises(SparkJobError, match="it hurts"):
        workers_of_one_test.run(dying, [1])
    assert workers_of_one_test.run(str, range(5)) == list("01234")
    assert all(child._code is not None for child in ended)
    with pytest.raises(SparkJobError) as raised:
        workers_of_one_test.run(failing, [1])
    assert "it hurts" not in raised.value.facts["cause"]


def test_a_closed_executor_says_how_to_get_another():
    with ProcessExecutor(1) as made:
        pass
    with pytest.raises(InvalidInputError, match="closed") as raised:
        made.run(str, [1])
    assert 'executor="processes"' in str(raised.value)


def test_who_is_interrupted_leaves_no_process_behind():
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 3)
    made = ProcessExecutor(2)
    with pytest.raises(KeyboardInterrupt), made:
        made.run(waiting, [1, 2, 3])
    signal.signal(signal.SIGALRM, before)
    assert all(child._code is not None for child in made._children)


def test_few_files_are_built_without_spark_and_the_same_way(tmp_path):
    """The same manifests under the same names as with the stages in this process."""
    days = write_days(tmp_path / "in", 3)
    manifests = []
    for word in ("processes", "in-process"):
        with default_executor(word):
            report = icevirt.build(
                days, tmp_path / word, concat_dim="time", commit_options={"verify": 5}
            )
        assert report.executor == word
        assert report.files_scanned == 3
        manifests.append(sorted(os.listdir(tmp_path / word / "manifests")))
    assert manifests[0] == manifests[1] != []
    assert_same_dataset(opened(str(tmp_path / "processes")), expected_dataset(days, "time"))


PREPARED = """
import sys
from icevirt.api import build
from icevirt.tasks import forkserver

started = []
real = forkserver.subprocess.Popen

def popen(command, **options):
    if forkserver.__name__ in command:
        started.append(phase[-1] if phase else "")
    return real(command, **options)

forkserver.subprocess.Popen = popen
phase = []
report = build.build(
    {files!r}, {repo!r}, concat_dim="time", progress=lambda step: phase.append(step.phase)
)
assert report.executor == "processes"
print(started, "pandas" in sys.modules)
"""


def test_processes_are_prepared_once_before_files_are_listed_and_nothing_imports_pandas(tmp_path):
    """The tables of files that are kept for the next append are made without it, too."""
    files = [str(path) for path in write_days(tmp_path, 70)]
    program = PREPARED.format(files=files, repo=str(tmp_path / "repo"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "[''] False"


def test_an_executor_suits_the_work():
    small, large = (SourceFile(url="file:///f", size=n, last_modified=0) for n in (9, LARGE))
    assert work_of(SourceFiles([small, large])) == 3
    for work in (1, 1_000_000, None):
        assert suitable(work, has_session=False) == "processes"
        assert suitable(work, has_session=True) == "spark"
    assert suitable(0, has_session=True) == suitable(0, has_session=False) == "in-process"
    for work, count in ((None, usable_cores()), (1, 1), (1_000_000, usable_cores())):
        with executor_of("processes", work=work) as found:
            assert found.parallelism == count


@pytest.mark.parametrize("choice", ["sparc", 7])
def test_what_is_no_executor_is_refused_by_name(choice):
    with pytest.raises(InvalidInputError, match="'processes'"), executor_of(choice):
        pass


def test_the_caller_closes_what_the_caller_made(workers):
    with default_executor(workers), executor_of(work=0) as found:
        assert found is workers
    assert workers.run(str, [1]) == ["1"]


def test_a_session_that_is_there_is_used_for_few_files_too(spark):
    with executor_of(work=1) as found:
        assert found.session is spark


def sends(task, number):
    """Send a row to each of three tasks; one that is negative fails after its first."""
    for to in range(3):
        yield to, f"{task} of {number} to {to}".encode()
        if task < 0:
            raise FormatError("damaged", do="Repair it.", task=task)


def received(task, rows):
    return task, sorted(rows)


@pytest.mark.parametrize("word", ["processes", "in-process"])
def test_rows_go_to_their_tasks_without_spark(word):
    with executor_of(word) as executor:
        found = executor.shuffle(sends, [7, 8], received, "abcd")
        assert found == [
            *(
                (name, [f"{n + 7} of {n} to {at}".encode() for n in (0, 1)])
                for at, name in enumerate("abc")
            ),
            ("d", []),
        ]
        with pytest.raises(FormatError, match="damaged"):
            executor.shuffle(sends, [7, -1], received, "abc")
        assert executor.run(str, [1]) == ["1"]


def test_a_command_runs_where_it_is_told_to(tmp_path, run):
    """What it chooses itself is seen in a process that has no session, which is started by its word."""
    files = [str(path) for path in write_days(tmp_path / "in", 3)]
    said = {}
    for word in ("auto", "in-process", "processes"):
        words = ["build", *files, str(tmp_path / word), "--concat-dim", "time"]
        words += ["--executor", word, "-o", "json"]
        if word == "auto":
            whole = [sys.executable, "-m", "icevirt", *words]
            output = subprocess.run(whole, capture_output=True, text=True, check=True).stdout
        else:
            status, output, _ = run(*words)
            assert status == 0
        said[word] = json.loads(output)["executor"]
    assert said == {"auto": "processes", "in-process": "in-process", "processes": "processes"}


def test_starting_spark_is_a_phase(monkeypatch):
    phases = []

    @contextmanager
    def phase(name):
        phases.append(name)
        yield

    monkeypatch.setattr(selection, "running_session", lambda: None)
    monkeypatch.setattr(selection, "local_session", lambda: pytest.fail("no session was asked for"))
    with executor_of(work=7, phase=phase):
        assert phases == []
    monkeypatch.setattr(selection, "local_session", object)
    monkeypatch.setattr(selection, "SparkExecutor", lambda *_, **__: InProcessExecutor())
    with executor_of("spark", phase=phase):
        assert phases == ["starting Spark"]
