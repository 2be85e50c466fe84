"""MessagePack, in which V1 files hold metadata values."""

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.wire import metadata
from icevirt.wire.flatbuffer.schema import Damage

CASES = {
    "null": ("c0", None),
    "false": ("c2", False),
    "true": ("c3", True),
    "small": ("7f", 127),
    "small negative": ("e0", -32),
    "u8": ("ccff", 255),
    "u16": ("cdffff", 65535),
    "u32": ("ceffffffff", 2**32 - 1),
    "u64": ("cfffffffffffffffff", 2**64 - 1),
    "i8": ("d080", -128),
    "i16": ("d18000", -32768),
    "i32": ("d280000000", -(2**31)),
    "i64": ("d38000000000000000", -(2**63)),
    "f32": ("ca3fc00000", 1.5),
    "f64": ("cb3ff8000000000000", 1.5),
    "short string": ("a2c3a9", "é"),
    "str8": ("d90161", "a"),
    "str16": ("da000161", "a"),
    "str32": ("db0000000161", "a"),
    "short array": ("9201c0", [1, None]),
    "array16": ("dc000101", [1]),
    "array32": ("dd0000000101", [1]),
    "short map": ("81a16101", {"a": 1}),
    "map16": ("de0001a16101", {"a": 1}),
    "map32": ("df00000001a16190", {"a": []}),
}


@pytest.mark.parametrize(("raw", "value"), CASES.values(), ids=CASES.keys())
def test_every_form_of_a_json_value_is_read(raw, value):
    found = metadata.read_message_pack(bytes.fromhex(raw))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("raw", [raw for raw, _ in CASES.values()], ids=CASES.keys())
def test_a_value_cut_short_or_followed_by_junk_is_refused(raw):
    whole = bytes.fromhex(raw)
    for part in [whole[:n] for n in range(len(whole))] + [whole + b"\xc0"]:
        with pytest.raises(Damage):
            metadata.read_message_pack(part)


@pytest.mark.parametrize(
    "raw",
    {
        "binary": "c40161",
        "extension": "d40161",
        "a number as key": "810102",
        "a key twice": "82a16101a16102",
        "binary as key": "81c40161c0",
        "a time": "d6ff00000000",
        "a byte that begins nothing": "c1",
        "no UTF-8": "a1ff",
        "four thousand million elements": "ddffffffff",
        "too deep": "91" * 200 + "c0",
        "too deep for the library": "91" * 5000 + "c0",
    }.values(),
)
def test_what_json_has_not_is_refused(raw):
    with pytest.raises(Damage):
        metadata.read_message_pack(bytes.fromhex(raw))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw):
    with suppress(Damage):
        metadata.read_message_pack(raw)


def test_claimed_counts_take_no_memory():
    """A thousand lists within each other claim as many elements as there are bytes."""
    raw = (b"\xdd" + (90_000).to_bytes(4, "big")) * 1000 + b"\xc0" * 90_000
    tracemalloc.start()
    with pytest.raises(Damage):
        metadata.read_message_pack(raw)
    assert tracemalloc.get_traced_memory()[1] < 10 * len(raw)
    tracemalloc.stop()
