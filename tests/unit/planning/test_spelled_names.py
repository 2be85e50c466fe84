"""Names that files spell unlike are proposed as one, unless a file has several of them."""

import numpy as np
import pytest

from icevirt.planning.edits.spelled_names import rename_fixes
from unit.planning.scanned_facts import DAYS, File, coord, data, facts_of


def file(name, *times, variable="sst", extra=()):
    """Return a file with time axes of some names, a variable along the first, more along others."""
    held = {each: coord(each, np.arange(2.0), **DAYS) for each in times}
    held[variable] = data(times[:1], np.zeros(2))
    held |= {f"{variable}_{each}": data((each,), np.zeros(2)) for each in (*times[1:], *extra)}
    return File(name, held)


def renames(*files, along=()):
    """Return the arguments that are proposed."""
    found = rename_fixes(facts_of(*files), along)
    return [(e.arguments["concat_dim"], e.arguments["combine_options"]["rename"]) for e in found]


@pytest.mark.parametrize(
    ("names", "along", "rename"),
    [
        (("T1", "T2"), "T", {"T1": "T", "T2": "T"}),
        (("TIME1", "TIME2", "TIME3"), "TIME", dict.fromkeys(("TIME1", "TIME2", "TIME3"), "TIME")),
        (("time_1", "time_2"), "time", {"time_1": "time", "time_2": "time"}),
        (("time", "TIME", "time"), "time", {"TIME": "time"}),
        (("TIME", "TIME", "time"), "TIME", {"time": "TIME"}),
        (("Time", "time1"), "Time", None),
    ],
)
def test_one_axis_gets_one_name(names, along, rename):
    (found,) = renames(*(file(f"f{at}", name) for at, name in enumerate(names)))
    if rename is None:
        assert {*found[1]} <= {*names}
    else:
        assert found == ([along], rename)


def test_a_variable_in_upper_case_gets_one_name():
    (found,) = renames(file("a", "time"), file("b", "time", variable="SST"), along=("time",))
    assert found == (["time"], {"SST": "sst"})


def test_a_file_with_both_names_is_left_alone():
    assert renames(file("a", "T1", "T2"), file("b", "T2", "T1")) == []


def test_names_that_are_not_alike_are_left_alone():
    assert renames(file("a", "time"), file("b", "day")) == []
    assert renames(file("a", "time"), file("b", "time")) == []
