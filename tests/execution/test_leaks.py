"""A process that builds again and again holds no more files, threads and children than before.

``ICEVIRT_LEAK_BUILDS=1000`` is how many builds (`just leaks`).
"""

import asyncio
import contextlib
import gc
import os
import shutil
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import xarray as xr
import zarr.core.sync

import icevirt
from builds.support import write_days
from execution.processes import processes_of
from executors import StagedExecutor
from icevirt.errors import IcevirtError
from icevirt.execution.selection import default_executor
from icevirt.tasks.forkserver import Apart

pytestmark = [pytest.mark.ci, pytest.mark.slow]

BUILDS = int(os.environ.get("ICEVIRT_LEAK_BUILDS", "6"))
EACH = 3  # builds of a round
WITH_PROCESSES = max(1, BUILDS // EACH // 20)  # rounds; each build starts and ends processes
WARM = 1  # rounds that open what stays open, such as thread pools


def held():
    """Return what this process holds: files by what they are, threads by name, children."""
    gc.collect()
    files = Counter()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing itself
            files[os.readlink(f"/proc/self/fd/{each}").partition(":[")[0]] += 1
    threads = Counter(thread.name.rstrip("0123456789_-") for thread in threading.enumerate())
    children = [each for each in processes_of(os.getsid(0)) if each.parent == os.getpid()]
    return files, threads, len(children)


def rounds(count, work):
    """Do something again and again; return what is held after the first times, and at the end."""
    for number in range(WARM):
        work(number)
    zarr.core.sync.sync(all_threads())
    with Apart() as apart:  # a file that takes long is scanned in a child, whose server stays
        apart.call("", os.getpid)
    before = held()
    for number in range(WARM, WARM + count):
        work(number)
    return before, held()


async def all_threads():
    """Start every thread that the loop's pool may have: it starts one when all others are busy."""
    count = min(32, (os.process_cpu_count() or 1) + 4)
    barrier = threading.Barrier(count)
    await asyncio.gather(*(asyncio.to_thread(barrier.wait, 60) for _ in range(count)))


@pytest.fixture
def archive(tmp_path):
    days = write_days(tmp_path / "in", 3)
    (tmp_path / "in" / "bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + b"no more of it" * 9)
    return days, str(tmp_path / "in" / "bad.nc")


def work_on(archive, folder):
    days, bad = archive

    def work(number):
        repo, catalog = folder / f"repo{number}", folder / f"catalog{number}"
        icevirt.build(
            days[:2], repo, concat_dim="time", catalog=catalog, commit_options={"verify": 3}
        )
        icevirt.build(days, repo, concat_dim="time", catalog=catalog, mode="w")
        with pytest.raises(IcevirtError):  # one that fails in the middle
            icevirt.build([*days, bad], folder / "none", concat_dim="time")
        with xr.open_dataset(
            repo, engine="icevirt", authorize_virtual_chunk_access={archive_prefix(days): None}
        ) as found:
            found.load()
        for path in (repo, catalog):
            shutil.rmtree(path)

    return work


def archive_prefix(days):
    return Path(days[0]).parent.as_uri() + "/"


def held_by_builds(archive, folder):
    """Build again and again, in this process, then with others; return what is held by each way."""
    found = []
    for name, count, executor in (
        ("here", BUILDS // EACH, StagedExecutor),
        ("processes", WITH_PROCESSES, None),
    ):
        (folder / name).mkdir()
        with default_executor(executor()) if executor else contextlib.nullcontext():
            found.append((name, *rounds(count, work_on(archive, folder / name))))
    return found


@pytest.mark.timeout(0)
def test_builds_leak_nothing_in_one_process_and_with_processes_of_their_own(archive, tmp_path):
    """In a fresh process: whatever other tests left open in this one changes by itself."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(held_by_builds, archive, tmp_path).result()
    for name, before, after in found:
        assert after == before, name
