"""Arrays of references and stored chunks: what stays, what is stored, and what that takes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.plan import AxisGrid
from icevirt.errors import CombineError
from icevirt.planning.partial.storage_cost import (
    WINDOW_BYTES,
    describe_storage,
    hybrid_window,
    max_error,
    size_of,
    with_grid,
)
from unit.planning.scanned_facts import data, plan, shown, step

NATIVE = {"on_mismatch": "native"}


def files_of(*found, x=2):
    """Return files that follow one another: how many steps, and the length of their chunks."""
    made, start = [], 0
    for n, (count, edge, *more) in enumerate(found):
        v = data(("time", "x"), np.ones((count, x), "f4"), chunks=(edge, x), **dict(*more))
        made.append(step(f"f{n}", *range(start, start + count), t=None, v=v))
        start += count
    return made


def array(files, rules=NATIVE, path="/v", **options):
    made = plan(files, **rules, **options)
    return next(each for each in made.arrays if each.path == path)


def stored(found, edge):
    """Return the chunks that must be stored, by a loop over all chunks of the array."""
    total, begins = sum(n for n, *_ in found), np.cumsum([0, *(n for n, *_ in found)])
    held = set()
    for low in range(0, total, edge):
        high = min(low + edge, total)
        inside = [
            each[1] == edge and begin % edge == 0 and begin <= low and high <= begin + each[0]
            for begin, each in zip(begins, found, strict=False)
        ]
        if not any(inside):
            held.add(low // edge)
    return held


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from([1, 2, 3])), min_size=2, max_size=5))
def test_chunks_that_no_file_holds_on_the_grid_are_stored(found):
    """And of the chunk lengths in the archive, the one that stores least is taken."""
    made = array(files_of(*found))
    sizes = {}
    total = sum(n for n, _ in found)
    for edge in {edge for _, edge in found}:
        chunks = stored(found, edge)
        sizes[edge] = sum(min(edge, total - at * edge) for at in chunks) * 2 * 4
    assert made.shape == (total, 2)
    if made.hybrid is None:
        assert min(sizes.values()) == 0
        return
    assert made.hybrid.nbytes == min(sizes.values())
    assert made.hybrid.nbytes == sizes[made.chunk_shape[0]]
    assert made.hybrid.chunks == len(stored(found, made.chunk_shape[0]))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([2, 3, 4])), min_size=2, max_size=5))
def test_rectilinear_chunks_follow_the_files(found):
    """Each file's own chunks are chunks of the array, and its short last one ends with it."""
    made = array(files_of(*found), {"chunk_grid": "rectilinear"})
    if made.hybrid is None:  # one length does
        assert not stored(found, made.chunk_shape[0])
        return
    bounds, start = [0], 0
    for count, edge in found:
        bounds += [min(start + at + edge, start + count) for at in range(0, count, edge)]
        start += count
    assert made.hybrid.bounds.tolist() == bounds
    grid = json.loads(made.zarr_json)["chunk_grid"]
    assert grid["name"] == "rectilinear"
    assert spelled(grid["configuration"]["chunk_shapes"][0]) == np.diff(bounds).tolist()


def spelled(lengths):
    """Return the lengths of chunks, of which repeated ones are written once."""
    return [
        size
        for each in lengths
        for size in ([each[0]] * each[1] if isinstance(each, list) else [each])
    ]


def test_files_of_one_length_and_encoding_are_references_alone():
    assert array(files_of((2, 1), (4, 1), (1, 1))).hybrid is None
    made = array(files_of((4, 2), (3, 2)))  # the last file may end within a chunk
    assert made.hybrid is None


def test_a_file_that_ends_within_a_chunk_is_stored_there():
    made = array(files_of((3, 2), (2, 2)))
    assert (made.hybrid.chunks, made.hybrid.replaced) == (2, 1)
    assert made.hybrid.plain.tolist() == [True, False]
    assert "1 file does not begin where a chunk of 2×2 begins (first: file:///data/f1)" in (
        made.hybrid.why
    )
    assert made.references.virtual == 1


PACKED = {"scale_factor": 0.5}


def packed(*scales, kind="i2", codecs=()):
    made = []
    for n, scale in enumerate(scales):
        more = {"codecs": codecs} if codecs else {}
        v = data(("time", "x"), np.ones((1, 2), kind), attrs={"scale_factor": scale}, **more)
        made.append(step(f"f{n}", n, t=None, v=v))
    return made


