"""Which files libhdf5 is asked for."""

from itertools import count

import pytest

from icevirt_scanners.hdf5 import files, other_readers


@pytest.fixture(autouse=True)
def _no_other_readers(monkeypatch):
    """Ask no other library about damage, which starts processes; tests of that ask."""
    monkeypatch.setattr(other_readers, "_asked", count(other_readers._MOST))


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
