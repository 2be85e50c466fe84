"""Columns of strings, against lists of strings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.model import strings
from icevirt.model.strings import Strings

texts = st.lists(st.text(st.sampled_from("ab/é🧊"), max_size=5), max_size=12)


@given(texts)
def test_a_column_holds_what_it_was_made_of(values):
    assert list(Strings.of(values)) == values
    assert list(Strings.of(iter(values))) == values


@given(texts, st.integers(1, 5))
def test_blocks_do_not_show(values, rows):
    whole = Strings.of(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "_ROWS_AT_ONCE", rows)
        assert Strings.of(values) == whole


@given(texts)
def test_first_bytes_are_those_of_each_string(values):
    expected = [text.encode()[0] if text else 0 for text in values]
    assert Strings.of(values).first_bytes().tolist() == expected


@given(texts, st.data())
def test_rows_are_taken_in_the_order_asked_for(values, data):
    rows = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=8))
    rows = rows if values else []
    taken = Strings.of(values)[np.array(rows, np.int64)]
    assert list(taken) == [values[row] for row in rows]
