"""Measure how soon a new file is readable in a bucket that answers late.

``python bench/append_latency.py`` builds a dataset of 150 arrays in a bucket on loopback, then
appends files one by one through a proxy that waits 58 ms before each answer, as a process that
watches does: it lists the folder again and again. A line for each file: seconds from the moment the
file was there until its commit was acknowledged, processor seconds of this process, how many
answers came one after the other (some of them while this process computes), bytes that the proxy
passed on in either direction, and requests by kind; then seconds and requests until a reader
that opens the repository anew has a value of the new file. ``--references`` is how many the dataset
has before, in arrays that lie in sparse files of at most 100,000 steps; ``--commits`` is how many
snapshots its history has. With ``--grib`` files are leads of a forecast in GRIB, a message for each
array; with ``--sidecar`` each lies beside a list of its messages, put there before it. With
``--leads 147`` they are leads of runs, so many each: the dataset holds whole runs before, and the
files that arrive begin a further one, lead by lead. ``--how``
says what commits: `icevirt.append`, `icevirt.update`, or a stream of Spark, where processor time is
that of the driver's Python. ``--peer`` does the commits with icechunk's own client for comparison:
it gets the locations of the chunks as arguments and reads no file.
``--every 1`` lets a file arrive each second, however far the process is, and a reader in a process
of its own opens the repository anew behind each commit; a first file, before the others, starts
what commits and what reads, and is not counted. It prints a line for each commit, then
seconds from the arrival of a file to the end of its commit, and until that reader had its value.
``--trace`` prints each request with its begin and end. On a machine that others use, compare
processor time, waits and requests.
"""

from __future__ import annotations

import argparse
import atexit
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import late_proxy
from backfill_grib import lengthened
from commit_history import with_history

import icevirt
from servers import places
from servers.places import BUCKET, S3Place
from servers.processes import free_port, running

