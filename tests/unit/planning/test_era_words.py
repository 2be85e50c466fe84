"""Differences between decode signatures are told in words that name what a person would look for."""

import pytest

from icevirt.archive.schema import ArraySchema
from icevirt.model.attributes import Attributes
from icevirt.planning.eras.signatures import describe_difference

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
SHUFFLE = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 2}}
ZLIB = {"name": "numcodecs.zlib", "configuration": {"level": 4}}
FAST = {"name": "numcodecs.zlib", "configuration": {"level": 1}}
ZSTD = {"name": "zstd", "configuration": {"level": 3}}


def signature(attributes=None, dtypes=None, **changes):
    schema = {
        "dimension_names": ("time", "x"),
        "chunk_shape": (1, 8),
        "data_type": "int16",
        "codecs": (BYTES, ZLIB),
        "fill_value": 0,
    } | changes
    held = Attributes(values=attributes or {}, dtypes=dtypes or {})
    return ArraySchema(**schema, attributes=held).decode_signature()


CASES = {
    "nothing": ({}, {}, ""),
    "another level": ({}, {"codecs": (BYTES, FAST)}, ""),
    "a filter more": ({}, {"codecs": (BYTES, SHUFFLE, ZLIB)}, "shuffle added"),
    "a filter less": ({"codecs": (BYTES, SHUFFLE, ZLIB)}, {}, "shuffle removed"),
    "another compressor": ({}, {"codecs": (BYTES, ZSTD)}, "zlib removed; zstd added"),
    "another byte order": ({}, {"codecs": (BIG, ZLIB)}, "byte order little → big"),
    "a setting": (
        {"codecs": (BYTES, SHUFFLE)},
        {"codecs": (BYTES, SHUFFLE | {"configuration": {"elementsize": 4}})},
        "shuffle elementsize 2 → 4",
    ),
    "another order": (
        {"codecs": (BYTES, SHUFFLE, ZLIB)},
        {"codecs": (BYTES, ZLIB, SHUFFLE)},
        "filters bytes + shuffle + zlib → bytes + zlib + shuffle",
    ),
    "chunks": ({}, {"chunk_shape": (1, 4)}, "chunks of 1×8 → 1×4"),
    "dtype": ({}, {"data_type": "float32"}, "dtype int16 → float32"),
    "a named dtype": ({}, {"data_type": {"name": "r16"}}, "dtype int16 → r16"),
    "fill value": ({}, {"fill_value": -1}, "fill value 0 → -1"),
    "dimensions": ({}, {"dimension_names": ("time", None)}, "dimensions (time, x) → (time, None)"),
    "a scale as the file spells it": (
        {"attributes": {"scale_factor": 0.009999999776482582}, "dtypes": {"scale_factor": "f4"}},
        {"attributes": {"scale_factor": 0.019999999552965164}, "dtypes": {"scale_factor": "f4"}},
        "scale_factor 0.01 → 0.02",
    ),
    "a scale of another type": (
        {"attributes": {"scale_factor": 0.5}, "dtypes": {"scale_factor": "f4"}},
        {"attributes": {"scale_factor": 0.5}, "dtypes": {"scale_factor": "f8"}},
        "scale_factor of type f4 → f8",
    ),
    "a missing value that came": (
        {}, {"attributes": {"missing_value": 9}, "dtypes": {"missing_value": "i2"}},
        "missing_value 9 added",
    ),
    "units that went": ({"attributes": {"units": "K"}}, {}, "units K removed"),
    "flags": (
        {"attributes": {"flag_values": [0, 1]}, "dtypes": {"flag_values": "i1"}},
        {"attributes": {"flag_values": [0, 2]}, "dtypes": {"flag_values": "i1"}},
        "flag_values 0 1 → 0 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "words"), CASES.values(), ids=CASES.keys())
def test_a_difference_is_given_by_what_changed(before, after, words):
    assert describe_difference(signature(**before), signature(**after)) == words
