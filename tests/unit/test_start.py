"""What a process imports before its first answer: counted, as times depend on the machine.

A limit is a tenth above what was counted. Who exceeds one finds the module with ``python -X
importtime``, and imports it where it is used.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import zarr

import icevirt

COUNT = """
import sys
{program}
print()
print(*sys.modules)
"""

FIRST_VALUE = """
import {module} as client, zarr
repo = client.Repository.open(client.local_filesystem_storage({repo!r}))
session = repo.readonly_session("main")
assert zarr.open_array(session.store, path="x", mode="r")[5] == 5
"""

COMMIT = """
import icevirt, sys, zarr
repo = icevirt.Repository.open({repo!r})
session = repo.writable_session("main")
zarr.open_array(session.store, path="x", mode="r+")[5] = 6
before = {{*sys.modules}}
session.commit("another number")
for name in before:
    del sys.modules[name]
"""

DATASET = """
import xarray as xr
assert xr.open_dataset({repo!r}, engine="icevirt")["x"].sizes == {{"points": 100}}
"""

COMMAND = """
sys.argv = ["icevirt", *{arguments!r}]
from icevirt.cli.main import run
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
"""

HEAVY = {"pyspark", "h5py", "xarray", "pandas", "pyarrow", "obstore", "dask"}
LATER = (  # what only the network, other formats, writers, and those who look at history need
    "icevirt.access.references",
    "icevirt.access.value_source",
    "icevirt.access.virtual_refs",
    "icevirt.connect.library",
    "icevirt.connect.retry",
    "icevirt.legacy",
    "icevirt.model.config.containers",
    "icevirt.model.config.sections",
    "icevirt.model.transaction_log",
    "icevirt.model.updates",
    "icevirt.objects.web_",
    "icevirt.repo.commits",
    "icevirt.repo.history.types",
    "icevirt.repo.maintenance.inspection",
    "icevirt.repo.reader",
    "icevirt.repo.v1",
    "icevirt.storage.durable",
    "icevirt.storage.memory",
    "icevirt.storage.object_",
    "icevirt.storage.web_server",
    "icevirt.versioning.diff",
    "icevirt.versioning.hierarchy",
    "icevirt.versioning.history",
    "icevirt.versioning.manifest_splitting",
    "icevirt.versioning.merge",
    "icevirt.versioning.repo_updates",
    "icevirt.versioning.v1_migration",
    "icevirt.wire.flexbuffers",
    "icevirt.wire.flatbuffer.builder",
    "icevirt.wire.flatbuffer.builder",
    "icevirt.wire.manifests.index_search",
    "icevirt.wire.manifests.encoding",
    "icevirt.wire.manifests.manifest",
)


OF_CONFLICTS = (  # what only other formats, other writers and networks need of a commit
    "icevirt.connect.library",
    "icevirt.connect.retry",
    "icevirt.repo.v1",
    "icevirt.versioning.merge",
    "icevirt.versioning.v1_migration",
)


@pytest.fixture
def repo(tmp_path):
    session = icevirt.Repository.create(str(tmp_path / "repo")).writable_session("main")
    zarr.create_array(
        session.store,
        name="x",
        data=np.arange(100),
        chunks=(10,),
        dimension_names=("points",),
    )
    session.commit("numbers")
    return str(tmp_path / "repo")


def counted(program):
    """Return our modules that a process loads, and all packages."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(program=program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    modules = done.stdout.splitlines()[-1].split()
    own = {name for name in modules if name.startswith("icevirt")}
    return own, {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(("module", "most"), [("icevirt", 68), ("icevirt.icechunk", 78)])
def test_a_first_value_needs_few_modules(repo, module, most):
    """By our names, and by icechunk's."""
    program = FIRST_VALUE.format(repo=repo, module=module)
    modules, packages = counted(program)
    assert len(modules) <= most
    assert not packages & (HEAVY | {"html", "difflib"})
    assert not [name for name in modules if name.startswith((*LATER, "icevirt.archive"))]


def test_a_first_commit_needs_few_modules_more(repo):
    modules, _ = counted(COMMIT.format(repo=repo))
    assert "icevirt.repo.commits.commit" in modules
    assert len(modules) <= 24
    assert not [name for name in modules if name.startswith(OF_CONFLICTS)]


def test_a_first_dataset_needs_few_modules(repo):
    modules, _ = counted(DATASET.format(repo=repo))
    assert len(modules) <= 79
    assert not [name for name in modules if name.startswith(LATER)]


def test_help_needs_no_spark_and_no_arrays():
    modules, packages = counted(COMMAND.format(arguments=["--help"]))
    assert len(modules) <= 16
    assert not packages & (HEAVY | {"numpy", "zarr", "numcodecs"})


def test_info_needs_no_zarr(repo):
    modules, packages = counted(COMMAND.format(arguments=["info", repo]))
    assert len(modules) <= 103
    assert not packages & (HEAVY | {"zarr", "numcodecs"})
    # no container, so nothing to have credentials for
    assert not [name for name in modules if name.startswith("icevirt.connect.credentials")]