_WIDTH = 128  # values of a step, 512 bytes: a chunk of its own
_CHECKPOINTS = (  # on a local disk the other one takes four times as long
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_PER_FILE = 100_000  # steps of a file of the first build, at most


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", type=int, default=150)
    parser.add_argument("--references", type=int, default=15_000)
    parser.add_argument("--commits", type=int, default=0, help="behind which files are appended")
    parser.add_argument("--files", type=int, default=12, help="that are appended")
    parser.add_argument("--latency", type=float, default=0.058, help="seconds before an answer")
    parser.add_argument("--every", type=float, help="seconds between files, which do not wait")
    parser.add_argument("--reader", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--grib", action="store_true", help="files of GRIB, by ecCodes")
    parser.add_argument("--sidecar", action="store_true", help="lists beside files of GRIB")
    parser.add_argument("--leads", type=int, help="of each run; files lie along time and step")
    parser.add_argument("--how", choices=["append", "update", "stream"], default="append")
    parser.add_argument("--trace", action="store_true", help="print each request, and its seconds")
    parser.add_argument("--peer", action="store_true", help="measure icechunk's client, too")
    asked = parser.parse_args()
    if asked.reader:
        read_when_told(*asked.reader)
        return
    if asked.leads and (asked.every or not asked.grib):
        parser.error("--leads takes --grib, and no --every")
    server = free_port()
    env = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(server), "LOG_LEVEL": "ERROR"}
    with (
        running([sys.executable, "-m", "ministack"], port=server, env=env),
        late_proxy.before(server, asked.latency) as proxy,
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
    ):
        places.make_s3_bucket(f"http://127.0.0.1:{server}")
        measure(asked, server, proxy, Path(folder))


def measure(asked: Any, server: int, proxy: int, folder: Path) -> None:
    """Build, append one by one, and print a line for each."""
    late = S3Place(endpoint=f"http://127.0.0.1:{proxy}", prefix="repo")
    repo = late.icevirt()
    there = S3Place(endpoint=f"http://127.0.0.1:{server}", prefix="archive").store()
    steps = max(2, asked.references // asked.arrays)
    steps += -steps % (asked.leads or 1)  # the first build holds whole runs
    write = partial(write_messages, leads=asked.leads) if asked.grib else write_arrays
    dimension, suffix = ("step", "grib2") if asked.grib else ("time", "h5")
    per_file = 1 if asked.leads else _PER_FILE
    (folder / "first").mkdir()
    for at in range(0, steps, per_file):
        some = min(per_file, steps - at)
        write(folder / "first" / f"{at:012}.{suffix}", at, some, asked.arrays)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy}",
        "AWS_ALLOW_HTTP": "true",
    }
    archive = f"s3://{BUCKET}/archive/*.{suffix}"
    sources = [str(folder / "first" / f"*.{suffix}")]
    if asked.how == "update":  # which lists what the build named
        write(folder / "next", steps, 1, asked.arrays)
        put(there, f"{0:06}.{suffix}", folder / "next", asked)
        sources.append(archive)
        steps += 1
    late_proxy.tell(proxy, 0)
    begin = time.perf_counter()
    icevirt.build(sources, repo, executor="in-process", **options_of(asked, dimension, steps))
    print(f"built {steps * asked.arrays:,} references in {time.perf_counter() - begin:.0f} s")
    held = S3Place(endpoint=f"http://127.0.0.1:{server}", prefix="repo").store()
    if asked.commits:
        held.put("repo", with_history(bytes(held.get("repo").bytes()), asked.commits))
    late_proxy.tell(proxy, asked.latency)
    if asked.every:
        arriving = []
        for number in range(asked.files + 1):
            path = folder / f"{number:06}.arriving"
            write(path, steps + number, 1, asked.arrays)
            name = f"{number + (asked.how == 'update'):06}.{suffix}"
            arriving.append(partial(put, there, name, path, asked))
        pace(asked, arriving, proxy, archive, folder, steps)
        return
    took, used, read_in = [], [], []
    print("file  seconds  processor  flat  waits  read  written  phases  requests  reader")
    commit = commits(asked.how, archive, repo, folder)
    first = 1 if asked.how == "update" else 0
    for number in range(asked.files):
        write(folder / "next", steps + number, 1, asked.arrays)
        late_proxy.asked_of(proxy)
        begin, spent = time.perf_counter(), time.process_time()
        put(there, f"{first + number:06}.{suffix}", folder / "next", asked)
        report = commit()[-1]
        took.append(time.perf_counter() - begin)
        used.append(time.process_time() - spent)
        seconds = getattr(report, "seconds", {})
        phases = {name: round(value, 2) for name, value in seconds.items()}
        if asked.trace:
            print(late_proxy.trace_of(proxy))
        requests = dict(late_proxy.asked_of(proxy).most_common())
        read, written = requests.pop(late_proxy.READ, 0), requests.pop(late_proxy.WRITTEN, 0)
        waits = requests.pop(late_proxy.WAITS, 0)
        print(
            f"{number:4}  {took[-1]:.2f}  {used[-1]:.2f}  {getattr(report, 'flat', '')}  {waits}  "
            f"{read:,} B  {written:,} B  {phases}  "
            f"{sum(requests.values())} {requests}",
            end="  ",
        )
        begin = time.perf_counter()
        places = [f"s3://{BUCKET}/archive/", f"file://{folder}/first/"]
        with icevirt.open(repo, authorize_virtual_chunk_access=places) as opened:
            name = next(name for name, each in opened.data_vars.items() if dimension in each.dims)
            new = place_of(steps + number, dimension, asked.leads)
            assert np.isfinite(opened[name].isel(new).values).any()
            assert all(opened.sizes[name] > at for name, at in new.items())
        read_in.append(time.perf_counter() - begin)
        if asked.trace:
            print("\n" + late_proxy.trace_of(proxy))
        print(f"{read_in[-1]:.2f}  {dict(late_proxy.asked_of(proxy).most_common())}", flush=True)
    print(
        f"median {statistics.median(took):.2f} s, most {max(took):.2f} s; "
        f"processor median {statistics.median(used):.2f} s; "
        f"with a reader median {statistics.median(np.add(took, read_in)):.2f} s, "
        f"most {np.add(took, read_in).max():.2f} s"
    )
    if asked.peer:
        peer(late, asked, steps)


