"""A file that kills, hangs or starves whoever scans it costs one worker and nothing else."""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from builds.support import assert_same_dataset, closed_of, expected_dataset, opened, write_days
from icevirt.api.scan import scan_file
from icevirt.archive.catalog import CatalogPart, parts_of, run_of
from icevirt.archive.scanned import ScanLimits
from icevirt.archive.sources import SourceFile
from icevirt.catalog import parts as catalog
from icevirt.catalog.parts import ScanNotes
from icevirt.errors import BuildError, ScanError, ScanTimeoutError
from icevirt.execution import local_executors
from icevirt.scan import registry
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.local import LocalStorage
from icevirt.tasks import forkserver
from icevirt.tasks.forkserver import Apart
from icevirt.tasks.scan import ScanTask, run_scan
from icevirt.tasks.scan_file import Containment

pytestmark = [pytest.mark.ci, pytest.mark.slow]

QUICK = ScanLimits(seconds=2.0, memory=1 << 30)


@pytest.fixture(autouse=True)
def stub(stub_site, monkeypatch):
    """Install the stub scanner, here and in children."""
    monkeypatch.syspath_prepend(stub_site)
    registry.scanners.cache_clear()
    yield stub_site
    registry.scanners.cache_clear()


def write(path, deed):
    path.write_text(f"STUB {deed}")
    status = path.stat()
    return SourceFile(url=path.as_uri(), size=status.st_size, last_modified=status.st_mtime_ns)


def forked(do):
    """Run ``do`` in a forked child and return its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            faulthandler.disable()  # its words are not wanted here
            do()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


DEEDS = {
    "crash": "crashed",
    "exit": "crashed",
    "hang": "timeout",
    "eat": "oom",
    "be killed": "oom",
    "talk": None,
    "nothing": None,
}


def test_each_death_has_its_name_and_the_next_file_is_scanned(tmp_path):
    files = [write(tmp_path / f"{n}.stub", deed) for n, deed in enumerate(DEEDS)]
    with Containment(ScannerOptions(), QUICK) as contained:
        outcomes = [contained.attempt(file) for file in files]
    codes = [outcome.error and outcome.error.code for outcome in outcomes]
    assert codes == list(DEEDS.values())
    for file, outcome in zip(files, outcomes, strict=True):
        assert outcome.file == file
        assert (outcome.scanned is None) == (outcome.error is not None)
        assert outcome.error is None or outcome.error.facts["file"] == file.url
    assert "Segmentation fault" in str(outcomes[0].error)


def test_one_child_scans_many_files_and_is_gone_in_the_end(tmp_path):
    files = [write(tmp_path / f"{n}.stub", "nothing") for n in range(20)]
    with Containment(ScannerOptions(), QUICK) as contained:
        first = contained.call("", os.getpid)
        assert not any(contained.attempt(file).error for file in files)
        assert contained.call("", os.getpid) == first
        os.kill(first, signal.SIGKILL)  # by somebody, while it waits: no file is to blame
        wait_for(lambda: not is_alive(first))
        assert contained.attempt(files[0]).error is None
        second = contained.call("", os.getpid)
        assert second != first
        assert is_alive(second)
    assert not is_alive(second)


def is_alive(pid):
    """Say whether there is such a process, dead ones that nobody waited for included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


def test_a_child_whose_parent_is_gone_does_not_outlive_a_hanging_file(tmp_path, monkeypatch):
    monkeypatch.setattr(forkserver.Connection, "poll", lambda self, seconds: True)
    alarmed = ScanTimeoutError("alarmed")
    monkeypatch.setattr("icevirt.tasks.scan_file.Containment._too_slow", lambda *_: alarmed)
    file = write(tmp_path / "a.stub", "hang")
    with Containment(
        ScannerOptions(), ScanLimits(seconds=-4.5)
    ) as contained:  # grace is five seconds
        assert contained.attempt(file).error is alarmed


def test_a_child_that_does_not_start_is_no_fault_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setenv("ANOTHER", "server")
    with (
        Containment(ScannerOptions(), QUICK) as contained,
        pytest.raises(BuildError, match=r"does not start.*exit_code=1"),
    ):
        contained.attempt(write(tmp_path / "a.stub", "nothing"))


