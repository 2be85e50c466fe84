"""Recorded facts are shown as a way of combining wants them, or the plan says which are lacking."""

from dataclasses import replace

import numpy as np
import pytest

from icevirt.archive.facts import BesideColumns, Coded, Counts, Labels
from icevirt.archive.joining import Fact, Form
from icevirt.archive.schema import ArraySchema
from icevirt.planning.combine.hints import CombineHints, Recorded, is_named
from icevirt.planning.combine.needs import LackingFacts, resolve_needs
from unit.planning import scanned_facts
from unit.planning.scanned_facts import BYTES, File, Variable, coord, data, facts_of, label

TIME = CombineHints(concat_dim="time")
RUN = CombineHints(concat_dim="run", stack=True)


def step(name, *times, **more):
    """Return a file of so many values at a step that they stay references."""
    wide = data(("time", "x"), np.zeros((len(times), 8)), chunks=(1, 8))
    return scanned_facts.step(name, *times, **{"t": wide, **more})


def beside(*found):
    """Return facts taken beside: file, path, what was looked for, and what was found."""
    kept = [at for at, (*_, more) in enumerate(found) if "labels" in more]
    raws = [found[at][3]["labels"].tobytes() for at in kept]
    values = [more.get("values") for *_, more in found]
    return BesideColumns(
        file=np.array([each[0] for each in found], np.int32),
        path=Coded.of([each[1] for each in found]),
        asked=np.array([each[2] for each in found], np.uint8),
        digest=Coded.of([more.get("digest", "") for *_, more in found]),
        schema=Coded.of(["" if each is None else each.schema.dumps() for each in values]),
        nbytes=Counts(np.array([0 if v is None else v.values.nbytes for v in values], np.int64)),
        labels=Labels(
            row=np.array(kept, np.int64),
            value=np.arange(len(kept)),
            data=np.frombuffer(b"".join(raws), np.uint8),
            starts=np.cumsum([0, *map(len, raws)], dtype=np.int64),
            dtype=Coded.of([found[at][3]["labels"].dtype.str for at in kept]),
        ),
    )


def resolve(files, hints, *found, is_referenced=lambda path: False, affordable=1 << 20):
    return resolve_needs(
        facts_of(*files), beside(*found), hints, is_referenced, affordable=affordable
    )


def lacking(found):
    """Return which facts of which arrays are lacking."""
    assert isinstance(found, LackingFacts)
    return {
        (int(file), found.path[at], Fact(int(fact)))
        for at, (file, fact) in enumerate(zip(found.file, found.fact, strict=True))
    }


def by_path(facts, file=0):
    arrays = facts.arrays
    return {arrays.path[at]: at for at in np.flatnonzero(arrays.file == file).tolist()}


def test_digests_of_arrays_along_the_dimension_are_not_wanted():
    """Where two scans recorded some of them, plans are the same."""
    found = resolve([step("a", 1.0, m=data("x", [1, 2, 3]))], TIME)
    at = by_path(found)
    assert found.arrays.digest[at["/t"]] == found.arrays.digest[at["/time"]] == ""
    assert found.arrays.digest[at["/m"]]
    assert found.arrays.labels.get(at["/time"]).tolist() == [1.0]


def test_arrays_without_the_dimension_lack_a_digest_until_it_was_taken():
    files = [step(n, 1.0, m=data("x", [1, 2, 3], digest="")) for n in "ab"]
    assert lacking(resolve(files, TIME)) == {(0, "/m", Fact.digest), (1, "/m", Fact.digest)}
    half = (0, "/m", Fact.digest, {"digest": "d"})
    assert lacking(resolve(files, TIME, half)) == {(1, "/m", Fact.digest)}
    full = (1, "/m", Fact.digest, {"digest": "e"})
    other = (1, "/other", Fact.digest, {"digest": "f"})  # of a variable that no file has now
    found = resolve(files, TIME, half, full, other)
    assert [found.arrays.digest[by_path(found, file)["/m"]] for file in range(2)] == ["d", "e"]


