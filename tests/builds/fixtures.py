"""An archive of a few days that is scanned in this process, and a place for its catalog."""

from collections.abc import Iterator

import pytest

from builds.support import write_days
from icevirt.archive import catalog as schema


@pytest.fixture
def days(tmp_path, in_process):
    return write_days(tmp_path / "archive")


@pytest.fixture
def catalog(tmp_path):
    return str(tmp_path / "catalog")


@pytest.fixture(scope="module")
def part_of_each_file() -> Iterator[None]:
    """Let small files be a part of a catalog each, as large ones are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(schema, "_FEW", 1)
        yield
