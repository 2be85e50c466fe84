"""Scans leave nothing open, whatever becomes of them."""

import os

import h5py
import numpy as np
import pytest
from h5py import h5f

from icevirt.api.scan import scan_file
from icevirt.errors import ScanError
from long_forms import IS_LONG
from open_files import open_below

pytestmark = pytest.mark.ci

FILES = 5000 if IS_LONG else 1000


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files")
def test_a_thousand_scans_leave_as_many_files_open_as_before(tmp_path):
    """Some are read from their bytes, some by libhdf5, some are cut short."""
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["d"] = np.arange(3)
    with h5py.File(tmp_path / "linked.h5", "w") as file:
        file.create_dataset("d", data=["a", "b"])
        file["soft"] = h5py.SoftLink("/d")
    body = (tmp_path / "plain.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(body[:-1])
    counts = []
    for number in range(FILES):
        if number % 100 == 99:
            with pytest.raises(ScanError, match="truncated"):
                scan_file(tmp_path / "cut.h5")
        else:
            name = "linked" if number % 10 == 9 else "plain"
            assert scan_file(tmp_path / f"{name}.h5").array("d").shape == ((2,), (3,))[name > "m"]
        if number in (100, FILES - 1):
            # the first look collects the garbage of other tests, too
            counts.append((open_below(tmp_path), h5f.get_obj_count()))
    assert counts[0] == counts[1]
    assert counts[0][0] == []