def test_what_was_looked_for_and_not_found_is_not_looked_for_again():
    files = [step("a", 1.0, m=data("x", [1, 2, 3], digest=""))]
    found = resolve(files, TIME, (0, "/m", Fact.digest, {}))
    assert found.arrays.digest[by_path(found)["/m"]] == ""


def test_a_coordinate_that_is_referenced_needs_its_values_and_gets_them():
    referenced = data("time", [1.0], digest="")
    file = step("a", 1.0, time=referenced)
    assert lacking(resolve([file], TIME)) == {(0, "/time", Fact.values | Fact.labels)}
    taken = coord("time", [1.0])
    held = (0, "/time", Fact.values | Fact.labels, {"values": taken, "labels": taken.values})
    found = resolve([file], TIME, held)
    at = by_path(found)["/time"]
    assert ArraySchema.loads(found.arrays.schema[at]).whole
    assert found.arrays.form[at] == Form.beside
    assert found.arrays.labels.get(at).tolist() == [1.0]
    rows = np.array([at])
    assert (found.arrays.virtual[rows][0], found.arrays.inline[rows][0]) == (0, 1)
    assert found.arrays.inline_bytes[rows][0] == 8


def test_facts_beside_that_this_way_does_not_want_are_not_shown():
    """The same catalog serves several ways of combining."""
    file = step("a", 1.0)
    before = facts_of(file)
    taken = (0, "/t", Fact.values | Fact.digest, {"values": coord("time", [1.0]), "digest": "d"})
    found = resolve([file], TIME, taken)
    at = by_path(found)["/t"]
    assert found.arrays.digest[at] == ""
    assert found.arrays.schema[at] == before.arrays.schema[at]
    assert found.arrays.form is None


def test_runs_of_values_are_cut_into_steps_of_the_joined_axis():
    long = data(("time", "x"), np.zeros((4, 200), "f4"), codecs=BYTES)
    file = File("a", {"v": long, "time": coord("time", np.arange(4.0))})
    facts = facts_of(file)
    raw = replace(long.schema, contiguous=True)
    schemas = Coded.of([raw.dumps(), file.variables["time"].schema.dumps()])
    facts = replace(facts, arrays=replace(facts.arrays, schema=schemas))
    found = resolve_needs(facts, beside(), TIME, lambda path: False, affordable=1)
    assert ArraySchema.loads(found.arrays.schema[0]).chunk_shape == (1, 200)
    assert found.arrays.form.tolist() == [Form.cut, Form.recorded]
    rows = np.array([0])
    assert found.arrays.virtual[rows][0] == 4
    assert found.arrays.virtual_bytes[rows][0] == facts.arrays.virtual_bytes[rows][0]
    other = resolve_needs(
        facts, beside(), CombineHints(concat_dim="x"), lambda path: True, affordable=1
    )
    assert not isinstance(other, LackingFacts)
    assert ArraySchema.loads(other.arrays.schema[0]).chunk_shape == (4, 200)


def test_stacked_arrays_are_compared_only_where_they_do_not_get_the_dimension():
    large = data("x", np.zeros(1 << 15), digest="")
    files = [step(n, 0.0, big=large, xc=data("x", [0, 1, 2], digest="")) for n in "ab"]
    assert lacking(resolve(files, RUN)) == {(n, "/xc", Fact.digest) for n in (0, 1)}
    named = replace(RUN, data_vars=(("run", ("t",)),))
    found = resolve(files, named)
    assert {path for _, path, _ in lacking(found)} == {"/big", "/xc"}
    assert found.equal == ("/big", "/time", "/xc")


def test_coordinates_that_groups_list_are_compared():
    large = data("x", np.zeros(1 << 15), digest="")
    files = [step(n, 0.0, attrs={"coordinates": "big"}, big=large) for n in "ab"]
    assert {path for _, path, _ in lacking(resolve(files, RUN))} == {"/big"}


# -- what is wanted of an array -------------------------------------------------------------------


def wanted(hints, path, variable, **more):
    """Return the facts wanted of an array."""

    shape = variable.values.shape
    chunks = variable.chunks or tuple(max(1, n) for n in shape)
    array = Recorded.of(path, shape, chunks, variable.schema)
    asked = {"is_equal": False, "is_referenced": False, "affordable": 1 << 20, **more}
    return hints.choose_facts(array, **asked)


