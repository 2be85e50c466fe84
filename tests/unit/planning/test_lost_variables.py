"""No rule for equal steps leaves out a variable unseen; units that some files lack are proposed."""

import pytest

from icevirt.errors import CombineError
from unit.planning.scanned_facts import coord, data, plan, step


def test_a_variable_of_files_that_are_left_out_is_not_lost_unseen():
    files = [step("a", 1.0, mask=data("x", [1.0, 2.0, 3.0])), step("b", 1.0), step("c", 2.0)]
    with pytest.raises(CombineError, match=r"no file that counts holds /mask") as caught:
        plan(files, "time", duplicates="last")
    assert caught.value.facts["file"].endswith("a")
    assert [fix.flags for fix in caught.value.fixes] == [("--drop-variable", "/mask")]
    kept = plan(files, "time", duplicates="first")
    assert "/mask" in {array.path for array in kept.arrays}


@pytest.mark.parametrize(
    ("units", "proposed"),
    [((None, "m"), "/x:units=m"), (("m", "km"), None), ((None, "days since 2000-01-01"), None)],
    ids=["lacking", "others", "of times"],
)
def test_units_that_some_files_lack_are_proposed(units, proposed):
    files = [
        step(name, time, x=coord("x", [1.0, 2.0, 3.0], **({"units": said} if said else {})))
        for name, time, said in (("a", 1.0, units[0]), ("b", 2.0, units[1]))
    ]
    with pytest.raises(CombineError, match="attribute units") as caught:
        plan(files, "time")
    flags = [fix.flags for fix in caught.value.fixes if "--attr" in fix.flags]
    assert flags == ([("--attr", proposed)] if proposed else [])
