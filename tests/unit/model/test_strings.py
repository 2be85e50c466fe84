"""Columns of strings, against lists of strings."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.access import virtual_refs
from icevirt.access.virtual_refs import surely_differ
from icevirt.model import strings
from icevirt.model.strings import Strings, StringsWithin

texts = st.lists(st.text(st.sampled_from("ab/é🧊"), max_size=5), max_size=12)


@given(texts)
def test_a_column_holds_what_it_was_made_of(values):
    assert list(Strings.of(values)) == values
    assert list(Strings.of(iter(values))) == values


@given(texts, st.integers(1, 5))
def test_blocks_do_not_show(values, rows):
    whole = Strings.of(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "ROWS_AT_ONCE", rows)
        assert Strings.of(values) == whole


prefixes = st.text(st.sampled_from("ab/é"), max_size=20)


@given(prefixes, st.integers(0, 3), texts, st.data())
def test_the_beginning_of_each_row_is_that_of_its_string(prefix, missing, values, data):
    """Whether strings are of one length or of many, and whatever the length of the prefix."""
    head = prefix.encode()
    beginning = head[: max(len(head) - missing, 0)].decode(errors="ignore")
    values = [beginning + text for text in values]
    rows = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=8))
    rows = np.array(rows if values else [], np.int64)
    expected = [text.startswith(prefix) for text in values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "ROWS_AT_ONCE", data.draw(st.integers(1, 9)))
        column = Strings.of(values)
        assert column.begin_with(head).tolist() == expected
        assert column.begin_with(head, rows).tolist() == [expected[row] for row in rows]


words = st.lists(st.text(st.sampled_from("ab0"), max_size=3), max_size=12)


@given(words, st.sampled_from(["", "0", "01234567", "0123456789abcdef"]), st.text(max_size=2))
def test_strings_that_are_shown_to_differ_do(values, head, ending):
    """Whatever they begin and end with; strings of one length that ascend are always shown to."""
    column = Strings.of([head + text + ending for text in values])
    shown = surely_differ(column)
    assert not shown or len(set(values)) == len(values)
    if len(set(map(len, values))) == 1 and len(set(values)) == len(values) and len(head) > 7:
        assert surely_differ(column)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=60), st.integers(1, 7))
def test_names_that_count_are_shown_to_differ(numbers, rows):
    """In any order, of any lengths and over any blocks, unless one comes twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(virtual_refs, "_ROWS_AT_ONCE", rows)
        column = Strings.of(f"s3://bucket/directory/file-{number}.nc" for number in numbers)
        assert surely_differ(column) == (len(set(numbers)) == len(numbers))


@given(texts, st.data())
def test_rows_are_taken_in_the_order_asked_for(values, data):
    rows = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=8))
    rows = rows if values else []
    taken = Strings.of(values)[np.array(rows, np.int64)]
    assert list(taken) == [values[row] for row in rows]


@given(texts, st.integers(0, 3), st.data())
def test_strings_within_other_bytes_are_those_strings(values, gap, data):
    encoded = [text.encode() for text in values]
    around = b"".join(b"#" * gap + each for each in encoded) + b"#"
    ends = np.cumsum([gap + len(each) for each in encoded], dtype=np.int64)
    sizes = np.array([len(each) for each in encoded], np.int64)
    found = StringsWithin(np.frombuffer(around, np.uint8), ends - sizes, sizes)
    expected = Strings.of(values)
    rows = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=8))
    rows = np.array(rows if values else [], np.int64)
    assert list(found[rows]) == list(expected[rows])
    assert found.lengths.tolist() == expected.lengths.tolist()
    assert list(found) == values
    assert found == expected
    assert pickle.loads(pickle.dumps(found)) == expected
    assert found + found == expected + expected


def test_a_pickle_holds_the_strings_and_not_what_lies_around_them():
    found = StringsWithin(np.zeros(10**6, np.uint8), np.array([5, 9]), np.array([2, 1]))
    assert found.nbytes > 10**6
    assert len(pickle.dumps(found)) < 1000


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4) | st.none())))
def test_equal_rows_have_equal_hashes(pairs):
    one = [text for text, _ in pairs]
    other = [text if changed is None else changed for text, changed in pairs]
    columns = Strings.of(one), Strings.of(other)
    same = [text == changed for text, changed in zip(one, other, strict=True)]
    hashes = [column.hashes() for column in columns]
    assert (hashes[0] == hashes[1])[same].all()
