"""The command line runs as a module, and as a script that lies in the package or was copied."""

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys

import icevirt
from icevirt.version import __version__

SCRIPT = os.path.join(os.path.dirname(icevirt.__file__), "__main__.py")


def ran(*words, cwd):
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_module_runs_the_command_line(tmp_path):
    assert ran("-m", "icevirt", "--version", cwd=tmp_path) == f"icevirt {__version__}"


def test_the_script_for_spark_submit_is_named(tmp_path):
    named = ran("-m", "icevirt", "spark-script", cwd=tmp_path)
    assert os.path.samefile(named, SCRIPT)
    assert ran(named, "--version", cwd=tmp_path) == f"icevirt {__version__}"


def test_no_module_beside_the_script_hides_another(monkeypatch):
    """`icevirt/xarray.py` lies beside it, and Python puts a script's folder first."""
    folder, script = os.path.dirname(SCRIPT), runpy.run_path(SCRIPT)
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    script["_leave_out"](folder)
    assert folder not in sys.path
    assert not importlib.util.find_spec("xarray").origin.startswith(folder)


def test_a_copy_of_the_script_leaves_its_folder_on_the_path(tmp_path, monkeypatch):
    """As Spark copies it to a driver on a cluster, where modules of the job lie beside it."""
    copy = shutil.copy(SCRIPT, tmp_path / "copied.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    runpy.run_path(str(copy))["_leave_out"](str(tmp_path))
    assert sys.path[0] == str(tmp_path)
