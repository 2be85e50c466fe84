"""Eras are found from facts alone, and each of them is one whose files combine."""

import json
import pickle
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grouping import combine_spec
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.axis import NOWHERE
from icevirt.planning.combine.prepare import prepare
from icevirt.planning.eras import group_plan, report
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.eras.partition import part
from icevirt.planning.schedule.write_tasks import write_items
from planning.test_combine import BYTES, ZLIB, data, facts_of, file, static, time

SHUFFLE = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
SHUFFLED = {"codecs": (BYTES[0], SHUFFLE, ZLIB[1])}


def scaled(scale):
    output = {"units": "K", "scale_factor": scale, "_FillValue": 9}
    kinds = {"scale_factor": "f4", "_FillValue": "i2"}
    return {"data_type": "int16", "attributes": Attributes(values=output, dtypes=kinds)}


PACKED, SCALED = scaled(1.0), scaled(2.0)
FILLED = {"attributes": Attributes(values={"units": "K", "_FillValue": 9})}


def step(number, *more, at=None, **changes):
    """A file with one time step of /tos, and more."""
    made = time([float(number if at is None else at)])
    return file(number, lambda u: data(u, 1, **changes), made, *more)


def variable(path, **changes):
    """Another variable of one step."""
    return lambda u: data(u, 1, path=path, **changes)


def wish(**options):
    return combine_spec(**({"concat_dim": ("time",)} | options))


def parted(files, **options):
    asked = wish(**options)
    return part(prepare(facts_of(files), asked), asked)


def refused(files, **options):
    with pytest.raises(CombineError) as caught:
        combine_eras(facts_of(files), wish(**options))
    return caught.value.facts["eras"]


def grouped(files, **options):
    return combine_eras(facts_of(files), wish(on_mismatch="eras", **options))


# -- found -----------------------------------------------------------------------------------------


def test_an_era_begins_where_a_variable_is_decoded_otherwise():
    eras = refused([*(step(n) for n in range(3)), *(step(n, **SHUFFLED) for n in range(3, 5))])
    assert eras.count == 2
    one, two = eras.eras
    assert (one.name, one.files, one.first[-5:], one.last[-5:]) == ("era_0", 3, "f0.nc", "f2.nc")
    assert (two.files, two.first[-5:], two.since, two.runs) == (2, "f3.nc", 0, 1)
    assert (two.first_label, two.last_label) == ("2000-01-04", "2000-01-05")
    assert [str(change) for change in two.changes] == ["/tos: shuffle added"]
    assert [choice.groups for choice in eras.choices] == [0, 2, 0]
    assert eras.apart == ()


def test_the_refusal_names_the_eras_and_offers_groups():
    with pytest.raises(CombineError, match="is encoded differently") as caught:
        combine_eras(facts_of([step(0), step(1, **SHUFFLED)]), wish())
    assert "<2 eras: era_0 at f0.nc, era_1 at f1.nc>" in str(caught.value)
    assert 'combine_options={"on_mismatch": "eras"}' in str(caught.value)


def test_the_refusal_says_what_storing_the_deviating_files_would_take():
    """Sixteen bytes a file, exact where only the filters differ."""
    *_, native = refused([step(0), step(1), step(2, **SHUFFLED)]).choices
    assert (native.option, native.bytes_stored, native.max_error) == (
        'on_mismatch="native"',
        16,
        None,
    )
    *_, native, floats = refused([step(0, **PACKED), step(1, **PACKED), step(2, **SCALED)]).choices
    assert (native.bytes_stored, native.max_error) == (8, 0.5)
    assert "/tos is packed differently" in native.does
    assert (floats.option, floats.bytes_stored) == (
        "on_mismatch=\"native\", float_variables=['/tos']", 48,
    )  # fmt: skip
    (_, _, native) = refused(
        [step(0), step(1, attributes=Attributes(values={"units": "m"}))]
    ).choices
    assert native.does.startswith("is not possible: /tos is encoded differently")


def test_groups_store_nothing():
    made = grouped([step(0), step(1), step(2, **SHUFFLED)])
    assert made.eras.count == 2
    assert all(array.hybrid is None for array in made.arrays)


