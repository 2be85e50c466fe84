"""The inputs of `perf.py`, and how its clients are opened.

Modules are imported where they are needed: the start of processes is measured, too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

FILES, CHUNKS = 100, 48  # of the archive: files, and chunks in each
HISTORY = 300  # snapshots
LOOKED_UP = 2_000_000  # references of the array in which one chunk is looked up
VARIABLES = 1_000
READS = 500
CATALOGED, CATALOG_FILES = 1_000_000, 100_000  # references, and files that hold them
SPLIT = 50_000  # references of a manifest, in the repository that has many


def module_of(name: str) -> Any:
    if name == "icechunk":
        import icechunk

        icechunk.set_logs_filter("error")
        return icechunk
    import icevirt.icechunk

    return icevirt.icechunk


def opened(client: str, path: Path, authorized: str = "") -> Any:
    module = module_of(client)
    access = module.credentials.LocalFileSystemAccess
    granted = {authorized: access} if authorized else None
    storage = module.local_filesystem_storage(str(path))
    return module.Repository.open(storage, authorize_virtual_chunk_access=granted)


def created(client: str, folder: Path, split: int = 0) -> Any:
    module = module_of(client)
    config = module.RepositoryConfig.default()
    if split:
        found = {module.ManifestSplitDimCondition.Any(): split}
        rules = {module.ManifestSplitCondition.AnyArray(): found}
        splitting = module.ManifestSplittingConfig.from_dict(rules)
        config.manifest = module.ManifestConfig(splitting=splitting)
    prefix = folder.as_uri() + "/"
    store = module.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(module.VirtualChunkContainer(prefix, store))
    place = tempfile.mkdtemp(dir=folder)
    return module.Repository.create(module.local_filesystem_storage(place), config=config)


def archive(folder: Path) -> list[str]:
    return sorted(str(each) for each in (folder / "archive").iterdir())


def make(folder: Path) -> None:
    """Write the inputs of all rows."""
    import build_references
    import icechunk
    import netCDF4
    import numpy as np
    import xarray as xr
    import zarr

    (folder / "archive").mkdir()
    (folder / "data").mkdir()
    for number in range(FILES):
        with netCDF4.Dataset(folder / "archive" / f"day{number:04}.nc", "w") as file:
            for name, length in (("time", None), ("lat", 24), ("lon", 36)):
                file.createDimension(name, length)
            times = file.createVariable("time", "f8", ("time",))
            times.units = "hours since 2000-01-01"
            times[:] = np.arange(CHUNKS // 2) + number * CHUNKS // 2
            for name, length in (("lat", 24), ("lon", 36)):
                file.createVariable(name, "f4", (name,))[:] = np.arange(length)
            for name in ("tas", "pr"):
                data = file.createVariable(
                    name, "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 24, 36)
                )
                data.units = "K"
                data[:] = np.random.default_rng(number).random((CHUNKS // 2, 24, 36))

    def repository(name: str) -> Any:
        storage = icechunk.local_filesystem_storage(str(folder / name))
        return icechunk.Repository.create(storage)

    session = repository("small").writable_session("main")
    for store in (session.store, folder / "plain"):
        zarr.create_array(store, name="native", data=np.full(10, 7), chunks=(10,))
    session.commit("small")
    repo = repository("history")
    for number in range(HISTORY):
        session = repo.writable_session("main")
        if not number:
            zarr.create_array(session.store, name="v", shape=(10,), chunks=(1,), dtype="i8")
        zarr.open_array(session.store, path="v")[1] = number
        session.commit(f"commit {number}")
    session = repository("wide").writable_session("main")
    for group, count in (("warm", 1), ("wide", VARIABLES)):
        columns = {f"v{number:04}": ("x", np.zeros(4)) for number in range(count)}
        dataset = xr.Dataset(columns, attrs={"title": group})
        dataset.to_zarr(session.store, group=group, consolidated=False, zarr_format=3)
    session.commit("wide")
    (folder / "data" / "values").write_bytes(np.arange(1000, dtype="i8").tobytes())
    _refer_to_values(created("icevirt", folder), folder, "many")
    _refer_to_values(created("icevirt", folder, split=SPLIT), folder, "split")
    build_references.make(staged(folder))


def _refer_to_values(repo: Any, folder: Path, name: str) -> None:
    """Write an array of millions of chunks, and name the folder of its repository."""
    import numpy as np
    import zarr

    session = repo.writable_session("main")
    zarr.create_array(
        session.store,
        name="v",
        shape=(LOOKED_UP,),
        chunks=(1,),
        dtype="i8",
        compressors=None,
        dimension_names=("x",),
    )
    session.store.set_virtual_refs_arr(
        "/v",
        chunk_grid_shape=[LOOKED_UP],
        locations=[(folder / "data" / "values").as_uri()] * LOOKED_UP,
        offsets=(np.arange(LOOKED_UP) % 1000 * 8).astype(np.uint64),
        lengths=np.full(LOOKED_UP, 8, np.uint64),
        validate_containers=True,
    )
    session.commit(name)
    place = next(each for each in folder.iterdir() if each.name.startswith("tmp"))
    place.rename(folder / name)


def staged(folder: Path) -> Any:
    """Return the archive of which there is a catalog, and no file."""
    import build_references

    return build_references.Archive(
        folder / "stage", CATALOGED, CATALOGED // CATALOG_FILES, mixed=False
    )
