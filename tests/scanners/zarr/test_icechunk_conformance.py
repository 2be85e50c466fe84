"""The scanner of Icechunk's repositories passes the suite that other people's are given."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.objects.opening import open_source
from icevirt.testing.samples import Expected, Sample, WatchedSource
from icevirt.testing.scanners import ScannerConformance
from icevirt_scanners.icechunk.scanner import IcechunkScanner


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySample(Sample):
    """The object ``repo`` of a repository; another in its place lies in a copy of its folder."""

    def scan(self, scanner, path=None, **changes):
        if path is None or path == self.path:
            return super(RepositorySample, self).scan(scanner, **changes)
        folder = self.path.parent.with_name(f"copy-{os.getpid()}")
        shutil.rmtree(folder, ignore_errors=True)  # the last one, whose objects were looked at
        shutil.copytree(self.path.parent, folder, ignore=lambda *_: [path.name])
        shutil.copyfile(path, folder / "repo")
        return super(RepositorySample, self).scan(scanner, folder / "repo", **changes)


def write(folder: Path, inline: int) -> None:
    """Let the official client write groups, a coordinate, missing chunks and a scalar."""
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=inline)
    storage = icechunk.local_filesystem_storage(str(folder))
    session = icechunk.Repository.create(storage, config).writable_session("main")
    root = zarr.open_group(session.store, mode="a", attributes={"title": "made for tests"})
    how = {"dimension_names": ("time", "y"), "attributes": {"units": "K"}, "fill_value": -9}
    held = root.create_array("t", shape=(6, 4), chunks=(2, 4), dtype="i2", **how)
    held[:4] = np.arange(16).reshape(4, 4)
    root.create_array("time", data=np.arange(6) / 4, dimension_names=("time",))
    root.create_array("in/deep/v", data=np.arange(4, dtype="u4"), dimension_names=("y",))
    root.create_array("scalar", data=np.array(2.5))
    session.commit("made for tests")


def by_icechunk(folder: Path) -> dict[str, Expected]:
    storage = icechunk.local_filesystem_storage(str(folder))
    root = zarr.open_group(
        icechunk.Repository.open(storage).readonly_session("main").store, mode="r"
    )
    return {
        f"/{path}": Expected(
            values=np.asarray(root[path][...]),
            attributes=dict(root[path].attrs),
            dimensions=root[path].metadata.dimension_names or (),
        )
        for path in ("t", "time", "in/deep/v", "scalar")
    }


class TestIcechunk(ScannerConformance):
    """Chunks in objects of their own, and in manifests."""

    damaged_copies = 4

    @pytest.fixture
    def scanner(self):
        return IcechunkScanner()

    @pytest.fixture(params=[0, 512])
    def sample(self, request, tmp_path):
        folder = tmp_path / "r"
        write(folder, request.param)
        return RepositorySample(path=folder / "repo", expected=lambda: by_icechunk(folder))

    def test_reads_stay_inside_the_file(self, scanner, sample, scanned):
        """Its other objects are opened beside it, on the disk where its URL says that it is."""
        with open_source(sample.path) as inner:
            source = WatchedSource(inner)
            source.local_path = inner.local_path
            found = scanner.scan(source, sample.options)
            assert {array.path for array in found.arrays} == {a.path for a in scanned.arrays}
            ends = [offset + length for offset, length in source.reads]
            assert max(ends, default=0) <= source.file.size
