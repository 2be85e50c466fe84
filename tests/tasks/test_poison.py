"""Bad files among many good ones, on Spark: each has its row and its reason, the others are there.

``ICEVIRT_POISON_FILES=5000`` scans as many files, one in a hundred of them bad (`just poison`).
"""

import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
import time
import zlib
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest

import icevirt
from execution.processes import python_of
from tasks.stub_scanner import install

pytestmark = [pytest.mark.ci, pytest.mark.slow]

FILES = int(os.environ.get("ICEVIRT_POISON_FILES", "200"))
CHUNKS = 4  # of the variable in each good file


def write_good(path, number):
    with h5py.File(path, "w", libver="latest") as file:
        time_ = file.create_dataset("time", data=[float(number)], maxshape=(None,), chunks=(1,))
        time_.make_scale("time")
        values = file.create_dataset(
            "v", data=np.full((1, CHUNKS, 3), number), maxshape=(None, CHUNKS, 3), chunks=(1, 1, 3)
        )
        values.dims[0].attach_scale(time_)


def truncated(path):
    write_good(path, 0)
    os.truncate(path, os.path.getsize(path) * 6 // 10)


def superblock(path):
    """Flip a bit of what the checksum of the superblock covers."""
    write_good(path, 0)
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1
    path.write_bytes(raw)


def gzip_bomb(path):
    """A coordinate of 4 GiB in 4 MB."""
    step = 1 << 24
    chunk = zlib.compress(bytes(8 * step), 9)
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            "time", shape=(32 * step,), dtype="f8", chunks=(step,), compression="gzip"
        )
        for at in range(0, 32 * step, step):
            made.id.write_direct_chunk((at,), chunk)
        made.make_scale("time")


def said(deed):
    return lambda path: path.write_text(f"STUB {deed}")


BAD = {
    "truncated": (truncated, {"corrupt"}),
    "empty": (lambda path: path.write_bytes(b""), {"corrupt"}),
    "noise": (lambda path: path.write_bytes(random.Random(1).randbytes(9000)), {"corrupt"}),
    "html": (lambda path: path.write_text("<!DOCTYPE html><html>503</html>"), {"corrupt"}),
    "superblock": (superblock, {"corrupt"}),
    "crashing": (said("crash"), {"crashed"}),
    "hanging": (said("hang"), {"timeout"}),
    "bomb": (said("bomb"), {"oom"}),
    "gzip_bomb": (gzip_bomb, {"oom"}),
    "vanishing": (lambda path: write_good(path, 0), {"missing"}),
    "becomes_directory": (lambda path: write_good(path, 0), {"corrupt"}),
    "becomes_loop": (lambda path: write_good(path, 0), {"missing", "unreadable", "corrupt"}),
}

PROGRAM = """
    import json, os, shutil, sys
    from pathlib import Path

    import icevirt
    from icevirt.api import scan
    from icevirt.api.sources.inputs import Inputs
    from icevirt.execution.spark_session import local_session

    archive, catalog = map(Path, sys.argv[1:])

    class Meddled(Inputs):
        "Something happens to files between listing and scan."

        def files(self):
            found = super().files()
            for path in archive.glob("vanishing*"):
                path.unlink()
            for path in archive.glob("becomes*"):
                path.unlink()
                path.mkdir() if "directory" in path.name else path.symlink_to(path)
            return found

    scan.Inputs = Meddled
    with local_session() as spark:
        report = icevirt.scan_files(
            archive, catalog, concat_dim="time", executor=spark, scan_options={
                "max_bad_files": "50%", "max_native_bytes_per_file": 8 << 30,
                "file_timeout": 5, "file_memory": "1GiB",
            },
        )
    print(json.dumps({"files": report.files, "bad": len(report.bad_files),
                      "virtual": report.references.virtual, "seconds": report.seconds}))
"""


def write_archive(folder):
    """Write all files, the bad ones spread among the good; return how each bad one may end."""
    folder.mkdir()
    kinds = {}
    step = -(-FILES // (100 * len(BAD))) if FILES > 1000 else 1
    places = random.Random(2).sample(range(FILES), step * len(BAD))
    for at, place in enumerate(places):
        kind = list(BAD)[at % len(BAD)]
        path = folder / f"{kind}{place:05d}.nc"
        twin = folder / f"{kind}{places[at % len(BAD)]:05d}.nc"
        if twin.exists():
            shutil.copy(twin, path)
        else:
            BAD[kind][0](path)
        kinds[path.name] = BAD[kind][1]
    for number in set(range(FILES)) - set(places):
        write_good(folder / f"good{number:05d}.nc", number)
    return kinds


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_each_bad_file_has_its_reason_and_all_good_ones_are_there(tmp_path):
    bad = write_archive(tmp_path / "archive")
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    path = [install(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    begin, most = time.monotonic(), Counter()
    with subprocess.Popen(
        [*program, tmp_path / "archive", tmp_path / "catalog"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as driver:
        while driver.poll() is None:
            for each in python_of(driver.pid):
                try:
                    found = {"descriptors": each.descriptors, "resident": each.resident}
                except OSError:
                    continue
                most |= Counter(found)
            time.sleep(0.2)
        output, words = driver.communicate()
    assert driver.returncode == 0, words
    report = json.loads(output.splitlines()[-1])
    seconds = time.monotonic() - begin
    sys.stdout.write(f"\n{report} in {seconds:.0f} s, a process at most {dict(most)}\n")
    good = FILES - len(bad)
    assert (report["files"], report["bad"], report["virtual"]) == (FILES, len(bad), good * CHUNKS)
    rows = icevirt.catalog_view(tmp_path / "catalog").files().read_all().to_pylist()
    assert len(rows) == FILES
    ends = {Path(row["url"]).name: row for row in rows}
    for name, row in ends.items():
        assert row["status"] in bad.get(name, {"ok"}), (name, row["status"], row["error"])
        assert bool(row["error"]) == (name in bad)
        assert name not in bad or row["url"] in row["error"]
    # a leak of one descriptor a file, or a bomb that went off, would show
    assert most["descriptors"] < 100
    assert most["resident"] < 700 << 20