def options_of(asked: Any, dimension: str, steps: int) -> dict[str, Any]:
    """Return how the files of the first build combine."""
    times = 2 * 8 * steps  # bytes; the coordinate of 100 million steps is above the usual limit
    combining: dict[str, Any] = {"max_native_bytes": max(times, 2**28)}
    if asked.leads:
        combining["missing"] = "reserve"
    return {
        "concat_dim": ["time", "step"] if asked.leads else dimension,
        "combine_options": combining,
        "scan_options": {"sidecar": "require"} if asked.sidecar else None,
    }


def place_of(number: int, dimension: str, leads: int | None) -> dict[str, int]:
    """Return where the values of a file lie, given its number."""
    if not leads:
        return {dimension: number}
    return {"time": number // leads, "step": number % leads}


def put(there: Any, name: str, path: Path, asked: Any) -> None:
    """Put a new file where it is watched for, behind its list if it has one."""
    if asked.sidecar:
        there.put(f"{name}.idx", Path(f"{path}.idx").read_bytes())
    there.put(name, path.read_bytes())


class Arrivals(threading.Thread):
    """Files that arrive at their times, and when each was there."""

    def __init__(self, puts: list[Callable[[], None]], every: float) -> None:
        super().__init__(daemon=True)
        self.at = [0.0] * len(puts)
        self._puts, self._every = puts, every

    def run(self) -> None:
        """Put one after the other."""
        begin = time.time()
        for number, put_file in enumerate(self._puts):
            time.sleep(max(0.0, begin + number * self._every - time.time()))
            put_file()
            self.at[number] = time.time()


def pace(
    asked: Any,
    arriving: list[Callable[[], None]],
    proxy: int,
    archive: str,
    folder: Path,
    steps: int,
) -> None:
    """Commit what arrives until all is there, and say how long each file took."""
    arrivals = Arrivals(arriving[1:], asked.every)
    count = len(arrivals.at)
    late = S3Place(endpoint=f"http://127.0.0.1:{proxy}", prefix="repo")
    command = [sys.executable, __file__, "--reader", late.endpoint, archive, str(folder / "first")]
    pipe = subprocess.PIPE
    reader = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert reader.stdin is not None
    assert reader.stdout is not None
    read_at = [0.0] * count
    committed_at = [0.0] * count

    def follow() -> None:
        seen = 0
        for line in reader.stdout or ():
            now, there = line.split()
            for number in range(seen, int(there) - steps):
                read_at[number] = float(now)
            seen = max(seen, int(there) - steps)

    following = threading.Thread(target=follow)
    following.start()
    commit = commits(asked.how, archive, late.icevirt(), folder)
    arriving[0]()  # what starts, and is not counted: jobs of Spark, imports, what is kept of reads
    steps += files_in(commit())
    reader.stdin.write("look\n")
    reader.stdin.flush()
    time.sleep(5)
    arrivals.start()
    done, used = 0, []
    print("commit  files  seconds  processor  waits  requests", flush=True)
    while done < count:
        number_there = sum(each > 0 for each in arrivals.at)
        if asked.how != "stream" and number_there <= done:
            time.sleep(0.02)
            continue
        late_proxy.asked_of(proxy)
        begin, spent = time.time(), time.process_time()
        reports = commit()
        now, before = time.time(), done
        reader.stdin.write("look\n")
        reader.stdin.flush()
        done += files_in(reports)
        committed_at[before:done] = [now] * (done - before)
        used.append(time.process_time() - spent)
        requests = late_proxy.asked_of(proxy)
        waits = requests.pop(late_proxy.WAITS, 0)
        total = sum(requests.values()) - requests[late_proxy.READ] - requests[late_proxy.WRITTEN]
        print(
            f"{len(used):4}  {done - before}  {now - begin:.2f}  {used[-1]:.2f}  {waits}  {total}",
            flush=True,
        )
    reader.stdin.close()
    following.join()
    reader.wait()
    to_commit = np.subtract(committed_at, arrivals.at)
    to_reader = np.subtract(read_at, arrivals.at)
    print(
        f"{count} files, one each {asked.every:g} s, {len(used)} commits; "
        f"processor median {statistics.median(used):.2f} s a commit"
    )
    for name, each in (("committed", to_commit), ("read", to_reader)):
        print(f"{name} after: median {np.median(each):.2f} s, most {each.max():.2f} s")


def read_when_told(endpoint: str, archive: str, first: str) -> None:
    """Open the repository anew for each line that comes, and print when and how many steps."""
    repo = S3Place(endpoint=endpoint, prefix="repo").icevirt()
    places = [archive.rpartition("/")[0] + "/", f"file://{first}/"]
    for _ in sys.stdin:
        with icevirt.open(repo, authorize_virtual_chunk_access=places) as opened:
            name, along = next(
                (name, next(each for each in ("time", "step") if each in array.dims))
                for name, array in opened.data_vars.items()
                if {"time", "step"} & {*array.dims}
            )
            assert np.isfinite(opened[name].isel({along: -1}).values).any()
            print(time.time(), opened.sizes[along], flush=True)


def files_in(reports: list[Any]) -> int:
    """Return how many files were committed."""
    names = ("files_appended", "files_added")
    return sum(getattr(each, name, 0) for each in reports for name in names)


def commits(how: str, archive: str, repo: Any, folder: Path) -> Callable[[], list[Any]]:
    """Return what commits files that are new, and returns its reports when they are committed."""
    if how == "append":
        return lambda: [icevirt.append(archive, repo)]
    if how == "update":
        return lambda: [icevirt.update(repo)]
    from pyspark.sql import SparkSession

    from icevirt.spark import foreach_batch, register

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.streaming.checkpointFileManagerClass", _CHECKPOINTS)
    spark = builder.getOrCreate()
    register(spark)
    done: list[Any] = []
    is_done = threading.Event()
    appender = foreach_batch(repo)

    def append_batch(batch: Any, number: int) -> None:
        done.append(appender.append(batch, number))
        is_done.set()

    query = (
        spark.readStream.format("icevirt-files")
        .load(archive)
        .writeStream.foreachBatch(append_batch)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )

    def wait() -> list[Any]:
        while not done:  # Spark is not asked while it works
            if not is_done.wait(1.0) and query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            is_done.clear()
        reports = done[:]
        del done[: len(reports)]
        return reports

    atexit.register(print_batches, query)
    return wait


def print_batches(query: Any) -> None:
    """Print the median of what Spark says each phase of a batch with files took."""
    batches = [each.durationMs for each in query.recentProgress if each.numInputRows]
    names = {name: None for each in batches for name in each}
    middle = {name: statistics.median(each.get(name, 0) for each in batches) for name in names}
    print(f"{len(batches)} batches of Spark, medians in ms: {middle}")


def peer(late: S3Place, asked: Any, steps: int) -> None:
    """Append one step of virtual references to every array with icechunk's client."""
    import icechunk
    import zarr

    late = S3Place(endpoint=late.endpoint, prefix="peer")
    config = icechunk.RepositoryConfig.default()
    store = icechunk.s3_store(
        region="us-east-1", endpoint_url=late.endpoint, allow_http=True, s3_compatible=True,
        force_path_style=True,
    )  # fmt: skip
    prefix = f"s3://{BUCKET}/archive/"
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    repo = icechunk.Repository.create(late.official(), config=config)
    session = repo.writable_session("main")
    group = zarr.group(session.store)
    for number in range(asked.arrays):
        group.create_array(
            f"v{number}", shape=(steps, _WIDTH), chunks=(1, _WIDTH), dtype="f4", compressors=None
        )
    session.commit("arrays")
    took, used = [], []
    for number in range(asked.files):
        begin, spent = time.perf_counter(), time.process_time()
        session = repo.writable_session("main")
        group = zarr.open_group(session.store)
        at = steps + number
        for array in range(asked.arrays):
            group[f"v{array}"].resize((at + 1, _WIDTH))
            spec = icechunk.VirtualChunkSpec([at, 0], f"{prefix}{number:06}.h5", 4096, 512)
            session.store.set_virtual_refs(f"v{array}", [spec], validate_containers=True)
        session.commit("append")
        took.append(time.perf_counter() - begin)
        used.append(time.process_time() - spent)
    print(
        f"icechunk: median {statistics.median(took):.2f} s, most {max(took):.2f} s; processor "
        f"median {statistics.median(used):.2f} s (references of the first {steps} steps absent)"
    )


def write_messages(
    path: Path, begin: int, steps: int, arrays: int, *, leads: int | None = None
) -> None:
    """Write leads of one run, or of runs of so many leads, a message for each parameter."""
    import eccodes

    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    for key, value in {"Ni": 16, "Nj": 8, "jPointsAreConsecutive": 0, "dataDate": 20260101}.items():
        eccodes.codes_set(handle, key, value)
    for key, value in {
        "FirstGridPointInDegrees": (70, 0),
        "LastGridPointInDegrees": (0, 150),
    }.items():
        eccodes.codes_set(handle, f"latitudeOf{key}", value[0])
        eccodes.codes_set(handle, f"longitudeOf{key}", value[1])
    for key in "ij":
        eccodes.codes_set(handle, f"{key}DirectionIncrementInDegrees", 10)
    eccodes.codes_set_values(handle, np.arange(_WIDTH, dtype="f8"))
    lines = []
    with path.open("wb") as file:
        for number in range(begin, begin + steps):
            run, lead = divmod(number, leads) if leads else (0, number)
            day = f"{date(2026, 1, 1) + timedelta(days=run):%Y%m%d}"
            eccodes.codes_set(handle, "dataDate", int(day))
            eccodes.codes_set(handle, "forecastTime", lead)
            for each in range(arrays):
                eccodes.codes_set(handle, "parameterCategory", 192 + each // 200)
                eccodes.codes_set(handle, "parameterNumber", each % 200)
                said = f"d={day}12:P{each}:surface:{lead} hour fcst:"
                lines.append(f"{len(lines) + 1}:{file.tell()}:{said}\n")
                file.write(lengthened(eccodes.codes_get_message(handle), each))
    Path(f"{path}.idx").write_text("".join(lines))
    eccodes.codes_release(handle)


def write_arrays(path: Path, begin: int, steps: int, arrays: int) -> None:
    """Write a file of arrays without compression; nothing but times takes room on the disk."""
    path.unlink(missing_ok=True)
    with h5py.File(path, "w", libver="latest") as file:
        time_ = file.create_dataset("time", data=np.arange(begin, begin + steps, dtype="f8"))
        time_.make_scale("time")
        time_.attrs["units"] = "hours since 2000-01-01"
        x = file.create_dataset("x", data=np.arange(_WIDTH, dtype="f4"))
        x.make_scale("x")
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((steps, _WIDTH))
        for number in range(arrays):
            name = f"v{number}"
            h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, space, dcpl=made)
            file[name].dims[0].attach_scale(time_)
            file[name].dims[1].attach_scale(x)


if __name__ == "__main__":
    main()
