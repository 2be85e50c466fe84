"""What a file may take is said by whoever asks; what ended for want of it is tried again with more."""

import os
from pathlib import Path

import pytest

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    opened,
    write_days,
)
from grouping import grouped
from icevirt.catalog.parts import ScanNotes
from icevirt.errors import InvalidInputError
from icevirt.scan import registry
from icevirt.scan.options import ScanOptions
from icevirt.tasks.forkserver import limit_memory


@pytest.fixture(autouse=True)
def stub(stub_site, monkeypatch, in_process):
    """Install the stub scanner, and scan all files in children."""
    monkeypatch.syspath_prepend(stub_site)
    registry.scanners.cache_clear()
    monkeypatch.setattr(ScanNotes, "has_died_in", lambda self, parts: True)
    yield
    registry.scanners.cache_clear()


@pytest.fixture
def files(tmp_path):
    """A file that takes three seconds, one that takes 600 MiB, and two that take nothing."""
    deeds = {"slow": "take 3 s", "large": "want 600 MiB", "good": "nothing", "broken": "crash"}
    for name, deed in deeds.items():
        (tmp_path / f"{name}.stub").write_text(f"STUB {deed}")
    return [str(tmp_path / f"{name}.stub") for name in deeds]


def statuses(catalog):
    rows = icevirt.catalog_view(catalog).files().read_all().to_pylist()
    return {Path(row["url"]).stem: row["status"] for row in rows}


LITTLE = {"file_timeout": 1.5, "file_memory": "300MiB"}


@pytest.mark.ci
def test_a_file_that_limits_stopped_is_scanned_again_under_higher_ones_alone(files, tmp_path):
    catalog = str(tmp_path / "catalog")

    def scan(**limits):
        return icevirt.scan_files(files, catalog, **grouped(limits, max_bad_files=3))

    assert scan(**LITTLE).files_scanned == 4
    found = {"slow": "timeout", "large": "oom", "good": "ok", "broken": "crashed"}
    assert statuses(catalog) == found
    assert scan(**LITTLE).files_scanned == 0
    assert scan(file_timeout=1.0, file_memory=1 << 20).files_scanned == 0  # less is nothing new
    assert scan(file_timeout=60, file_memory="300MiB").files_scanned == 1
    assert statuses(catalog) == found | {"slow": "ok"}
    assert scan().files_scanned == 1
    assert statuses(catalog) == found | {"slow": "ok", "large": "ok"}
    assert scan(**LITTLE).files_scanned == 0  # what is known stays known
    assert scan().files_scanned == 0
    assert statuses(catalog) == found | {"slow": "ok", "large": "ok"}
    limits = {
        Path(row["url"]).stem: (row["time_limit"], row["memory_limit"])
        for row in icevirt.catalog_view(catalog).files().read_all().to_pylist()
    }
    assert limits == {
        "slow": (60.0, 300 << 20),
        "large": (600.0, 4 << 30),
        "good": (1.5, 300 << 20),
        "broken": (1.5, 300 << 20),
    }


@pytest.mark.ci
def test_a_build_that_left_files_out_is_no_longer_the_same_with_more_time(tmp_path):
    days = write_days(tmp_path / "archive", 2)
    slow = tmp_path / "archive" / "day3.nc"
    slow.write_text("STUB take 3 s")
    repo = str(tmp_path / "repo")

    def build(**how):
        return icevirt.build(
            [*days, slow], repo, concat_dim="time", mode="w", **grouped(how, max_bad_files=1)
        )

    first = build(file_timeout=1)
    assert [bad.code for bad in first.bad_files] == ["timeout"]
    assert build(file_timeout=1).already_built
    assert build(file_timeout=0.5).already_built
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    second = build(file_timeout=60)
    assert not second.already_built
    assert (second.files_scanned, second.bad_files) == (3, ())
    assert build(file_timeout=1).already_built


@pytest.mark.ci
def test_memory_is_limited_in_the_block_alone():
    before = bytearray(1 << 20)
    with limit_memory(200 << 20):
        assert len(bytearray(100 << 20)) == 100 << 20
        with pytest.raises(MemoryError):
            bytearray(300 << 20)
        with limit_memory(8 << 30), pytest.raises(MemoryError):
            bytearray(300 << 20)  # the outer limit holds
    assert len(before + bytearray(300 << 20)) == 301 << 20


SIZES = {
    "1": 1,
    "1024 b": 1024,
    "1.5KiB": 1536,
    "2 MB": 2_000_000,
    "4GiB": 4 << 30,
    "1tib": 1 << 40,
    7: 7,
}


@pytest.mark.parametrize(("given", "size"), SIZES.items())
def test_memory_is_a_number_or_has_a_unit(given, size):
    assert ScanOptions(file_timeout=1, file_memory=given).limits.memory == size


BAD = {
    "no time": {"file_timeout": 0},
    "less than none": {"file_timeout": -1},
    "for ever": {"file_timeout": float("inf")},
    "time that is text": {"file_timeout": "60"},
    "time that is no number": {"file_timeout": float("nan")},
    "no memory": {"file_memory": 0},
    "memory of no unit": {"file_memory": "4 elephants"},
    "negative memory": {"file_memory": "-4GiB"},
    "memory that is empty": {"file_memory": ""},
}


@pytest.mark.parametrize("how", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("call", ["scan_files", "build", "plan"])
def test_limits_that_are_none_are_refused_before_anything_is_done(call, how, files, tmp_path):
    before = sorted(os.listdir(tmp_path))
    where = {"scan_files": ["catalog"], "build": ["repo"], "plan": []}[call]
    with pytest.raises(InvalidInputError, match="file_"):
        getattr(icevirt, call)(files, *(str(tmp_path / name) for name in where), scan_options=how)
    assert sorted(os.listdir(tmp_path)) == before
