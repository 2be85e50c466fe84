"""What tasks send to the driver, as Spark measured it: nothing that grows with references."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

import icevirt
from icevirt.api.dataset import writing
from icevirt.planning.schedule.write_tasks import Route

pytestmark = pytest.mark.ci

FILES = 12


def write_files(folder: Path, *, chunks: int) -> list[str]:
    """Write files of two variables of so many chunks each, along two axes."""
    folder.mkdir()
    paths = []
    for number in range(FILES):
        path = folder / f"{number:03d}.h5"
        with h5py.File(path, "w", libver="latest") as file:
            file["time"] = np.array([float(number)])
            file["time"].make_scale("time")
            for name in ("a", "b"):
                values = np.full((1, 10, chunks // 10), number, "i2")
                made = file.create_dataset(name, data=values, chunks=(1, 1, 1))
                made.dims[0].attach_scale(file["time"])
        paths.append(str(path))
    return paths


def counted(repo: Path) -> int:
    """Return how many virtual references the repository holds."""
    return sum(array.references.virtual for array in icevirt.info(repo).arrays)


def stages_so_far(spark) -> set[int]:
    """Return the numbers of the stages of all jobs that Spark knows."""
    jobs = store_of(spark).jobsList(None)
    ids = [jobs.apply(n).stageIds() for n in range(jobs.size())]
    return {each.apply(at) for each in ids for at in range(each.size())}


def store_of(spark):
    return spark.sparkContext._jsc.sc().statusStore()


def result_bytes(spark, build) -> int:
    """Return the bytes that tasks of a build sent to the driver, their metrics included."""
    before = stages_so_far(spark)
    build()
    new = stages_so_far(spark) - before
    return sum(store_of(spark).lastStageAttempt(stage).resultSize() for stage in new)


@pytest.mark.parametrize("kind", list(Route), ids=lambda kind: kind.name)
def test_what_tasks_send_to_the_driver_does_not_grow_with_references(
    tmp_path, spark, monkeypatch, kind
):
    """Ten times the references are not a byte more each; a task's metrics are a few KiB."""
    decided = writing.route_of
    monkeypatch.setattr(writing, "route_of", lambda plan: replace(decided(plan), kind=kind))
    output = {}
    for chunks in (100, 1000):
        files = write_files(tmp_path / str(chunks), chunks=chunks)
        repo = tmp_path / f"repo-{chunks}"
        build = partial(icevirt.build, files, repo, concat_dim="time", executor=spark)
        output[chunks] = result_bytes(spark, build)
        assert counted(repo) == 2 * FILES * chunks
    more = 2 * FILES * 900  # references, which take eight bytes and more each
    assert output[1000] - output[100] < more, output
