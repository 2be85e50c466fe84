"""Windows cover the grid once, hold at most the limit, and are what the rules say."""

import math

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from icevirt.planning.schedule.write_tasks import WHOLE, any_of, boxes, split_rules, window_of

GRIDS = st.lists(st.integers(0, 60), max_size=2) | st.lists(
    st.integers(0, 9), min_size=3, max_size=4
)


@given(GRIDS, st.integers(1, 500), st.data())
def test_windows_partition_the_grid_within_the_limit(grid, limit, data):
    """Every chunk is in exactly one window, and no window is too large."""
    axis = data.draw(st.integers(0, max(0, len(grid) - 1)))
    window = window_of(grid, axis, limit)
    volumes = [math.prod(high - low for low, high in box) for box in boxes(grid, window)]
    assert sum(volumes) == math.prod(grid)
    assert max(volumes, default=0) <= limit
    assert min(window, default=1) >= 1
    for box in boxes(grid, window):
        assert all(low % edge == 0 for (low, _), edge in zip(box, window, strict=True))


def test_the_growing_axis_is_cut_first():
    """A manifest covers whole steps as long as a step fits."""
    assert window_of((10_000, 10, 10), 0, 500_000) == (5_000, 10, 10)
    assert window_of((4, 10), 0, 500_000) == (50_000, 10)
    assert window_of((10, 1000, 1000), 0, 500_000) == (1, 500, 1000)


def test_an_axis_without_chunks_has_no_windows():
    """A zero-size array needs no manifest."""
    assert list(boxes((0, 3), (1, 3))) == []


def test_rules_name_the_growing_axis_and_every_cut_axis():
    """Arrays that are cut alike share a rule; arrays that are not cut need none."""
    rules = split_rules(
        {
            "/a": ((100, 4), (50, 4), 0),
            "/b.c": ((200, 4), (50, 4), 0),
            "/static": ((4, 4), (4, 4), None),
            "/wide": ((4, 4), (4, 2), None),
        }
    )
    assert [(rule.path_regex, rule.num_chunks) for rule in rules] == [
        (r"^(?:/a|/b\.c)$", ((0, 50), (1, WHOLE))),
        ("^(?:/wide)$", ((0, WHOLE), (1, 2))),
    ]


@pytest.mark.parametrize("path", ["/a+b", "/x y", "/t(1)", "/naïve", "/a-b&c#d~e", "/[x]{2}^$|\\"])
def test_a_rule_matches_its_path_and_no_other(path):
    """Names with special letters are matched literally."""
    regex = any_of([path])
    assert re2.search(regex, path)
    assert not re2.search(regex, path + "x")
    assert not re2.search(regex, path[:-1])
