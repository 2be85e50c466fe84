"""Measures the main job: a virtual repository over 400 files of 48 chunks, against its neighbours.

    python bench/build_archive.py [--files 400] [--runs 3] [--peer-parallel thread]

Both sides build over the same files, each run in a process of its own, in turns: medians, and the
best runs, which say more on a machine that others use too.
Memory is the proportional set size (pages shared by processes are counted once), summed over all
processes of a side (for icevirt the driver's Python, the JVM and the Python workers), sampled ten
times a second, and the peak is taken. Files are made once and kept in the cache directory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

STEPS, ROWS, COLUMNS = 24, 180, 360
VARIABLES = ("tas", "pr")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument(
        "--peer-parallel", choices=["no", "dask", "thread", "process"], default="no"
    )
    parser.add_argument("--side", choices=SIDES, help="run one side once and print its figures")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run_side(options)))
        return
    make_archive(options.cache, options.files)
    runs = {side: [] for side in SIDES}
    for number in range(options.runs):
        for side in SIDES:
            figures = measure(side, options)
            runs[side].append(figures)
            print(f"run {number + 1} {side:12}", line(figures), file=sys.stderr)
    for name, choose in (("median", statistics.median), ("best", min)):
        chosen = {side: combined(figures, choose) for side, figures in runs.items()}
        print_table(chosen, options, name)


# -- the files -------------------------------------------------------------------------------


def default_cache():
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "icevirt" / "bench-archive"


def archive(cache, number):
    return [str(cache / f"day{at:04d}.nc") for at in range(number)]


def make_archive(cache, number):
    """Write the files that are missing."""
    cache.mkdir(parents=True, exist_ok=True)
    missing = [
        (at, path) for at, path in enumerate(archive(cache, number)) if not Path(path).exists()
    ]
    if missing:
        print(f"making {len(missing)} files in {cache}", file=sys.stderr)
        with ProcessPoolExecutor() as pool:
            list(pool.map(make_file, *zip(*missing, strict=True)))


def make_file(at, path):
    """Write one day: two variables, one chunk a time step, zlib and shuffle."""
    import netCDF4
    import numpy as np

    partial = f"{path}.partial"
    with netCDF4.Dataset(partial, "w") as file:
        for name, length in (("time", None), ("lat", ROWS), ("lon", COLUMNS)):
            file.createDimension(name, length)
        hours = file.createVariable("time", "f8", ("time",), chunksizes=(STEPS,))
        hours.setncatts({"units": "hours since 2000-01-01", "calendar": "standard"})
        hours[:] = at * STEPS + np.arange(STEPS)
        lat = file.createVariable("lat", "f4", ("lat",))
        lat.setncatts({"units": "degrees_north", "standard_name": "latitude"})
        lat[:] = np.linspace(-89.5, 89.5, ROWS)
        lon = file.createVariable("lon", "f4", ("lon",))
        lon.setncatts({"units": "degrees_east", "standard_name": "longitude"})
        lon[:] = np.linspace(0.5, 359.5, COLUMNS)
        noise = np.random.default_rng(at).normal(size=(STEPS, ROWS // 10, COLUMNS // 10))
        field = np.cos(np.deg2rad(lat[:]))[:, None] * 30 + np.kron(noise, np.ones((10, 10)))
        for name in VARIABLES:
            made = file.createVariable(
                name, "f4", ("time", "lat", "lon"), zlib=True, complevel=1, shuffle=True,
                chunksizes=(1, ROWS, COLUMNS), fill_value=np.float32(1e20),
            )  # fmt: skip
            made.setncatts({"units": "K", "long_name": f"the variable {name}", "cell_methods": "-"})
            made[:] = np.round(field * 2) / 2
        file.setncatts({"title": "benchmark", "Conventions": "CF-1.8", "history": f"file {at}"})
    Path(partial).replace(path)


# -- the two sides ---------------------------------------------------------------------------


def run_side(options):
    files = archive(options.cache, options.files)
    with tempfile.TemporaryDirectory(dir=options.cache) as directory:
        return SIDES[options.side](files, options, Path(directory))


def icevirt_side(files, _, directory):
    """Build twice in one Spark session; the first build starts the Python workers."""
    begin = time.perf_counter()
    import xarray as xr

    import icevirt
    from icevirt.spark.session import local_session

    spark = local_session()
    started = time.perf_counter()
    report = icevirt.build(files, directory / "one", concat_dim="time", spark=spark)
    built = time.perf_counter()
    icevirt.build(files, directory / "two", concat_dim="time", spark=spark)
    again = time.perf_counter()
    spark.stop()
    opened = xr.open_dataset(
        directory / "one", engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    return figures(begin, started, built, again, opened) | {
        "phases": report.seconds,
        "references": report.references.total,
        "stored": stored(directory / "one"),
    }


def virtualizarr_side(files, options, directory):
    begin = time.perf_counter()
    import icechunk
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    icechunk.set_logs_filter("error")
    parallel = {
        "no": False,
        "dask": "dask",
        "thread": ThreadPoolExecutor,
        "process": ProcessPoolExecutor,
    }[options.peer_parallel]
    prefix = f"file://{options.cache}/"

    def build(path):
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
            parallel=parallel,
        )
        config = icechunk.RepositoryConfig.default()
        store = icechunk.local_filesystem_store(str(options.cache))
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
        storage = icechunk.local_filesystem_storage(str(path))
        credentials = {prefix: icechunk.credentials.LocalFileSystemAccess}
        repo = icechunk.Repository.create(
            storage, config=config, authorize_virtual_chunk_access=credentials
        )
        session = repo.writable_session("main")
        dataset.virtualize.to_icechunk(session.store)
        session.commit("build")
        return repo

    started = time.perf_counter()
    repo = build(directory / "one")
    built = time.perf_counter()
    build(directory / "two")
    again = time.perf_counter()
    opened = xr.open_zarr(repo.readonly_session("main").store, consolidated=False)
    return figures(begin, started, built, again, opened) | {"stored": stored(directory / "one")}


SIDES = {"icevirt": icevirt_side, "virtualizarr": virtualizarr_side}


def figures(begin, started, built, again, dataset):
    """Return the times, and sums of a few chunks, which must be equal on both sides."""
    last = dataset.sizes["time"] - 1
    sums = [float(dataset[name][at].sum()) for name in VARIABLES for at in (0, last // 2, last)]
    return {
        "whole": built - begin,
        "start": started - begin,
        "first": built - started,
        "again": again - built,
        "steps": dataset.sizes["time"],
        "sums": sums,
    }


def stored(directory):
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


# -- measuring -------------------------------------------------------------------------------


def measure(side, options):
    """Run one side in a process of its own and watch its memory."""
    command = [sys.executable, __file__, "--side", side, "--files", str(options.files)]
    command += ["--cache", str(options.cache), "--peer-parallel", options.peer_parallel]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(memory, family(process.pid))))
            time.sleep(0.1)
        said = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{side} failed")
    return json.loads(said) | {"memory": peak}


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


def combined(runs, choose):
    numbers = ("whole", "start", "first", "again", "memory", "stored")
    return {name: choose(run[name] for run in runs) for name in numbers} | {"sums": runs[0]["sums"]}


def line(figures):
    return "  ".join(f"{name} {figures[name]:.2f} s" for name in ("whole", "first", "again")) + (
        f"  peak {figures['memory'] / 2**20:.0f} MiB"
    )


def print_table(sides, options, name):
    ours, theirs = sides["icevirt"], sides["virtualizarr"]
    print(
        f"{options.files} files of {STEPS * len(VARIABLES)} chunks, {name} of {options.runs} runs,"
        f" {len(os.sched_getaffinity(0))} cores, VirtualiZarr parallel={options.peer_parallel}"
    )
    print(f"{'':44} {'icevirt':>9} {'VZ + icechunk':>14} {'ratio':>6}")
    rows = {
        "start (imports; Spark's JVM for icevirt), s": "start",
        "build, with that start, s": "whole",
        "build, without it, s": "first",
        "a second build in the same process, s": "again",
    }
    for title, key in rows.items():
        print(f"{title:44} {ours[key]:9.2f} {theirs[key]:14.2f} {theirs[key] / ours[key]:6.2f}")
    for title, key in {"peak memory, MiB": "memory", "repository, MiB": "stored"}.items():
        a, b = ours[key] / 2**20, theirs[key] / 2**20
        print(f"{title:44} {a:9.2f} {b:14.2f} {b / a:6.2f}")
    print("values", "equal" if ours["sums"] == theirs["sums"] else "DIFFER")


if __name__ == "__main__":
    main()
