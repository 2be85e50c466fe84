"""A scan may be killed at any moment: the finished catalog is that of an undisturbed one."""

from pathlib import Path

import pytest

import icevirt
from builds.support import output, write_day
from icevirt.tasks import scan as scanning
from tasks.test_kills import KILLED, Mortal, in_child

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("part_of_each_file")]

FILES = 2


@pytest.fixture
def days(tmp_path, monkeypatch, in_process):
    """Two days; each scan of a file is noted, also by processes that die."""
    files = [str(tmp_path / f"day{day}.nc") for day in range(FILES)]
    for day, path in enumerate(files):
        write_day(path, day)
    noted, attempt = tmp_path / "noted", scanning.attempt

    def note(file, *how):
        with noted.open("a") as log:
            log.write(Path(file.url).name + "\n")
        return attempt(file, *how)

    monkeypatch.setattr(scanning, "attempt", note)
    return files, noted


def _nobody(*_, **__):
    import contextlib

    return contextlib.nullcontext()


def scan(days, catalog):
    return icevirt.scan_files(days, catalog, concat_dim="time")


def test_a_scan_killed_at_any_call_is_finished_by_the_next(days, tmp_path):
    files, noted = days
    Mortal.calls, Mortal.limit = 0, 10**9
    report = scan(files, Mortal(tmp_path / "whole"))
    calls, expected = Mortal.calls, output(tmp_path / "whole")
    assert report.files_scanned == FILES
    assert calls > 4 * FILES
    for number in range(calls):
        noted.unlink(missing_ok=True)
        catalog = tmp_path / str(number)
        assert in_child(lambda: scan(files, Mortal(catalog)), number) == KILLED  # noqa: B023
        scan(files, catalog)
        assert output(catalog) == expected, number
        twice = [name for name in set(_lines(noted)) if _lines(noted).count(name) > 1]
        assert len(twice) <= 1, number  # what was being scanned then
        assert scan(files, catalog).files_scanned == 0


def _lines(path):
    return path.read_text().split()
