"""What executors have installed is compared without importing anything of ours there."""

import importlib.metadata
import json
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark import cloudpickle

import icevirt
from icevirt.execution import installation, installed, preflight
from icevirt.execution.spark_failures import requirements_of

HERE = Path(icevirt.__file__).parent
SCANNERS = HERE.parent / "scanners" / "icevirt_scanners"
EXPECTED = {"python": "3.13", "icevirt": "0.1.0", "code": "ab", "scanners": {"hdf5": "x:Y"}}


ALONE = """
import json, pickle, sys
sys.modules["icevirt"] = None  # importing it fails
work = pickle.loads(sys.stdin.buffer.read())
print(json.dumps(work({}, reads_code=False)))
"""


def test_what_runs_first_on_an_executor_needs_no_icevirt():
    """A process that cannot import icevirt unpickles it, and says that it has none."""
    ran = subprocess.run(
        [sys.executable, "-c", ALONE],
        input=installation.by_value(installed.look),
        capture_output=True,
        check=True,
    )
    found = json.loads(ran.stdout)
    assert found["icevirt"] is None
    assert found["code"] == ""
    assert found["python"] == "{}.{}".format(*sys.version_info[:2])


def refused(batches):
    yield from batches


@pytest.mark.parametrize(
    "made",
    [
        lambda: installation.guard(refused, is_local=False),
        lambda: preflight._probe(None),
    ],
    ids=["a stage", "the job before"],
)
def test_no_function_that_spark_unpickles_names_a_module_of_ours(made):
    raw = cloudpickle.dumps(made())
    code = "import pickle, sys\nsys.modules['icevirt'] = None\n"
    code += "print(callable(pickle.loads(sys.stdin.buffer.read())))"
    ran = subprocess.run([sys.executable, "-c", code], input=raw, capture_output=True, check=False)
    assert ran.stdout.strip() == b"True", ran.stderr.decode()


class Sent(installation.SentBySpark):
    """What Spark pickles by itself."""

    def __init__(self):
        self.number = 3


def test_what_spark_pickles_itself_is_compared_before_it_is_imported(monkeypatch):
    raw = cloudpickle.dumps(Sent())
    assert pickle.loads(raw).number == 3
    code = (
        "import pickle, sys\nsys.modules['icevirt'] = None\npickle.loads(sys.stdin.buffer.read())"
    )
    ran = subprocess.run([sys.executable, "-c", code], input=raw, capture_output=True, check=False)
    assert b"RuntimeError: icevirt refuses this executor" in ran.stderr
    assert b"icevirt is not installed there" in ran.stderr
    there = {**installation.of_driver(), "icevirt": "9.9"}
    monkeypatch.setattr(installation, "of_driver", lambda: there)
    with pytest.raises(RuntimeError, match=r"it has icevirt .*, the driver 9\.9"):
        pickle.loads(cloudpickle.dumps(Sent()))


@pytest.mark.parametrize(
    ("change", "kind"),
    {
        "python": ({"python": "3.12"}, "python"),
        "icevirt is missing": ({"icevirt": None}, "missing"),
        "another version": ({"icevirt": "0.2.0"}, "version"),
        "other code": ({"code": "cd"}, "code"),
        "no scanner": ({"scanners": {}}, "scanners"),
        "one more scanner": ({"scanners": {"hdf5": "x:Y", "grib": "gribber 1.0"}}, "scanners"),
    }.values(),
)
def test_each_difference_is_reported(change, kind):
    assert installed.compare(EXPECTED, EXPECTED) is None
    found = installed.compare(EXPECTED, EXPECTED | change)
    assert found is not None
    assert found[0] == kind
    other = next(iter(change.values()))
    if kind in ("python", "version"):
        assert str(other) in found[1]


def test_code_that_is_not_summed_up_is_not_compared():
    assert installed.compare(EXPECTED | {"code": ""}, EXPECTED | {"code": "cd"}) is None


def copied(folder):
    """Copy both packages without what Python compiled."""
    kept = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE, folder / "icevirt", ignore=kept)
    shutil.copytree(SCANNERS, folder / "icevirt_scanners", ignore=kept)


SUMMED = """
import sys, runpy
sys.path.insert(0, sys.argv[1])
print(runpy.run_path(sys.argv[2])["look"]({}, reads_code=True)["code"])
"""


def digest_in(place):
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SUMMED, str(place), installed.__file__],
        capture_output=True,
        check=True,
        text=True,
    )
    return ran.stdout.strip()


def test_code_is_the_same_in_a_folder_and_in_an_archive_and_differs_after_a_change(tmp_path):
    copied(tmp_path / "one")
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as packed:
        for path in sorted((tmp_path / "one").rglob("*.py")):
            packed.write(path, path.relative_to(tmp_path / "one"))
    digest = installation.of_driver()["code"]
    assert digest_in(tmp_path / "one") == digest_in(tmp_path / "one.zip") == digest
    with (tmp_path / "one" / "icevirt_scanners" / "__init__.py").open("a") as file:
        file.write("\n")
    assert digest_in(tmp_path / "one") not in (digest, "")


def test_packages_that_tasks_need_are_those_of_the_distribution():
    """The versions are what `pyproject.toml` says."""
    output = {
        re.sub(r"\s*;.*|\s", "", text) for text in importlib.metadata.requires("icevirt") or ()
    }
    bounds = {tuple(sorted(re.split("(?=[<>])|,", text.lower()))) for text in output}
    for text in installation.NEEDED.values():
        assert tuple(sorted(re.split("(?=[<>])|,", text))) in bounds, text


@pytest.mark.parametrize(
    ("versions", "lacking"),
    {
        "all there": ({"numpy": "2.5.5", "obstore": "0.12.1", "pandas": "2.2"}, []),
        "one missing": ({"numpy": None}, ["numpy>=2.1"]),
        "one too old": ({"numpy": "1.26.4"}, ["numpy>=2.1"]),
        "one too new": (
            {"obstore": "0.13.0", "zarr": "4"},
            ["obstore>=0.12,<0.13", "zarr>=3.4.1,<4"],
        ),
        "a release candidate": ({"pyarrow": "18.0.0rc1"}, []),
        "a version that nothing says": ({"yaml": ""}, []),
    }.values(),
)
def test_requirements_that_are_not_met_are_named(versions, lacking):
    assert requirements_of(versions) == lacking


def test_a_process_that_does_not_suit_is_refused_and_one_that_does_is_looked_at_once(monkeypatch):
    monkeypatch.delattr(sys, "_icevirt_suits", raising=False)
    expected = installation.expect(is_local=True)
    refuse = pickle.loads(installation.by_value(installed.refuse))
    assert refuse(expected, "no") is None
    assert len(sys._icevirt_suits) == 1
    with pytest.raises(RuntimeError, match=r"no, .*: it has icevirt 0\.1\.0, the driver 9"):
        refuse(expected | {"icevirt": "9"}, "no")
    assert len(sys._icevirt_suits) == 1
