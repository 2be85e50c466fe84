"""Messages a second that are described: by headers and by sidecar, beside other tools.

    python bench/scan_grib.py [messages] [points] [rounds] [words of the names of tools]
    python bench/scan_grib.py --remote [messages] [points]

A file of `messages` fields of a forecast (parameters on pressure levels, several leads of one
run would be several files) with `points` points along a row is written by ecCodes, and a sidecar
as wgrib2 writes it. Fields have more and more noise, so that few messages are of one length.
Medians of processor time in this process and of the clock; tools take turns, file by file, and are
warmed up by one file. VirtualiZarr,
kerchunk and cfgrib are measured where they are installed.

With `--remote` the file lies on a server that waits 20 ms before each answer: requests, bytes and
seconds by the clock of a scan by headers, and by sidecars of both kinds.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import eccodes
import numpy as np
from scan_remote import counted, serving

from icevirt.api.scan import scan_file
from icevirt.objects.source import LocalSource
from icevirt.scan.contract import ScannerOptions
from icevirt_scanners.grib.scanner import GribScanner

NAMES = ("t", "u", "v", "q", "r", "w", "gh", "d")


def write(path: Path, messages: int, points: int, lead: int) -> None:
    """Write the fields of one lead, and the sidecars."""
    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    rows = points // 2
    for key, value in {
        "Ni": points,
        "Nj": rows,
        "latitudeOfFirstGridPointInDegrees": 90,
        "latitudeOfLastGridPointInDegrees": -90,
        "longitudeOfFirstGridPointInDegrees": 0,
        "longitudeOfLastGridPointInDegrees": 360 - 360 / points,
        "iDirectionIncrementInDegrees": 360 / points,
        "jDirectionIncrementInDegrees": 180 / (rows - 1),
        "dataDate": 20240101,
        "forecastTime": lead,
        "packingType": "grid_ccsds",
    }.items():
        eccodes.codes_set(handle, key, value)
    random = np.random.default_rng(lead)
    offset, lines, index = 0, [], []
    with path.open("wb") as file:
        for number in range(messages):
            name, level = NAMES[number % len(NAMES)], 1 + number // len(NAMES)
            eccodes.codes_set(handle, "shortName", name)
            eccodes.codes_set(handle, "level", level)
            values = np.zeros(points * rows)
            some = len(values) * (number + 1) // messages
            values[:some] = random.standard_normal(some)
            eccodes.codes_set_values(handle, values)
            body = eccodes.codes_get_message(handle)
            file.write(body)
            when = f"d=2024010112:{name}:{level} mb:{lead} hour fcst:"
            lines.append(f"{number + 1}:{offset}:{when}")
            said = {"date": "20240101", "time": "1200", "step": str(lead), "param": name}
            at = {"levelist": str(level), "_offset": offset, "_length": len(body)}
            index.append(json.dumps(said | at))
            offset += len(body)
    eccodes.codes_release(handle)
    Path(f"{path}.idx").write_text("\n".join(lines) + "\n")
    Path(f"{path}.index").write_text("\n".join(index) + "\n")


def ours(sidecar: str) -> Callable[[Path], object]:
    """Return what scans a file."""
    options = ScannerOptions(sidecar=sidecar)
    return lambda path: GribScanner().scan(LocalSource(str(path)), options)


def gribberish(path: Path) -> object:
    from gribberish.virtualizarr import GribberishParser
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    return GribberishParser()(path.as_uri(), registry)


def kerchunk(path: Path) -> object:
    from kerchunk.grib2 import scan_grib

    return scan_grib(str(path))


def cfgrib(path: Path) -> object:
    from cfgrib.messages import FileIndex, FileStream

    keys = ["paramId", "typeOfLevel", "stepType", "dataDate", "dataTime", "endStep", "level:float"]
    return FileIndex.from_fieldset(FileStream(str(path)), keys)


def measure(calls: dict[str, Callable[[Path], object]], paths: list[Path]) -> None:
    """Print medians of each tool, or why there are none."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    refused: dict[str, str] = {}
    for number, path in enumerate(paths):
        for name, call in calls.items():
            if name in refused:
                continue
            try:
                begin = time.process_time(), time.perf_counter()
                call(path)
                end = time.process_time(), time.perf_counter()
            except Exception as error:
                refused[name] = f"{type(error).__name__}: {error}"[:80]
            else:
                if number:
                    found[name].append((end[0] - begin[0], end[1] - begin[1]))
    for name, seconds in found.items():
        if name in refused:
            print(f"{name:35} {refused[name]}")
        else:
            cpu, clock = (1000 * statistics.median(each) for each in zip(*seconds, strict=True))
            print(f"{name:35} {cpu:9.1f} ms of processor time, {clock:9.1f} ms by the clock")


def far(messages: int, points: int) -> None:
    """Print what scans of a file on a server cost."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), 20.0) as url:
        write(path := Path(folder) / "f.grib2", messages, points, 6)
        print(f"{messages} messages, {path.stat().st_size / 1e6:.1f} MB, 20 ms a request")
        for name in ("a", "b"):  # the same file for each kind of sidecar
            for kind in ("idx", "index"):
                (Path(folder) / f"{name}-{kind}.grib2").symlink_to(path)
                (Path(folder) / f"{name}-{kind}.grib2.{kind}").symlink_to(f"{path}.{kind}")
        for name, file, sidecar in (
            ("by headers", "a-idx", "ignore"),
            ("by .idx, first of its kind", "a-idx", "require"),
            ("by .idx, later", "b-idx", "require"),
            ("by .index, first of its kind", "a-index", "require"),
            ("by .index, later", "b-index", "require"),
        ):
            counted(url)
            begin = time.perf_counter()
            scan_file(f"{url}/{file}.grib2", scan_options={"sidecar": sidecar})
            seconds = time.perf_counter() - begin
            requests, sent = counted(url)
            print(f"{name:35} {requests:6} requests {sent / 1e6:9.2f} MB {seconds:7.2f} s")


def main() -> None:
    is_far = sys.argv[1:2] == ["--remote"]
    messages, points, rounds = (
        int(given) if given else default
        for given, default in zip(
            [*sys.argv[1 + is_far :], "", "", ""], (744, 360, 5), strict=False
        )
    )
    if is_far:
        far(messages, points)
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"f{lead:03d}.grib2" for lead in range(rounds + 1)]
        for lead, path in enumerate(paths):
            write(path, messages, points, lead)
        print(f"{messages} messages, {paths[0].stat().st_size / 1e6:.1f} MB a file")
        calls = {
            "icevirt, by headers": ours("ignore"),
            "icevirt, by sidecar": ours("require"),
            "gribberish through VirtualiZarr": gribberish,
            "kerchunk's scan_grib": kerchunk,
            "cfgrib's index": cfgrib,
        }
        words = sys.argv[4:]
        chosen = [name for name in calls if not words or any(word in name for word in words)]
        measure({name: calls[name] for name in chosen}, paths)


if __name__ == "__main__":
    main()