USER = """
    import os, sys, threading
    from icevirt.archive.scanned import ScanLimits
    from icevirt.tasks.forkserver import Apart
    import time

    def use(number, seconds):
        with Apart(ScanLimits(seconds=600)) as apart:
            print(apart.call("", os.getpid), flush=True)
            apart.call("", time.sleep, seconds)

    held = open(sys.argv[1])
    os.set_inheritable(held.fileno(), True)
    threads = [threading.Thread(target=use, args=(n, 600)) for n in range(3)]
    for each in threads:
        each.start()
"""


def test_children_of_a_killed_process_end_and_hold_nothing_of_it(tmp_path):
    (tmp_path / "held").touch()
    words = [sys.executable, "-c", textwrap.dedent(USER), tmp_path / "held"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as user:
        pids = [int(user.stdout.readline()) for _ in range(3)]
        for pid in pids:
            there = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
            assert str(tmp_path / "held") not in there
            assert len([each for each in there if each.startswith("socket:")]) == 1  # its line
        user.kill()
    wait_for(lambda: not any(map(is_alive, pids)))


def here(name):
    return os.environ.get(name), os.getcwd(), sys.path[0]


def test_children_live_where_their_caller_does_at_that_time(tmp_path, monkeypatch):
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setenv("SOME", str(number))
        monkeypatch.syspath_prepend(str(place / "code"))
        with Apart() as apart:
            assert apart.call("", here, "SOME") == (str(number), str(place), str(place / "code"))


def test_children_of_one_process_come_from_one_server():
    parents = set()
    for _ in range(3):
        with Apart() as apart:
            parents.add(apart.call("", os.getppid))
    assert len(parents) == 1
    assert forked(lambda: os._exit(_parent_of_a_child() in parents)) == 0
    assert {_parent_of_a_child()} == parents  # which the end of the fork left alone


@pytest.mark.parametrize("module", ["icevirt.tasks.verify.comparison", local_executors.__name__])
def test_a_server_has_one_thread_when_it_forks(module):
    forkserver._server.cache_clear()  # tests let theirs import icechunk, which starts threads
    child = forkserver.Child(module)
    server = child.ask(None, os.getppid)
    assert len(os.listdir(f"/proc/{server}/task")) == 1
    assert child.end() == child.end() == 0


def _parent_of_a_child():
    with Apart() as apart:
        return apart.call("", os.getppid)


def test_a_child_has_children_of_its_own():
    with Apart() as apart:
        assert apart.call("", _parent_of_a_child) not in (apart.call("", os.getppid), os.getpid())


def task_of(tmp_path, deeds):
    """A task of two parts, files of which do the deeds."""
    files = [write(tmp_path / f"{n}.stub", deed) for n, deed in enumerate(deeds)]
    half = len(files) // 2
    parts = tuple(
        CatalogPart(name=parts_of(some, identity="")[0].name, files=tuple(some))
        for some in (files[:half], files[half:])
    )
    storage = LocalStorage(tmp_path / "catalog")
    catalog.mark(storage)
    return ScanTask(parts=parts, options=ScannerOptions(), catalog=storage, limits=QUICK)


def sorted_as(task):
    """The parts of a task, by their full names, in its order."""
    there = {run_of(name): name for name in catalog.complete_parts(task.catalog)}
    return [there[part.name] for part in task.parts]


def test_one_death_is_enough_for_all_poisonous_files_of_a_task(tmp_path):
    deeds = ["nothing", "crash", "nothing", "hang", "nothing", "crash", "eat", "nothing"]
    task = task_of(tmp_path, deeds)
    assert forked(lambda: run_scan(task)) == -signal.SIGSEGV
    assert not catalog.complete_parts(task.catalog)
    assert run_scan(task) == 8
    closed = closed_of(task.catalog, sorted_as(task))
    assert len(closed.facts.files.url) == 4
    assert [bad.code for bad in closed.bad] == ["crashed", "timeout", "crashed", "oom"]
    assert list(task.catalog.list("opening")) == []


def test_where_nothing_died_no_child_is_started(tmp_path, monkeypatch):
    task = task_of(tmp_path, ["nothing"] * 4)
    monkeypatch.setattr(forkserver, "multiprocessing", None)
    noted = []
    put = LocalStorage.put
    monkeypatch.setattr(
        LocalStorage, "put", lambda self, path, body: (noted.append(path), put(self, path, body))[1]
    )
    assert run_scan(task) == 4
    assert [path.partition("/")[0] for path in noted] == ["opening", "refs", "arrays", "files"] * 2
    noted.clear()
    assert run_scan(task) == 4  # as when Spark tries again what was done already
    assert not noted


def _fail_if(noted):
    if noted:
        raise ScanError("alive")


def test_an_error_that_python_lives_through_leaves_no_note(tmp_path):
    task = task_of(tmp_path, ["nothing"] * 2)
    journal = ScanNotes(task.catalog)
    with pytest.raises(ScanError), journal.scanning(task.parts[0]):
        _fail_if(journal.has_died_in(task.parts) and not journal.has_died_in(task.parts[1:]))
    assert not journal.has_died_in(task.parts)


ALARMED = """
    import signal, sys, threading, time
    from icevirt.tasks import forkserver as watch
    from icevirt.archive.scanned import ScanLimits

    with watch.hold_to(ScanLimits(seconds=0.1)):
        time.sleep(0.3)

    rang = []
    def ring(*_):
        rang.append(time.monotonic() - begin)
    watch.in_worker = lambda: True
    begin = time.monotonic()
    signal.signal(signal.SIGALRM, ring)
    for interval in (0, 60):
        signal.setitimer(signal.ITIMER_REAL, 90, interval)
        with watch.hold_to(ScanLimits(seconds=10)):
            assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
            assert 9 < signal.getitimer(signal.ITIMER_REAL)[0] <= 10
        left, again = signal.getitimer(signal.ITIMER_REAL)
        assert signal.getsignal(signal.SIGALRM) is ring and 80 < left < 90 and again == interval
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with watch.hold_to(ScanLimits(seconds=10)):
        time.sleep(0.3)
        assert not rang
    while not rang:
        time.sleep(0.01)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    with watch.hold_to(ScanLimits(seconds=10)):
        pass
    signal.raise_signal(signal.SIGALRM)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    def besides():
        with watch.hold_to(ScanLimits(seconds=10)):
            pass
    thread = threading.Thread(target=besides)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    assert not signal.getitimer(signal.ITIMER_REAL)[0]
    print("alive", flush=True)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with watch.hold_to(ScanLimits(seconds=0.1)):
        signal.pause()
"""


def test_a_worker_that_hangs_is_ended_and_the_alarm_of_its_other_user_is_put_back():
    """Its handler, what is left of its time, its interval; one that was due meanwhile rings.

    Other processes, which are not ended, come first.
    """
    code = textwrap.dedent(ALARMED)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (-signal.SIGALRM, "alive\n"), ran.stderr
    assert "most recent call first" in ran.stderr  # where it hung


PROGRAM = """
    import json, sys
    import icevirt

    report = icevirt.build(sys.argv[2:], sys.argv[1], concat_dim="time",
                           scan_options={"max_bad_files": 1})
    print(json.dumps([[bad.url, bad.code] for bad in report.bad_files]))
"""


@pytest.mark.spark
def test_on_spark_a_crashing_file_is_left_out_and_all_others_are_there(tmp_path, stub):
    days = write_days(tmp_path / "archive", 3)
    poison = tmp_path / "archive" / "day2b.nc"
    write(poison, "crash")
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), tmp_path / "repo", *days, poison],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": stub},
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == [[poison.as_uri(), "crashed"]]
    assert_same_dataset(opened(str(tmp_path / "repo")), expected_dataset(days, "time"))


@pytest.mark.parametrize(("deed", "code"), [("crash", "crashed"), ("hang", "timeout")])
def test_one_file_by_hand_costs_no_process_where_a_time_is_given(tmp_path, deed, code):
    file = write(tmp_path / "one.stub", deed)
    with pytest.raises(ScanError) as caught:
        scan_file(file.url, scan_options={"file_timeout": 2})
    assert caught.value.code == code


def test_a_child_finds_in_one_file_what_this_process_does(nemo_files):
    one, other = (
        scan_file(nemo_files[0], scan_options={"file_timeout": each}) for each in (None, 60)
    )
    assert [array.zarr_json() for array in one.arrays] == [a.zarr_json() for a in other.arrays]
    assert one.counts() == other.counts()
