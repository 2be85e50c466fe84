"""What `perf.py` measures: a function for each side of a row, which gets the folder of inputs."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_inputs import (
    LOOKED_UP,
    READS,
    SPLIT,
    VARIABLES,
    archive,
    created,
    opened,
    staged,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Clock:
    """Measures a part of a process."""

    took: tuple[float, float] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure what happens inside, by the clock and by processor time."""
        begin, spent = time.perf_counter(), _spent()
        yield
        self.took = time.perf_counter() - begin, _spent() - spent


CLOCK = Clock()


def _spent() -> float:
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(each.ru_utime + each.ru_stime for each in map(resource.getrusage, kinds))


def nothing(folder: Path) -> None:
    """Do nothing: the start of Python."""


def first_value(client: str) -> Callable[[Path], None]:
    """Import, open, read one value that is stored in the repository."""

    def work(folder: Path) -> None:
        import zarr

        repo = opened(client, folder / "small")
        array = zarr.open_array(repo.readonly_session("main").store, path="native", mode="r")
        assert array[0] == 7

    return work


def zarr_alone(folder: Path) -> None:
    """Import zarr and read the same value from a directory."""
    import zarr

    assert zarr.open_array(folder / "plain", path="native", mode="r")[0] == 7


def helped(*words: str) -> Callable[[Path], None]:
    """Run the command in this process."""

    def work(folder: Path) -> None:
        from icevirt.cli.main import run

        sys.argv = ["icevirt", *(each.format(folder) for each in words)]
        out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status: object = None
        try:
            run()
        except SystemExit as stop:
            status = stop.code
        finally:
            sys.stdout.flush()
            os.dup2(out, 1)
        assert not status

    return work


