"""Fields that differ in what no dimension holds are variables of their own, or refused."""

import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from scanners.grib.grib_files import ACCUMULATED, by_eccodes, message
from scanners.materialise import materialise


def scan(folder, *bodies, **options):
    """Return the arrays of a file of some messages, by path."""
    (folder / "a.grib2").write_bytes(b"".join(map(bytes, bodies)))
    return {
        array.path: array for array in scan_file(folder / "a.grib2", scan_options=options).arrays
    }


def variable(folder, body):
    """Return the array of a file of one message."""
    return [*scan(folder, body).values()][-1]


def over(length, increment, lead=0):
    keys = ACCUMULATED | {"typeOfStatisticalProcessing": 0, "shortName": "t"}
    when = {"lengthOfTimeRange": length, "typeOfTimeIncrement": increment, "forecastTime": lead}
    return message(**keys, **when)


WINDOWS = {
    (744, 1, 0): ("/avg_t_surface_744h_of_runs", "runs of 744h from time on, each at step"),
    (24, 1, 0): ("/avg_t_surface_24h_of_runs", "runs of 24h from time on, each at step"),
    (24, 1, 6): ("/avg_t_surface_24h_of_runs", "runs of 24h from time on, each at step"),
    (24, 2, 0): ("/avg_t_surface", "from time to valid_time"),
    (24, 2, 6): ("/avg_t_surface_24h", "24h before valid_time"),
    (24, 5, 0): ("/avg_t_surface_floating", "any part of: from time to valid_time"),
    (24, 5, 6): ("/avg_t_surface_24h_floating", "any part of: 24h before valid_time"),
}


@pytest.mark.parametrize("which", WINDOWS, ids=str)
def test_a_name_and_an_attribute_say_what_a_statistic_is_over(which, tmp_path):
    name, window = WINDOWS[which]
    found = scan(tmp_path, over(*which))
    assert [*found][-1] == name
    assert found[name].attributes.values["time_window"] == window
    theirs = by_eccodes(over(*which), "endStep").keys["endStep"]
    assert materialise(found["/step"]).tolist() == [theirs]


def test_a_mean_of_runs_is_one_along_time(tmp_path):
    methods = [
        variable(tmp_path, over(24, increment)).attributes.values["cell_methods"]
        for increment in (1, 2)
    ]
    assert methods == ["time: mean", "step: mean"]


@pytest.mark.parametrize("increment", [3, 4])
def test_statistics_of_runs_for_one_valid_time_are_refused(increment, tmp_path):
    with pytest.raises(UnsupportedError, match="several runs for one valid time"):
        scan(tmp_path, over(24, increment))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.grib2.idx", "1:0:d=2007032312:TMP:surface:0-31 day ave anl:"),
        ("a.index", '{{"_offset": 0, "_length": {n}, "date": 20070323, "time": 1200, "step": "0-744"}}'),
        ("a.index", '{{"_offset": 0, "_length": {n}, "date": 20070323, "time": 1200, "step": "0"}}'),
    ],
)  # fmt: skip
def test_a_list_may_say_when_the_last_run_of_a_statistic_begins(name, line, tmp_path):
    body = over(744, 1)
    (tmp_path / name).write_text(line.format(n=len(body)) + "\n")
    found = scan(tmp_path, body, sidecar="require")
    assert materialise(found["/step"]).tolist() == [0]


def test_leads_of_statistics_over_runs_are_read_and_not_taken_from_a_list(tmp_path):
    for lead in (0, 6):
        bodies = [over(24 + each, 1, lead) for each in range(16)]
        offsets = np.cumsum([0, *map(len, bodies)])
        line = "{}:{}:d=2007032312:TMP:surface:{}-{} hour ave fcst:\n"
        (tmp_path / "a.grib2.idx").write_text(
            "".join(line.format(n, offsets[n], lead, lead) for n in range(16))
        )
        found = scan(tmp_path, *bodies, sidecar="require")
        assert sum("of_runs" in path for path in found) == 16
