"""An archive of two days, and the repository that an append makes of it."""

import pytest

import icevirt
from builds.support import write_days


@pytest.fixture
def archive(tmp_path):
    write_days(tmp_path / "archive", 2)
    return tmp_path / "archive"


@pytest.fixture
def repo(archive, tmp_path):
    made = str(tmp_path / "repo")
    icevirt.append(str(archive), made, concat_dim="time")
    return made
