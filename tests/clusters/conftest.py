"""A cluster for all tests of this folder, which takes a minute to start."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from builds.support import write_days
from clusters.hosts import lacking
from clusters.standalone import MANY, MORE, Cluster, cluster

ASKED = "ICEVIRT_CLUSTERS"
DAYS = 8


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all in one process, and only where they were asked for: they take minutes."""
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):  # `parents` took a second for 17,000 tests
            item.add_marker("ci")
            item.add_marker(pytest.mark.timeout(1800))
            item.add_marker(pytest.mark.xdist_group("clusters"))
            if not os.environ.get(ASKED):
                item.add_marker(pytest.mark.skip(reason="takes minutes: just clusters"))


@pytest.fixture(scope="session")
def standalone() -> Iterator[Cluster]:
    """A cluster of two workers, ``worker-a`` and ``worker-b``, with files in ``s3://icevirt/data/``."""
    if why := lacking():
        pytest.skip(why)
    with cluster() as made:
        for name in ("worker-a", "worker-b"):
            made.worker(name, disk="3g")
        archive = made.network.folder / "archive"
        write_days(archive, DAYS)
        made.upload(archive, "data")
        yield made.ready()


@pytest.fixture(scope="session")
def many(standalone: Cluster) -> str:
    """The place of many files; a few that follow them are at `more`."""
    archive = standalone.network.folder / "many"
    files = write_days(archive, MANY + MORE)
    later = standalone.network.folder / "more"
    later.mkdir()
    for file in files[MANY:]:
        shutil.move(file, later)
    standalone.upload(archive, "many")
    standalone.upload(later, "more")
    return "s3://icevirt/many/"


@pytest.fixture(scope="session")
def more(many: str) -> str:
    """The place of the files that follow `many`."""
    return many.replace("many", "more")


@pytest.fixture(scope="session")
def uv() -> str:
    """The command that makes environments."""
    if (found := shutil.which("uv")) is None:
        pytest.skip("a packed environment is made by uv, which is not installed")
    return found
