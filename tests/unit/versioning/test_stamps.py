"""Times follow what they follow, and a clock that went wrong stops the writer that has it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.errors import StorageError
from icevirt.versioning.history.timestamps import MOST_AHEAD, micros, moment, show, stamp

NOW = 1_790_000_000_000_000
times = st.integers(NOW - 10 * MOST_AHEAD, NOW + MOST_AHEAD - 1)


@given(times, times)
def test_a_stamp_is_later_than_what_it_follows_and_never_before_the_clock(parent, top):
    at = stamp(NOW, parent=parent, top=top)
    assert at > parent
    assert at > top
    assert NOW <= at <= NOW + MOST_AHEAD


@pytest.mark.parametrize("what", ["parent", "top"])
def test_a_stamp_far_in_the_future_is_refused(what):
    with pytest.raises(StorageError, match="clock"):
        stamp(NOW, **{what: NOW + MOST_AHEAD})


def test_the_bound_is_well_below_what_readers_tolerate():
    assert MOST_AHEAD <= 300 * 1_000_000


@given(st.integers(0, 4_000_000_000_000_000))
def test_a_date_and_microseconds_say_the_same(at):
    assert micros(moment(at)) == at
    assert datetime.fromisoformat(show(at)) == moment(at)


def test_dates_are_utc():
    assert moment(0) == datetime(1970, 1, 1, tzinfo=UTC)
