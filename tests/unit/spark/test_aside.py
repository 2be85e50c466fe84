"""Tasks that are too large for Spark lie in a storage, as long as they run and as they were made."""

import pickle

import pytest

from icevirt.errors import BuildError
from icevirt.spark import aside, runner
from icevirt.storage.local import LocalStorage

TASKS = [bytes([number]) * 1000 for number in range(5)]


def length(task):
    """Be the work of a task."""
    return len(task)


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """A storage, room for two tasks on the short way, and for two in an object."""
    monkeypatch.setattr(aside, "_THROUGH_SPARK", 2500)
    monkeypatch.setattr(aside, "_TOGETHER", 1500)
    return LocalStorage(tmp_path / "work")


def test_what_is_too_much_together_lies_in_the_storage_and_is_removed(storage):
    with aside.packed(TASKS, storage) as payloads:
        carried = list(payloads)
        assert [len(raw) > 1000 for raw in carried] == [True, True, False, False, False]
        sizes = sorted(info.size for info in storage.list("tasks"))
        assert sizes == [len(pickle.dumps(TASKS[0])) * n for n in (1, 2)]
        assert [aside.unpacked(raw) for raw in carried] == TASKS
    assert not list(storage.list(""))


def test_without_a_storage_all_goes_through_spark():
    with aside.packed(TASKS, None) as payloads:
        assert [pickle.loads(raw) for raw in payloads] == TASKS


def test_a_task_that_somebody_replaced_is_not_run(storage):
    with aside.packed(TASKS, storage) as payloads:
        last = list(payloads)[-1]
        (info, *_) = sorted(storage.list("tasks"), key=lambda info: info.path, reverse=True)
        storage.put(info.path, bytes(info.size))
        with pytest.raises(BuildError, match="replaced by something else"):
            aside.unpacked(last)


def failing(storage):
    """Fail while tasks lie in the storage."""
    with aside.packed(TASKS, storage) as payloads:
        assert len(list(payloads)) / 0


def test_it_is_removed_when_the_work_fails(storage):
    with pytest.raises(ZeroDivisionError):
        failing(storage)
    assert not list(storage.list(""))


@pytest.mark.spark
def test_spark_runs_them(spark, storage):
    assert runner.run_on_spark(spark, length, TASKS, aside=storage) == [1000] * 5

    def rows(task, number):
        yield number, task[:1]

    def joined(task, sent):
        return task[:1] + b"".join(sent)

    found = runner.run_shuffled(spark, rows, TASKS, joined, TASKS, aside=storage)
    assert found == [task[:1] * 2 for task in TASKS]
    assert not list(storage.list(""))
