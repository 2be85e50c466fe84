"""Parts are dealt so that tasks take about as long as each other."""

from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.catalog import CatalogPart
from icevirt.archive.sources import SourceFile
from icevirt.planning.schedule.balance_scans import deal_parts, seconds_of


def parts_of(sizes):
    return [
        CatalogPart(name=f"p{number}", files=(SourceFile(url=f"file:///{number}", size=size),))
        for number, size in enumerate(sizes)
    ]


@given(st.lists(st.integers(0, 10**13), max_size=40), st.integers(1, 12))
def test_every_part_is_dealt_once_and_no_task_waits_for_long(sizes, tasks):
    parts = parts_of(sizes)
    piles = deal_parts(parts, tasks)
    assert sorted(part.name for pile in piles for part in pile) == sorted(p.name for p in parts)
    assert len(piles) == min(tasks, len(parts))
    costs = [seconds_of(part.files[0]) for part in parts]
    loads = [sum(seconds_of(part.files[0]) for part in pile) for pile in piles]
    if loads:  # the bound of dealing the longest first
        assert max(loads) <= max([sum(costs) / tasks * 4 / 3 + max(costs), *costs])
        assert max(loads) - min(loads) <= max(costs) + 1e-9


def test_a_huge_file_has_a_task_of_its_own():
    piles = deal_parts(parts_of([10, 10, 10**13, 10, 10]), 2)
    assert sorted(len(pile) for pile in piles) == [1, 4]
    assert [p.name for p in max(piles, key=len)] == ["p0", "p1", "p3", "p4"]
    assert deal_parts([], 4) == ()
