"""Measures the main job: a virtual repository over files of 48 chunks, against its neighbours.

    python bench/build_archive.py [--files 400] [--runs 3] [--rows 120] [--columns 240]
        [--peer process] [--peer fork ...]

All sides build over the same files, each in a process of its own, in turns. What is measured is
that whole process, from its start to its end: imports and, for icevirt, Spark's start and stop are
in it. Processor time is that of all processes of a side. Memory is the proportional set size (pages
shared by processes are counted once), summed over the same processes (for icevirt the driver's
Python, the JVM and the Python workers), sampled ten times a second, and the peak is taken. At the
end values are read from each repository and from the files, and compared.

"icevirt-spark" builds in a Spark session of its own, which so few files do not start. The other
peers are the ways in which `open_virtual_mfdataset` opens files side by side; "-all-virtual" after
one leaves the coordinates of the files unread (`loadable_variables=[]`). Files are made once and
kept in the cache directory.
"""

import argparse
import ctypes
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

STEPS = 24
VARIABLES = ("tas", "pr")
WAYS = ("no", "thread", "process", "fork", "dask", "dask-processes", "lithops")
VIRTUAL = "-all-virtual"
SPARK = "icevirt-spark"
PEERS = [SPARK] + [way + end for way in WAYS for end in ("", VIRTUAL)]
COMPARED = 24  # time steps that are read of each variable


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rows", type=int, default=120, help="of a chunk, a multiple of ten")
    parser.add_argument("--columns", type=int, default=240, help="of a chunk, a multiple of ten")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--peer", choices=PEERS, action="append", help="any number of them")
    parser.add_argument("--alone", action="store_true", help="measure icevirt only")
    parser.add_argument("--limit", type=float, default=600, help="seconds that a peer may take")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run_side(options)))
        return
    make_archive(options)
    peers = [] if options.alone else options.peer or ["process"]
    sides = ["icevirt", *peers]
    runs = {side: [] for side in sides}
    adopt_orphans()
    with tempfile.TemporaryDirectory(dir=options.cache) as directory:
        for number in range(options.runs):
            for side in list(sides):
                into = Path(directory) / f"{side}-{number}"
                figures = measure(side, options, into)
                if figures is None:
                    sides.remove(side)
                    continue
                runs[side].append(figures)
                print(f"run {number + 1} {side:22}", line(figures), file=sys.stderr, flush=True)
        same = {side: compared(side, options, Path(directory) / f"{side}-0") for side in sides}
    print_table({side: runs[side] for side in sides}, same, options)


# -- the files -------------------------------------------------------------------------------


def default_cache():
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "icevirt" / "bench-archive"


def folder(options):
    return options.cache / f"{options.rows}x{options.columns}"


def archive(options):
    return [str(folder(options) / f"day{at:05d}.nc") for at in range(options.files)]


def make_archive(options):
    """Write the files that are missing."""
    folder(options).mkdir(parents=True, exist_ok=True)
    files = [(at, path, options.rows, options.columns) for at, path in enumerate(archive(options))]
    missing = [file for file in files if not Path(file[1]).exists()]
    if missing:
        print(f"making {len(missing)} files in {folder(options)}", file=sys.stderr)
        with ProcessPoolExecutor() as pool:
            list(pool.map(make_file, *zip(*missing, strict=True), chunksize=20))


