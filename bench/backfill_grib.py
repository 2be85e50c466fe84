"""Backfill a forecast archive of GRIB by sidecar: references a second, and memory of all processes.

    python bench/backfill_grib.py                          # a run of 11,222 files of 295 messages
    python bench/backfill_grib.py --runs 5
    python bench/backfill_grib.py --members 31 --leads 40  # a part of a run

A run has files of 31 members and 362 leads, each with a list of its messages beside it, as wgrib2
writes it. The files are synthetic and small: ecCodes encodes one message for each parameter, of a
constant field on a grid of 16 x 8 points, with a local section that gives each another length, and
the others differ from it in reference time, lead and member, and have a valid header each. Values
are constant, so that an archive of many files fits a disk; the scan reads headers and lists, and
would read as many bytes of large messages.

`icevirt.build` with ``sidecar="require"`` then scans, plans, writes and commits, in a process of
its own, by local processes. Printed are seconds of each phase by the clock, processor time of the
driver and of all processes, references a second, and peaks of memory: of the driver (beyond what it
has after its imports), and of the largest other process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
HOURS = 3  # from lead to lead
_EDITED = {"date": 12, "lead": 18, "member": 35}  # octets of sections 1 and 4, from 0


def templates(messages: int) -> list[tuple[bytearray, int, str]]:
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
        "numberOfForecastsInEnsemble": 31,
    }  # fmt: skip
    for key, value in settings.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, np.full(128, 280.0))
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


def write_run(folder: Path, run: int, members: int, leads: int, messages: int) -> None:
    """Write the files of a run, and their lists."""
    made = templates(messages)
    when = BEGIN + timedelta(hours=6 * run)
    date = when.year.to_bytes(2, "big") + bytes((when.month, when.day, when.hour, 0, 0))
    begins, at = [], 0
    for raw, _, _ in made:
        begins.append(at)
        at += len(raw)
    whole = bytearray(b"".join(raw for raw, _, _ in made))
    for begin in begins:
        whole[begin + 16 + _EDITED["date"] : begin + 16 + _EDITED["date"] + 7] = date
    products = [begin + where for begin, (_, where, _) in zip(begins, made, strict=True)]
    for member in range(members):
        kind = "low-res ctl" if not member else f"+{member}"
        for lead in range(leads):
            hours = lead * HOURS
            octets = hours.to_bytes(4, "big")
            for section in products:
                whole[section + _EDITED["lead"] : section + _EDITED["lead"] + 4] = octets
                whole[section + _EDITED["member"]] = member
            name = folder / f"{when:%Y%m%d%H}" / f"{member:02}_{hours:04}.grib2"
            name.parent.mkdir(exist_ok=True)
            name.write_bytes(whole)
            lines = (
                f"{number}:{begin}:d={when:%Y%m%d%H}:{label}:{hours} hour fcst:ENS={kind}\n"
                for number, (begin, (_, _, label)) in enumerate(zip(begins, made, strict=True), 1)
            )
            Path(f"{name}.idx").write_text("".join(lines))


def build(folder: str, repo: str) -> None:
    """Build, and print what it took as JSON."""
    import icevirt

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    report = icevirt.build(
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
        "references": sum(each.references.virtual for each in report.arrays),
        "manifests": report.manifests,
        "manifest bytes": report.manifest_bytes,
        "driver cpu": mine.ru_utime + mine.ru_stime,
        "driver MiB": (mine.ru_maxrss - before) / 1024,
    }
    print(json.dumps(said))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--members", type=int, default=31)
    parser.add_argument("--leads", type=int, default=362)
    parser.add_argument("--messages", type=int, default=295)
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.build:
        build(*asked.build)
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        files = Path(folder, "archive")
        files.mkdir()
        begin = time.perf_counter()
        for run in range(asked.runs):
            write_run(files, run, asked.members, asked.leads, asked.messages)
        count = asked.runs * asked.members * asked.leads
        print(f"{count:,} files written in {time.perf_counter() - begin:.0f} s", flush=True)
        command = [sys.executable, __file__, "--build", str(files), str(Path(folder, "repo"))]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
        said = json.loads(done.stdout.splitlines()[-1])
        every = resource.getrusage(resource.RUSAGE_CHILDREN)  # the driver, and its processes
        others = every.ru_utime + every.ru_stime - said["driver cpu"]
    phases = ", ".join(f"{name} {value:.1f}" for name, value in said["phases"].items())
    cpu = said["driver cpu"] + others
    print(
        f"{said['references']:,} references in {said['seconds']:.1f} s ({phases}): "
        f"{said['references'] / said['seconds']:,.0f} a second\n"
        f"processor: driver {said['driver cpu']:.1f} s "
        f"({1e3 * said['driver cpu'] / count:.2f} ms a file), others {others:.1f} s "
        f"({1e3 * others / count:.2f} ms a file); "
        f"{said['references'] / cpu:,.0f} references a second of processor time\n"
        f"memory: driver {said['driver MiB']:.0f} MiB, largest process "
        f"{every.ru_maxrss / 1024:.0f} MiB; "
        f"{said['manifests']} manifests, {said['manifest bytes'] / 2**20:.1f} MiB"
    )


if __name__ == "__main__":
    main()