def test_files_that_are_packed_otherwise_are_named_with_the_error_that_could_be():
    made = array(packed(0.5, 0.5, 2.0))
    assert made.hybrid.chunks == 1
    assert max_error(made.hybrid) == 0.25
    (line,) = describe_storage([made])
    assert line.startswith("/v: 1 of 3 chunks (4 bytes of values) are stored, because 1 of 3 files")
    assert "differ in scale_factor (first: file:///data/f2)" in line
    assert "packing again could change them by up to 0.25" in line
    floats = array(packed(0.5, 0.5, 2.0, kind="f4"))
    assert max_error(floats.hybrid) == 0.0
    assert "error could be" not in describe_storage([floats])[0]
    assert max_error(array(files_of((1, 1), (3, 3))).hybrid) is None
    assert max_error(array(packed(0.5), {"float_variables": ("v",)}).hybrid) is None


def test_a_lossy_codec_cannot_store():
    lossy = ({"name": "numcodecs.bitround", "configuration": {}}, {"name": "bytes"})
    with pytest.raises(CombineError, match=r"its codec numcodecs.bitround is lossy"):
        array(packed(0.5, 2.0, codecs=lossy))


def test_texts_cannot_be_stored():
    texts = [
        step(f"f{n}", n, v=data(("time", "x"), np.full((1, 2), "a" * (n + 1)), chunks=(1, n + 1)))
        for n in range(2)
    ]
    with pytest.raises(CombineError, match=r"they hold more than plain numbers|data type"):
        array(texts)


@pytest.mark.parametrize("attrs", [{}, {"scale_factor": 0.5}])
def test_integers_that_stay_integers_are_no_floats(attrs):
    files = [
        step(f"f{n}", n, v=data(("time", "x"), np.ones((1, 2), "i4"), attrs=attrs)) for n in (0, 1)
    ]
    if attrs:
        assert array(files, {"float_variables": ("v",)}).schema.data_type.startswith("float")
        return
    with pytest.raises(CombineError, match="does not decode to floats") as caught:
        array(files, {"float_variables": ("v",)})
    assert caught.value.facts["decodes_to"] == "int32"


def test_values_of_the_scan_are_stored_beside_chunks_of_other_files():
    files = [*files_of((2, 2), (2, 2)), *files_of((1, 1))]
    files[2] = step("f2", 4, t=None, v=data(("time", "x"), np.ones((1, 2), "f4"), chunks=None))
    files.append(
        step("f3", 5, 6, t=None, v=data(("time", "x"), np.ones((2, 2), "f4"), chunks=(2, 2)))
    )
    made = array(files)
    assert made.hybrid.plain.tolist() == [True, True, False, False]
    assert shown(plan(files, **NATIVE), files)["v"].shape == (7, 2)


def test_too_many_chunks_are_not_even_counted(monkeypatch):
    monkeypatch.setattr("icevirt.planning.partial.chunk_alignment.MANY", 2)
    with pytest.raises(CombineError, match=r"more than [34] chunks of variable /v"):
        array(files_of((3, 3), (2, 1)))


# -- what it takes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"),
     (3 << 50, "3072.0 TiB")],
)  # fmt: skip
def test_sizes_are_written_as_people_read_them(count, text):
    assert size_of(count) == text


def test_a_manifest_stores_about_as_much_as_others():
    hybrid = array(files_of((3, 2), (2, 2))).hybrid
    assert hybrid_window((100, 1), 0, 1000, hybrid) == (1000, 1)
    much = replace(hybrid, nbytes=10 * WINDOW_BYTES)
    assert hybrid_window((100, 1), 0, 1000, much) == (10, 1)
    assert hybrid_window((4, 1), 0, 1000, much) == (1, 1)
    assert hybrid_window((100, 1), 0, 5, much) == (5, 1)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=10), st.integers(1, 20))
def test_lengths_of_chunks_that_repeat_are_written_once(lengths, total):
    """As a loop spells them out again."""
    bounds = np.cumsum([0, *lengths])
    grids = [AxisGrid(total=int(bounds[-1]), edge=3, bounds=bounds), AxisGrid(total=total, edge=3)]
    made = json.loads(with_grid(b"{}", grids))["chunk_grid"]["configuration"]["chunk_shapes"]
    assert spelled(made[0]) == lengths
    assert spelled(made[1]) == [3] * -(-total // 3)
    assert with_grid(b"{}", grids[1:]) == b"{}"
