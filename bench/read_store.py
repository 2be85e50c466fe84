"""Reads the same local repositories with icechunk and with icevirt, by turns in one process.

    python bench/read_store.py                  # every row, 7 rounds
    python bench/read_store.py --rounds 21 --only "inline"

The official client writes each repository; both read it through zarr's API and through the store.
Page cache and manifests are warm. Every figure is the median of the rounds, in which all take
turns, in milliseconds; ratios are those of the medians, below 1 where icevirt is faster. `cpu` is
the ratio of processor time, of all threads, which other work on the machine leaves alone. The last
columns are of a plain zarr LocalStore that holds the same chunks as files: its milliseconds, and
both ratios of icevirt to it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

import icevirt

PROTOTYPE = default_buffer_prototype()
ROW = "{:<34} {:<14} {:>9} {:>9} {:>6} {:>6} {:>11} {:>6} {:>6}"
HEAD = "case", "way", "icechunk", "icevirt", "ratio", "cpu", "LocalStore", "ratio", "cpu"


@dataclass(frozen=True, slots=True)
class Case:
    """An array: how many chunks of how many bytes, and where they lie."""

    kind: str  # native, inline, virtual
    chunks: int
    size: int
    files: int = 1  # that virtual chunks are spread over

    def __str__(self) -> str:
        spread = f" in {self.files} files" if self.kind == "virtual" else ""
        return f"{self.chunks} x {_human(self.size)} {self.kind}{spread}"


CASES = (
    Case("native", 2000, 4096),
    Case("native", 300, 1 << 20),
    Case("inline", 2000, 256),
    Case("virtual", 2000, 4096, 1),
    Case("virtual", 2000, 4096, 100),
    Case("virtual", 300, 1 << 20, 10),
)


def _human(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size / 1024:g} KiB"


# -- what is read ----------------------------------------------------------------------------


def write(root: Path, case: Case) -> None:
    """Let the official client write a repository with the array ``x``."""
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 512
    archive = root / "archive"
    archive.mkdir()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(
            f"file://{archive}/", icechunk.local_filesystem_store(str(archive))
        )
    )
    storage = icechunk.local_filesystem_storage(str(root / "repo"))
    session = icechunk.Repository.create(storage, config).writable_session("main")
    shape, chunks = (case.chunks * case.size,), (case.size,)
    array = zarr.create_array(
        session.store, name="x", shape=shape, chunks=chunks, dtype="u1", compressors=None
    )
    values = np.random.default_rng(7).integers(1, 256, shape, np.uint8)
    if case.kind == "virtual":
        _refer(session.store, archive, values, case)
    else:
        array[:] = values
    session.commit("all")
    plain = zarr.storage.LocalStore(root / "zarr")
    zarr.create_array(plain, name="x", data=values, chunks=chunks, compressors=None)


def _refer(store: Any, archive: Path, values: np.ndarray, case: Case) -> None:
    each = case.chunks // case.files
    for number, part in enumerate(values.reshape(case.files, -1)):
        (archive / f"{number}.bin").write_bytes(part.tobytes())
    locations = [f"file://{archive}/{n // each}.bin" for n in range(case.chunks)]
    offsets = (np.arange(case.chunks) % each * case.size).astype(np.uint64)
    lengths = np.full(case.chunks, case.size, np.uint64)
    store.set_virtual_refs_arr("x", (case.chunks,), locations, offsets, lengths)


def with_icechunk(root: Path) -> Any:
    """Open the repository with the official client."""
    access = {f"file://{root / 'archive'}/": icechunk.credentials.LocalFileSystemAccess}
    storage = icechunk.local_filesystem_storage(str(root / "repo"))
    repo = icechunk.Repository.open(storage, None, access)
    return repo.readonly_session("main").store


def with_icevirt(root: Path) -> Any:
    """Open the repository with icevirt."""
    granted = [f"file://{root / 'archive'}/"]
    repo = icevirt.Repository.open(root / "repo", authorize_virtual_chunk_access=granted)
    return repo.readonly_session("main").store


def with_zarr(root: Path) -> Any:
    """Open the same chunks as plain files."""
    return zarr.storage.LocalStore(root / "zarr", read_only=True)


# -- how it is read --------------------------------------------------------------------------


def whole(store: Any, _case: Case) -> None:
    """Read the array."""
    zarr.open_array(store, path="x", mode="r")[:]


def singles(store: Any, case: Case) -> None:
    """Read 100 chunks one after the other through zarr."""
    array = zarr.open_array(store, path="x", mode="r")
    for chunk in _some(case):
        array[chunk * case.size : (chunk + 1) * case.size]


def gets(store: Any, case: Case) -> None:
    """Read 100 chunks one after the other from the store."""

    async def read() -> None:
        for chunk in _some(case):
            await store.get(f"x/c/{chunk}", PROTOTYPE)

    asyncio.run(read())


def gathered(store: Any, case: Case) -> None:
    """Ask the store for every chunk at once."""

    async def read() -> None:
        await asyncio.gather(*(store.get(f"x/c/{n}", PROTOTYPE) for n in range(case.chunks)))

    asyncio.run(read())


WAYS = {"whole array": whole, "100 single": singles, "100 store.get": gets, "all at once": gathered}


def _some(case: Case) -> list[int]:
    return np.random.default_rng(3).integers(0, case.chunks, 100).tolist()


# -- figures ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Took:
    """Medians, in seconds."""

    wall: float
    cpu: float


def rows(cases: list[Case], rounds: int) -> Iterator[tuple[str, str, Took, Took, Took]]:
    """Yield case, way, and what icechunk, icevirt and zarr's LocalStore took."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            write(root, case)
            stores = with_icechunk(root), with_icevirt(root), with_zarr(root)
            _check(stores, case)
            for name, way in WAYS.items():
                yield str(case), name, *_medians(way, stores, case, rounds)


def _check(stores: tuple[Any, ...], case: Case) -> None:
    first, *others = (zarr.open_array(store, path="x", mode="r")[:] for store in stores)
    if not all(np.array_equal(first, other) for other in others):
        raise SystemExit(f"{case}: they do not read the same")


def _medians(
    way: Callable[[Any, Case], None], stores: tuple[Any, ...], case: Case, rounds: int
) -> list[Took]:
    taken: list[list[tuple[float, float]]] = [[] for _ in stores]
    for _ in range(rounds):
        for store, times in zip(stores, taken, strict=True):
            wall, cpu = time.perf_counter(), time.process_time()
            way(store, case)
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
    return [Took(*map(statistics.median, zip(*times, strict=True))) for times in taken]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="a part of the name of the cases wanted")
    given = parser.parse_args()
    icechunk.set_logs_filter("error")
    print(ROW.format(*HEAD))
    cases = [case for case in CASES if given.only in str(case)]
    for case, way, theirs, ours, plain in rows(cases, given.rounds):
        took = [f"{1000 * who.wall:.1f}" for who in (theirs, ours, plain)]
        print(
            ROW.format(
                case, way, *took[:2], *_ratios(ours, theirs), took[2], *_ratios(ours, plain)
            ),
            flush=True,
        )


def _ratios(one: Took, other: Took) -> tuple[str, str]:
    return f"{one.wall / other.wall:.2f}", f"{one.cpu / other.cpu:.2f}"


if __name__ == "__main__":
    main()
