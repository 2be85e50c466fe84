"""Random archives: what is built is what the files hold, or xarray and icevirt both refuse.

``ICEVIRT_ARCHIVES=2000`` judges more; ``-k "[17]"`` judges one again. The table at the end counts what
came of all, and the reasons of refusals.
"""

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from archives.judging import Verdict, judged
from archives.random_archive import RandomArchive, drawn
from archives.random_files import files_of
from archives.random_truth import read, truth

COUNT = int(os.environ.get("ICEVIRT_ARCHIVES", "60"))

pytestmark = [pytest.mark.ci, pytest.mark.filterwarnings("ignore")]  # xarray warns of odd files


@pytest.fixture(scope="module")
def verdicts(pytestconfig):
    """Collect verdicts by seed, and print what came of all."""
    found: dict[int, Verdict] = {}
    yield found
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("\n" + table(found))


@pytest.mark.parametrize("seed", range(COUNT))
def test_what_is_built_is_what_the_files_hold(seed, tmp_path, verdicts):
    verdict = verdicts[seed] = judged(drawn(seed), tmp_path)
    if verdict.is_defect:
        small = smallest(drawn(seed), tmp_path / "smaller", verdict.kind)
        pytest.fail(
            f"{verdict.kind}, xarray: {verdict.xarray}, after {verdict.fixes}: {verdict.detail}\n"
            f"smallest: RandomArchive(seed={seed}, **{small.oddities()!r})"
        )


def smallest(archive: RandomArchive, folder: Path, kind: str) -> RandomArchive:
    """Return an archive with as few oddities as still give the verdict."""

    def same(smaller: RandomArchive) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            return judged(smaller, folder).kind == kind
        except (ValueError, KeyError):  # the oddities that are left do not go together
            return False

    return _reduced(archive, same)


def _reduced(archive: RandomArchive, same: Callable[[RandomArchive], bool]) -> RandomArchive:
    for smaller in archive.smaller():
        if same(smaller):
            return _reduced(smaller, same)
    return archive


def table(verdicts: dict[int, Verdict]) -> str:
    """Return how often each verdict was given, why, and for which seeds."""
    kinds = Counter(each.kind for each in verdicts.values())
    reasons: dict[tuple[str, str], list[int]] = defaultdict(list)
    for seed, each in sorted(verdicts.items()):
        if each.reasons:
            reasons[each.kind, " -> ".join(each.reasons)].append(seed)
    lines = [f"{len(verdicts)} random archives"]
    lines += [f"{count:6} {kind}" for kind, count in kinds.most_common()]
    lines += [
        f"{len(seeds):6} {kind} | {why} | {seeds[:3]}"
        for (kind, why), seeds in sorted(reasons.items(), key=lambda each: -len(each[1]))
    ]
    return "\n".join(lines)


def test_the_truth_of_plain_files_is_what_they_hold_one_after_the_other(tmp_path):
    archive = RandomArchive(seed=1, lengths=(2, 3), trouble="overlap-other")
    files = files_of(archive)
    for each in files:
        each.write(tmp_path)
    held = truth(archive, files, read(archive, files, tmp_path), given={})
    assert held["tas"].dims == ("time", "y", "x")
    np.testing.assert_array_equal(held["tas"].values[:, 0, 0], [0.25, 7.25, 114.25, 121.25, 128.25])
    np.testing.assert_array_equal(held["tas"].disputed[:, 0, 0], [False, True, False, False, False])


def test_the_smallest_archive_keeps_what_matters():
    archive = RandomArchive(seed=1, lengths=(2, 2, 2), zlib=True, trouble="again", values="i2")
    small = _reduced(archive, lambda each: each.trouble == "again")
    assert small.oddities() == {"trouble": "again"}
