"""Sidecars are read in place of headers, and give what headers give; a wrong one is an error."""

from dataclasses import replace

import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import InvalidInputError, ScanError
from icevirt.objects.source import LocalSource
from icevirt.objects.source_lists.listing import list_sources
from icevirt_scanners.grib import by_sidecar
from scanners.grib.grib_files import ACCUMULATED, GRID, WRITERS, message

LEVELS = (1000, 925, 850, 700, 600, 500, 400, 300)


def fields(lead, grid=GRID):
    """Yield the messages of a lead: two parameters on levels, and windows that change."""
    for name in ("t", "u"):
        for level in LEVELS:
            yield message(
                "regular_ll_pl_grib2",
                shortName=name,
                level=level,
                dataDate=20240101,
                forecastTime=lead,
                values=np.arange(12.0) * level + lead,
                **{key: value for key, value in grid.items() if "Degrees" in key},
            )
    for begin in dict.fromkeys((0, lead - lead % 6)):
        if begin < lead:
            window = {"forecastTime": begin, "lengthOfTimeRange": lead - begin}
            yield message(**ACCUMULATED, shortName="tp", dataDate=20240101, **window)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(by_sidecar, "_known", type(by_sidecar._known)())


@pytest.fixture
def reads(monkeypatch):
    """The ranges that are read of files."""
    found, real = [], LocalSource.read

    def read(source, offset, length):
        body = real(source, offset, length)
        found.append((source.file.url.rpartition("/")[2], len(body)))
        return body

    monkeypatch.setattr(LocalSource, "read", read)
    return found


def put(folder, name, bodies, writer="wgrib2"):
    write, pattern = WRITERS[writer]
    (folder / f"{name}.grib2").write_bytes(b"".join(bodies))
    (folder / pattern.format(name)).write_text("\n".join(write(bodies)) + "\n")
    return folder / f"{name}.grib2"


def described(path, use="auto"):
    scanned = scan_file(path, scan_options={"sidecar": use})
    return replace(scanned, findings=())


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_a_forecast_are_described_as_by_their_headers(writer, tmp_path, reads):
    for lead in (6, 12, 9, 15, 12):
        path = put(tmp_path, f"f{lead}", [*fields(lead)], writer)
        reads.clear()
        found = described(path)
        of_file = [length for name, length in reads if name == path.name]
        assert found == described(path, "ignore"), lead
        if lead == 15:  # a kind that is known: the file's begin, and some messages
            assert len(of_file) <= 10


def test_a_lead_with_other_fields_is_a_kind_of_its_own(tmp_path):
    put(tmp_path, "a", [*fields(6)])
    for lead in (6, 9):
        path = put(tmp_path, f"f{lead}", [*fields(lead)])
        assert described(path) == described(path, "ignore")


def test_another_grid_under_the_same_words_is_noticed(tmp_path):
    described(put(tmp_path, "a", [*fields(6)]))
    other = GRID | {
        "longitudeOfFirstGridPointInDegrees": 10,
        "longitudeOfLastGridPointInDegrees": 40,
    }
    bodies = [*fields(6, other)][: 2 * len(LEVELS)]
    first = [*fields(6)][: 2 * len(LEVELS)]
    described(put(tmp_path, "b", first))
    path = put(tmp_path, "c", bodies)
    assert described(path) == described(path, "ignore")


def shift(lines):
    return [line.replace(":0:", ":4:", 1) for line in lines]


WRONG = {
    "of a shorter file": (lambda lines: lines[:-1], "another length"),
    "of a longer file": (
        lambda lines: [*lines, "99:99999999:d=2024010112:t:1 mb:6 hour fcst:"],
        "do not lie in a file",
    ),
    "of another run": (
        lambda lines: [line.replace("d=20240101", "d=20240102") for line in lines],
        "another reference time",
    ),
    "of another lead": (
        lambda lines: [line.replace("6 hour fcst", "9 hour fcst") for line in lines],
        "another end",
    ),
    "with other offsets": (shift, "do not make up a file"),
    "of more bytes than any": (
        lambda lines: [*lines[:-1], lines[-1].replace(":", f":{10**20}:", 1)],
        "larger than any file|a line that wgrib2 does not write",
    ),
    "an HTML page": (lambda _: ["<html>"], "a line that wgrib2 does not write"),
    "empty": (lambda _: [], "it lists no messages"),
}


@pytest.mark.parametrize(
    "is_known", [False, True], ids=["first of its kind", "a kind that is known"]
)
@pytest.mark.parametrize(("change", "cause"), WRONG.values(), ids=WRONG)
def test_a_sidecar_that_contradicts_its_file_is_an_error(change, cause, is_known, tmp_path):
    path = put(tmp_path, "a", [*fields(6)])
    if is_known:
        described(path)
    lines = (tmp_path / "a.grib2.idx").read_text().splitlines()
    (tmp_path / "a.grib2.idx").write_text("\n".join(change(lines)))
    with pytest.raises(ScanError, match=f"the sidecar contradicts its file: .*{cause}") as caught:
        described(path)
    assert "sidecar" in str(caught.value.do)
    assert described(path, "ignore").arrays


def test_a_file_that_is_cut_short_is_an_error_with_its_sidecar_too(tmp_path):
    path = put(tmp_path, "a", [*fields(6)])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ScanError, match=r"the file ends inside|do not lie in a file"):
        described(path)


def test_a_sidecar_can_be_required(tmp_path):
    (tmp_path / "a.grib2").write_bytes(message())
    with pytest.raises(ScanError, match="no sidecar") as caught:
        described(tmp_path / "a.grib2", "require")
    assert caught.value.facts["looked_for"] == ["a.grib2.idx", "a.index", "a.grib2.index"]
    with pytest.raises(InvalidInputError, match="no way to use sidecars"):
        described(tmp_path / "a.grib2", "maybe")


def test_a_directory_is_searched_for_messages_and_not_for_sidecars(tmp_path):
    path = put(tmp_path, "a", [*fields(6)])
    assert [file.url for file in list_sources([str(tmp_path)])] == [path.as_uri()]
