"""A build of any kind of source may be killed: the same call again completes it, and equals."""

import os
import signal

import netCDF4
import numpy as np
import pytest

import icevirt
from icevirt.storage.local import LocalStorage
from scanners.dmrpp.document_of import write_document
from scanners.tiff.tiff_files import by_gdal
from scanners.zarr.zarr_stores import write_month

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

HERE = {"executor": "in-process"}
SMALL = {"TILED": "YES", "BLOCKXSIZE": 16, "BLOCKYSIZE": 16, "compress": "deflate"}


def images(folder):
    for day in (1, 2):
        by_gdal(folder / f"s_2024010{day}.tif", np.full((1, 32, 32), day, "uint8"), **SMALL)
    labels = {"labels": "s_{time:%Y%m%d}.tif"}
    return [str(folder / "*.tif")], {"combine_options": labels}


def granules(folder):
    for day in (1, 2):
        with netCDF4.Dataset(folder / f"g{day}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createDimension("x", 4)
            time = file.createVariable("time", "i4", ("time",))
            time.units = "days since 2020-01-01"
            time[:] = [day]
            file.createVariable("field", "f4", ("time", "x"), zlib=True)[:] = day
        write_document(folder / f"g{day}.nc")
    return [str(folder / "*.nc")], {"scan_options": {"sidecar": "require"}}


def repositories(folder):
    for number in (1, 2):
        write_month(folder / f"m{number}.zarr", number)
        icevirt.build(folder / f"m{number}.zarr", folder / f"r{number}", **HERE)
    files = [str(folder / f"r{number}") for number in (1, 2)]
    return files, {"scan_options": {"allow_references_to": [str(folder)]}}


# a way of writing sources; returns what is built, and with which arguments
SOURCES = {"TIFF": images, "DMR++": granules, "Icechunk": repositories}
STAGES = {"scan": "icevirt/builds", "write": "manifests/", "commit": "repo"}


class KilledAt(LocalStorage):
    """A storage whose process is killed where an object of a stage is written the second time."""

    stage = ""
    left = 0

    def put(self, path, body):
        self._note(path)
        return super().put(path, body)

    def put_if(self, path, body, *, was, **more):
        self._note(path)
        return super().put_if(path, body, was=was, **more)

    def _note(self, path):
        cls = type(self)
        if cls.stage and path.startswith(cls.stage):
            cls.left -= 1
            if cls.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


def build_killed(stage, do):
    """Run a build in a forked child that is killed; return the signal."""
    pid = os.fork()
    if pid == 0:
        KilledAt.stage, KilledAt.left = STAGES[stage], stage == "scan"
        try:
            do()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture(scope="module", params=SOURCES)
def archive(request, tmp_path_factory):
    """Sources of a kind, how they are built, and the report of a build that was not killed."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "in").mkdir()
    files, how = SOURCES[request.param](folder / "in")
    return files, how, icevirt.build(files, folder / "whole", **how, **HERE)


@pytest.mark.parametrize("stage", STAGES)
def test_the_same_build_again_completes_what_was_killed(tmp_path, archive, stage):
    files, how, whole = archive
    repo = str(tmp_path / "repo")
    icevirt.Repository.create(repo)
    before = icevirt.Repository.open(repo).lookup_branch("main")
    code = build_killed(stage, lambda: icevirt.build(files, KilledAt(repo), mode="w", **how))
    assert code == -signal.SIGKILL
    assert icevirt.check(repo).problems == ()
    assert icevirt.Repository.open(repo).lookup_branch("main") == before
    again = icevirt.build(files, repo, mode="w", **how)
    assert again.open().load().identical(whole.open().load())
    assert icevirt.verify(repo, authorize_virtual_chunk_access=again.containers).ok
    assert [each.references for each in again.arrays] == [each.references for each in whole.arrays]
