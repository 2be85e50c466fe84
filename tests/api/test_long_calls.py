"""What takes an executor runs long, and is run alike: looked at first, named, ended by signals."""

import inspect
import os
import shutil
import signal

import pytest

import icevirt
from builds.support import write_day, write_days
from icevirt.execution import preflight
from icevirt.execution.executor import current
from icevirt.execution.local_executors import InProcessExecutor
from icevirt.execution.spark_executor import SparkExecutor


class Told(SparkExecutor):
    """An executor of a cluster, to the code that uses it; it notes how each job was begun."""

    is_local = False
    parallelism = 1

    def __init__(self):
        self.session, self.reached = None, set()  # no session
        self.jobs, self.looked = [], []

    def run(self, function, tasks, **given):
        self.note()
        return InProcessExecutor().run(function, tasks, **given)

    def shuffle(self, *args, **given):
        self.note()
        return InProcessExecutor().shuffle(*args, **given)

    def look(self, needs):
        self.looked.append(needs)
        self.reached |= {storage.url for storage in needs.written}

    def note(self):
        self._begin()
        label = current()
        self.jobs.append((label.stage, label.place, signal.getsignal(signal.SIGTERM)))


def appended(site, executor):
    """Append a file that comes before the others: all files are planned."""
    shutil.move(site / "earlier.nc", site / "in" / "earlier.nc")
    return icevirt.append(site / "in", site / "repo", executor=executor)


def updated(site, executor):
    """Update after a file was written again."""
    write_day(site / "in" / "day3.nc", 3)
    os.utime(site / "in" / "day3.nc", (1e9, 1e9))
    return icevirt.update(site / "repo", executor=executor)


def moved(site, executor):
    """Move the files of the repository, and it with them."""
    shutil.copytree(site / "in", site / "there")
    return icevirt.relocate(
        site / "repo",
        site / "in",
        site / "there",
        authorize_virtual_chunk_access=[f"{(site / name).as_uri()}/" for name in ("in", "there")],
        executor=executor,
    )


CALLS = {
    "scan_files": lambda site, executor: icevirt.scan_files(
        site / "in", site / "catalog", concat_dim="time", executor=executor
    ),
    "plan": lambda site, executor: icevirt.plan(site / "in", concat_dim="time", executor=executor),
    "build": lambda site, executor: icevirt.build(
        site / "in",
        site / "repo",
        concat_dim="time",
        commit_options={"verify": 1},
        executor=executor,
    ),
    "append": appended,
    "update": updated,
    "verify": lambda site, executor: icevirt.verify(
        site / "repo",
        authorize_virtual_chunk_access=[f"{(site / 'in').as_uri()}/"],
        executor=executor,
    ),
    "materialize": lambda site, executor: icevirt.materialize(
        site / "repo",
        "packed",
        authorize_virtual_chunk_access=[f"{(site / 'in').as_uri()}/"],
        executor=executor,
    ),
    "export": lambda site, executor: icevirt.export(
        site / "repo",
        site / "stac",
        to="stac",
        authorize_virtual_chunk_access=[f"{(site / 'in').as_uri()}/"],
        executor=executor,
    ),
    "withdraw": lambda site, executor: icevirt.withdraw(
        site / "in" / "day2.nc",
        site / "repo",
        authorize=str(site / "in"),
        allow_changes=True,
        executor=executor,
    ),
    "relocate": moved,
    "maintain": lambda site, executor: icevirt.maintain(site / "repo", executor=executor),
}
"""In the order in which they run on one archive."""


def test_every_call_that_takes_an_executor_is_called_here():
    public = {name: getattr(icevirt, name) for name in icevirt.__all__}
    found = {
        name
        for name, each in public.items()
        if inspect.isfunction(each) and "executor" in inspect.signature(each).parameters
    }
    assert found == {*CALLS}


@pytest.mark.ci
def test_each_call_looks_at_the_cluster_first_names_its_jobs_and_ends_by_signals(
    tmp_path, monkeypatch
):
    days = write_days(tmp_path / "in", 3)
    shutil.move(days[0], tmp_path / "earlier.nc")
    monkeypatch.setattr(preflight, "check", Told.look)
    before = signal.getsignal(signal.SIGTERM)
    assert before is signal.SIG_DFL
    for name, call in CALLS.items():
        executor = Told()
        call(tmp_path, executor)
        assert len(executor.looked) == 1, name
        assert executor.jobs, name
        for stage, place, handler in executor.jobs:
            assert stage, name
            assert place.startswith("file://"), (name, stage)
            assert handler is not before, (name, stage)
        assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", ["verify", "plan"])
def test_a_signal_in_the_middle_is_reported_once(name, tmp_path, monkeypatch, caplog):
    """Also where one long call makes another."""
    write_days(tmp_path / "in", 2)
    monkeypatch.setattr(preflight, "check", lambda *_: None)
    if name == "verify":
        icevirt.build(tmp_path / "in", tmp_path / "repo", concat_dim="time", executor="in-process")

    class Interrupted(Told):
        def note(self):
            raise KeyboardInterrupt

    with caplog.at_level("WARNING", logger="icevirt"), pytest.raises(KeyboardInterrupt):
        CALLS[name](tmp_path, Interrupted())
    events = [record.event for record in caplog.records if record.levelname == "WARNING"]
    assert events == [f"{name}-interrupted"]
