"""A lazy mapping fetches what is asked for and nothing else, and changes as dicts do."""

from hypothesis import given
from hypothesis import strategies as st

from icevirt.model.repo_info import Lazy, minus, plus

KEYS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers()))


@given(st.dictionaries(KEYS, st.integers()), STEPS)
def test_it_is_a_dict_whatever_is_changed(start, steps):
    lazy = Lazy(start.get, lambda: list(start))
    plain = dict(start)
    for key, value in steps:
        lazy = minus(lazy, key) if value is None else plus(lazy, key, value)
        plain = minus(plain, key) if value is None else plus(plain, key, value)
    assert dict(lazy) == plain
    assert len(lazy) == len(plain)
    assert all((key in lazy) == (key in plain) for key in "abcd")
    assert isinstance(plain, dict)


def test_nothing_is_fetched_by_a_change():
    asked = []
    lazy = Lazy(lambda key: asked.append(key) or 1, lambda: ["a", "b"])
    changed = plus(minus(lazy, "a"), "c", 2)
    assert list(changed) == ["b", "c"]
    assert changed["c"] == 2
    assert asked == []
    assert changed["b"] == 1
    assert asked == ["b"]