CHARACTERS = Variable(dims=("time", "n"), values=np.full((2, 3), b"a", "S1"), chunks=(2, 3))


@pytest.mark.parametrize(
    ("hints", "path", "variable", "fact"),
    [
        (TIME, "/time", coord("time", [1.0]), Fact.labels),
        (TIME, "/time", data("time", [1.0]), Fact.values | Fact.labels),
        (TIME, "/t", data(("time", "x"), np.zeros((4, 8)), chunks=(1, 8)), Fact.none),
        (TIME, "/t", data(("time", "x"), np.zeros((4, 8)), chunks=(3, 8)), Fact.values),
        (TIME, "/edges", data(("time", "nv"), np.zeros((9, 2)), chunks=(9, 2)), Fact.values),
        (TIME, "/mask", data(("y", "x"), np.zeros((4, 8))), Fact.digest),
        (TIME, "/x", data("x", [1.0]), Fact.values | Fact.digest),
        (CombineHints(), "/x", data("x", [1.0]), Fact.none),
        (RUN, "/big", data("x", np.zeros(1 << 15)), Fact.none),
        (RUN, "/small", data("x", np.zeros(9)), Fact.digest),
        (replace(RUN, label_variables=("run",)), "/run", label(3), Fact.digest | Fact.labels),
        (replace(TIME, tolerant=("lat",)), "/lat", coord("y", [1.0]), Fact.digest | Fact.labels),
        (replace(TIME, tolerant=("*",)), "/lat", coord("lat", [1.0]), Fact.digest | Fact.labels),
        (replace(TIME, tolerant=("*",)), "/lat", coord("y", [1.0]), Fact.digest),
        (replace(TIME, concat_dim="t2", rename=(("time", "t2"),)), "/time", coord("time", [1.0]),
         Fact.labels),
    ],
    ids=str,
)  # fmt: skip
def test_facts_are_wanted_by_what_an_array_is_along_the_dimension(hints, path, variable, fact):
    assert wanted(hints, path, variable) == fact


def test_a_policy_that_wants_references_gets_them_except_of_labels():
    few = data(("time", "nv"), np.zeros((9, 2)), chunks=(9, 2))
    assert wanted(TIME, "/edges", few, is_referenced=True) == Fact.none
    assert Fact.values in wanted(TIME, "/time", data("time", [1.0]), is_referenced=True)


def test_a_coordinate_too_large_to_store_is_compared_by_digest():
    x = data("x", np.zeros(100))
    assert wanted(TIME, "/x", x, affordable=799) == Fact.digest


@pytest.mark.parametrize(
    ("path", "given", "found"),
    [
        ("/a/b", ("b",), True),
        ("/a/b", ("/a",), True),
        ("/ab", ("/a",), False),
        ("/a", ("b",), False),
    ],
)
def test_names_and_paths_name_nodes_and_what_lies_below(path, given, found):
    assert is_named(path, given) is found


# -- fill values that are never read ----------------------------------------------------------------


def fills_of(*written, fills=(0, 1)):
    """Return the fill values that a plan sees of files with so many of their two chunks."""
    files = [
        step(f"f{n}", float(n), v=data("x", np.zeros(4), chunks=(2,), fill=fill, written=count))
        for n, (fill, count) in enumerate(zip(fills, written, strict=True))
    ]
    found = resolve(files, TIME, *((n, "/v", Fact.digest, {}) for n in range(len(files))))
    return [
        ArraySchema.loads(found.arrays.schema[by_path(found, n)["/v"]]).fill_value
        for n in range(len(files))
    ]


def test_a_fill_value_of_files_without_holes_does_not_matter():
    assert fills_of(2, 2) == [0, 0]
    assert fills_of(2, 1) == [1, 1]
    assert fills_of(1, 2) == [0, 0]


def test_fill_values_that_are_read_stay_as_they_are():
    assert fills_of(1, 1) == [0, 1]
    assert fills_of(1, 1, 2, fills=(0, 1, 2)) == [0, 1, 2]
