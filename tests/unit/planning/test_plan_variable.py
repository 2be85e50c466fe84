"""The plan of one array: its mode, where each file's share begins, chunks, and what is counted."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.plan import ArrayMode
from icevirt.errors import CombineError
from icevirt.planning.combine.plan_variable import JOINED_CHUNK_BYTES
from icevirt.planning.eras.group_plan import combine_eras
from unit.planning.scanned_facts import (
    File,
    coord,
    data,
    facts_of,
    label,
    plan,
    shown,
    spec,
    step,
)

TIME = ("time", "x")


def array(files, path="/v", *dims, **options):
    """Return one array of a plan."""
    made = plan(files, *dims, **options)
    return next(each for each in made.arrays if each.path == path)


def v(steps, **changes):
    """A variable with a chunk for each step."""
    changes.setdefault("chunks", (1, 2))
    return data(TIME, np.ones((steps, 2), "f4"), **changes)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=6))
def test_each_file_begins_where_those_before_it_end(lengths):
    ends = np.cumsum(lengths)
    files = [
        step(f"f{n}", *range(end - count, end), v=v(count))
        for n, (count, end) in enumerate(zip(lengths, ends.tolist(), strict=True))
    ]
    made = array(files[::-1])
    assert made.mode is ArrayMode.concat
    assert made.shape == (sum(lengths), 2)
    assert made.starts[:, 0].tolist() == [0, *ends[:-1].tolist()]
    assert made.lengths[:, 0].tolist() == lengths
    assert made.files.tolist() == list(range(len(files)))
    assert made.expected == made.references.virtual == sum(lengths)
    assert json.loads(made.zarr_json)["shape"] == [sum(lengths), 2]
    time = array(files, "/time")
    assert (time.mode, time.chunk_shape) == (ArrayMode.join, (sum(lengths),))


def test_values_that_are_joined_are_cut_into_chunks_of_a_size():
    """And compressed where they are more than a little."""
    wide = np.broadcast_to(0.0, (2, JOINED_CHUNK_BYTES // 16))  # two steps fill a chunk
    files = [
        step(name, at, at + 1.0, big=data(("time", "y"), wide, chunks=None, digest=""))
        for name, at in (("a", 0.0), ("b", 2.0))
    ]
    made = array(files, "/big")
    assert made.chunk_shape == (2, JOINED_CHUNK_BYTES // 16)
    assert made.grid == (2, 1)
    assert made.expected == 2
    assert made.schema.codecs[-1]["name"] == "zstd"
    small = array([step("a", 1.0), step("b", 2.0)], "/time")
    assert small.schema.codecs[-1]["name"] == "bytes"


def test_values_of_some_files_that_the_scan_read_fill_chunks_of_the_others():
    files = [step("a", 1.0, v=v(1, chunks=None)), step("b", 2.0, v=v(1))]
    made = array(files)
    assert (made.mode, made.chunk_shape, made.expected) == (ArrayMode.concat, (1, 2), 2)
    assert made.whole.tolist() == [True, False]
    assert made.references.inline == made.references.virtual == 1


def test_the_only_file_keeps_its_values_as_they_are():
    made = array([step("a", 1.0)], "/time")
    assert (made.mode, made.expected) == (ArrayMode.concat, 1)


def test_the_only_file_of_a_longer_array_is_joined():
    """What is missing beside its values is stored with them."""
    files = [step("a", 0.0, u=data("time", [1.0], chunks=None)), step("b", 1.0)]
    made = array(files, "/u", missing="reserve")
    assert (made.mode, made.shape) == (ArrayMode.join, (2,))


def test_the_only_file_that_is_left_is_joined_where_its_times_are_recoded():
    files = [
        step(name, 0.0, time=coord("time", [at], units=f"days since 2000-01-0{2 - int(at)}"))
        for name, at in (("a", 0.0), ("b", 1.0))
    ]
    made = plan(files, duplicates="last")
    (time,) = (each for each in made.arrays if each.path == "/time")
    assert len(made.files) == 1
    assert time.mode is ArrayMode.join
    assert time.schema.attributes.values == {"units": "days since 2000-01-02"}
    assert shown(made, files)["time"].values.tolist() == [0.0]


def test_files_of_one_place_must_be_of_one_length():
    files = [
        step("a", 0.0, m=label(1), v=v(1)),
        step("b", 0.0, m=label(2), v=v(2)),
    ]
    with pytest.raises(CombineError, match="different lengths of /v") as caught:
        array(files, "/v", "m", "time", labels={"m": "variable:m"})
    assert caught.value.facts["first_length"] + caught.value.facts["other_length"] == 3


def test_equal_lengths_take_no_room():
    made = array([step(f"f{n}", n, v=v(1)) for n in range(4)])
    assert made.lengths.strides[0] == 0
    assert made.whole.strides == (0,)


def test_padded_axes_are_as_long_as_the_longest_file():
    files = [
        step("a", 1.0, v=data(("time", "n"), np.ones((1, 2), "f4"), chunks=(1, 4), fill="NaN")),
        step("b", 2.0, v=data(("time", "n"), np.ones((1, 4), "f4"), chunks=(1, 4), fill="NaN")),
    ]
    made = plan(files, pad=("n",))
    (padded,) = (each for each in made.arrays if each.path == "/v")
    assert padded.shape == (2, 4)
    assert padded.axes == (0, 1)
    assert np.isnan(shown(made, files)["v"].values[0, 2:]).all()
    assert any("1 of 2 files are shorter along 'n' than the longest (4)" in n for n in made.notes)


def test_attributes_of_decoding_stay_whatever_the_policy():
    attrs = {"units": "m", "title": "one"}
    files = [step(n, at, v=v(1, attrs={**attrs, "title": n})) for at, n in enumerate("ab")]
    made = array(files, combine_attrs="drop_conflicts")
    assert made.schema.attributes.values == {"units": "m"}
    assert array(files, combine_attrs="drop").schema.attributes.values == {"units": "m"}
    assert array(files).schema.attributes.values == {"units": "m", "title": "a"}


def test_ids_of_nodes_follow_build_and_path():
    files = [step("a", 1.0), step("b", 2.0)]
    one, again, other = (array(files, f"{g}/t", group=g or "/") for g in ("", "", "/g"))
    assert one.node_id == again.node_id != other.node_id


def test_windows_hold_at_most_so_many_references():
    files = [step(f"f{n}", n, v=v(1)) for n in range(10)]
    assert array(files, max_references=4).window == (4, 1)
    (rule,) = (r for r in plan(files, max_references=4).split_rules if "/v" in r.path_regex)
    assert dict(rule.num_chunks)[0] == 4


# -- what is stored because it cannot be referenced -----------------------------------------------


def test_a_file_of_other_chunks_is_stored_where_that_is_permitted():
    files = [step("a", 0.0, 1.0, v=v(2)), step("b", 2.0, 3.0, v=v(2, chunks=(2, 2)))]
    made = array(files, on_mismatch="native")
    assert made.hybrid.plain.tolist() == [True, False]
    assert (made.hybrid.chunks, made.hybrid.nbytes) == (2, 16)
    assert made.references.native == 2
    assert "1 of 2 files differ in chunk shape" in made.hybrid.why


def test_decoded_floats_are_stored_with_their_missing_value():
    files = [
        step(
            name,
            at,
            v=data(TIME, np.ones((1, 2), "i2"), attrs={"scale_factor": scale, "units": "K"}),
        )
        for at, (name, scale) in enumerate((("a", 0.5), ("b", 2.0)))
    ]
    made = array(files, float_variables=("v",))
    assert made.schema.data_type == "float64"
    assert json.loads(made.zarr_json)["fill_value"] == "NaN"
    assert "scale_factor" not in made.schema.attributes.values
    assert made.schema.attributes.values["units"] == "K"
    assert made.hybrid.chunks == 2


def test_a_box_of_two_encodings_is_refused():
    """Where values that were read could be compared, were they not packed anew."""
    half = {"attrs": {"scale_factor": 0.5}, "chunks": None}
    files = [
        step("a", 0.0, v=v(1, chunks=None)),
        step("b", 0.0, t=None, u=v(1), v=v(1, chunks=None)),
        step("c", 1.0, v=v(1, **half)),
    ]
    with pytest.raises(CombineError, match="for the same steps, in different encodings"):
        array(files, on_mismatch="native", missing="reserve")


def test_more_than_is_allowed_is_refused_with_the_numbers():
    files = [step("a", 0.0, 1.0, v=v(2)), step("b", 2.0, 3.0, v=v(2, chunks=(2, 2)))]
    rules = {"on_mismatch": "native", "max_native_bytes": 15}
    with pytest.raises(CombineError, match="16 bytes of values in 1 variables") as caught:
        array(files, **rules)
    assert caught.value.facts["bytes_to_store"] == {"/v": 16}


# -- renamed and given ----------------------------------------------------------------------------


def test_a_coordinate_with_missing_steps_is_given_by_the_plan():
    days = {"units": "days since 2000-01-01"}
    files = [step(f"f{n}", n, time=coord("time", [float(n)], **days)) for n in (0, 3)]
    made = array(files, "/time", spacing={"time": "1D"})
    assert made.mode is ArrayMode.given
    assert made.values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert made.expected == 1


def test_a_variable_of_other_steps_than_the_regular_coordinate_is_refused():
    days = {"units": "days since 2000-01-01"}
    files = [step(f"f{n}", n, time=coord("time", [float(n)], **days)) for n in (0, 3)]
    files[1].variables["v"] = v(2)
    files[0].variables["v"] = v(1)
    with pytest.raises(CombineError, match="another length along 'time' than the coordinate"):
        array(files, spacing={"time": "1D"})


def test_the_plan_of_files_without_any_dimension_is_the_file():
    file = File("a", {"v": v(2), "m": data("x", [1, 2])})
    made = combine_eras(facts_of(file), spec())
    assert [(each.path, each.mode) for each in made.arrays] == [
        ("/v", ArrayMode.once),
        ("/m", ArrayMode.once),
    ]
    assert made.concat_dim == ()
