"""Nothing in the working directory runs: archives hold what strangers put there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

from builds.support import write_days
from execution.planting import PLANTED, PLANTING, place_in, plant

pytestmark = [pytest.mark.ci, pytest.mark.slow]

ICEVIRT = Path(sys.executable).parent / "icevirt"


@pytest.fixture
def place(tmp_path):
    """A directory to work in, with an archive, and one for marks."""
    return place_in(tmp_path)


def environment(**variables):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, **variables}


COMMANDS = (
    ["scan", "day0.nc", "-o", "json"],
    ["build", "*.nc", "repo", "--concat-dim", "time", "--verify", "5", "--quiet"],
    ["verify", "repo", "--authorize", "CWD", "--full"],
)


def test_no_command_runs_what_lies_in_the_working_directory(place):
    work, marks = place
    names = sorted(path.name for path in work.glob("*.nc"))
    plant(work, marks)
    known = {"CWD": f"{work.as_uri()}/", "day0.nc": names[0]}
    for command in COMMANDS:
        words = [known.get(word, word) for word in command]
        ran = subprocess.run(
            [ICEVIRT, *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=work,
            env=environment(),
        )
        assert ran.returncode == 0, (words, ran.stderr)
        assert sorted(os.listdir(marks)) == [], words


PROGRAM = (
    PLANTED
    + """
from icevirt.execution.local_executors import ProcessExecutor

with ProcessExecutor(1) as workers:
    icevirt.build("*.nc", "repo", concat_dim="time", commit_options={"verify": 5}, executor=workers)
names = sorted(name for name in os.listdir() if name.endswith(".nc"))
icevirt.scan_file(names[0], scan_options={"file_timeout": 60})
"""
)


def test_no_worker_runs_what_lies_in_the_working_directory(place):
    """It is clean when the program starts, which finds it in both ways: by itself and by a variable."""
    work, marks = place
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, PLANTING, str(marks)],
        check=False,
        capture_output=True,
        text=True,
        cwd=work,
        env=environment(PYTHONPATH=f"{os.pathsep}/nowhere"),
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(os.listdir(marks)) == []


PATHS = {
    "code": (["-c"], {}, False),
    "a module": (["-m", "shown"], {"PYTHONPATH": "CODE"}, False),
    "a script elsewhere": (["CODE/shown.py"], {}, False),
    "a script that lies there": (["HERE/shown.py"], {}, True),
    "an empty entry": (["CODE/shown.py"], {"PYTHONPATH": f"{os.pathsep}/nowhere"}, False),
    "a dot": (["CODE/shown.py"], {"PYTHONPATH": "."}, False),
    "its name": (["-m", "shown"], {"PYTHONPATH": f"CODE{os.pathsep}HERE"}, True),
    "its name, which is ignored": (["-E", "CODE/shown.py"], {"PYTHONPATH": "HERE"}, False),
    "a safe path": (["-P", "HERE/shown.py"], {}, False),
}
SHOWN = """
import json, sys
from icevirt.import_path import import_path
print(json.dumps(import_path()))
"""


@pytest.mark.parametrize(("words", "variables", "is_there"), PATHS.values(), ids=PATHS.keys())
def test_the_working_directory_is_imported_from_where_somebody_says_so(
    words, variables, is_there, tmp_path
):
    code, here = tmp_path / "code", tmp_path / "here"
    for folder in (code, here):
        folder.mkdir()
        (folder / "shown.py").write_text(SHOWN)
    said = lambda text: text.replace("CODE", str(code)).replace("HERE", str(here))  # noqa: E731
    ran = subprocess.run(
        [sys.executable, *map(said, words), *([SHOWN] if words == ["-c"] else [])],
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
        env=environment(**{name: said(value) for name, value in variables.items()}),
    )
    found = json.loads(ran.stdout)
    assert (str(here) in found) is is_there
    assert all(os.path.isabs(each) for each in found)


BESIDE = """
import icevirt

HEADER = {"x-from": __name__}

def headers():
    return icevirt.http_credentials(headers=HEADER)

def changes(file):
    return icevirt.FileChanges(attrs={"/": {"changed": __name__}})
"""
USER = """
import os
from operator import methodcaller
import beside, folder.deep, icevirt
from icevirt.import_path import is_trusted
from icevirt.execution.local_executors import ProcessExecutor

def own():
    return icevirt.http_credentials(bearer_token="own")

asked = [
    icevirt.http_credentials(get_credentials=each)
    for each in (beside.headers, folder.deep.headers, own)
]
with ProcessExecutor(1) as workers:
    told = workers.run(methodcaller("get_credentials"), asked)
    print([each.reveal() for each in told])
    print(workers.run(is_trusted, [os.getcwd()]))
    for number, change in enumerate((beside.changes, "folder.deep:changes")):
        icevirt.build("*.nc", f"repo{number}", concat_dim="time", combine_options={"preprocess": change}, executor=workers)
"""


@pytest.mark.parametrize("how", ["notebook", "script"])
def test_functions_beside_a_script_or_notebook_work_in_every_process(how, tmp_path):
    """A notebook runs in the working directory, which is no place that workers import from."""
    write_days(tmp_path, 2)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "deep.py").write_text(BESIDE)
    (tmp_path / "folder" / "__init__.py").touch()
    (tmp_path / "user.py").write_text(USER)
    ran = subprocess.run(
        [sys.executable, *(["-c", USER] if how == "notebook" else ["user.py"])],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert ran.returncode == 0, ran.stderr
    credentials, trusted = ran.stdout.splitlines()
    assert credentials == str(
        [{"x-from": "beside"}, {"x-from": "folder.deep"}, {"authorization": "Bearer own"}]
    )
    assert trusted == str([how == "script"])  # and so do processes that workers start
    for number, name in enumerate(("beside", "folder.deep")):
        with xr.open_dataset(tmp_path / f"repo{number}", engine="icevirt") as found:
            assert found.attrs["changed"] == name
