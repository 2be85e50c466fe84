"""Reads 2,000 virtual chunks over HTTP with icechunk and with icevirt, and counts the requests.

    python bench/read_remote.py                 # every row, 5 rounds, 20 ms before each answer
    python bench/read_remote.py --latency 50 --only zstd
    python bench/read_remote.py --cache         # xarray's engine, with a cache of chunks on disk

A server on loopback, in its own process, waits so long before it answers. The official client
writes each repository; both clients read it through zarr's API, by turns, with warm manifests.
`wall` is in milliseconds; figures are medians of the rounds, except requests, which are of the
first round. The ratio is below 1 where icevirt is faster.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.core.buffer import default_buffer_prototype

import icevirt

PROTOTYPE = default_buffer_prototype()
ROW = "{:<40} {:<22} {:>9} {:>9} {:>6} {:>6} {:>9} {:>9}"


@dataclass(frozen=True, slots=True)
class Case:
    """An array: how many chunks of how many bytes, and where they lie in the file."""

    chunks: int
    size: int
    order: str = "adjacent"  # adjacent, scattered (64 chunks apart, shuffled)
    codec: str = ""

    def __str__(self) -> str:
        human = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else f"{self.size >> 10} KiB"
        return f"{self.chunks} x {human} {self.order} {self.codec}".strip()


CASES = (
    Case(2000, 4096),
    Case(2000, 4096, codec="zstd"),
    Case(2000, 4096, order="scattered"),
    Case(300, 1 << 20),
    Case(300, 1 << 20, codec="zstd"),
)


# -- the server ------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """Serves ranges of the files of a directory, late."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    root = Path()
    latency = 0.0
    requests = 0

    def do_GET(self) -> None:
        if self.path == "/count":
            body, Handler.requests = str(Handler.requests).encode(), 0
            self.answer(200, body, {})
            return
        Handler.requests += 1
        time.sleep(self.latency)
        first, last = map(int, self.headers["range"].removeprefix("bytes=").split("-"))
        with (self.root / self.path.removeprefix("/")).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(first)
            body = file.read(last + 1 - first)
        headers = {"content-range": f"bytes {first}-{first + len(body) - 1}/{size}"}
        self.answer(206, body, {**headers, "etag": '"x"'})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


def serve(root: str, latency: float) -> None:
    """Serve until killed; print the port."""
    Handler.root, Handler.latency = Path(root), latency / 1000
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


@contextmanager
def serving(root: Path, latency: float) -> Iterator[str]:
    """Run the server in a process of its own and give its URL."""
    command = [sys.executable, __file__, "--serve", str(root), "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def requests_since(url: str) -> int:
    """Return how many requests there were since it was last asked."""
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("GET", "/count")
    return int(connection.getresponse().read())


# -- what is read ----------------------------------------------------------------------------


def write(root: Path, archive: Path, url: str, case: Case) -> None:
    """Write a file of encoded chunks, and let the official client refer to it."""
    config = icechunk.RepositoryConfig.default()
    store = icechunk.http_store({"allow_http": "true"})
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"{url}/", store))
    storage = icechunk.local_filesystem_storage(str(root / "repo"))
    session = icechunk.Repository.create(storage, config).writable_session("main")
    shape, chunks = (case.chunks * case.size,), (case.size,)
    codecs = [ZstdCodec(level=1)] if case.codec else None
    zarr.create_array(
        session.store,
        name="x",
        shape=shape,
        chunks=chunks,
        dtype="u1",
        compressors=codecs,
        dimension_names=("at",),
    )
    plain = zarr.create_array(
        zarr.storage.MemoryStore(), shape=shape, chunks=chunks, dtype="u1", compressors=codecs
    )
    plain[:] = np.random.default_rng(7).integers(1, 60, shape, np.uint8)
    bodies = [asyncio.run(_get(plain.store, f"c/{n}")) for n in range(case.chunks)]
    gap = 64 * case.size if case.order == "scattered" else 0
    places = np.arange(case.chunks)
    if gap:
        np.random.default_rng(3).shuffle(places)
    ends = np.cumsum([len(bodies[n]) + gap for n in np.argsort(places)])
    starts = np.concatenate([[0], ends[:-1]])[places]
    with (archive / "a.bin").open("wb") as file:
        for start, body in zip(starts.tolist(), bodies, strict=True):
            file.seek(start)
            file.write(body)
    lengths = np.array([len(body) for body in bodies], np.uint64)
    locations = [f"{url}/a.bin"] * case.chunks
    session.store.set_virtual_refs_arr(
        "x", (case.chunks,), locations, starts.astype(np.uint64), lengths, checksum='"x"'
    )
    session.commit("all")


async def _get(store: Any, key: str) -> bytes:
    return (await store.get(key, PROTOTYPE)).to_bytes()


def with_icechunk(root: Path, url: str) -> Any:
    """Open the repository with the official client."""
    storage = icechunk.local_filesystem_storage(str(root / "repo"))
    access = {f"{url}/": icechunk.credentials.HttpAccess}
    return icechunk.Repository.open(storage, None, access).readonly_session("main").store


def with_icevirt(root: Path, url: str) -> Any:
    """Open the repository with icevirt."""
    repo = icevirt.Repository.open(root / "repo", authorize_virtual_chunk_access=[f"{url}/"])
    return repo.readonly_session("main").store


def variable(root: Path, url: str, **options: Any) -> Any:
    """Open the repository with icevirt's engine of xarray, and return the array."""
    import xarray as xr

    options["authorize_virtual_chunk_access"] = [f"{url}/"]
    return xr.open_dataset(root / "repo", engine="icevirt", cache=False, **options)["x"]


