"""Backfill a forecast archive of GRIB by sidecar, run by run: references a second, and memory.

    python bench/backfill_grib.py                          # a run of 11,222 files of 295 messages
    python bench/backfill_grib.py --runs 100               # as many runs, one by one
    python bench/backfill_grib.py --runs 2 --together      # two runs in one append
    python bench/backfill_grib.py --members 31 --leads 40  # a part of a run
    python bench/backfill_grib.py --packing constant       # of whose messages all headers are read

A run has files of 31 members and 362 leads, each with a list of its messages beside it, as wgrib2
writes it. The files are synthetic and small: ecCodes encodes one message for each parameter, on a
grid of 16 x 8 points, with a local section that gives each another length, and the others differ
from it in reference time, lead and member, and have a valid header each. They are packed as NOAA
packs (complex, with spatial differences), or constant, which is the case that takes longest: of
constant fields, as of CCSDS, each header is read. The scan reads headers and lists, and would read
as many bytes of large messages.

`icevirt.append` with ``sidecar="require"`` scans, plans, writes and commits a run, in a process of
its own, by local processes; then the files are deleted, so that a backfill of many runs takes the
disk of one. Printed are for each run seconds of each phase by the clock, processor time of the
driver and of all other processes, references a second, and peaks of memory: of the driver (beyond
what it has after its imports), and of the largest other process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
HOURS = 3  # from lead to lead
PACKINGS = {"complex": "grid_complex_spatial_differencing", "constant": "grid_simple"}
_EDITED = {"date": 12, "lead": 18, "member": 35}  # octets of sections 1 and 4, from 0


def templates(messages: int, packing: str) -> list[tuple[bytearray, int, str]]:
    """Return a message of each parameter, where its section 4 begins, and what a list says."""
    import eccodes
    import numpy as np

    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    settings = {
        "Ni": 16, "Nj": 8, "jPointsAreConsecutive": 0, "dataDate": 20250101,
        "latitudeOfFirstGridPointInDegrees": 70, "latitudeOfLastGridPointInDegrees": 0,
        "longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 150,
        "iDirectionIncrementInDegrees": 10, "jDirectionIncrementInDegrees": 10,
        "productDefinitionTemplateNumber": 1, "typeOfEnsembleForecast": 3,
        "numberOfForecastsInEnsemble": 31, "decimalPrecision": 1,
    }  # fmt: skip
    for key, value in settings.items():
        eccodes.codes_set(handle, key, value)
    swing = 0 if packing == "constant" else 5 * np.sin(np.arange(128.0))
    eccodes.codes_set_values(handle, np.full(128, 280.0) + swing)
    eccodes.codes_set(handle, "packingType", PACKINGS[packing])
    found = []
    for number in range(messages):
        eccodes.codes_set(handle, "parameterCategory", 192 + number // 200)
        eccodes.codes_set(handle, "parameterNumber", number % 200)
        raw = lengthened(eccodes.codes_get_message(handle), number)
        at = 16
        while raw[at + 4] != 4:
            at += int.from_bytes(raw[at : at + 4], "big")
        found.append((raw, at, f"P{number}:surface"))
    eccodes.codes_release(handle)
    return found


def lengthened(message: bytes, by: int) -> bytearray:
    """Return a message with a local section of some bytes.

    Messages of an archive differ in length, and those that do not are looked at one by one.
    """
    raw = bytearray(message)
    end = 16 + int.from_bytes(raw[16:20], "big")
    raw[end:end] = (5 + by).to_bytes(4, "big") + b"\x02" + bytes(by)
    raw[8:16] = len(raw).to_bytes(8, "big")
    return raw


def write_run(
    folder: Path, run: int, made: Sequence[tuple[bytearray, int, str]], members: int, leads: int
) -> None:
    """Write the files of a run, and their lists."""
    import numpy as np

    when = BEGIN + timedelta(hours=6 * run)
    date = when.year.to_bytes(2, "big") + bytes((when.month, when.day, when.hour, 0, 0))
    begins = [0, *accumulate(len(raw) for raw, _, _ in made)][:-1]
    whole = np.frombuffer(b"".join(raw for raw, _, _ in made), np.uint8).copy()
    identified = np.array(begins)[:, None] + 16 + _EDITED["date"] + np.arange(7)
    whole[identified] = np.frombuffer(date, np.uint8)
    sections = np.array([begin + at for begin, (_, at, _) in zip(begins, made, strict=True)])
    leads_at = sections[:, None] + _EDITED["lead"] + np.arange(4)
    parts = Path(folder, f"{when:%Y%m%d%H}")
    parts.mkdir()
    for member in range(members):
        whole[sections + _EDITED["member"]] = member
        kind = f"+{member}" if member else "low-res ctl"
        listed = "".join(
            f"{number}:{begin}:d={when:%Y%m%d%H}:{label}:\0:ENS={kind}\n"
            for number, (begin, (_, _, label)) in enumerate(zip(begins, made, strict=True), 1)
        )
        for lead in range(leads):
            hours = lead * HOURS
            whole[leads_at] = np.frombuffer(hours.to_bytes(4, "big"), np.uint8)
            name = f"{parts}/{member:02}_{hours:04}.grib2"
            for path, raw in (
                (name, whole.tobytes()),
                (f"{name}.idx", listed.replace("\0", f"{hours} hour fcst").encode()),
            ):
                with open(path, "wb", buffering=0) as file:  # a million of them
                    file.write(raw)


def append(folder: str, repo: str) -> None:
    """Append all files, and print what it took as JSON."""
    import icevirt

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    report = icevirt.append(
        f"{folder}/**/*.grib2",
        repo,
        concat_dim=["time", "number", "step"],
        scan_options={"sidecar": "require"},
        executor="processes",
    )
    mine = resource.getrusage(resource.RUSAGE_SELF)
    said = {
        "seconds": time.perf_counter() - begin,
        "phases": dict(report.seconds),
        "driver cpu": mine.ru_utime + mine.ru_stime,
        "driver MiB": (mine.ru_maxrss - before) / 1024,
        "files": report.files_appended,
        "manifests": report.manifests,
        "flat": report.flat,
    }
    print(json.dumps(said))


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--members", type=int, default=31)
    parser.add_argument("--leads", type=int, default=362)
    parser.add_argument("--messages", type=int, default=295)
    parser.add_argument("--packing", choices=PACKINGS, default="complex")
    parser.add_argument("--together", action="store_true", help="append all runs at once")
    parser.add_argument("--folder", default="/var/tmp", help="where files and repository are")
    parser.add_argument("--append", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.append:
        append(*asked.append)
        return
    made = templates(asked.messages, asked.packing)
    files = asked.members * asked.leads
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        archive, repo = Path(folder, "archive"), Path(folder, "repo")
        for run in range(asked.runs):
            archive.mkdir(exist_ok=True)
            write_run(archive, run, made, asked.members, asked.leads)
            if asked.together and run + 1 < asked.runs:
                continue
            count = files * (asked.runs if asked.together else 1)
            command = [sys.executable, __file__, "--append", str(archive), str(repo)]
            before = processor_time()
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=os.environ
            )
            text = describe(count, count * asked.messages, processor_time() - before, done.stdout)
            print(f"{run + 1}: {text}", flush=True)
            shutil.rmtree(archive)


def processor_time() -> float:
    """Return the processor time of all processes that ended, the driver's among them."""
    every = resource.getrusage(resource.RUSAGE_CHILDREN)
    return every.ru_utime + every.ru_stime


def describe(files: int, references: int, seconds: float, output: str) -> str:
    """Return a line of text about a run, which took so much processor time."""
    said = json.loads(output.splitlines()[-1])
    if said["files"] != files:
        raise SystemExit(f"{said['files']} of {files} files were appended")
    phases = ", ".join(f"{name} {value:.1f}" for name, value in said["phases"].items())
    mine = said["driver cpu"]
    others = seconds - mine
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # of all runs so far
    return (
        f"{references:,} references in {said['seconds']:.1f} s ({phases}): "
        f"{references / said['seconds']:,.0f} a second; processor: driver {mine:.1f} s "
        f"({1e3 * mine / files:.2f} ms a file), others {others:.1f} s "
        f"({1e3 * others / files:.2f} ms a file): {references / seconds:,.0f} references a second; "
        f"memory: driver {said['driver MiB']:.0f} MiB, largest process {largest:.0f} MiB; "
        f"{said['manifests']} manifests{', flat' if said['flat'] else ''}"
    )


if __name__ == "__main__":
    main()
