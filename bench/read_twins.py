"""Measure a time series and a map of one dataset, with and without a twin, in a late bucket.

``python bench/read_twins.py`` builds a dataset of 400 files with a map each, in a bucket on
loopback, and a twin of its variable. Then it reads one point through all files, and one map, by a
proxy that waits 5 and 50 ms before each answer: with icevirt from the variable's own chunks and as
it chooses, and with icechunk's own client and zarr from either array. Each figure is of an array
that was just opened: its manifests are read, too. Seconds are medians; requests are of one round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import icechunk
import numpy as np
import xarray as xr
import zarr

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import late_proxy

import icevirt
from servers import places
from servers.places import BUCKET, S3Place
from servers.processes import free_port, running

SHAPE = (90, 180)
SELECTIONS: dict[str, tuple[Any, ...]] = {"a point": (slice(None), 45, 90), "a map": (200,)}
ROW = "{:<34} {:<8} {:>6} {:>10} {:>9}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, nargs="*", default=[0.005, 0.05])
    asked = parser.parse_args()
    server = free_port()
    env = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(server), "LOG_LEVEL": "ERROR"}
    with (
        running([sys.executable, "-m", "ministack"], port=server, env=env),
        late_proxy.before(server, 0) as proxy,
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
    ):
        places.make_s3_bucket(f"http://127.0.0.1:{server}")
        measure(asked, server, proxy, Path(folder))


def measure(asked: argparse.Namespace, server: int, proxy: int, folder: Path) -> None:
    """Build, and print a line for each reader and selection."""
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy}",
        "AWS_ALLOW_HTTP": "true",
    }
    there = S3Place(endpoint=f"http://127.0.0.1:{server}", prefix="archive").store()
    values = np.random.default_rng(0).normal(size=(asked.files, *SHAPE)).astype("f4")
    for step in range(asked.files):
        write(folder / "next", step, values[step])
        there.put(f"{step:06}.h5", (folder / "next").read_bytes())
    place = S3Place(endpoint=f"http://127.0.0.1:{proxy}", prefix="repo")
    repo, files = place.icevirt(), f"s3://{BUCKET}/archive/"
    begin = time.perf_counter()
    icevirt.build(f"{files}*.h5", repo, concat_dim="time", executor="in-process")
    icevirt.materialize(
        repo, "t", beside=True, chunks={"time": asked.files, "lat": 10, "lon": 10},
        authorize_virtual_chunk_access=[files], executor="in-process",
    )  # fmt: skip
    print(f"{asked.files} files and a twin in {time.perf_counter() - begin:.0f} s")
    readers: dict[str, Callable[[], Any]] = {
        "icevirt, no twin": lambda: own(repo, files, "own"),
        "icevirt, with a twin": lambda: own(repo, files, "auto"),
        "icechunk, the variable": lambda: theirs(place, files, proxy, "t"),
        "icechunk, the twin": lambda: theirs(place, files, proxy, "t_twin"),
    }
    print(ROW.format("reader", "reads", "ms", "requests", "seconds"))
    for latency in asked.latency:
        late_proxy.tell(proxy, latency)
        for name, opening in readers.items():
            for selection, key in SELECTIONS.items():
                took, requests = [], 0
                for _ in range(asked.rounds):
                    array = opening()
                    late_proxy.asked_of(proxy)
                    begin = time.perf_counter()
                    found = np.asarray(array[key])
                    took.append(time.perf_counter() - begin)
                    counts = late_proxy.asked_of(proxy)
                    requests = sum(n for kind, n in counts.items() if kind.startswith("GET:"))
                    np.testing.assert_array_equal(found, values[key])
                cells = (f"{latency * 1000:.0f}", requests, f"{statistics.median(took):.3f}")
                print(ROW.format(name, selection, *cells), flush=True)


def own(repo: Any, files: str, layout: str) -> Any:
    """Open the variable with icevirt."""
    ds = xr.open_dataset(
        repo, engine="icevirt", layout=layout, cache=False, authorize_virtual_chunk_access=[files]
    )
    return ds["t"]


def theirs(place: S3Place, files: str, proxy: int, name: str) -> Any:
    """Open an array with icechunk's client."""
    keys = icechunk.s3_static_credentials(access_key_id="test", secret_access_key="test")
    config = icechunk.Repository.fetch_config(place.official())
    assert config is not None
    container = icechunk.VirtualChunkContainer(
        files,
        icechunk.s3_store(
            region="us-east-1", endpoint_url=f"http://127.0.0.1:{proxy}", allow_http=True,
            s3_compatible=True, force_path_style=True,
        ),
    )  # fmt: skip
    config.set_virtual_chunk_container(container)
    granted = icechunk.containers_credentials({files: keys})
    repo = icechunk.Repository.open(
        place.official(), config=config, authorize_virtual_chunk_access=granted
    )
    store = repo.readonly_session("main").store
    return zarr.open_array(store, path=name, mode="r")


def write(path: Path, step: int, values: Any) -> None:
    """Write a file with one map."""
    path.unlink(missing_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values[None], chunks=(1, *SHAPE))
        for axis, (name, labels) in enumerate(
            {"time": [step], "lat": np.linspace(-89, 89, 90), "lon": np.arange(180) * 2.0}.items()
        ):
            file[name] = labels
            file[name].make_scale(name)
            file["t"].dims[axis].attach_scale(file[name])


if __name__ == "__main__":
    main()
