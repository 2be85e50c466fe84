"""Measure what an append of one file costs, for datasets of more and more files.

``python bench/append_files.py`` prints a line for each number of files: seconds in all and by
phase, and how many requests reach the repository. All runs in this process, on a local disk; a
request is a call of the storage. ``--single`` appends the files one by one before, so that the
catalog has a part for each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import icevirt
from icevirt.storage.local import LocalStorage

_COUNTED = ("get_range", "get_versioned", "put", "put_if", "list", "delete", "delete_below")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--single", action="store_true", help="append the files one by one")
    asked = parser.parse_args()
    requests = counting()
    print("files  appended  seconds  " + "list  scan  plan  write  commit  requests (by kind)")
    for files in asked.files:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            paths = archive(Path(folder) / "archive", files + 2)
            repo = Path(folder) / "repo"
            for some in [[path] for path in paths[:files]] if asked.single else [paths[:files]]:
                icevirt.append(some, repo, concat_dim="time", executor="in-process")
            for appended in ([paths[files]], paths[: files + 1], paths[: files + 2]):
                requests.clear()
                begin = time.perf_counter()
                report = icevirt.append(appended, repo, executor="in-process")
                took = time.perf_counter() - begin
                phases = ("list", "scan", "plan", "write", "commit")
                each = "  ".join(f"{report.seconds.get(name, 0):.2f}" for name in phases)
                requested = f"{sum(requests.values())} {dict(requests)}"
                named = f"{report.files_appended} of {len(appended)}"
                print(f"{files}  {named}  {took:.2f}  {each}  {requested}", flush=True)


def counting() -> Counter[str]:
    """Count the calls of the local storage."""
    found: Counter[str] = Counter()

    def counted(name: str) -> Any:
        before = getattr(LocalStorage, name)

        def call(self: LocalStorage, *args: Any, **kwargs: Any) -> Any:
            found[name] += 1
            return before(self, *args, **kwargs)

        return call

    for name in _COUNTED:
        setattr(LocalStorage, name, counted(name))
    return found


def archive(folder: Path, files: int) -> list[str]:
    """Write files of one step each: ten variables of one chunk, and their coordinates."""
    folder.mkdir(parents=True)
    paths = []
    for at in range(files):
        path = folder / f"{at:06}.nc"
        with h5py.File(path, "w", libver="latest") as file:
            time_ = file.create_dataset("time", data=np.array([at], "f8"), maxshape=(None,))
            time_.make_scale("time")
            time_.attrs["units"] = "days since 2000-01-01"
            y = file.create_dataset("y", data=np.arange(8, dtype="f4"))
            y.make_scale("y")
            for number in range(10):
                values = np.full((1, 8), at + number, "f4")
                made = file.create_dataset(
                    f"v{number}", data=values, chunks=(1, 8), maxshape=(None, 8)
                )
                made.dims[0].attach_scale(time_)
                made.dims[1].attach_scale(y)
        paths.append(str(path))
    return paths


if __name__ == "__main__":
    main()
