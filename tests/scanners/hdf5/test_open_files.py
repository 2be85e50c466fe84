"""Files that are open: for reading they are scanned, for writing they are named, not called damaged."""

import shutil
import subprocess
import sys
from contextlib import closing

import h5py
import netCDF4
import numpy as np
import pytest

import icevirt
from icevirt.errors import ScanError

VALUES = np.arange(100)


def write(file):
    file["x"] = VALUES[:10]
    file["text"] = np.array(["a", "b"], h5py.string_dtype())  # which libhdf5 reads
    file.create_dataset("stored", data=VALUES, compression="lzf")
    file.flush()


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        write(file)
    return tmp_path / "a.h5"


@pytest.mark.parametrize("locking", [True, False, "best-effort"])
def test_a_file_that_this_process_reads_is_scanned(path, locking):
    alone = icevirt.scan_file(path)
    with h5py.File(path, locking=locking), netCDF4.Dataset(path):
        together = icevirt.scan_file(path)
    for one, other in zip(alone.arrays, together.arrays, strict=True):
        assert one.zarr_json() == other.zarr_json()
        assert one.references.inline.tobytes() == other.references.inline.tobytes()


@pytest.mark.parametrize("kind", ["virtual", "raw"])
def test_other_files_are_not_followed_from_one_that_this_process_reads(tmp_path, kind):
    path = tmp_path / "all.h5"
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file["x"] = VALUES[:4]
    with h5py.File(path, "w") as file:
        if kind == "virtual":  # interleaved, so that its values have to be read
            layout = h5py.VirtualLayout((2,), "i8")
            layout[:] = h5py.VirtualSource("0.h5", "x", (4,))[::2]
            file.create_virtual_dataset("x", layout)
        else:
            external = [(str(tmp_path / "raw.bin"), 0, 32)]
            file.create_dataset("x", (4,), "i8", external=external)[...] = VALUES[:4]
    found = icevirt.scan_file(path).array("/x").references
    with h5py.File(path), pytest.raises(ScanError, match="Close it first"):
        icevirt.scan_file(path)
    assert len(found)


WRITERS = {
    "h5py, of this process": lambda path: h5py.File(path, "r+"),
    "h5py, newest format": lambda path: h5py.File(path.with_name("new.h5"), "w", libver="latest"),
    "netCDF4": lambda path: netCDF4.Dataset(path.with_name("new.nc"), "w"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_that_this_process_writes_is_said_to_be_so(path, writer):
    with closing(WRITERS[writer](path)) as file:
        name = file.filename if isinstance(file, h5py.File) else file.filepath()
        with pytest.raises(ScanError, match="open for writing in this process"):
            icevirt.scan_file(name)
    assert icevirt.scan_file(name)


CODE = """
import os, sys, h5py
file = h5py.File(sys.argv[1], "r+")
file.attrs["more"] = 1
file.flush()
print("open", flush=True)
sys.stdin.read()
os._exit(1)
"""


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_a_file_that_another_process_writes_or_did_not_close(tmp_path, version):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        write(file)
    command = [sys.executable, "-c", CODE, str(path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as ran:
        assert ran.stdout.readline() == "open\n"
        with pytest.raises(ScanError, match="another process of this machine") as caught:
            icevirt.scan_file(path)
        assert caught.value.facts["process"] == ran.pid
        ran.stdin.close()
    if version == "latest":
        with pytest.raises(ScanError, match="h5clear -s"):
            icevirt.scan_file(path)
    else:
        assert "not-closed" in [finding.code for finding in icevirt.scan_file(path).findings]
    if shutil.which("h5clear"):
        subprocess.run(["h5clear", "-s", path], check=True, capture_output=True)
        found = icevirt.scan_file(path)
        assert "not-closed" not in [finding.code for finding in found.findings]
        with h5py.File(path) as file:
            assert file.attrs["more"] == 1
