"""Random archives: what is built is what the files hold, or xarray and icevirt both refuse.

Each command that a refusal proposes is run, and none keeps more than the first one.

``ICEVIRT_ARCHIVES=2000`` judges more; ``-k "[17]"`` then judges one again. The table at the end counts what
came of all, and the reasons of refusals.
"""

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from archives.judging import Verdict, judged
from archives.random_archive import RandomArchive, drawn
from archives.random_files import files_of
from archives.random_proposals import Proposal, complaint_of, read_held, read_kept
from archives.random_truth import read, truth

COUNT = int(os.environ.get("ICEVIRT_ARCHIVES", "0"))
DRAWN = 60  # archives, of which CI builds the plainest with each oddity

pytestmark = [pytest.mark.ci, pytest.mark.filterwarnings("ignore")]  # xarray warns of odd files


def covering(count: int) -> list[int]:
    """Return the seeds of the plainest archive with each oddity, where others hide it least."""
    oddities = {seed: {*named(drawn(seed))} for seed in range(count)}
    plainest = sorted(oddities, key=lambda seed: len(oddities[seed]))
    every = set().union(*oddities.values())
    return sorted({next(seed for seed in plainest if each in oddities[seed]) for each in every})


def named(archive: RandomArchive) -> Iterator[tuple[str, object]]:
    """Yield each oddity of an archive and its value, of lengths what is odd about them."""
    lengths = archive.lengths
    yield "files", len(lengths)
    yield "single steps", lengths.count(1) and min(lengths.count(1), len(lengths) - 1)
    yield "uneven", len({*lengths}) > 1
    yield from ((name, value) for name, value in archive.oddities().items() if name != "lengths")


@pytest.fixture(scope="module")
def verdicts(pytestconfig):
    """Collect verdicts by seed, and print what came of all."""
    found: dict[int, Verdict] = {}
    yield found
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("\n" + table(found))


@pytest.mark.parametrize("seed", range(COUNT) if COUNT else covering(DRAWN))
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


FOUND = {
    "single steps whose times are scalars, and the dimension is named": {
        "lengths": (1, 1),
        "gap": True,
        "bounds": True,
        "scalar_time": "all",
    },
    "positions that begin anew in each file": {"lengths": (2, 4), "along": "restart"},
    "durations in three units": {"lengths": (2, 2, 2), "durations": "mixed"},
    "two groups whose dimensions have other lengths": {"lengths": (1, 3), "grouped": "other"},
    "numbers of steps within the file": {"along": "none", "index": "1"},
    "numbers of steps in eras": {"lengths": (1, 2), "along": "none", "index": "1", "zlib": True},
    "bounds of single times that count from other dates": {
        "lengths": (1, 1),
        "bounds": True,
        "scalar_time": "all",
        "other_units": "reference",
    },
    "two variables of a step whose time is a scalar": {
        "lengths": (1, 1, 1),
        "split": True,
        "scalar_time": "all",
    },
    "single steps among others": {"lengths": (1, 3, 1), "scalar_time": "some"},
    "an era of single steps whose labels fall": {
        "lengths": (2, 1, 1),
        "along": "int",
        "falling": True,
        "scalar": "varies",
        "chunks": "file",
        "unlimited": True,
    },
    "a field of each file, of which one has no steps": {
        "static": "varies",
        "era": "fill",
        "trouble": "empty",
    },
    "an era without the steps that it should hold": {
        "lengths": (1, 1, 1),
        "split": True,
        "variables": ("tas", "flag"),
        "fill": "none",
        "trouble": "empty",
    },
}


@pytest.mark.parametrize("oddities", FOUND.values(), ids=FOUND)
def test_archives_of_each_kind_lose_nothing(oddities, tmp_path):
    verdict = judged(RandomArchive(seed=7, **oddities), tmp_path)
    assert verdict.kind.startswith(("equal", "two groups", "refused, xarray combines", "eras")), (
        verdict
    )
    assert "left out" not in verdict.kind


def test_a_first_proposal_that_loses_what_another_keeps_is_told():
    held = frozenset((name, (), value) for name in ("/a", "/b") for value in range(3))
    all_kept = Proposal(python=("all",), kind="built", kept=held)
    some_kept = Proposal(python=("some",), kind="built", kept=frozenset([("/a", (), 1)]))
    nothing = Proposal(python=("nothing",), kind="refused")
    assert complaint_of([all_kept, some_kept, nothing], held) == ""
    assert "loses 5 values, and ('all',) 0" in complaint_of([some_kept, all_kept], held)
    assert "is refused, and ('some',) builds" in complaint_of([nothing, some_kept], held)
    assert complaint_of([nothing], held) == ""
    crash = Proposal(python=("bad",), kind="crash", detail="KeyError()")
    assert complaint_of([all_kept, crash], held) == "crash by bad: KeyError()"


def test_values_are_found_by_their_labels_in_any_group():
    one = xr.Dataset({"v": ("x", [1.0, 2.0])}, {"x": [0, 1]})
    other = xr.Dataset({"v": ("x", [3.0, np.nan])}, {"x": [2, 3]})
    held = read_held([one, other])
    assert len(held) == 3 + 4  # values that are missing are none
    joined = xr.concat([one, other], "x")
    assert read_kept([(("",), joined)], held) == held
    assert read_kept([(("", "era_0"), one), (("", "era_1"), other)], held) == held
    assert read_kept([(("",), joined.isel(x=slice(3)))], held) == held - {
        ("/x", (("x", 3.0),), 3.0)
    }
    moved = joined.assign_coords(x=[0, 1, 3, 2])
    assert ("/v", (("x", 2.0),), 3.0) not in read_kept([(("",), moved)], held)
