"""FlexBuffers of JSON values, against the library's own reader and against hostile bytes."""

import math
from contextlib import suppress

import pytest
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st

from icevirt.errors import InvalidInputError
from icevirt.wire import flexbuffers as flex
from icevirt.wire.flatbuffer.schema import Damage
from unit.wire.wire_values import json_values


def same(a, b):
    """Compare as JSON does: True is not 1, 1 is not 1.0."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(json_values)
def test_a_value_reads_back_with_its_types(value):
    assert same(flex.loads(flex.dumps(value)), value)


# The library takes only ASCII keys, has no u64 of its own accord, and stumbles over some floats.
library_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(width=32, allow_nan=False, allow_infinity=False)
    | st.floats(-1e9, 1e9)
    | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)
ascii_keys = st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=6)
readable_values = st.recursive(
    library_values, lambda inner: st.dictionaries(ascii_keys, inner, max_size=4), max_leaves=20
)


@given(readable_values)
def test_the_library_reads_what_we_write(value):
    assert same(flexbuffers.Loads(flex.dumps(value)), value)


@pytest.mark.ci
@given(library_values)
def test_we_read_what_the_library_writes(value):
    assert same(flex.loads(bytes(flexbuffers.Dumps(value))), value)


@pytest.mark.parametrize(
    "make", ["VectorFromElements", "TypedVectorFromElements", "FixedTypedVectorFromElements"]
)
@pytest.mark.parametrize("values", [[1, 2, 3], [1.5, 2.5], [-1, 1000, 70000, 2**40]])
def test_typed_vectors_of_other_writers_are_read(make, values):
    builder = flexbuffers.Builder()
    getattr(builder, make)(values)
    assert flex.loads(bytes(builder.Finish())) == values


def test_indirect_numbers_of_other_writers_are_read():
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.IndirectInt(-5)
        builder.IndirectUInt(5)
        builder.IndirectFloat(0.5)
    assert flex.loads(bytes(builder.Finish())) == [-5, 5, 0.5]


def test_whole_numbers_are_unsigned_unless_negative():
    """The official client reads a u16 setting only from an unsigned number."""
    raw = flex.dumps([1, -1])
    assert [byte >> 2 for byte in raw[-5:-3]] == [flex.FlexType.uint, flex.FlexType.int]


def test_keys_are_sorted_by_their_bytes():
    value = {"b": 1, "é": 2, "a": 3, "Z": 4}
    assert list(flex.loads(flex.dumps(value))) == ["Z", "a", "b", "é"]


def test_equal_keys_are_written_once():
    many = flex.dumps([{"a rather long key": n} for n in range(50)])
    assert many.count(b"a rather long key") == 1


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**64, -(2**63) - 1, {1: 2}, {"a\0b": 1}, b"bytes", {1, 2}]
)
def test_what_json_has_not_is_refused(value):
    with pytest.raises(InvalidInputError):
        flex.dumps(value)


def test_depth_is_limited_both_ways():
    value: list = []
    for _ in range(150):
        value = [value]
    with pytest.raises(InvalidInputError, match="deep"):
        flex.dumps(value)


def test_a_cycle_is_refused():
    """A vector whose element leads to the vector itself cannot be: offsets count backwards.

    Sharing can: a vector of two references to one vector of two references, thirty times over.
    """
    with pytest.raises(Damage):
        flex.loads(laughs(30))


def laughs(levels):
    """Return a billion laughs: each vector holds the one before it, twice."""
    out = bytearray([0])
    last = len(out)  # an empty vector
    out[0] = 0
    for _ in range(levels):
        out.append(2)
        start = len(out)
        out += bytes([start - last, start + 1 - last])
        out += bytes([10 << 2, 10 << 2])
        last = start
    out += bytes([len(out) - last, 10 << 2, 1])
    return bytes(out)


def test_sharing_on_a_human_scale_is_read():
    assert flex.loads(laughs(3)) == [[[[], []], [[], []]], [[[], []], [[], []]]]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw):
    with suppress(Damage):
        flex.loads(raw)


@given(json_values, st.data())
def test_a_changed_byte_is_read_or_refused(value, data):
    raw = bytearray(flex.dumps(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Damage):
        flex.loads(bytes(raw))
