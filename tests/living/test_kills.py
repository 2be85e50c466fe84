"""Updates by processes that are killed: the old state or the new one, and the next takes over."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_day

pytestmark = pytest.mark.ci

KILLS = int(os.environ.get("ICEVIRT_UPDATE_KILLS", "2"))
LEASE = 2.0  # seconds; two minutes would be waited for after each kill
UPDATE = f"""
import functools, sys
import icevirt
import icevirt.api.update
module = sys.modules["icevirt.api.update"]
module.hold_lease = functools.partial(module.hold_lease, seconds={LEASE})
print("ready", flush=True)
sys.stdin.readline()
icevirt.update(sys.argv[1], if_running=sys.argv[2])
"""


class Updating:
    """A process that updates a repository as soon as it is told to."""

    def __init__(self, repo, if_running="wait"):
        self.process = subprocess.Popen(
            [sys.executable, "-c", UPDATE, repo, if_running],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout.readline() == b"ready\n"

    def begin(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self

    def end(self):
        _, output = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, output.decode()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "archive").mkdir()
    for day in range(1, 9):
        write_day(tmp_path / "archive" / f"day{day:03}.nc", 200 * day)
    return tmp_path / "archive"


def leases(repo):
    return {path: path.read_bytes() for path in Path(repo, "icevirt").glob("leases/*")}


def await_change(repo, known, process):
    """Wait until a process holds the lease."""
    until = time.monotonic() + 60
    while leases(repo) == known and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)


def test_kills_at_random_points_leave_the_old_state_or_the_new_one(archive, tmp_path):
    """The next one takes over the lease, which nobody gives back, and finishes."""
    repo, rng, killed = str(tmp_path / "repo"), random.Random(7), 0
    icevirt.build(str(archive), repo, concat_dim="time")
    for how in ({"chunks": {"time": 5, "x": 2}}, {"coarsen": {"x": 2}}):
        icevirt.materialize(repo, "packed", beside=True, **how)
    for attempt in range(KILLS):
        with opened(repo) as found:
            before = found.load()
        # behind the last step, or before the first
        write_day(archive / f"day{100 + attempt:03}.nc", (attempt % 2) * 2000 + attempt)
        if not attempt % 2:
            (archive / "day001.nc").touch()
        updating, known = Updating(repo), leases(repo)
        updating.begin()
        await_change(repo, known, updating.process)
        time.sleep(rng.uniform(0, 0.5))
        killed += updating.process.poll() is None
        updating.kill()
        assert icevirt.check(repo).ok
        with opened(repo) as found:
            if found.sizes != before.sizes:  # else its old files may be touched, as readers say
                assert_same_dataset(found, whole(archive))
                assert_copies_in_step(repo)
        icevirt.update(repo)
        with opened(repo) as found:
            assert_same_dataset(found, whole(archive))
        assert_copies_in_step(repo)
    assert killed


def assert_copies_in_step(repo):
    """Compare a variable with its twin, and its coarser copy with means of it."""
    with opened(repo, layout="own") as own, opened(repo, layout="twin") as twin:
        xr.testing.assert_equal(own["packed"], twin["packed"])
        means = own["packed"].coarsen(x=2, boundary="pad").mean()
        with opened(repo, level="x2") as coarse:
            np.testing.assert_allclose(coarse["packed"], means, rtol=1e-6)


def whole(archive):
    """Return the dataset of all files, in the order of their labels."""
    files = sorted(archive.glob("day*.nc"), key=first_label)
    return expected_dataset(files, "time")


def first_label(path):
    with xr.open_dataset(path) as found:
        return found.time.values[0]


def test_who_skips_says_who_runs_and_a_process_that_stood_still_loses_nothing(archive, tmp_path):
    repo = str(tmp_path / "repo")
    icevirt.build(str(archive), repo, concat_dim="time")
    write_day(archive / "day100.nc", 2030)
    first, second, known = Updating(repo), Updating(repo), leases(repo)
    first.begin()
    await_change(repo, known, first.process)
    first.process.send_signal(signal.SIGSTOP)
    skipped = icevirt.update(repo, if_running="skip")
    assert str(first.process.pid) in skipped.skipped
    write_day(archive / "day101.nc", 2031)
    second.begin().end()
    first.process.send_signal(signal.SIGCONT)
    first.end()
    with opened(repo) as found:
        assert_same_dataset(found, whole(archive))
    log = icevirt.log(repo).commits
    assert sum(commit.message.startswith("Update") for commit in log) == 1
