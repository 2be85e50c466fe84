"""Which files libhdf5 is asked for."""

import pytest

from icevirt_scanners.hdf5 import files


@pytest.fixture
def opened(monkeypatch):
    """The files that libhdf5 opened."""
    found = []
    real = files.HeldFile.fid.fget

    def fid(held):
        found.append(held)
        return real(held)

    monkeypatch.setattr(files.HeldFile, "fid", property(fid))
    return found