def make_file(at, path, rows, columns):
    """Write one day: two variables, one chunk a time step, zlib and shuffle."""
    import netCDF4
    import numpy as np

    partial = f"{path}.partial"
    with netCDF4.Dataset(partial, "w") as file:
        for name, length in (("time", None), ("lat", rows), ("lon", columns)):
            file.createDimension(name, length)
        hours = file.createVariable("time", "f8", ("time",), chunksizes=(STEPS,))
        hours.setncatts({"units": "hours since 2000-01-01", "calendar": "standard"})
        hours[:] = at * STEPS + np.arange(STEPS)
        lat = file.createVariable("lat", "f4", ("lat",))
        lat.setncatts({"units": "degrees_north", "standard_name": "latitude"})
        lat[:] = np.linspace(-89.5, 89.5, rows)
        lon = file.createVariable("lon", "f4", ("lon",))
        lon.setncatts({"units": "degrees_east", "standard_name": "longitude"})
        lon[:] = np.linspace(0.5, 359.5, columns)
        noise = np.random.default_rng(at).normal(size=(STEPS, rows // 10, columns // 10))
        field = np.cos(np.deg2rad(lat[:]))[:, None] * 30 + np.kron(noise, np.ones((10, 10)))
        for name in VARIABLES:
            made = file.createVariable(
                name, "f4", ("time", "lat", "lon"), zlib=True, complevel=1, shuffle=True,
                chunksizes=(1, rows, columns), fill_value=np.float32(1e20),
            )  # fmt: skip
            made.setncatts({"units": "K", "long_name": f"the variable {name}", "cell_methods": "-"})
            made[:] = np.round(field * 2) / 2
        file.setncatts({"title": "benchmark", "Conventions": "CF-1.8", "history": f"file {at}"})
    Path(partial).replace(path)


# -- the sides -------------------------------------------------------------------------------


def run_side(options):
    build = icevirt_side if options.side in {"icevirt", SPARK} else virtualizarr_side
    return build(archive(options), options)


def icevirt_side(files, options):
    import icevirt

    spark = None
    if options.side == SPARK:
        from icevirt.execution.spark_session import local_session

        spark = local_session()
    report = icevirt.build(files, options.into, concat_dim="time", executor=spark)
    if spark is not None:
        spark.stop()
    return {"phases": report.seconds, "references": report.references.total}


def virtualizarr_side(files, options):
    begin = time.perf_counter()
    import icechunk
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    icechunk.set_logs_filter("error")
    way = options.side.removesuffix(VIRTUAL)
    imported = time.perf_counter()
    dataset = open_virtual_mfdataset(
        files,
        registry=ObjectStoreRegistry({"file://": LocalStore()}),
        parser=HDFParser(),
        combine="nested",
        concat_dim="time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="override",
        parallel=parallel(way),
        **({"loadable_variables": []} if options.side.endswith(VIRTUAL) else {}),
    )
    opened = time.perf_counter()
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(str(folder(options)))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix(options), store))
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(options.into)),
        config=config,
        authorize_virtual_chunk_access=credentials(options),
    )
    session = repo.writable_session("main")
    dataset.vz.to_icechunk(session.store)
    session.commit("build")
    written = time.perf_counter()
    phases = {"import": imported - begin, "open": opened - imported, "write": written - opened}
    return {"phases": phases}


def parallel(way):
    """Return what `open_virtual_mfdataset` is given, a worker for each core."""
    import multiprocessing

    import dask

    cores = len(os.sched_getaffinity(0))
    if way == "dask-processes":
        dask.config.set(scheduler="processes", num_workers=cores)
        return "dask"
    if way == "thread":
        return ThreadPoolExecutor(cores)
    if way in {"process", "fork"}:
        method = "forkserver" if way == "process" else "fork"
        return ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context(method))
    return {"no": False}.get(way, way)


def prefix(options):
    return f"file://{folder(options)}/"


def credentials(options):
    import icechunk

    return {prefix(options): icechunk.credentials.LocalFileSystemAccess}


# -- measuring -------------------------------------------------------------------------------


def adopt_orphans():
    """Become the parent of processes whose own ends first (a JVM's), so that theirs is counted."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def measure(side, options, into):
    """Run one side in a process of its own; None where it takes too long."""
    command = [sys.executable, __file__, "--side", side, "--into", str(into)]
    command += ["--files", str(options.files), "--cache", str(options.cache)]
    command += ["--rows", str(options.rows), "--columns", str(options.columns)]
    # compiled modules are kept, as they are for users
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before, begin = processor_time(), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        peak, used, wall = {}, {}, 0.0
        while process.poll() is None:
            sizes = {pid: memory(pid) for pid in family(process.pid)}
            used |= {pid: seconds for pid in sizes if (seconds := processor_time_of(pid))}
            if sum(sizes.values()) > sum(peak.values()):
                peak = sizes
            if time.perf_counter() - begin > options.limit and side != "icevirt":
                for pid in sizes:
                    os.kill(pid, 9)
                process.wait()
                break
            time.sleep(0.1)
        wall = time.perf_counter() - begin
        said = process.stdout.read()
    wait_for_orphans()
    if process.returncode:
        if wall < options.limit:
            raise SystemExit(f"{side} failed")
        print(f"{side} was stopped after {wall:.0f} s", file=sys.stderr)
        return None
    return json.loads(said) | {
        "wall": wall,
        # the one lacks workers that nobody waited for, the other short lives
        "processor": max(processor_time() - before, sum(used.values())),
        "memory": sum(peak.values()),
        "driver": peak.get(process.pid, 0),
        "stored": sum(path.stat().st_size for path in into.rglob("*") if path.is_file()),
    }


def processor_time():
    """Return the seconds of all processes that ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_time_of(pid):
    """Return the seconds that a process has used, 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_orphans():
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return


def family(pid):
    """Yield a process and all below it."""
    yield pid
    try:
        # a child belongs to the thread that started it
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = " ".join((thread / "children").read_text() for thread in threads)
    except OSError:
        return
    for child in children.split():
        yield from family(int(child))


def memory(pid):
    """Return the proportional set size of a process in bytes, 0 once it is gone."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith("Pss:"))


