"""Tasks that are too large for Spark lie in a storage, as long as they run and as they were made."""

import pickle
from functools import partial

import pytest

import icevirt
from icevirt.connect.credentials.common import PickledFunction
from icevirt.errors import BuildError
from icevirt.execution import task_transport
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.objects.authorize import GrantedAccess
from icevirt.objects.source_access import SourceAccess
from icevirt.storage.local import LocalStorage

TASKS = [bytes([number]) * 1000 for number in range(5)]


def length(task):
    """Be the work of a task."""
    return len(task)


packed = partial(task_transport.pack, through_spark=2500, together=1500)
"""Room for two tasks on the short way, and for two in an object."""


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "work")


def test_what_is_too_much_together_lies_in_the_storage_and_is_removed(storage):
    with packed(TASKS, storage) as payloads:
        carried = list(payloads)
        assert [len(raw) > 1000 for raw in carried] == [True, True, False, False, False]
        sizes = sorted(info.size for info in storage.list("tasks"))
        assert sizes == [len(pickle.dumps(TASKS[0])) * n for n in (1, 2)]
        assert [task_transport.unpack(raw) for raw in carried] == TASKS
    assert not list(storage.list(""))


def test_without_a_storage_all_goes_through_spark():
    with packed(TASKS, None) as payloads:
        assert [pickle.loads(raw) for raw in payloads] == TASKS


def test_a_task_that_somebody_replaced_is_not_run(storage):
    with packed(TASKS, storage) as payloads:
        last = list(payloads)[-1]
        (info, *_) = sorted(storage.list("tasks"), key=lambda info: info.path, reverse=True)
        storage.put(info.path, bytes(info.size))
        with pytest.raises(BuildError, match="was replaced"):
            task_transport.unpack(last)


def failing(storage):
    """Fail while tasks lie in the storage."""
    with packed(TASKS, storage) as payloads:
        assert len(list(payloads)) / 0


def test_it_is_removed_when_the_work_fails(storage):
    with pytest.raises(ZeroDivisionError):
        failing(storage)
    assert not list(storage.list(""))


@pytest.mark.ci
@pytest.mark.spark
def test_spark_runs_them(spark, storage):
    large = [task * 2000 for task in TASKS]  # more together than Spark carries
    assert SparkExecutor(spark).run(length, large, storage=storage) == [2_000_000] * 5

    def rows(task, number):
        yield number, task[:1]

    def joined(task, sent):
        return task[:1] + b"".join(sent)

    found = SparkExecutor(spark).shuffle(rows, large, joined, large, storage=storage)
    assert found == [task[:1] * 2 for task in TASKS]
    assert not list(storage.list(""))


def by_function():
    """Return credentials, as a function of a caller does."""
    return icevirt.s3_credentials(access_key_id="a", secret_access_key="CANARY")


KEYS = icevirt.s3_credentials(
    access_key_id="CANARY-id", secret_access_key="CANARY-key", session_token="CANARY-token"
)
SECRETS = {
    "keys of a source": SourceAccess.of({"s3://b/": KEYS}),
    "headers of a source": SourceAccess.of(
        {"https://h/d/": icevirt.http_credentials(headers={"x-key": "CANARY"})}
    ),
    "a shared access signature": icevirt.azure_credentials(sas_token="sig=CANARY"),
    "a token": icevirt.gcs_credentials(bearer_token="CANARY"),
    "a service account": icevirt.gcs_credentials(service_account_key='{"private_key": "CANARY"}'),
    "refreshed, with the first answer": icevirt.s3_credentials(
        get_credentials=by_function, scatter_initial_credentials=True
    ),
    "the code of a function": PickledFunction("f", pickle.dumps("CANARY")),
    "what a file system was opened with": GrantedAccess({"password": "CANARY"}),
    "a storage with keys": icevirt.s3_storage(
        bucket="b", prefix="p", access_key_id="CANARY", secret_access_key="CANARY"
    ),
    "a storage with a proxy": icevirt.gcs_storage(
        bucket="b", prefix="p", config={"proxy_url": "http://me:CANARY@h"}, anonymous=True
    ),
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_no_credential_lies_in_the_storage(storage, secret):
    tasks = [(bytes([number]) * 1000, secret, "a name") for number in range(5)]
    with packed(tasks, storage) as payloads:
        carried = list(payloads)
        laid = b"".join(storage.get(info.path) for info in storage.list("tasks"))
        assert b"a name" in laid
        assert b"CANARY" not in laid
        assert [task_transport.unpack(raw) for raw in carried] == tasks
