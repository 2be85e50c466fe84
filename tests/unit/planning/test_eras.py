"""Files that decode alike are an era; eras are refused with what differs, or become groups."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError
from icevirt.planning.combine.prepare import prepare
from icevirt.planning.eras.group_plan import MAX_GROUPS
from icevirt.planning.eras.partition import EVERYWHERE, part
from icevirt.planning.eras.report import describe_eras
from icevirt.planning.eras.signatures import Signatures
from unit.planning.scanned_facts import (
    ZLIB,
    File,
    coord,
    data,
    facts_of,
    names,
    plan,
    spec,
    step,
)

MISSING = {"_FillValue": np.int16(-1)}


def v(scale=1.0, *, steps=1, **changes):
    """A packed variable of some scale."""
    changes.setdefault("chunks", (1, 2))
    attrs = {"scale_factor": float(scale), **changes.pop("attrs", {})}
    return data(("time", "x"), np.ones((steps, 2), "i2"), attrs=attrs, **changes)


def archive(*scales):
    """Files in the order of time; of scale None the file lacks the variable."""
    return [
        step(f"f{n}", n, t=None, v=None if scale is None else v(scale, attrs=MISSING),
             w=data("time", [1.0 * n]))
        for n, scale in enumerate(scales)
    ]  # fmt: skip


def parted(files, *dims, **options):
    asked = spec(*(dims or ("time",)), **options)
    return part(prepare(facts_of(*files), asked), asked)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.randoms())
def test_files_of_one_signature_are_an_era_numbered_by_where_it_begins(scales, random):
    files = archive(*scales)
    random.shuffle(files)
    found = parted(files)
    numbers = {scale: at for at, scale in enumerate(dict.fromkeys(scales))}
    if len(files) > 1:
        assert found.of_place.tolist() == [numbers[scale] for scale in scales]
        assert found.of_file.tolist() == [numbers[scales[int(f.name[1:])]] for f in files]
    runs = 1 + sum(a != b for a, b in itertools.pairwise(scales))
    assert found.contiguous == (runs == len(numbers))


@pytest.mark.parametrize(
    ("scales", "rule", "eras"),
    [
        ((1, None, 1), "refuse", [0, 1, 0]),
        ((1, None, 1), "reserve", [0, 0, 0]),
        ((1, None, 2), "reserve", [0, 0, 1]),
        ((None, 1, 2), "reserve", [0, 0, 1]),
        ((None, None), "reserve", [0, 0]),
        ((1, None, 2, None, 1), "reserve", [0, 0, 1, 1, 0]),
    ],
)
def test_places_that_lack_a_variable_go_with_those_before_them(scales, rule, eras):
    assert parted(archive(*scales), missing=rule).of_place.tolist() == eras


def test_values_that_the_scan_read_are_encoded_as_those_of_their_era():
    files = [step("a", 0.0, v=v()), step("b", 1.0, v=v(chunks=None)), step("c", 2.0, v=v())]
    assert parted(files).count == 1
    facts = facts_of(*files)
    found = Signatures.of(facts.arrays)
    whole, stored = found.of_row[[5, 2]].tolist()
    assert found.admits[whole] == {stored}


def test_times_that_can_be_recoded_make_no_era():
    days = [{"units": f"days since 200{n}-01-01"} for n in range(2)]
    files = [step(f"f{n}", n, time=coord("time", [1.0 * n], **days[n])) for n in range(2)]
    assert parted(files).count == 1


def test_files_that_lie_nowhere_belong_to_all_eras():
    files = [*archive(1, 2), File("grid", {"area": data("x", [1, 2])})]
    found = parted(files)
    assert found.of_file.tolist() == [0, 1, EVERYWHERE]
    assert found.rows(1).tolist() == [1, 2]


@pytest.mark.parametrize(("turned", "dimension"), [(False, "time"), (True, "m")])
def test_eras_follow_one_another_along_the_dimension_in_which_no_step_is_of_two(turned, dimension):
    files = [
        step(f"m{m}t{t}", t, t=None, v=v(1 + (m if turned else t)))
        for m in range(2)
        for t in range(2)
    ]
    found = parted(files, "time", "m", labels={"m": "regex:m([0-9])"})
    assert (found.count, found.dimension) == (2, dimension)
    mixed = [step(f"m{m}t{t}", t, t=None, v=v(1 + (m ^ t))) for m in range(2) for t in range(2)]
    assert parted(mixed, "time", "m", labels={"m": "regex:m([0-9])"}).dimension is None


# -- the report ----------------------------------------------------------------------------------


def report(files, **options):
    asked = spec("time", **options)
    prepared = prepare(facts_of(*files), asked)
    return describe_eras(prepared, part(prepared, asked), asked)


def test_a_report_says_where_eras_begin_and_what_changes():
    files = archive(1, 1, 2, 1, 1)
    found = report(files)
    assert [(e.files, e.runs, e.first[-2:], e.last[-2:]) for e in found.eras] == [
        (4, 2, "f0", "f4"),
        (1, 1, "f2", "f2"),
    ]
    assert [(e.first_label, e.last_label) for e in found.eras] == [("0.0", "4.0"), ("2.0", "2.0")]
    (change,) = found.eras[1].changes
    assert change.variable == "/v"
    assert "scale_factor 1.0 → 2.0" in change.what
    assert found.eras[0].since is None
    (apart,) = found.apart
    assert (apart.era, apart.files, apart.inside) == (1, 1, 0)


def test_a_report_lists_variables_that_come_and_go():
    found = report(archive(1, None))
    assert [str(each) for each in found.eras[1].changes] == ["/v: absent"]
    found = report(archive(None, 1))
    assert [str(each) for each in found.eras[1].changes] == ["/v: added"]
    found = report(archive(1, None, 2), missing="reserve")
    (absent,) = found.absences
    assert (absent.variable, absent.era, absent.places) == ("/v", 0, 1)
    assert absent.examples == ("file:///data/f1",)


def test_the_refusal_carries_the_eras_and_what_each_choice_costs():
    with pytest.raises(CombineError, match="encoded differently") as caught:
        plan(archive(1, 2, 2))
    eras = caught.value.facts["eras"]
    found = {each.option: each for each in eras.choices}
    assert eras.count == 2
    assert found['on_mismatch="eras"'].groups == 2
    native = found['on_mismatch="native"']
    assert (native.bytes_stored, native.max_error) == (4, 1.0)
    floats = found["on_mismatch=\"native\", float_variables=['/v']"]
    assert floats.bytes_stored == 3 * 2 * 8
    assert [each.flags for each in caught.value.fixes] == [
        ("--on-mismatch", "eras"),
        ("--float-variable", "/v"),  # the other scale does not hold every value
        ("--drop-variable", "/v"),
    ]


def test_a_choice_that_cannot_be_taken_says_why():
    files = [step(f"f{n}", n, t=None, v=v(attrs={"units": u})) for n, u in enumerate(("K", "C"))]
    with pytest.raises(CombineError) as caught:
        plan(files)
    native = caught.value.facts["eras"].choices[-1]
    assert native.does.startswith("is not possible: /v is encoded differently")


# -- groups ---------------------------------------------------------------------------------------


def test_each_era_is_a_group_and_their_parent_lists_them():
    files = archive(1, 2, 1, 2)
    made = plan(files, on_mismatch="eras", group="/g")
    assert {each.path for each in made.arrays} == {
        f"/g/era_{n}/{name}" for n in range(2) for name in ("v", "w", "time")
    }
    mark = json.loads(made.groups["/g"])["attributes"]["icevirt_eras"]
    assert mark == {
        "version": 1,
        "dimension": "time",
        "groups": ["era_0", "era_1"],
        "order": "coordinate",
        "contiguous": False,
    }
    assert names(made) == ["f0", "f2", "f1", "f3"]
    for number in range(2):
        (array,) = (each for each in made.arrays if each.path == f"/g/era_{number}/v")
        assert [names(made)[at] for at in array.files] == [f"f{number}", f"f{number + 2}"]
        attributes = json.loads(made.groups[f"/g/era_{number}"])["attributes"]
        assert (attributes["icevirt_era"], attributes["icevirt_era_files"]) == (number, 2)
    assert "scale_factor" in attributes["icevirt_era_changes"]
    assert made.eras.count == 2


def test_one_era_is_one_dataset():
    made = plan(archive(1, 1), on_mismatch="eras")
    assert made.eras is None
    assert {each.path for each in made.arrays} == {"/v", "/w", "/time"}


def test_times_of_eras_are_counted_for_each_by_itself():
    days = [{"units": f"days since 2000-01-0{1 + n}"} for n in range(4)]
    files = [
        step(f"f{n}", n, t=None, v=v(1 + n // 2), time=coord("time", [0.0], **days[n]))
        for n in range(4)
    ]
    made = plan(files, on_mismatch="eras")
    for number in range(2):
        (time,) = (each for each in made.arrays if each.path == f"/era_{number}/time")
        assert len(time.files) == 2
        assert time.times.counts.step.shape == (4,)


def test_groups_are_refused_where_eras_cannot_be_distinguished():
    overlapping = [*archive(1, 2), step("f9", 1.0, t=None, v=v(1), u=data("time", [1.0]))]
    with pytest.raises(CombineError, match="for the same steps, and decode differently"):
        plan(overlapping, on_mismatch="eras")


def test_files_of_an_era_that_do_not_combine_are_refused_with_its_name():
    """Files of other eras need not agree with them."""
    files = archive(1, 2, 2)
    for at, file in enumerate(files):
        file.variables["mask"] = data("y", [at // 2, 2])
    with pytest.raises(CombineError, match=r"era_1: variable /mask .* values differ"):
        plan(files, on_mismatch="eras")
    files[2].variables["mask"] = files[1].variables["mask"] = data("y", [7, 7])
    assert plan(files, on_mismatch="eras").eras.count == 2


def test_too_many_groups_are_refused(monkeypatch):
    monkeypatch.setattr("icevirt.planning.eras.group_plan.MAX_GROUPS", 3)
    assert MAX_GROUPS == 1000
    with pytest.raises(CombineError, match="4 eras would be too many groups"):
        plan(archive(1, 2, 3, 4), on_mismatch="eras")


def test_interleaved_eras_have_no_regular_steps():
    days = {"units": "days since 2000-01-01"}
    files = [
        step(f"f{n}", n, t=None, v=v(1 + n % 2), time=coord("time", [float(n)], **days))
        for n in range(3)
    ]
    with pytest.raises(CombineError, match="because eras interleave"):
        plan(files, on_mismatch="eras", spacing={"time": "1D"})


def test_files_of_half_the_dimensions_belong_to_no_era():
    files = [
        step("a", 0.0, t=None, v=v(1), m=coord("m", [0]), z=data(("m", "time"), [[1]])),
        step("b", 1.0, t=None, v=v(2), m=coord("m", [0]), z=data(("m", "time"), [[1]])),
        File("c", {"m": coord("m", [0])}),
    ]
    with pytest.raises(CombineError, match="only some of the dimensions"):
        plan(files, "m", "time", on_mismatch="eras")


def test_codecs_that_differ_are_named():
    files = [step("a", 0.0, v=v()), step("b", 1.0, v=v(codecs=(*ZLIB[:1], {"name": "zstd"})))]
    (change,) = report(files).eras[1].changes
    assert "zstd" in change.what


def test_choices_that_something_else_prevents_are_offered_with_what_solves_that():
    files = [
        step("a", 1.0, t=None, v=v(1)),
        step("b", 2.0, t=None, v=v(2)),
        step("c", 2.0, t=None, v=v(2)),
    ]
    with pytest.raises(CombineError, match="encoded differently") as caught:
        plan(files)
    first = caught.value.fixes[0].arguments["combine_options"]
    assert set(first) == {"on_mismatch", "combine"}  # which keeps both files
    plan(files, **first)