def test_files_that_go_back_to_what_was_are_the_same_era():
    files = [*(step(n) for n in range(4)), step(4, **SHUFFLED), *(step(n) for n in range(5, 9))]
    eras = refused(files)
    assert [(era.files, era.runs) for era in eras.eras] == [(8, 2), (1, 1)]
    (run,) = eras.apart
    assert (run.era, run.inside, run.files, run.first[-5:]) == (1, 0, 1, "f4.nc")


def test_an_era_is_compared_with_the_one_right_before_it():
    other = SHUFFLED | {"chunk_shape": (1, 2), "references": data("file:///u", 1).references}
    eras = refused([step(0), step(1, **SHUFFLED), step(2), step(3, **other)])
    assert [era.since for era in eras.eras] == [None, 0, 0]
    assert eras.eras[2].changes[0].what == "chunks of 1×4 → 1×2; shuffle added"


def test_eras_are_in_the_order_of_the_coordinate_not_of_arrival():
    files = [step(0, at=5.0, **SHUFFLED), step(1, at=1.0), step(2, at=6.0, **SHUFFLED)]
    eras = refused(files)
    assert [era.first[-5:] for era in eras.eras] == ["f1.nc", "f0.nc"]


NO_ERA = {
    "a compression level": {"codecs": (BYTES[0], ZLIB[1] | {"configuration": {"level": 9}})},
    "an attribute that decodes nothing": {
        "attributes": Attributes(values={"units": "K", "comment": "other"})
    },
}


@pytest.mark.parametrize("changes", NO_ERA.values(), ids=NO_ERA.keys())
def test_no_era_begins_with(changes):
    files = [step(0), step(1, **changes)]
    assert parted(files).count == 1
    assert combine_eras(facts_of(files), wish()).eras is None


def test_times_that_count_from_another_date_in_each_file_make_no_era():
    def at(number):
        units = Attributes(values={"units": f"days since 2000-01-{1 + number:02d}"})
        return file(number, lambda u: data(u, 1), time([0.0], attributes=units))

    assert parted([at(n) for n in range(5)]).count == 1


def test_times_of_other_calendars_are_eras_whatever_they_count_from():
    def at(number, calendar):
        output = {"units": f"days since 2000-01-{1 + number:02d}", "calendar": calendar}
        return file(number, lambda u: data(u, 1), time([0.0], attributes=Attributes(values=output)))

    files = [at(n, "noleap") for n in range(3)] + [at(n, "standard") for n in range(3, 6)]
    found = parted(files)
    assert (found.count, found.ordered) == (2, False)
    made = grouped(files)
    units = [json.loads(a.zarr_json)["attributes"]["calendar"] for a in made.arrays[1::2]]
    assert units == ["noleap", "standard"]


def test_equal_steps_of_one_era_are_refused_though_others_count_otherwise():
    """Equal numbers of two calendars are no equal steps, those of one calendar are."""

    def at(number, calendar, day):
        output = {"units": f"days since 2000-01-{day:02d}", "calendar": calendar}
        label = time([3.0 - day], attributes=Attributes(values=output))
        return file(number, lambda u: data(u, 1), label)

    files = [at(0, "noleap", 1), at(1, "noleap", 2), at(2, "standard", 1)]
    with pytest.raises(CombineError, match=r"era_0: 2 files hold .* the same step"):
        grouped(files)


def test_values_that_the_scan_read_are_of_the_era_around_them():
    """They are encoded anew, as their neighbours are."""
    raw = np.zeros(4, "<f4").tobytes()
    whole = {"whole": True, "chunk_shape": (1, 4), "codecs": BYTES, "references": None}

    def stored(number):
        from icevirt.model.chunks import ChunkTable

        table = ChunkTable.of_inline(index=np.zeros((1, 2)), chunks=[raw])
        return step(number, **(whole | {"references": table}))

    files = [step(0), stored(1), step(2, **SHUFFLED), stored(3), stored(4)]
    found = parted(files)
    assert found.of_file.tolist() == [0, 0, 1, 1, 1]
    assert parted([stored(0), step(1), step(2)]).count == 1
    assert [a.shape[0] for a in grouped(files).arrays if a.path.endswith("tos")] == [2, 3]


