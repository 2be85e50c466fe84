"""The versions of the page on installing are those of the distribution."""

import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "installing.md").read_text()
SUPPORTED = (ROOT / "docs" / "versions.md").read_text()


def floors(requirements):
    """Return the lowest versions; of those that differ by Python, the one named first."""
    requirements = reversed(requirements)
    found = (re.fullmatch(r"([\w-]+)>=([\d.]+)([,;].*)?", each) for each in requirements)
    return {each[1].lower(): each[2] for each in found if each}


def stated(row):
    (cell,) = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", PAGE, re.MULTILINE)
    return dict(each.split(" ") for each in cell.split(", "))


def test_each_lowest_version_is_on_the_page():
    """CI installs these (`just lowest`)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert floors(project["dependencies"]) == stated("reading") | stated("the command line")
    for name in ("hdf5", "cluster", "spark", "virtualizarr", "grib", "imagecodecs", "testing"):
        assert floors(extras[name]) == stated(f"`{name}`")
    assert floors(extras["jdk"] + extras["demo"]) == stated("`jdk`, `demo`")


def test_each_requirement_has_a_lowest_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *chain.from_iterable(project["optional-dependencies"].values()),
    ]
    others = [each for each in wanted if not each.startswith("icevirt[")]
    assert set(floors(others)) == {re.split(r"[<>=]", each)[0].lower() for each in others}


def test_the_page_on_versions_supports_what_the_distribution_says():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", SUPPORTED, re.MULTILINE))
    tried = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    assert rows["Python"] == ", ".join(tried)
    assert project["requires-python"] == f">={tried[0]}"
    lowest = floors(project["dependencies"])
    named = dict(re.findall(r"(zarr|xarray|numpy) ([\d.]+)", rows["zarr, xarray, numpy"]))
    assert named == {name: lowest[name] for name in ("zarr", "xarray", "numpy")}
    assert rows["Spark"].startswith(floors(project["optional-dependencies"]["spark"])["pyspark"])
