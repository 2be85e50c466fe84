"""What a plan leaves out of the files is counted, and proposals stand in the order of their losses."""

from dataclasses import replace

import numpy as np
import pytest

from icevirt.errors import DataLoss, Fix
from icevirt.planning.losses import Measured, may_lose, sort_by_loss
from icevirt.planning.remedies import fix, scan_fix
from unit.planning.scanned_facts import data, facts_of, plan, step

FIELD = data(("time", "x"), np.arange(3, dtype="f4")[None], chunks=(1, 3))  # 12 bytes
GRID = data("x", np.arange(3.0))  # 24 bytes, equal in all files


def files(*times, **more):
    return [step(f"f{at}", time, u=FIELD, grid=GRID, **more) for at, time in enumerate(times)]


def loss_of(held, made=None, **options):
    """Return what a plan of some of the variables lacks of all."""
    return Measured.of(facts_of(*held), plan(held if made is None else made, **options)).loss


def less(held, *names):
    return [
        replace(each, variables={n: v for n, v in each.variables.items() if n not in names})
        for each in held
    ]


def test_a_plan_of_everything_loses_nothing():
    assert loss_of(files(1.0, 2.0, 3.0)) == DataLoss()
    assert not DataLoss()


@pytest.mark.parametrize(
    ("names", "lost"),
    [
        (("u",), DataLoss(variables=1, bytes=3 * 12)),
        (("grid",), DataLoss(variables=1, bytes=24)),  # equal values are lost once
        (("u", "grid"), DataLoss(variables=2, bytes=3 * 12 + 24)),
    ],
)
def test_variables_that_are_left_out_are_counted(names, lost):
    held = files(1.0, 2.0, 3.0, w=data("time", [1.0]))
    assert loss_of(held, less(held, *names)) == lost


def test_files_that_duplicates_leave_out_are_counted_with_their_steps():
    unread = replace(FIELD, digest="")
    held = [replace(e, variables={**e.variables, "u": unread}) for e in files(1.0, 2.0, 2.0, 2.0)]
    assert loss_of(held, duplicates="last") == DataLoss(files=2, steps=2, bytes=2 * 12)


def test_an_equal_value_in_another_file_is_not_lost():
    held = files(1.0, 2.0, 2.0)
    assert loss_of(held, duplicates="last") == DataLoss()
    other = replace(FIELD, values=FIELD.values + 1)
    held[1] = replace(held[1], variables={**held[1].variables, "u": other})
    assert loss_of(held, duplicates="last") == DataLoss(files=1, steps=1, bytes=12)


def test_groups_that_are_opened_one_by_one_lose_nothing_and_stand_behind_one_dataset():
    parted = Fix(python="", flags=(), price="", loss=DataLoss(groups=3))
    one = Fix(python="", flags=(), price="", loss=DataLoss())
    little, much = (replace(one, loss=DataLoss(variables=1, bytes=size)) for size in (8, 9))
    unknown = fix("", duplicates="newest")
    order = [one, parted, little, much, unknown]
    assert sort_by_loss([unknown, much, parted, little, one]) == order
    assert [may_lose(each) for each in order] == [False, False, True, True, True]


def test_what_loses_alike_stays_in_its_order():
    found = [
        fix("a", combine="nested"),
        fix("b", on_mismatch="native"),
        fix("c", missing="reserve"),
    ]
    assert sort_by_loss(found) == found


def test_a_loss_is_written_with_its_counts():
    made = replace(
        scan_fix("v is left out", drop_variables=["/v"]), loss=DataLoss(variables=1, bytes=2048)
    )
    assert made.cost == "v is left out; discards 1 variable: 2.0 KiB of values"
    assert (
        str(DataLoss(files=2, steps=8, bytes=5)) == "discards 2 files, 8 steps: 5 bytes of values"
    )
    assert replace(made, loss=DataLoss(), stored=0).cost == "nothing more is stored; v is left out"
    assert replace(made, loss=None, stored=9).cost == "stores 9 bytes of values; v is left out"