# -- variables that files lack ---------------------------------------------------------------------


def sst(number, **changes):
    return step(number, variable("/sst", **(FILLED | changes)), **FILLED)


def test_a_variable_that_files_lack_makes_an_era_unless_its_steps_can_be_reserved():
    files = [sst(0), step(1, **FILLED), sst(2)]
    assert parted(files).of_file.tolist() == [0, 1, 0]
    assert parted(files, missing="reserve").count == 1
    eras = refused(files)
    assert eras.eras[1].changes[0].what == "absent"
    assert eras.apart[0].first.endswith("f1.nc")


def test_it_makes_one_where_no_value_reads_as_missing():
    flags = variable("/flags", data_type="int8", attributes=Attributes())
    files = [step(0, flags), step(1), step(2, flags)]
    assert parted(files, missing="reserve").of_file.tolist() == [0, 1, 0]


def test_a_file_that_lacks_what_tells_eras_apart_goes_with_those_before_it():
    files = [step(n, **FILLED) for n in range(6)]
    files[1], files[3] = sst(1), sst(3, **SHUFFLED)
    found = parted(files, missing="reserve")
    assert found.of_file.tolist() == [0, 0, 0, 1, 1, 1]
    eras = refused([step(n, **FILLED) if n in (0, 2, 4) else sst(n, **SHUFFLED if n > 2 else {})
                    for n in range(6)], missing="reserve")  # fmt: skip
    assert [(a.variable, a.era, a.places) for a in eras.absences] == [
        ("/sst", 0, 2), ("/sst", 1, 1),
    ]  # fmt: skip
    assert eras.absences[0].examples[0].endswith("f0.nc")


def test_files_of_one_place_are_of_one_era():
    """A variable a file: both of 2001 are packed otherwise than those of 2000."""

    def one(number, name, at, **changes):
        return file(number, variable(f"/{name}", **changes), time([at]))

    files = [
        one(0, "tas", 1.0), one(1, "pr", 1.0), one(2, "tas", 2.0), one(3, "pr", 2.0, **SHUFFLED),
    ]  # fmt: skip
    assert parted(files).of_file.tolist() == [0, 0, 1, 1]
    made = grouped(files)
    assert [array.path for array in made.arrays if array.path.endswith(("tas", "pr"))] == [
        "/era_0/tas", "/era_0/pr", "/era_1/tas", "/era_1/pr",
    ]  # fmt: skip


def test_a_fixed_field_is_in_every_group():
    fixed = file(9, static)
    made = grouped([step(0), step(1, **SHUFFLED), fixed])
    assert [array.path for array in made.arrays if "mask" in array.path] == [
        "/era_0/mask",
        "/era_1/mask",
    ]
    assert len(made.files) == 3  # once, though it is in both


# -- groups ----------------------------------------------------------------------------------------


def test_each_era_is_a_group_that_says_what_it_is():
    made = grouped([step(0), step(1, **SHUFFLED), step(2, **SHUFFLED)], group="/ocean")
    assert list(made.groups) == ["/ocean", "/ocean/era_0", "/ocean/era_1"]
    mark, one, two = (json.loads(each)["attributes"] for each in made.groups.values())
    assert mark == {
        "icevirt_eras": {
            "version": 1, "dimension": "time", "groups": ["era_0", "era_1"],
            "order": "coordinate", "contiguous": True,
        }
    }  # fmt: skip
    assert one == {
        "title": "t", "icevirt_era": 0, "icevirt_era_files": 1,
        "icevirt_era_first": "2000-01-01", "icevirt_era_last": "2000-01-01",
    }  # fmt: skip
    assert two["icevirt_era_changes"] == "since era_0: /tos: shuffle added"
    assert two["icevirt_era_files"] == 2
    assert made.eras.count == 2


def test_eras_between_one_another_are_marked():
    made = grouped([step(0), step(1, **SHUFFLED), step(2)])
    assert not json.loads(made.groups["/"])["attributes"]["icevirt_eras"]["contiguous"]
    assert [array.shape for array in made.arrays if "tos" in array.path] == [(2, 4), (1, 4)]