def references(client: str, count: int, per_file: int) -> Callable[[Path], None]:
    """Set references of an array from a list of strings, and commit them."""

    def work(folder: Path) -> None:
        import numpy as np
        import zarr

        repo = created(client, folder)
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name="v", shape=(count,), chunks=(1,), dtype="i8", compressors=None
        )
        number = np.arange(count)
        prefix = (folder / "data").as_uri()
        locations = [f"{prefix}/granule_{each:08d}.nc" for each in (number // per_file).tolist()]
        offsets = (number % per_file * 8).astype(np.uint64)
        lengths = np.full(count, 8, np.uint64)
        with CLOCK.running():
            session.store.set_virtual_refs_arr(
                "/v",
                chunk_grid_shape=[count],
                locations=locations,
                offsets=offsets,
                lengths=lengths,
                validate_containers=True,
            )
            session.commit("references")

    return work


def small_commits(client: str) -> Callable[[Path], None]:
    """Commit one chunk, ten times, in a repository with a history."""

    def work(folder: Path) -> None:
        import shutil

        import zarr

        with tempfile.TemporaryDirectory(dir=folder) as own:
            shutil.copytree(folder / "history", Path(own) / "repo")
            repo = opened(client, Path(own) / "repo")
            with CLOCK.running():
                for number in range(10):
                    session = repo.writable_session("main")
                    zarr.open_array(session.store, path="v", mode="r+")[0] = number
                    session.commit(f"commit {number}")

    return work


def plain_files(folder: Path) -> None:
    """Write files as many and as large as those of ten commits, each of them durably."""
    repo = (folder / "history" / "repo").read_bytes()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        folders = [Path(own) / name for name in ("manifests", "transactions", "snapshots")]
        backups = Path(own) / "overwritten"
        for each in (*folders, backups):
            each.mkdir()
        with CLOCK.running():
            for number in range(10):
                for each in folders:
                    _replace(each / str(number), bytes(600))
                _replace(backups / str(number), repo)
                _replace(Path(own) / "repo", repo)


def _replace(path: Path, body: bytes) -> None:
    """Write a file beside, and put it in its place."""
    staged = f"{path}#0"
    _synced(staged, os.O_WRONLY | os.O_CREAT, body)
    os.rename(staged, path)
    _synced(str(path.parent), os.O_RDONLY)


def _synced(path: str, flags: int, body: bytes = b"") -> None:
    fd = os.open(path, flags)
    if body:
        os.write(fd, body)
    os.fsync(fd)
    os.close(fd)


def one_of_many(client: str) -> Callable[[Path], None]:
    """Open a repository and read one chunk of an array of millions."""

    def work(folder: Path) -> None:
        import zarr

        prefix = folder.as_uri() + "/"
        with CLOCK.running():
            repo = opened(client, folder / "many", authorized=prefix)
            array = zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")
            assert array[LOOKED_UP // 3] == LOOKED_UP // 3 % 1000

    return work


def some(client: str, name: str, choose: Callable[[], NDArray[np.int64]]) -> Callable[[Path], None]:
    """Read the chosen chunks of an array, through zarr; ``engine`` is icevirt's of xarray."""

    def work(folder: Path) -> None:
        import xarray as xr
        import zarr

        prefix = folder.as_uri() + "/"
        at = choose()
        if client == "engine":
            allowed: Any = [prefix]
            variable = xr.open_dataset(
                folder / name, engine="icevirt", cache=False, authorize_virtual_chunk_access=allowed
            )["v"]
            with CLOCK.running():
                found = variable[at].to_numpy()
        else:
            repo = opened(client, folder / name, authorized=prefix)
            array = zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")
            with CLOCK.running():
                found = array.oindex[at]
        assert (found == at % 1000).all()

    return work


def scattered(client: str) -> Callable[[Path], None]:
    """Read chunks of an array here and there."""

    def choose() -> NDArray[np.int64]:
        import numpy as np

        return np.sort(np.random.default_rng(0).choice(LOOKED_UP, READS, replace=False))

    return some(client, "many", choose)


def one_of_each(client: str) -> Callable[[Path], None]:
    """Read a chunk of each of forty manifests."""

    def choose() -> NDArray[np.int64]:
        import numpy as np

        return np.arange(SPLIT // 2, LOOKED_UP, SPLIT)

    return some(client, "split", choose)


def over_http(client: str, latency: float = 5) -> Callable[[Path], None]:
    """Read chunks that lie apart in a file behind a web server that waits so many milliseconds."""

    def work(folder: Path) -> None:
        import read_remote

        case = read_remote.Case(READS, 4096, order="scattered")
        with tempfile.TemporaryDirectory(dir=folder) as own:
            root, files = Path(own), Path(own) / "archive"
            files.mkdir()
            with read_remote.serving(files, latency=latency) as url:
                read_remote.write(root, files, url, case)
                if client == "engine":
                    variable = read_remote.variable(root, url)
                    variable[: 20 * case.size].to_numpy()
                    with CLOCK.running():
                        variable.to_numpy()
                    return
                store = getattr(read_remote, f"with_{client}")(root, url)
                read_remote.singles(store, case)
                with CLOCK.running():
                    read_remote.whole(store, case)

    return work


def from_catalog(folder: Path) -> None:
    """Plan the files of a catalog, and write their manifests."""
    import write_stage

    files = write_stage.SourceFiles(staged(folder).sources())
    with CLOCK.running():
        plan = write_stage.planned(folder / "stage", files)
        write_stage.write(folder / "stage", plan, files)


def spark_job(tool: str) -> Callable[[Path], None]:
    """Start a session of Spark, run a job, and end the JVM."""

    def work(_: Path) -> None:
        from icevirt.execution.spark_session import forget_jvm

        if tool == "icevirt":
            from icevirt.execution.selection import executor_of

            with executor_of("spark") as executor:
                assert executor.run(str, [1, 2]) == ["1", "2"]
        else:
            from pyspark.sql import SparkSession

            spark = SparkSession.builder.master("local[2]").getOrCreate()
            assert spark.sparkContext.parallelize([1, 2], 2).map(str).collect() == ["1", "2"]
            spark.stop()
        forget_jvm()

    return work


def many_variables(client: str) -> Callable[[Path], None]:
    """Open a dataset of a thousand variables in xarray, and make its repr."""

    def work(folder: Path) -> None:
        import xarray as xr

        repo = opened(client, folder / "wide")
        store = repo.readonly_session("main").store
        xr.open_zarr(store, group="warm", consolidated=False, zarr_format=3, chunks=None)
        with CLOCK.running():
            found = xr.open_zarr(
                store, group="wide", consolidated=False, zarr_format=3, chunks=None
            )
            assert len(found.data_vars) == VARIABLES
            repr(found)

    return work


def scans(tool: str) -> Callable[[Path], None]:
    """Scan twenty files of 48 chunks, after another one."""

    def work(folder: Path) -> None:
        files = archive(folder)
        scan = SCANS[tool]()
        scan(files[-1])
        with CLOCK.running():
            for each in files[:20]:
                scan(each)

    return work


def _icevirt_scan() -> Callable[[str], object]:
    from icevirt import scan_file

    return scan_file


def _virtualizarr_scan() -> Callable[[str], object]:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    parser, registry = HDFParser(), ObjectStoreRegistry({"file://": LocalStore()})
    return lambda path: parser(url=f"file://{path}", registry=registry)


def _h5py_scan() -> Callable[[str], object]:
    import h5py

    def look(path: str) -> None:
        with h5py.File(path) as file:
            for dataset in [file[name] for name in file]:
                dict(dataset.attrs.items())
                if dataset.chunks:
                    dataset.id.chunk_iter(lambda _: None)

    return look


SCANS = {"icevirt": _icevirt_scan, "VirtualiZarr": _virtualizarr_scan, "floor": _h5py_scan}


def builds(tool: str) -> Callable[[Path], None]:
    """Build a repository over all files of the archive."""

    def work(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            if tool == "icevirt":
                import icevirt

                icevirt.build(archive(folder), f"{own}/repo", concat_dim="time")
                return
            from obspec_utils.registry import ObjectStoreRegistry
            from obstore.store import LocalStore
            from virtualizarr import open_virtual_mfdataset
            from virtualizarr.parsers import HDFParser

            found = open_virtual_mfdataset(
                archive(folder),
                parser=HDFParser(),
                registry=ObjectStoreRegistry({"file://": LocalStore()}),
                combine="by_coords",
                coords="minimal",
                data_vars="minimal",
                compat="override",
            )
            session = created("icechunk", folder).writable_session("main")
            found.vz.to_icechunk(session.store)
            session.commit("build")

    return work


WHOLE_FILES = 20  # of a layout
WHOLE_FOLDER = "whole"  # beside repositories that are called like layouts


def whole_variable(layout: str, reader: str) -> Callable[[Path], None]:
    """Read a variable of twenty files completely, after the first one."""

    def work(folder: Path) -> None:
        import read_whole

        def run(read: Callable[[], Any]) -> Any:
            with CLOCK.running():
                return read()

        read_whole.read_all(reader, read_whole.Case(folder / WHOLE_FOLDER / layout), run)

    return work


def _files_of(layout: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import read_whole

        (folder / WHOLE_FOLDER).mkdir(exist_ok=True)
        read_whole.make(folder / WHOLE_FOLDER, layout, WHOLE_FILES)

    return make


WHOLE = {layout: _files_of(layout) for layout in ("small", "plain", "large")}
