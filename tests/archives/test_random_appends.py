"""Random archives that grow: appended piece by piece, they are what one build of all files makes.

``ICEVIRT_APPENDS=500`` judges more; ``-k "[17]"`` judges one again. The table at the end says how many
appends were flat, and why others were not.
"""

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from archives.judging import arguments_of, as_given, first_fix, merged
from archives.random_archive import drawn
from archives.random_files import files_of
from icevirt.errors import IcevirtError
from icevirt.execution.local_executors import InProcessExecutor

COUNT = int(os.environ.get("ICEVIRT_APPENDS", "12"))
_FIXES = 3

pytestmark = [pytest.mark.ci, pytest.mark.filterwarnings("ignore")]  # xarray warns of odd files


@pytest.fixture(scope="module")
def ways(pytestconfig):
    """Collect how appends went, and print it."""
    found: Counter[str] = Counter()
    yield found
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    for what, count in found.most_common():
        reporter.write_line(f"{count:6} {what}")


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_dataset_that_grows_equals_one_build(seed, tmp_path, ways):
    """An append may be refused, and then leaves what was there."""
    rng = np.random.default_rng([seed, 51])
    archive = drawn(seed, is_one_dataset=True)
    more = tuple(int(each) for each in rng.integers(1, 5, int(rng.integers(1, 4))))
    if archive.lengths == archive.lengths[:1] * len(archive.lengths):
        more = archive.lengths[:1] * len(more)
    archive = replace(archive, lengths=archive.lengths + more)
    files = files_of(archive)
    for each in files:
        each.write(tmp_path)
    names = [str(tmp_path / name) for name in as_given(archive, files)]
    call = arguments_of(archive)
    first = int(rng.integers(1, len(names)))
    for _ in range(_FIXES):
        try:
            icevirt.build(names[:first], tmp_path / "repo", executor=InProcessExecutor(), **call)
        except IcevirtError as error:
            if (change := first_fix(error)) is None:
                break
            call = merged(call, change)
            continue
        break
    if not (tmp_path / "repo" / "repo").exists():
        ways["refused from the beginning"] += 1
        return
    done, flat = first, 0
    while done < len(names):
        next_ = min(len(names), done + int(rng.integers(1, 3)))
        try:
            report = icevirt.append(names[:next_], tmp_path / "repo", executor=InProcessExecutor())
        except IcevirtError:
            ways["append refused"] += 1
            break
        done = next_
        flat += report.flat
        why = next(
            (each for each in report.findings if each.startswith("all files")), "nothing new"
        )
        ways["flat" if report.flat else why] += 1
    refused = None
    try:
        icevirt.build(names[:done], tmp_path / "whole", executor=InProcessExecutor(), **call)
    except IcevirtError as error:
        refused = error
    if refused is not None:
        assert not flat, f"what was appended is refused as a whole: {refused}"
        ways["the whole is refused, and no append was flat"] += 1
        return
    ours, whole = (_read(tmp_path / name, tmp_path) for name in ("repo", "whole"))
    xr.testing.assert_identical(ours, whole)
    for name in whole.variables:
        assert ours[name].dtype == whole[name].dtype
        assert _encoding(ours[name]) == _encoding(whole[name]), name


def _read(repo, folder):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        found = xr.open_dataset(
            repo,
            engine="icevirt",
            decode_cf=False,
            authorize_virtual_chunk_access={f"{folder.as_uri()}/": None},
        )
        return found.load()


def _encoding(array):
    return {name: repr(value) for name, value in array.encoding.items() if name != "source"}
