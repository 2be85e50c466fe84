"""What a plan says that it costs is what its build and its readers then do."""

import io
from dataclasses import replace
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from rich.console import Console

import icevirt
from builds.support import write_days
from icevirt.display.document import document
from icevirt.display.plan import build_plan
from icevirt.model.strings import Strings
from icevirt.planning.schedule.cost_estimate import LARGE_CHUNK, SMALL_CHUNK, costs_of

pytestmark = pytest.mark.usefixtures("in_process")


def test_the_cost_is_what_the_build_then_does(tmp_path):
    days = write_days(tmp_path / "days")
    cost = icevirt.plan(days, concat_dim="time").cost
    report = icevirt.build(days, tmp_path / "repo", concat_dim="time")
    assert (cost.files, cost.arrays) == (3, len(report.arrays))
    assert cost.references.virtual == report.references.virtual
    assert cost.references.bytes_referenced == report.references.bytes_referenced
    assert cost.windows == sum(array.manifests for array in report.arrays)
    assert cost.route == "direct"
    assert (cost.scan_tasks, cost.write_tasks) == (1, report.manifests)
    assert cost.references.total == report.references.total
    assert cost.references.inline <= report.references.inline  # others are stored, somewhere
    assert cost.bytes_stored >= report.references.bytes_stored  # before they are compressed


def test_a_task_holds_the_names_of_its_files(tmp_path):
    """Longer names take more of its memory, as often as they are held."""
    made = icevirt.plan(write_days(tmp_path / "days"), concat_dim="time")
    longer = Strings.of([url + 1000 * "x" for url in made.files.url])
    other = costs_of(replace(made, files=replace(made.files, url=longer)))
    assert other.task_memory == made.cost.task_memory + 2 * 3 * 1000
    assert other.driver_memory > made.cost.driver_memory


def test_a_map_and_a_series_read_so_many_chunks(tmp_path):
    """Counted in the chunks that a reader asks the store for."""
    days = write_days(tmp_path / "days")
    of = {each.path: each for each in icevirt.plan(days, concat_dim="time").cost.of_arrays}
    assert (of["/packed"].map.chunks, of["/packed"].series.chunks) == (1, 12)
    assert of["/packed"].series.requests == 12 + of["/packed"].series.manifests
    assert (of["/mask"].map, of["/mask"].series) == (None, None)


@pytest.mark.ci
def test_chunks_that_are_too_small_or_too_large_are_reported(tmp_path):
    path = tmp_path / "one.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 3)
        file.createDimension("x", 80_000_000)
        for name, chunk in (("small", 1000), ("large", 70_000_000), ("fine", 1_000_000)):
            variable = file.createVariable(
                name, "f4", ("time", "x"), zlib=name == "large", chunksizes=(1, chunk)
            )
            variable[0, :2000] = np.arange(2000)
    cost = icevirt.plan([path]).cost
    small, large = cost.warnings
    assert "/small (3.9 KiB)" in small
    assert "/large" in large
    assert "/fine" not in small + large
    of = {each.path: each.bytes_per_chunk for each in cost.of_arrays}
    assert of["/small"] < SMALL_CHUNK < of["/fine"] < LARGE_CHUNK


def test_a_plan_as_json_holds_its_cost(tmp_path):
    output = document(icevirt.plan(write_days(tmp_path / "days"), concat_dim="time"))["cost"]
    assert output["map"]["map"]["requests"] == 2
    assert (output["map"]["path"], output["series"]["path"]) == ("/packed", "/packed")
    assert output["references"]["virtual"] == 13
    assert {"warnings", "task_memory", "driver_memory", "route"} <= set(output)


def test_a_plan_names_the_files_that_it_leaves_out(tmp_path):
    """As a build does: in text, as JSON and as values."""
    days = write_days(tmp_path / "days")
    Path(days[1]).write_bytes(b"no file of any kind")
    plan = icevirt.plan(days, concat_dim="time", scan_options={"max_bad_files": 1})
    (bad,) = plan.bad_files
    assert bad.url.endswith(Path(days[1]).name)
    assert document(plan)["bad_files"][0]["url"] == bad.url
    console = Console(file=io.StringIO(), width=1000)
    console.print(build_plan(plan))
    text = console.file.getvalue()
    assert "2, one after the other along time; 1 left out" in text
    assert days[1] in text.partition("Left out\n")[2]
