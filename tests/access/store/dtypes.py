"""Every dtype of zarr, with fill values that are easily lost: extremes, NaN, infinities, signs."""

import numpy as np
from zarr.core.dtype import (
    Bool,
    Complex64,
    Complex128,
    DateTime64,
    FixedLengthUTF32,
    Float16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    NullTerminatedBytes,
    RawBytes,
    Struct,
    TimeDelta64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    VariableLengthBytes,
    VariableLengthUTF8,
)

SMALLEST_TIME = np.iinfo("i8").min + 1  # below it is NaT


def floats(name):
    """Return fill values of a float: also a NaN whose bits are not the usual ones."""
    kind = np.dtype(name)
    number = np.finfo(kind)
    odd = (np.array(np.nan, kind).view(f"u{kind.itemsize}") + 1).view(kind)[()]
    plain = [0.0, -0.0, np.nan, np.inf, -np.inf, number.max, number.tiny, number.smallest_subnormal]
    return [*(kind.type(one) for one in plain), odd]


def complexes(name, part):
    kind = np.dtype(name).type
    pairs = zip(floats(part), reversed(floats(part)), strict=True)
    return [np.array(pair, part).view(name)[0] for pair in pairs] + [kind(1 - 2j)]


def integers(name):
    number = np.iinfo(name)
    return [0, number.min, number.max]


DTYPES = {
    "bool": (Bool(), [False, True]),
    "int8": (Int8(), integers("i1")),
    "uint8": (UInt8(), integers("u1")),
    **{
        f"{kind.__name__}, {endianness}": (kind(endianness=endianness), integers(name))
        for kind, name in [
            (Int16, "i2"),
            (Int32, "i4"),
            (Int64, "i8"),
            (UInt16, "u2"),
            (UInt32, "u4"),
            (UInt64, "u8"),
        ]
        for endianness in ("little", "big")
    },
    **{
        f"{kind.__name__}, {endianness}": (kind(endianness=endianness), floats(name))
        for kind, name in [(Float16, "f2"), (Float32, "f4"), (Float64, "f8")]
        for endianness in ("little", "big")
    },
    "complex64": (Complex64(), complexes("c8", "f4")),
    "complex128": (Complex128(), complexes("c16", "f8")),
    "fixed text": (FixedLengthUTF32(length=3), ["", "a", "ßé€", "\U0001f9ca"]),
    "text": (VariableLengthUTF8(), ["", "a", "ßé€\U0001f9ca", "NaN", 'a"\\\n']),
    "raw bytes": (RawBytes(length=3), [np.void(b"\0\0\0"), np.void(b"\xff\0a")]),
    "terminated bytes": (NullTerminatedBytes(length=3), [b"", b"a", b"\xff\x80b"]),
    "bytes": (VariableLengthBytes(), [b"", b"a\0", b"\xff\x80"]),
    "a struct": (
        Struct(fields=(("a", Int32()), ("b", Float64()))),
        [np.array((-1, value), [("a", "i4"), ("b", "f8")])[()] for value in (0, np.nan)],
    ),
    **{
        f"times in {unit}": (
            DateTime64(unit=unit),
            [np.datetime64(n, unit) for n in (0, -1, "NaT")],
        )
        for unit in ("D", "s", "ns")
    },
    "times in 10 ms": (DateTime64(unit="ms", scale_factor=10), [np.datetime64(5, ("ms", 10))]),
    "time differences": (
        TimeDelta64(unit="ns"),
        [np.timedelta64(n, "ns") for n in (0, -1, SMALLEST_TIME, "NaT")],
    ),
}