def test_an_order_that_a_person_gave_is_marked():
    def scenario(number, **changes):
        return file(number, variable("/tos", **changes))

    files = [scenario(0), scenario(1, **SHUFFLED)]
    for labels, order in (["B", "A"], "given"), (r"regex:f([0-9])\.nc", "coordinate"):
        made = grouped(files, concat_dim=("scenario",), labels={"scenario": labels})
        assert json.loads(made.groups["/"])["attributes"]["icevirt_eras"]["order"] == order


def test_steps_of_a_regular_axis_are_reserved_within_an_era_only():
    files = [step(0), step(2), step(3, **SHUFFLED), step(6, **SHUFFLED)]
    made = grouped(files, missing="reserve", spacing={"time": "1D"})
    assert [array.shape[0] for array in made.arrays if "tos" in array.path] == [3, 4]
    with pytest.raises(CombineError, match="because eras interleave"):
        grouped([*files, step(8)], missing="reserve", spacing={"time": "1D"})


def test_one_era_is_no_group():
    made = grouped([step(0), step(1)])
    assert list(made.groups) == ["/"]
    assert made.eras is None


def test_the_order_of_files_does_not_matter():
    files = [step(n, **(SHUFFLED if n in (2, 3, 7) else {})) for n in range(9)]
    one, other = grouped(files), grouped(files[::-1])
    assert list(one.files.url) == list(other.files.url)
    assert one.groups == other.groups


def test_every_written_window_knows_its_own_files():
    made = grouped([step(0), step(1, **SHUFFLED), step(2)])
    output = defaultdict(list)
    for item in write_items(made):
        for window in item.windows:
            output[bytes(window.node_id)] += [
                url[-5:] for url, takes in zip(item.files.url, window.takes, strict=True) if takes
            ]
    expected = {"/era_0/tos": ["f0.nc", "f2.nc"], "/era_1/tos": ["f1.nc"]}
    assert {a.path: output[bytes(a.node_id)] for a in made.arrays if "tos" in a.path} == expected


def test_duplicates_of_another_era_are_settled_before():
    files = [step(0), step(1), step(2, at=1.0, **SHUFFLED), step(3, **SHUFFLED)]
    made = grouped(files, duplicates="last")
    assert [url[-5:] for url in made.files.url] == ["f0.nc", "f2.nc", "f3.nc"]
    assert [each.url[-5:] for each in made.left_out] == ["f1.nc"]


def test_the_same_step_in_two_eras_is_refused():
    files = [step(0), step(1), step(2, at=1.0, **SHUFFLED), step(3, **SHUFFLED)]
    with pytest.raises(CombineError, match="two files overlap along 'time'") as caught:
        grouped(files)
    assert [caught.value.facts[n][-5:] for n in ("first", "second")] == ["f1.nc", "f2.nc"]


def test_an_era_that_does_not_combine_is_named():
    many = ({"shape": (1, 4 + n), "chunk_shape": (1, 4)} for n in range(6))  # no few grids
    files = [step(0), *(step(n, **(SHUFFLED | each)) for n, each in enumerate(many, 1))]
    with pytest.raises(CombineError, match=r"^era_1: the grids of variable /tos differ"):
        grouped(files)


def test_too_many_eras_are_refused_with_their_number(monkeypatch):
    monkeypatch.setattr(group_plan, "MAX_GROUPS", 3)
    files = [step(n, attributes=Attributes(values={"scale_factor": 1.0 + n})) for n in range(6)]
    with pytest.raises(CombineError, match="6 eras would be too many groups") as caught:
        grouped(files)
    assert caught.value.facts["eras"].count == 6


def test_a_report_stays_short_and_counts_the_rest(monkeypatch):
    monkeypatch.setattr(report, "MAX_REPORTED", 2)
    found = [step(n, attributes=Attributes(values={"scale_factor": 1.0 + n})) for n in range(6)]
    asked = wish()
    ready = prepare(facts_of(found), asked)
    eras = report.describe_eras(ready, part(ready, asked), asked, limit=2)
    assert (eras.count, len(eras.eras)) == (6, 2)


