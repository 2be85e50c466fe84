"""Items are dealt so that tasks take equally long, and do not open the catalog more than they write."""

from types import SimpleNamespace

import pytest

from icevirt.planning.schedule.write_tasks import OPENING, balance, deal_items


def draft(number, run, expected):
    return SimpleNamespace(number=number, run=run, expected=expected)


class Columns:
    """Files, as far as dealing looks at them."""

    def __init__(self, files, parts):
        self.parts, self.files = ("p",) * parts, files

    def __len__(self):
        return self.files


def of(files, parts):
    return SimpleNamespace(files=Columns(files, parts))


def numbers(piles):
    return [[item.number for item in pile] for pile in piles]


def test_neighbours_stay_together_and_every_item_is_dealt_once():
    items = [draft(n, (n % 3, n % 3 + 1), 10) for n in range(9)]
    piles = balance(of(9, 0), items, 3)
    assert numbers(piles) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_opening_many_parts_is_work_too():
    """The items of a run of files open its parts together."""
    long = [draft(0, (0, 100), 10), draft(1, (0, 100), 10)]
    short = [draft(2 + n, (100 + n, 101 + n), OPENING * 50) for n in range(2)]
    assert numbers(balance(of(102, 102), [*long, *short], 2)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("parts", "tasks"), [(1, 8), (1000, 4)], ids=["large files", "a reference in each file"]
)
def test_fewer_tasks_share_a_run_where_opening_its_parts_takes_longest(parts, tasks):
    items = [draft(n, (0, 1000), 100_000) for n in range(16)]
    piles = deal_items(of(1000, parts), items, 2)
    assert len(piles) == tasks
    assert [number for pile in numbers(piles) for number in pile] == list(range(16))


def test_nothing_is_dealt_to_no_task():
    assert deal_items(of(0, 0), [], 2) == ()
