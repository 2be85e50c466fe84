"""Before a build, executors are compared with the driver, and must see the storages it sees."""

import os
import socket
import sys
import types

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from icevirt.errors import ExecutorError, FormatError
from icevirt.execution import installation, preflight
from icevirt.execution.preflight import ClusterNeeds, check
from icevirt.execution.selection import executor_of
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.storage.local import LocalStorage

pytestmark = pytest.mark.ci


@pytest.fixture
def cluster(spark):
    """An executor of the tests' session, which is treated as one of other machines."""
    executor = SparkExecutor(spark)
    assert executor.is_local
    executor.is_local = False
    return executor


class Elsewhere(LocalStorage):
    """A directory that is another one for other processes, as a path is on another machine."""

    def __init__(self, here, there):
        super().__init__(here)
        self._there = str(there)

    def __reduce__(self):
        return LocalStorage, (self._there,)


def test_a_cluster_that_suits_is_looked_at_by_one_job_which_leaves_nothing(cluster, tmp_path):
    (tmp_path / "file.nc").write_bytes(b"x")
    needs = ClusterNeeds(
        written=(LocalStorage(tmp_path / "repo"), LocalStorage(tmp_path / "repo" / "catalog")),
        sources=((tmp_path / "file.nc").as_uri(), (tmp_path / "gone.nc").as_uri()),
    )
    (found,) = check(cluster, needs)
    assert found.host == socket.gethostname()
    assert found.differs is None
    assert found.packages["numpy"]
    assert [path for path in (tmp_path / "repo").rglob("*") if path.is_file()] == []


def test_a_directory_that_is_not_shared_is_refused_and_nothing_is_written_there(cluster, tmp_path):
    storage = Elsewhere(tmp_path / "here", tmp_path / "there")
    with pytest.raises(ExecutorError, match="does not share a storage with the driver") as raised:
        check(cluster, ClusterNeeds(written=(storage,)))
    assert raised.value.facts["executor"] == socket.gethostname()
    assert "s3://bucket/repo" in raised.value.do
    assert not (tmp_path / "there").exists()


def test_a_source_that_only_the_driver_reads_is_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "_is_readable", lambda *_: True)
    url = (tmp_path / "gone.nc").as_uri()
    with pytest.raises(ExecutorError, match="does not read a source file") as raised:
        check(cluster, ClusterNeeds(sources=(url,)))
    assert raised.value.facts["source"] == url


@pytest.mark.parametrize(
    ("change", "output"),
    {
        "version": ({"icevirt": "9.9"}, "the driver 9.9"),
        "code": ({"code": "other"}, "other code"),
        "scanners": ({"scanners": {"radar": "sweeps 1.0"}}, "radar (none there, sweeps 1.0 on"),
    }.values(),
)
def test_an_executor_that_differs_is_refused_before_the_first_task(
    cluster, monkeypatch, tmp_path, change, output
):
    expected = {**installation.of_driver(), **change}
    monkeypatch.setattr(preflight, "expect", lambda **_: expected)
    with pytest.raises(ExecutorError) as raised:
        icevirt.build(write_days(tmp_path / "in", 2), tmp_path / "repo", executor=cluster)
    assert output in raised.value.what
    assert raised.value.facts["python"] == sys.executable
    monkeypatch.undo()
    report = icevirt.build(
        sorted(map(str, (tmp_path / "in").iterdir())), tmp_path / "repo", executor=cluster
    )
    assert report.files_scanned == 2


def test_one_that_comes_later_is_refused_before_it_unpickles_a_task(cluster, monkeypatch):
    changed = {**installation.of_driver(), "icevirt": "9.9"}
    monkeypatch.setattr(installation, "of_driver", lambda: changed)
    with pytest.raises(ExecutorError, match=r"it has icevirt .*, the driver 9\.9") as raised:
        cluster.run(unpickled, [1])
    assert raised.value.facts["executor"] == socket.gethostname()


def unpickled(_):
    """Be a task that no worker should come to."""
    raise AssertionError


def test_a_build_looks_once_and_its_result_is_the_same(cluster, tmp_path, monkeypatch):
    looked = []
    real = preflight.look_at
    monkeypatch.setattr(preflight, "look_at", lambda *args: looked.append(1) or real(*args))
    days = write_days(tmp_path / "in", 3)
    icevirt.build(
        days, tmp_path / "repo", concat_dim="time", executor=cluster, commit_options={"verify": 5}
    )
    assert looked == [1]  # and not again before values are compared
    icevirt.verify(
        tmp_path / "repo",
        executor=cluster,
        authorize_virtual_chunk_access=[(tmp_path / "in").as_uri() + "/"],
    )
    assert looked == [1]
    other = SparkExecutor(cluster.session)
    other.is_local = False
    icevirt.verify(
        tmp_path / "repo",
        executor=other,
        authorize_virtual_chunk_access=[(tmp_path / "in").as_uri() + "/"],
    )
    assert looked == [1, 1]
    assert_same_dataset(opened(str(tmp_path / "repo")), expected_dataset(days, "time"))
    there = os.listdir(tmp_path / "repo" / "icevirt")
    assert sorted(there) == ["catalog", "known", "listings", "recipes", "records", "tails"]


def test_no_job_comes_before_a_build_in_local_mode_or_without_spark(spark, monkeypatch):
    for choice in (spark, "in-process"):
        with executor_of(choice) as executor:
            preflight.check_before_first(executor, ClusterNeeds())
            assert getattr(executor, "first", None) is None


def refused(task):
    raise FormatError("damaged", do="Repair it.", task=task)


def sends(task, number):
    yield 0, b"row"
    if task < 0:
        raise FormatError("damaged", do="Repair it.", task=task)


def refused_rows(task, rows):
    raise FormatError("damaged", do="Repair it.", task=task)


def test_an_error_names_the_executor_that_raised_it(cluster, spark):
    here = socket.gethostname()
    for job in (
        lambda: cluster.run(refused, [3]),
        lambda: cluster.shuffle(sends, [-1], refused_rows, [3]),
        lambda: cluster.shuffle(sends, [1], refused_rows, [3]),
    ):
        with pytest.raises(FormatError, match=f"executor='{here}'"):
            job()
    with pytest.raises(FormatError) as raised:
        SparkExecutor(spark).run(refused, [3])
    assert raised.value.facts == {"task": 3}


def dividing(task):
    return 1 // task


def test_another_error_of_a_task_names_the_executor_too(cluster):
    with pytest.raises(icevirt.errors.SparkJobError, match="ZeroDivisionError") as raised:
        cluster.run(dividing, [0])
    assert raised.value.facts["executor"] == socket.gethostname()


def test_a_module_that_only_the_driver_has_is_named(cluster, monkeypatch):
    module = types.ModuleType("only_here")
    exec("def work(task):\n    return task\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(ExecutorError, match="has no module only_here"):
        cluster.run(module.work, [1])
