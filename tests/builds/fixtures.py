"""An archive of a few days that is scanned in this process, and a place for its catalog."""

import pytest

from builds.support import write_days


@pytest.fixture
def days(tmp_path, in_process):
    return write_days(tmp_path / "archive")


@pytest.fixture
def catalog(tmp_path):
    return str(tmp_path / "catalog")
