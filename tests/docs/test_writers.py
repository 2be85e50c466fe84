"""The page on what programs write has a row for each program, from a run of pinned versions.

Outputs of those that do something odd are in fixtures/writers.zip: the row is true of them today, too.
"""

import re
import tomllib
import zipfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from long_forms import cases

DOCS = Path(__file__).parents[2] / "docs"
WRITERS = tomllib.loads((DOCS / "writers.toml").read_text())
ROWS = [line for line in (DOCS / "writers.md").read_text().splitlines() if "<br>" in line]


def test_each_writer_has_a_row_and_each_row_a_writer():
    assert len(WRITERS) >= 40
    assert [row.removeprefix("| ").partition("<br>")[0] for row in ROWS] == list(WRITERS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:].partition("<br>")[0])
def test_no_value_of_any_writer_reads_differently(row):
    one, three, advice = row.rstrip(" |").split(" | ")[-3:]
    for verdict in (one, three):
        assert re.match(r"equal|refused: |-$", verdict)
    name = row[2:].partition("<br>")[0]
    if instead := WRITERS[name].get("instead"):
        assert advice.startswith(instead)
    else:
        assert ("`--" in one + three) == advice.startswith(
            "add what the error prints: `icevirt build"
        )
    assert advice.endswith(WRITERS[name].get("note", ""))


@pytest.mark.parametrize("entry", WRITERS.values(), ids=WRITERS)
def test_packages_are_pinned_or_of_a_release_of_debian(entry):
    source, _, packages = entry["from"].partition(": ")
    pin = {"PyPI": "==", "npm": "@", "Debian": ""}[source]
    assert all(pin in each for each in packages.split())
    assert "icevirt" not in entry.get("program", "")


ODD = (
    *("PyTables", "hdf5storage, MATLAB 7.3", "R, hdf5r", "R, RNetCDF", "NCO, packed"),
    *("CDO, times as numbers of days", "GMT, a large grid, packed", "Octave, save -hdf5"),
)
KEPT = [name for name, entry in WRITERS.items() if entry.get("keep")]


@pytest.mark.ci
@pytest.mark.parametrize("name", cases(KEPT, *ODD))
def test_kept_outputs_are_built_as_the_page_says(name, tmp_path, run, in_process, monkeypatch):
    del in_process
    monkeypatch.syspath_prepend(DOCS)
    monkeypatch.chdir(tmp_path)
    import make_writers as page

    def command(words, folder):
        status, out, error = run(*words)
        return CompletedProcess(words, int(status or 0), out, error)

    monkeypatch.setattr(page, "_icevirt", command)
    with zipfile.ZipFile(page.KEPT) as kept:
        names = [each for each in kept.namelist() if each.startswith(f"{name}/")]
        files = [Path(kept.extract(each, tmp_path)) for each in names]
    one, more = page.build(files[:1], tmp_path), page.build(files, tmp_path)
    row = next(row for row in ROWS if row.startswith(f"| {name}<br>"))
    said = [cell.partition("; xarray")[0] for cell in row.rstrip(" |").split(" | ")[-3:-1]]
    assert [one, more][: len(files)] == said[: len(files)]