def test_labels_of_a_new_dimension_are_places_too():
    def scenario(number, **changes):
        return file(number, variable("/tos", **changes), static)

    files = [scenario(n, **(SHUFFLED if n == 2 else {})) for n in range(3)]
    made = combine_eras(
        facts_of(files),
        wish(on_mismatch="eras", concat_dim=("scenario",), labels={"scenario": ["A", "B", "C"]}),
    )
    shapes = {array.path: array.shape for array in made.arrays}
    assert shapes["/era_0/tos"] == (2, 1, 4)
    assert shapes["/era_1/tos"] == (1, 1, 4)
    assert shapes["/era_1/scenario"] == (1,)


def cube(changed):
    """Files of two starts and three leads, given by their names; some are packed otherwise."""
    return [
        file(10 * init + lead, variable("/tos", **(SHUFFLED if changed(init, lead) else {})))
        for init in (1, 2)
        for lead in (3, 4, 5)
    ]


CUBE = {
    "concat_dim": ("init", "lead"),
    "labels": {"init": r"regex:f([0-9])[0-9]\.nc", "lead": r"regex:f[0-9]([0-9])\.nc"},
}


def test_eras_along_one_of_several_dimensions_are_put_together_along_it():
    for changed, dimension, shapes in (
        (lambda init, lead: init == 2, "init", [(1, 3, 1, 4), (1, 3, 1, 4)]),
        (lambda init, lead: lead == 5, "lead", [(2, 2, 1, 4), (2, 1, 1, 4)]),
    ):
        made = grouped(cube(changed), **CUBE)
        mark = json.loads(made.groups["/"])["attributes"]["icevirt_eras"]
        assert mark["dimension"] == dimension
        assert [array.shape for array in made.arrays if "tos" in array.path] == shapes


def test_eras_that_are_no_boxes_have_no_dimension():
    made = grouped(cube(lambda init, lead: (init, lead) == (2, 5)), missing="reserve", **CUBE)
    mark = json.loads(made.groups["/"])["attributes"]["icevirt_eras"]
    assert (mark["dimension"], mark["groups"]) == (None, ["era_0", "era_1"])


def test_a_refusal_with_its_eras_travels_between_processes():
    with pytest.raises(CombineError) as caught:
        combine_eras(facts_of([step(0), step(1, **SHUFFLED)]), wish())
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.facts["eras"] == caught.value.facts["eras"]
    assert str(again) == str(caught.value)


# -- held against the obvious way ------------------------------------------------------------------

KIND = {
    "plain": {},
    "shuffled": SHUFFLED,
    "scaled": SCALED,
    "absent": None,
}
PLACE = st.tuples(st.sampled_from(list(KIND)), st.sampled_from(list(KIND)))


@pytest.mark.ci
@settings(max_examples=15)
@given(st.lists(PLACE, min_size=2, max_size=9), st.sampled_from(["refuse", "reserve"]))
def test_eras_are_as_few_as_combine_and_all_of_them_do(places, holes):
    """Two files of an era agree wherever both have a variable; each era is a plan of its own."""
    files = []
    for number, kinds in enumerate(places):
        held = [
            variable(path, **(FILLED | (KIND[kind] or {})))
            for path, kind in zip(("/a", "/b"), kinds, strict=True)
            if kind != "absent"
        ]
        files.append(file(number, variable("/always", **FILLED), *held, time([float(number)])))
    found = parted(files, missing=holes)
    assert (found.of_file != NOWHERE).all()
    firsts = [int(np.argmax(found.of_file == era)) for era in range(found.count)]
    assert firsts == sorted(firsts)
    for era in range(found.count):
        members = [places[at] for at in np.flatnonzero(found.of_file == era)]
        for column in zip(*members, strict=True):
            kinds = set(column) - ({"absent"} if holes == "reserve" else set())
            assert len(kinds) <= 1
    if holes == "refuse":
        assert found.count == len(set(places))
    else:
        assert found.count <= len(set(places))
    made = grouped(files, missing=holes)
    assert sum(a.shape[0] for a in made.arrays if a.path.endswith("/always")) == len(files)
