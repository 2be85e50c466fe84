"""Random HDF5 files as plans that hypothesis draws, shrinks and prints, and their writer."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5p, h5z
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

NUMBERS = (
    "<i1",
    "<u1",
    "<i2",
    ">u2",
    "<i4",
    ">i4",
    "<u8",
    ">i8",
    "<f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
)
ODD_NAMES = (
    "..",
    ".hidden",
    "zarr.json",
    "c",
    "__private",
    "a b",
    "100%",
    "%2F",
    "naïve",
    "海",
    "0",
)
COLOURS = {"RED": 0, "GREEN": 1, "BLUE": 5}
NESTED = np.dtype([("at", "<i2"), ("in", np.dtype([("x", "<f4"), ("y", "<f4")]))])


@dataclass(kw_only=True)
class Plan:
    """A dataset to be written."""

    name: str
    kind: str
    values: Any
    layout: dict = field(default_factory=dict)
    written: tuple = ()  # the box of values that is written
    resized: tuple | None = None  # to which shape, afterwards
    skipped: tuple = ()  # (chunk, filters that it skips), where only deflate and shuffle are there
    attributes: dict = field(default_factory=dict)


# -- attributes ------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


def _numbers(dtype, shape):
    return arrays.arrays(dtype, shape)


ATTRIBUTES = st.one_of(
    st.sampled_from(NUMBERS).flatmap(
        lambda dtype: st.sampled_from([(), (1,), (3,), (2, 2)]).flatmap(
            lambda shape: _numbers(dtype, shape)
        )
    ),
    TEXTS,
    st.lists(TEXTS, min_size=1, max_size=3),
    TEXTS.map(lambda text: np.bytes_(text.encode())),
    st.lists(
        st.binary(min_size=1, max_size=4).map(lambda b: b.replace(b"\0", b"x")), min_size=1
    ).map(np.array),
    st.booleans(),
    st.sampled_from(["<f4", "<i2", "S3"]).map(h5py.Empty),
    st.sampled_from(list(COLOURS.values())).map(
        lambda number: np.array(number, h5py.enum_dtype(COLOURS, "i1"))
    ),
    st.complex_numbers(allow_nan=False),
    st.just(np.zeros(2, NESTED)),
    st.just(np.void(b"\1\2\3")),
    st.just("a reference"),
    st.just(np.longdouble(1.5)),
    st.just(np.array([], "<f4")),
)
ATTRIBUTE_NAMES = st.one_of(
    st.sampled_from(
        [
            "units",
            "_FillValue",
            "missing_value",
            "scale_factor",
            "x y",
            "Ü",
            ".",
            "a/b",
            "coordinates",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6),
)


# -- datasets --------------------------------------------------------------------------------------


@st.composite
def plans(draw):
    """Draw a dataset."""
    kind = draw(
        st.sampled_from(
            [
                *["number"] * 6,
                "bool",
                "enum",
                "complex",
                "text",
                "bytes",
                "opaque",
                "compound",
                "array",
            ]
        )
    )
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7))
    plan = Plan(
        name=draw(st.one_of(st.sampled_from("abcdefg"), st.sampled_from(ODD_NAMES))),
        kind=kind,
        values=draw(_values(kind, shape)),
        attributes=draw(st.dictionaries(ATTRIBUTE_NAMES, ATTRIBUTES, max_size=3)),
    )
    plan.written = tuple(slice(*sorted(draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
    if shape and draw(st.booleans()):
        _chunk(draw, plan, shape)
    elif draw(st.booleans()) and kind == "number":
        plan.layout["fillvalue"] = draw(_numbers(plan.values.dtype, ())).item()
    return plan


def _values(kind, shape):
    match kind:
        case "number":
            return st.sampled_from(NUMBERS).flatmap(lambda dtype: _numbers(dtype, shape))
        case "bool":
            return arrays.arrays(np.bool_, shape)
        case "enum":
            chosen = st.sampled_from([0, 1, 5])
            return arrays.arrays("<i1", shape, elements=chosen, fill=st.nothing())
        case "complex":
            return arrays.arrays("<c8", shape, elements={"allow_nan": False})
        case "text":
            return arrays.arrays(object, shape, elements=TEXTS, fill=st.just(""))
        case "bytes":
            return arrays.arrays("S4", shape)
        case "opaque":
            return arrays.arrays("<u4", shape).map(lambda found: found.view("V4"))
        case "compound":
            packed = np.dtype([("a", "<i2"), ("b", "<f4"), ("c", "<u1")])
            padded = np.dtype([("a", "<i1"), ("b", "<f8")], align=True)
            return st.sampled_from([packed, padded, NESTED]).flatmap(
                lambda dtype: arrays.arrays("u1", (*shape, dtype.itemsize)).map(
                    lambda raw: _compound(raw, dtype, shape)
                )
            )
        case _:
            return _numbers("<i2", (*shape, 2))


def _compound(raw, dtype, shape):
    made = np.zeros(shape, dtype)
    for name in dtype.names or ():
        part = np.ascontiguousarray(raw[..., :1]).reshape(shape)
        if dtype[name].names is None:
            made[name] = part.astype(dtype[name])
    return made


def _chunk(draw, plan, shape):
    plan.layout["chunks"] = chunks = tuple(draw(st.integers(1, max(n, 1) + 2)) for n in shape)
    plan.layout["maxshape"] = tuple(draw(st.sampled_from([None, n, n + 3])) for n in shape)
    plan.layout["maxshape"] = tuple(
        None if limit is None or limit < edge else limit
        for limit, edge in zip(plan.layout["maxshape"], chunks, strict=True)
    )
    number = plan.kind == "number"
    if plan.kind != "text":
        filters = draw(
            st.fixed_dictionaries(
                {
                    "shuffle": st.booleans(),
                    "fletcher32": st.booleans(),
                    "compression": st.sampled_from([None, "gzip", "lzf", "szip"]),
                }
            )
        )
        whole = prod(chunks) >= 8 and plan.values.dtype.itemsize in (1, 2, 4, 8)
        if filters["compression"] == "szip" and not (number and whole):
            filters["compression"] = "gzip"
        plan.layout.update(filters)
    if number:
        rare = draw(st.sampled_from([None, None, None, "scaleoffset", "nbit"]))
        if rare == "scaleoffset" and plan.values.dtype.kind in "iu":
            plan.layout.update(scaleoffset=0, fletcher32=False, compression=None, shuffle=False)
        elif rare == "nbit":
            plan.layout = {k: v for k, v in plan.layout.items() if k in ("chunks", "maxshape")}
            plan.layout["nbit"] = True
        if draw(st.booleans()) and rare is None:
            plan.layout["fillvalue"] = draw(_numbers(plan.values.dtype, ())).item()
        if draw(st.booleans()):
            plan.layout["fill_time"] = draw(st.sampled_from(["ifset", "alloc"]))
    rare = {"scaleoffset", "nbit"} & plan.layout.keys()
    plain = plan.layout.get("compression") in (None, "gzip") and not rare
    if number and plain and prod(shape) and draw(st.booleans()):
        mask = draw(st.integers(0, 7))
        at = tuple(
            draw(st.integers(0, (n - 1) // edge)) for n, edge in zip(shape, chunks, strict=True)
        )
        plan.skipped = (at, mask)
    if not plan.skipped and draw(st.booleans()):  # libhdf5 may crash over both
        plan.resized = tuple(
            draw(st.integers(0, n + 2 if limit is None else limit))
            for n, limit in zip(shape, plan.layout["maxshape"], strict=True)
        )


# -- writing ---------------------------------------------------------------------------------------


def write(path, groups, found, *, libver, track_order):
    """Write datasets into groups; names that are taken are left out."""
    with h5py.File(path, "w", libver=libver, track_order=track_order) as file:
        owners = [file] + [file.require_group(name) for name in groups]
        for number, plan in enumerate(found):
            owner = owners[number % len(owners)]
            if plan.name in owner or plan.name == "..":
                plan.name = f"{plan.name}{number}"
            _write(owner, plan)
        _scales(file)


def _write(owner, plan):
    layout = dict(plan.layout)
    dtype: Any = {
        "enum": h5py.enum_dtype(COLOURS, "i1"),
        "text": h5py.string_dtype(),
        "array": np.dtype(("<i2", (2,))),
    }.get(plan.kind, plan.values.dtype)
    shape = plan.values.shape[:-1] if plan.kind == "array" else plan.values.shape
    if layout.pop("nbit", False):
        layout["dcpl"] = plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk(layout["chunks"])
        plist.set_filter(h5z.FILTER_NBIT, 0, ())
    made = owner.create_dataset(plan.name, shape=shape, dtype=dtype, **layout)
    if plan.values.size:
        made[plan.written] = plan.values[plan.written]
    if plan.skipped:
        _skip(made, *plan.skipped)
    if plan.resized is not None:
        made.resize(plan.resized)
    for name, value in plan.attributes.items():
        made.attrs[name] = made.ref if isinstance(value, str) and value == "a reference" else value


def _skip(made, at, mask):
    """Write a chunk raw, as a writer does that skips some filters."""
    plist = made.id.get_create_plist()
    codes = [plist.get_filter(n)[0] for n in range(plist.get_nfilters())]
    keep = [code for n, code in enumerate(codes) if not mask >> n & 1]
    raw = bytes(n % 251 for n in range(prod(made.chunks) * made.dtype.itemsize))
    twin = h5p.create(h5p.DATASET_CREATE)
    twin.set_chunk(made.chunks)
    for n, code in enumerate(codes):
        if code in keep:
            twin.set_filter(code, 0, plist.get_filter(n)[2])
    with h5py.File.in_memory() as memory:
        other = memory.create_dataset("t", shape=made.chunks, dtype=made.dtype, dcpl=twin)
        other[...] = np.frombuffer(raw, made.dtype).reshape(made.chunks)
        left, data = other.id.read_direct_chunk((0,) * len(made.chunks))
    if not left:
        corner = tuple(n * edge for n, edge in zip(at, made.chunks, strict=True))
        made.id.write_direct_chunk(corner, data, mask & ((1 << len(codes)) - 1))


def _scales(file):
    """Make scales of the one-dimensional datasets in the root, for axes as long as they are."""
    plain = [d for d in file.values() if isinstance(d, h5py.Dataset) and d.shape is not None]
    lines = [d for d in plain if len(d.shape) == 1 and d.dtype.kind in "iuf"]
    for number, line in enumerate(lines):
        if number % 2 == 0:
            line.make_scale(line.name.strip("/") if number % 4 else "")
    for dataset in plain:
        for axis, length in enumerate(dataset.shape):
            same = [d for d in lines if d.is_scale and d.shape == (length,)]
            if same and not dataset.is_scale and len(dataset.shape) > 1:
                dataset.dims[axis].attach_scale(same[0])