def whole(store: Any, _case: Case) -> np.ndarray:
    """Read the array."""
    return zarr.open_array(store, path="x", mode="r")[:]


def whole_at_64(store: Any, case: Case) -> np.ndarray:
    """Read the array, 64 chunks at once."""
    with zarr.config.set({"async.concurrency": 64}):
        return whole(store, case)


def singles(store: Any, case: Case) -> np.ndarray:
    """Read 20 chunks one after the other."""
    array = zarr.open_array(store, path="x", mode="r")
    chosen = np.random.default_rng(3).integers(0, case.chunks, 20).tolist()
    return np.concatenate([array[n * case.size : (n + 1) * case.size] for n in chosen])


def gathered(store: Any, case: Case) -> np.ndarray:
    """Ask the store for every chunk at once."""

    async def read() -> list[Any]:
        return await asyncio.gather(*(store.get(f"x/c/{n}", PROTOTYPE) for n in range(case.chunks)))

    return np.concatenate([np.frombuffer(body.to_bytes(), "u1") for body in asyncio.run(read())])


WAYS: dict[str, Callable[[Any, Case], np.ndarray]] = {
    "whole array": whole,
    "whole, concurrency 64": whole_at_64,
    "20 single": singles,
    "all store.get at once": gathered,
}


# -- figures ---------------------------------------------------------------------------------


def measured(case: Case, rounds: int, latency: float) -> Iterator[tuple[str, list[Any]]]:
    """Yield way, and (wall, processor time, requests) of icechunk and of icevirt."""
    with tempfile.TemporaryDirectory() as folder:
        root, archive = Path(folder), Path(folder) / "archive"
        archive.mkdir()
        with serving(archive, latency) as url:
            write(root, archive, url, case)
            stores = with_icechunk(root, url), with_icevirt(root, url)
            for name, way in WAYS.items():
                read = [way(store, case) for store in stores]  # warm, and compared
                if not np.array_equal(*read):
                    raise SystemExit(f"{case}, {name}: they do not read the same")
                requests_since(url)
                yield name, _medians(way, stores, case, rounds, url)


def _medians(
    way: Callable[[Any, Case], np.ndarray],
    stores: tuple[Any, ...],
    case: Case,
    rounds: int,
    url: str,
) -> list[Any]:
    taken: list[list[tuple[float, float, int]]] = [[] for _ in stores]
    for _ in range(rounds):
        for store, times in zip(stores, taken, strict=True):
            wall, cpu = time.perf_counter(), time.process_time()
            way(store, case)
            times.append(
                (time.perf_counter() - wall, time.process_time() - cpu, requests_since(url))
            )
    return [
        (statistics.median(w for w, _, _ in t), statistics.median(c for _, c, _ in t), t[0][2])
        for t in taken
    ]


def cached(case: Case, rounds: int, latency: float) -> Iterator[tuple[str, list[str]]]:
    """Yield way, and milliseconds of icechunk, and of icevirt without, with a new and a full cache.

    The last cells are the requests of icevirt's three.
    """
    with tempfile.TemporaryDirectory() as folder:
        root, archive = Path(folder), Path(folder) / "archive"
        archive.mkdir()
        chosen = np.random.default_rng(3).integers(0, case.chunks, 20) * case.size
        reads = {"whole": slice(None), "20 of them": np.sort(chosen)}
        with serving(archive, latency) as url:
            write(root, archive, url, case)
            theirs = zarr.open_array(with_icechunk(root, url), path="x", mode="r")
            for way, key in reads.items():
                taken: dict[str, list[tuple[float, int]]] = {}
                for number in range(rounds + 1):  # the first one is warm-up
                    new = {"chunk_cache": root / f"{way} {number}"}
                    ours = (
                        variable(root, url),
                        variable(root, url, **new),
                        variable(root, url, **new),
                    )
                    named = zip(("none", "cold", "warm"), ours, strict=True)
                    arrays = {"icechunk": theirs.oindex, **dict(named)}
                    for name, array in arrays.items():
                        requests_since(url)
                        began = time.perf_counter()
                        np.asarray(array[key])
                        took = 1000 * (time.perf_counter() - began), requests_since(url)
                        taken.setdefault(name, []).append(took)
                    shutil.rmtree(new["chunk_cache"])
                walls = [f"{statistics.median(w for w, _ in t[1:]):.0f}" for t in taken.values()]
                yield way, [*walls, *(str(t[-1][1]) for t in [*taken.values()][1:])]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency", type=float, default=20.0, help="milliseconds")
    parser.add_argument("--only", default="", help="a part of the name of the cases wanted")
    parser.add_argument("--cache", action="store_true", help="with a cache of chunks on disk")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.latency)
    icechunk.set_logs_filter("error")
    if given.cache:
        print(ROW.format("case", "way", "icechunk", "none", "cold", "warm", "requests", ""))
        for case in [each for each in CASES if given.only in str(each)]:
            for way, row in cached(case, given.rounds, given.latency):
                print(ROW.format(str(case), way, *row[:4], " ".join(row[4:]), ""), flush=True)
        return
    heads = "case", "way", "icechunk", "icevirt", "ratio", "cpu", "requests", "icevirt's"
    print(ROW.format(*heads))
    for case in CASES:
        if given.only not in str(case):
            continue
        for way, (theirs, ours) in measured(case, given.rounds, given.latency):
            walls = f"{1000 * theirs[0]:.0f}", f"{1000 * ours[0]:.0f}", f"{ours[0] / theirs[0]:.2f}"
            rest = f"{ours[1] / theirs[1]:.2f}", theirs[2], ours[2]
            print(ROW.format(str(case), way, *walls, *rest), flush=True)


if __name__ == "__main__":
    main()
