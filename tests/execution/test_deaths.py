"""Driver, workers and all of Spark die at random moments of a scan, and the catalog is the same.

A worker dies first, then all of Spark; processes without Spark finish it. ``ICEVIRT_SCAN_DEATHS=30``
is how often (`just deaths`), where what dies further is chosen by lot; the seed of the moments is in
the report.
"""

import os
import random
import secrets
import signal
import sys
import textwrap
import time
from collections import Counter

import h5py
import numpy as np
import pytest

from builds.support import output
from execution.processes import Driver, kill

pytestmark = [pytest.mark.ci, pytest.mark.slow]

DEATHS = int(os.environ.get("ICEVIRT_SCAN_DEATHS", "2"))
FIRST = ("worker", "everything")
FILES = 64 + 20 * DEATHS
PART = max(8, -(-FILES // 64))  # files of a part
SLOTS = 2
NAP = 0.1  # seconds that a file takes at least
LONGEST = 0.9  # seconds between deaths; all of them together are shorter than the scan
assert LONGEST * DEATHS < FILES * NAP / SLOTS

SCANNER = """
    import os
    import time

    from icevirt_scanners.hdf5.scanner import Hdf5Scanner

    class NotingScanner(Hdf5Scanner):
        name = "noting"

        def scan(self, source, options):
            with open(os.environ["NOTED"], "a") as log:
                log.write(source.file.url + "\\n")
            time.sleep(float(os.environ["NAP"]))
            return super().scan(source, options)
"""

PROGRAM = """
    import sys
    import icevirt
    from icevirt.execution.selection import executor_of

    with executor_of(sys.argv[3]) as executor:
        icevirt.scan_files(
            sys.argv[1], sys.argv[2], concat_dim="time", executor=executor,
            scan_options={"scanner": "noting_of_tests:NotingScanner"},
        )
"""


@pytest.fixture
def archive(tmp_path):
    folder = tmp_path / "archive"
    folder.mkdir()
    for number in range(FILES):
        with h5py.File(folder / f"f{number:04d}.nc", "w") as file:
            file.attrs["number"] = number
            moment = file.create_dataset("time", data=[float(number)])
            moment.make_scale("time")
            file["v"] = np.full((1, 3), number)
            file["v"].dims[0].attach_scale(moment)
    return folder


class Scan(Driver):
    """A scan; files are noted when they are scanned."""

    def __init__(self, tmp_path, archive, catalog, nap, executor):
        site = tmp_path / "site"
        site.mkdir(exist_ok=True)
        (site / "noting_of_tests.py").write_text(textwrap.dedent(SCANNER))
        self.noted = tmp_path / "noted"
        self.noted.touch()
        self.began_at = self.noted.stat().st_size
        super().__init__(
            PROGRAM, archive, catalog, executor, site=site, NOTED=str(self.noted), NAP=str(nap)
        )

    @property
    def scans(self):
        """Whether a file was scanned yet."""
        return self.noted.stat().st_size > self.began_at


def disturbed(scan, dice, deaths, total):
    """Kill until the driver ends; count in ``deaths`` what died."""
    early = dice.random() < 0.2
    while scan.lives and not (scan.scans or early):
        time.sleep(0.02)
    time.sleep(dice.uniform(0, 8) if early else 0)
    while scan.lives and deaths.total() < total:
        time.sleep(dice.uniform(0, LONGEST))
        any_of = ["driver", "everything", "worker", "worker", "worker"]
        victim = FIRST[deaths.total()] if deaths.total() < len(FIRST) else dice.choice(any_of)
        workers = scan.workers()
        if victim == "worker" and workers and scan.lives:
            kill([dice.choice(workers)])
        elif victim != "worker" and scan.lives:
            everything = [each.pid for each in scan.processes()]
            kill([scan.pid] if victim == "driver" else everything)
            scan.wait()
        else:
            continue
        deaths[victim] += 1


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_scan_that_dies_again_and_again_ends_as_if_nothing_had_happened(tmp_path, archive):
    whole, catalog = tmp_path / "whole", tmp_path / "catalog"
    assert Scan(tmp_path, archive, whole, 0, "processes").end(900)[0] == 0
    expected = output(whole)
    assert len(expected["files"]["url"]) == FILES
    (tmp_path / "noted").unlink()

    seed = int(os.environ.get("ICEVIRT_SEED", secrets.randbelow(1 << 32)))
    dice, deaths, failures, runs = random.Random(seed), Counter(), 0, 0
    while True:
        executor = "spark" if deaths.total() < DEATHS else "processes"
        scan = Scan(tmp_path, archive, catalog, NAP, executor)
        runs += 1
        disturbed(scan, dice, deaths, DEATHS)
        status, words = scan.end(900)
        if status == 0:
            break
        if status != -signal.SIGKILL:  # Spark gave up a task whose workers died too often
            failures += 1
            assert "a Spark task failed" in words, words

    recorded_options = (seed, dict(deaths), runs, failures)
    assert deaths.total() == DEATHS, recorded_options
    assert output(catalog) == expected, recorded_options
    noted = Counter(scan.noted.read_text().split())
    assert len(noted) == FILES
    again = noted.total() - FILES
    sys.stdout.write(
        f"\n{FILES} files in parts of {PART}, {again} scanned again: {recorded_options}\n"
    )
    drivers = deaths.total() - deaths["worker"] + failures
    assert again <= PART * (SLOTS * drivers + deaths["worker"]), recorded_options
