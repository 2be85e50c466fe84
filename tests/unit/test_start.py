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
import dataclasses, sys
compiled, real = [], dataclasses._process_class
def noted(cls, init, repr, eq, *rest, **named):
    compiled.extend([cls] * (cls.__module__.startswith("icevirt") and (init or repr or eq)))
    return real(cls, init, repr, eq, *rest, **named)
dataclasses._process_class = noted
{program}
print()
print(len(compiled), *sys.modules)
"""

FIRST_VALUE = """
import icevirt, zarr
session = icevirt.Repository.open({repo!r}).readonly_session("main")
assert zarr.open_array(session.store, path="x", mode="r")[5] == 5
"""

COMMAND = """
sys.argv = ["icevirt", *{arguments!r}]
from icevirt.cli.entry import run
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
"""

HEAVY = {"pyspark", "h5py", "xarray", "pandas", "pyarrow", "obstore", "dask"}
LATER = (  # what only the network, other formats and writers need
    "icevirt.access.virtual_refs",
    "icevirt.archive",
    "icevirt.objects.http",
    "icevirt.repo.legacy",
    "icevirt.repo.v1",
    "icevirt.repo.commits.commit",
    "icevirt.repo.commits.validation",
    "icevirt.storage.object_store",
    "icevirt.versioning.diff",
    "icevirt.versioning.merge",
    "icevirt.wire.legacy",
)


@pytest.fixture
def repo(tmp_path):
    session = icevirt.Repository.create(str(tmp_path / "repo")).writable_session("main")
    zarr.create_array(session.store, name="x", data=np.arange(100), chunks=(10,))
    session.commit("numbers")
    return str(tmp_path / "repo")


def counted(program):
    """Return our modules that a process loads, the methods that it compiles, and all packages."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(program=program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    compiled, *modules = done.stdout.splitlines()[-1].split()
    own = {name for name in modules if name.startswith("icevirt")}
    return own, int(compiled), {name.partition(".")[0] for name in modules}


def test_a_first_value_needs_few_modules(repo):
    modules, compiled, packages = counted(FIRST_VALUE.format(repo=repo))
    assert len(modules) <= 118
    assert compiled <= 11
    assert not packages & (HEAVY | {"html"})
    assert not [name for name in modules if name.startswith(LATER)]


def test_help_is_printed_without_the_program():
    modules, compiled, packages = counted(COMMAND.format(arguments=["--help"]))
    assert len(modules) <= 5
    assert not compiled
    assert not packages & (HEAVY | {"typer", "rich", "numpy", "zarr"})


def test_info_needs_no_zarr(repo):
    modules, compiled, packages = counted(COMMAND.format(arguments=["info", repo]))
    assert len(modules) <= 141
    assert compiled <= 11
    assert not packages & (HEAVY | {"zarr", "numcodecs", "typer", "pydantic"})