# -- comparing -------------------------------------------------------------------------------


def compared(side, options, into):
    """Return a digest of coordinates and some chunks, after comparing these with the files."""
    import netCDF4
    import numpy as np

    dataset = opened(side, options, into)
    files = archive(options)
    assert dataset.sizes["time"] == STEPS * len(files), dataset.sizes
    digest = hashlib.sha256()
    for name in ("time", "lat", "lon"):
        digest.update(dataset[name].values.tobytes())
    rng = np.random.default_rng(0)
    for step in rng.integers(0, dataset.sizes["time"], COMPARED).tolist():
        with netCDF4.Dataset(files[step // STEPS]) as file:
            file.set_auto_mask(False)
            assert float(dataset["time"][step]) == float(file["time"][step % STEPS])
            for name in VARIABLES:
                plane = dataset[name][step].values
                assert np.array_equal(plane, file[name][step % STEPS]), (side, name, step)
                digest.update(plane.tobytes())
    return digest.hexdigest()


def opened(side, options, into):
    """Open a repository with its own reader."""
    import xarray as xr

    raw = {"decode_cf": False}
    if side in {"icevirt", SPARK}:
        allowed = [prefix(options)]
        return xr.open_dataset(
            into, engine="icevirt", authorize_virtual_chunk_access=allowed, **raw
        )
    import icechunk

    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(into)),
        authorize_virtual_chunk_access=credentials(options),
    )
    return xr.open_zarr(repo.readonly_session("main").store, consolidated=False, **raw)


# -- telling ---------------------------------------------------------------------------------


def line(figures):
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in figures["phases"].items())
    return (
        f"{figures['wall']:.1f} s, processor {figures['processor']:.1f} s,"
        f" {figures['memory'] / 2**20:.0f} MiB ({phases})"
    )


def print_table(runs, same, options):
    size = sum(os.stat(path).st_size for path in archive(options))
    print(
        f"{options.files} files of {STEPS * len(VARIABLES)} chunks ({size / 2**20:.0f} MiB),"
        f" median of {options.runs} (best), {len(os.sched_getaffinity(0))} cores"
    )
    columns = {"wall, s": "wall", "processor, s": "processor", "memory, MiB": "memory"}
    columns |= {"its driver, MiB": "driver", "repository, MiB": "stored"}
    print(f"{'':24}" + "".join(f"{title:>19}" for title in columns))
    for side, figures in runs.items():
        line = f"{side:24}"
        for key in columns.values():
            values = [
                run[key] / (2**20 if key in {"memory", "driver", "stored"} else 1)
                for run in figures
            ]
            line += f"{statistics.median(values):10.2f} {f'({min(values):.2f})':>8}"
        print(line)
    ours = runs["icevirt"]
    for side, figures in runs.items():
        ratios = (
            statistics.median(run[key] for run in figures)
            / statistics.median(run[key] for run in ours)
            for key in ("wall", "processor", "memory")
        )
        if side != "icevirt":
            print(
                "icevirt against {}: {:.2f} x faster, {:.2f} x less processor time,"
                " {:.2f} x less memory".format(side, *ratios)
            )
    print("values", "equal" if len(set(same.values())) == 1 else f"DIFFER: {same}")


if __name__ == "__main__":
    main()
