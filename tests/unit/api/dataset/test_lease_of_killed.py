"""A lease is held while its holder lives, and for two minutes where that cannot be seen."""

import json
import subprocess
import sys

import pytest

from icevirt.api.update import Lease
from icevirt.storage.local import LocalStorage

TAKE = """
import sys
from icevirt.api.update import Lease
from icevirt.storage.local import LocalStorage
assert Lease(storage=LocalStorage(sys.argv[1]), path="icevirt/leases/a.json").take() == ""
"""


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def lease(storage):
    return Lease(storage=storage, path="icevirt/leases/a.json")


def test_a_killed_update_of_this_machine_holds_up_nobody(storage, tmp_path):
    subprocess.run([sys.executable, "-c", TAKE, str(tmp_path)], check=True)
    assert not lease(storage).take()


def test_the_lease_of_a_living_process_is_held(storage):
    assert not lease(storage).take()
    assert "process" in lease(storage).take()


@pytest.mark.parametrize(
    "process", [["another", 1 << 22], ["", 1 << 22], [1, 2], None, "word", ["another"], 10**30]
)
def test_the_lease_of_another_machine_is_held(storage, process):
    assert not lease(storage).take()
    content = json.loads(storage.get("icevirt/leases/a.json")) | {"process": process}
    storage.put("icevirt/leases/a.json", json.dumps(content).encode())
    assert lease(storage).take()
