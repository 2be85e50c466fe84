"""Scan HDF5 files over HTTP with icevirt and with VirtualiZarr: requests, bytes, time by the clock.

    python bench/scan_remote.py                      # 20 ms before each answer, 5 rounds
    python bench/scan_remote.py --latency 50 --rounds 9

A server on loopback, in its own process, waits so long before it answers, and counts. Both scan
the same files by turns; times are medians of the rounds in milliseconds, requests and bytes are of
the first round. The ratio is VirtualiZarr's time in icevirt's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scan_files import FORMATS, PAGED, one_variable, ten_by_ten

from icevirt.api.scan import scan_file
from icevirt.archive.sources import SourceFile
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import scan
from icevirt.tasks.scan_file import Prefetcher

ROW = "{:<34} {:<22} {:>9} {:>12} {:>9} {:>7}"


class Handler(BaseHTTPRequestHandler):
    """Serves ranges of the files of a directory, late."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    root = Path()
    latency = 0.0
    requests = 0
    sent = 0

    def do_GET(self) -> None:
        """Answer with a range, or with what was counted."""
        if self.path == "/count":
            body = f"{Handler.requests} {Handler.sent}".encode()
            Handler.requests = Handler.sent = 0
            self.answer(200, body, {})
            return
        self.late()
        if not (path := self.root / self.path.removeprefix("/")).exists():
            self.answer(404, b"", {})
            return
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last = self.asked(size)
            file.seek(first)
            body = file.read(last + 1 - first)
        Handler.sent += len(body)
        output = {"content-range": f"bytes {first}-{first + len(body) - 1}/{size}"}
        self.answer(206, body, output)

    def do_HEAD(self) -> None:
        """Answer with the size alone."""
        self.late()
        size = (self.root / self.path.removeprefix("/")).stat().st_size
        self.answer(200, b"", {"content-length": str(size)})

    def late(self) -> None:
        """Count and wait."""
        Handler.requests += 1
        time.sleep(self.latency)

    def asked(self, size: int) -> tuple[int, int]:
        """Return the first and last byte of the range."""
        output = self.headers.get("range", "bytes=0-").removeprefix("bytes=")
        first, _, last = output.partition("-")
        if not first:
            return size - int(last), size - 1
        return int(first), min(int(last or size), size - 1)

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send an answer."""
        self.send_response_only(status)
        output = {
            "content-length": str(len(body)),
            "accept-ranges": "bytes",
            "etag": '"x"',
            "last-modified": "Wed, 21 Oct 2015 07:28:00 GMT",
            **headers,
        }
        for name, value in output.items():
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


def counted(url: str) -> tuple[int, int]:
    """Return how many requests and bytes there were since it was last asked."""
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("GET", "/count")
    requests, sent = connection.getresponse().read().split()
    return int(requests), int(sent)


def ample(path: Path, **options: Any) -> None:
    """10 variables of 12 chunks of 1 MiB: metadata is a small part of the file."""
    with h5py.File(path, "w", **options) as file:
        file["time"] = np.arange(12.0)
        file["time"].make_scale("time")
        for number in range(10):
            made = file.create_dataset(f"v{number}", (12, 512, 512), "f4", chunks=(1, 512, 512))
            made[...] = np.float32(number)
            made.dims[0].attach_scale(file["time"])
            made.attrs["units"] = "K"


CASES: dict[str, Callable[[Path], None]] = {
    "small: 10 variables x 10 chunks": ten_by_ten,
    "48 chunks": one_variable((48, 1000), (1, 1000)),
    **{
        f"5,000 chunks, {name}": one_variable((500, 100), (1, 10), **options)
        for name, options in FORMATS.items()
    },
    "120 MiB, default": ample,
    "120 MiB, paged": lambda path: ample(path, **PAGED),
    "120 MiB, pages of 64 KiB": lambda path: ample(path, **{**PAGED, "fs_page_size": 1 << 16}),
}


def virtualizarr(url: str) -> None:
    """Parse with VirtualiZarr's HDFParser."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtualizarr.parsers import HDFParser

    site = url.rpartition("/")[0]
    store = HTTPStore.from_url(site, client_options={"allow_http": True})
    HDFParser()(url, ObjectStoreRegistry({site: store}))


TOOLS: dict[str, Callable[[str], object]] = {
    "icevirt": scan_file,
    "icevirt, concat_dim": lambda url: scan_file(url, concat_dim="time"),
    "VirtualiZarr parser": virtualizarr,
}


def compare(root: Path, url: str, rounds: int) -> None:
    """Print what each tool takes for each file."""
    print(ROW.format("file", "", "requests", "bytes", "wall ms", "ratio"))
    for title, write in CASES.items():
        write(root / "file.nc")
        times: dict[str, list[float]] = {name: [] for name in TOOLS}
        cost: dict[str, tuple[int, int]] = {}
        for tool in TOOLS.values():  # a first turn, for what is loaded late
            tool(f"{url}/file.nc")
        for _ in range(rounds):
            for name, tool in TOOLS.items():
                counted(url)
                begun = time.perf_counter()
                tool(f"{url}/file.nc")
                times[name].append(1000 * (time.perf_counter() - begun))
                cost.setdefault(name, counted(url))
        ours = statistics.median(times["icevirt"])
        for name, found in times.items():
            wall = statistics.median(found)
            requests, sent = cost[name]
            print(ROW.format(title, name, requests, sent, f"{wall:.1f}", f"{wall / ours:.2f}"))
        (root / "file.nc").unlink()


def many(root: Path, url: str, count: int) -> None:
    """Print how long many small files take one after the other, as a task of a build scans them."""
    ten_by_ten(root / "file.nc")
    names = [f"{number}.nc" for number in range(count)]
    for name in names:
        (root / name).symlink_to(root / "file.nc")
    begun = time.perf_counter()
    for name in names:
        scan_file(f"{url}/{name}")
    alone = time.perf_counter() - begun
    files = [SourceFile(url=f"{url}/{name}", size=(root / name).stat().st_size) for name in names]
    begun = time.perf_counter()
    with Prefetcher(files) as ahead:
        for file in files:
            with ahead.open(file.url) as source:
                scan(source, ScannerOptions())
    together = time.perf_counter() - begun
    begun = time.perf_counter()
    for name in names:
        virtualizarr(f"{url}/{name}")
    theirs = time.perf_counter() - begun
    print(f"{count} small files, milliseconds a file: one by one {1000 * alone / count:.1f},")
    print(f"  as a task opens them {1000 * together / count:.1f},", end=" ")
    print(f"VirtualiZarr parser {1000 * theirs / count:.1f}")


def main() -> None:
    """Print all figures."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=20.0, help="milliseconds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.latency)
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(Path(directory), given.latency) as url,
    ):
        compare(Path(directory), url, given.rounds)
        many(Path(directory), url, 100)


if __name__ == "__main__":
    main()
