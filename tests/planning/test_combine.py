"""Scanned files combine into one dataset, or are refused with the files and the difference."""

import json
from dataclasses import replace

import numpy as np
import pytest

from builds.support import closed_of, tables_of
from grouping import combine_spec
from icevirt.archive.plan import ArrayMode
from icevirt.archive.scanned import ScannedArray, ScannedFile, ScanOutcome
from icevirt.archive.schema import ScannedGroup
from icevirt.archive.sources import SourceFile
from icevirt.catalog.parts import write_part
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule.write_tasks import balance, drafts, write_items
from icevirt.storage.memory import MemoryStorage

BYTES = ({"name": "bytes", "configuration": {"endian": "little"}},)
ZLIB = (*BYTES, {"name": "numcodecs.zlib", "configuration": {"level": 4}})


def data(url, steps, *, path="/tos", edge=1, x=4, **changes):
    """A compressed variable (time, x) with a chunk every ``edge`` steps."""
    n = -(-steps // edge)
    array = ScannedArray(
        path=path,
        dimension_names=("time", "x"),
        shape=(steps, x),
        chunk_shape=(edge, x),
        data_type="float32",
        codecs=ZLIB,
        fill_value=0.0,
        attributes=Attributes(values={"units": "K"}),
        references=ChunkTable.virtual(
            index=np.stack([np.arange(n), np.zeros(n, int)], axis=1),
            offset=np.arange(n) * 100 + 1000,
            length=np.full(n, 90),
            locations=Locations.one(url),
        ),
    )
    return replace(array, **changes)


def time(values, **changes):
    """A coordinate whose values were read."""
    raw = np.asarray(values, "<f8").tobytes()
    array = ScannedArray(
        path="/time",
        dimension_names=("time",),
        shape=(len(values),),
        chunk_shape=(max(1, len(values)),),
        data_type="float64",
        codecs=BYTES,
        fill_value=0.0,
        attributes=Attributes(values={"units": "days since 2000-01-01"}),
        references=ChunkTable.of_inline(index=np.zeros((1, 1)), chunks=[raw]),
        whole=True,
        labels=raw,
        labels_dtype="<f8",
    )
    return replace(array, **changes)


def static(url, digest="same", x=4):
    """A variable without the concatenated dimension."""
    return replace(
        data(url, 1, path="/mask"), dimension_names=("y", "x"), shape=(1, x), digest=digest
    )


def file(number, *arrays, attrs=None):
    """A scanned file."""
    url = f"file:///data/f{number}.nc"
    made = [array(url) if callable(array) else array for array in arrays]
    return ScannedFile(
        source=SourceFile(url=url, size=1 << 20, last_modified=1_600_000_000_500_000_000),
        scanner="test",
        scanner_version="1",
        groups=(ScannedGroup(path="/", attributes=Attributes(values=attrs or {"title": "t"})),),
        arrays=tuple(made),
    )


def facts_of(files, per_part=2):
    """Write files to a catalog and read the facts back, as a build does."""
    storage, names = MemoryStorage(), []
    for at in range(0, len(files), per_part):
        outcomes = [
            ScanOutcome(file=f.source, scanned=f, error=None, seconds=0.0)
            for f in files[at : at + per_part]
        ]
        names.append(write_part(storage, f"p{at}", tables_of(outcomes)))
    return closed_of(storage, names).facts


def plan(*files, dim="time", **wish):
    """Combine files."""
    dims = (dim,) if isinstance(dim, str) else dim or ()
    return combine_eras(facts_of(list(files)), combine_spec(concat_dim=dims, **wish))


def step(number, value, *more, **kw):
    """A file with one time step."""
    return file(number, lambda u: data(u, 1), time([value]), *more, **kw)


def test_files_are_concatenated_in_the_order_of_their_coordinate():
    """Arrays with the dimension grow along it; the plan's files stand in that order."""
    made = plan(step(1, 3.0), step(2, 1.0), step(3, 2.0))
    assert [url[-5:] for url in made.files.url] == ["f2.nc", "f3.nc", "f1.nc"]
    tos, coordinate = made.arrays
    assert (tos.path, tos.mode, tos.shape, tos.chunk_shape) == (
        "/tos",
        ArrayMode.concat,
        (3, 4),
        (1, 4),
    )
    assert tos.starts.tolist() == [[0], [1], [2]]
    assert (coordinate.mode, coordinate.shape, coordinate.chunk_shape) == (
        ArrayMode.join,
        (3,),
        (3,),
    )
    assert json.loads(tos.zarr_json)["shape"] == [3, 4]
    assert {rule.path_regex for rule in made.split_rules} == {"^(?:/time)$", "^(?:/tos)$"}


def test_a_group_moves_everything_below_it():
    """Paths of arrays and groups are those in the repository."""
    made = plan(step(1, 1.0), step(2, 2.0), group="/ocean")
    assert [array.path for array in made.arrays] == ["/ocean/tos", "/ocean/time"]
    assert list(made.groups) == ["/ocean"]


def test_a_static_variable_is_kept_once_when_all_files_agree():
    """Its references are those of the first file."""
    made = plan(step(1, 1.0, static), step(2, 2.0, static))
    assert made.arrays[2].mode is ArrayMode.once


def test_the_last_file_may_be_short():
    """A partial chunk at the very end of an array is what zarr expects."""
    made = plan(
        file(1, lambda u: data(u, 4, edge=2), time([1.0, 2.0, 3.0, 4.0])),
        file(2, lambda u: data(u, 1, edge=2), time([5.0])),
    )
    assert made.arrays[0].shape == (5, 4)


def test_compression_levels_may_differ():
    """A decoder never looks at them; the first file's is kept."""
    other = (*BYTES, {"name": "numcodecs.zlib", "configuration": {"level": 9}})
    made = plan(step(1, 1.0), file(2, lambda u: data(u, 1, codecs=other), time([2.0])))
    assert json.loads(made.arrays[0].zarr_json)["codecs"][-1]["configuration"] == {"level": 4}


def attributes(**values):
    """Attributes of a variable."""
    return Attributes.of({"units": "K", **values})


UNLIKE = {
    "scale factor": (
        lambda u: data(u, 1, attributes=attributes(scale_factor=np.float32(0.1))),
        r"scale_factor",
    ),
    "dtype of a scale factor": (
        lambda u: data(u, 1, attributes=attributes(scale_factor=0.1)),
        "scale_factor",
    ),
    "units": (lambda u: data(u, 1, attributes=Attributes(values={"units": "degC"})), "units"),
    "fill value": (lambda u: data(u, 1, fill_value=1.0), "fill value"),
    "data type": (lambda u: data(u, 1, data_type="float64"), "data type"),
    "byte order": (
        lambda u: data(
            u,
            1,
            codecs=({"name": "bytes", "configuration": {"endian": "big"}}, ZLIB[1]),
        ),
        "codecs",
    ),
    "a filter more": (
        lambda u: data(u, 1, codecs=(BYTES[0], {"name": "numcodecs.shuffle"}, ZLIB[1])),
        "codecs",
    ),
    "chunk shape": (lambda u: data(u, 1, chunk_shape=(1, 2)), "chunk shape"),
    "dimension names": (
        lambda u: data(u, 1, dimension_names=("time", "lon")),
        "dimension names",
    ),
}


@pytest.mark.parametrize(("other", "output"), UNLIKE.values(), ids=UNLIKE.keys())
def test_a_variable_that_decodes_differently_is_refused(other, output):
    """The message names the variable, both files and the difference."""
    with pytest.raises(CombineError, match=output) as caught:
        plan(step(1, 1.0), file(2, other, time([2.0])))
    assert "/tos" in str(caught.value)
    assert {caught.value.facts["first"][-5:], caught.value.facts["other"][-5:]} == {
        "f1.nc",
        "f2.nc",
    }


REFUSED = {
    "grids differ": (
        lambda: [step(1, 1.0), file(2, lambda u: data(u, 1, x=5, chunk_shape=(1, 4)), time([2.0]))],
        "grids",
    ),
    "a variable is missing": (
        lambda: [step(1, 1.0), file(2, time([2.0]))],
        "missing at 1 of 2 file positions",
    ),
    "static values differ": (
        lambda: [step(1, 1.0, static), step(2, 2.0, lambda u: static(u, digest="other"))],
        "values differ",
    ),
    "static values were never read": (
        lambda: [
            step(1, 1.0, lambda u: static(u, digest="")),
            step(2, 2.0, lambda u: static(u, digest="")),
        ],
        "the scan did not compare them",
    ),
    "a short file in the middle": (
        lambda: [
            file(1, lambda u: data(u, 3, edge=2, x=1 << 26), time([1.0, 2.0, 3.0])),
            file(2, lambda u: data(u, 2, edge=2, x=1 << 26), time([4.0, 5.0])),
        ],
        r"2 chunks.*1 file does not begin where a chunk",
    ),
    "one step twice": (lambda: [step(1, 1.0), step(2, 2.0), step(3, 2.0)], "same step"),
    "time units differ": (
        lambda: [
            step(1, 1.0),
            file(
                2,
                lambda u: data(u, 1),
                time([2.0], attributes=Attributes(values={"units": "months since 2000-01-01"})),
            ),
        ],
        "units",
    ),
}


@pytest.mark.parametrize(("files", "output"), REFUSED.values(), ids=REFUSED.keys())
def test_files_that_do_not_fit_are_refused(files, output):
    """Never a silent choice."""
    with pytest.raises(CombineError, match=output):
        plan(*files())


def test_a_missing_dimension_is_named_with_those_there_are():
    """A typing error is answered with the choices."""
    with pytest.raises(CombineError, match=r"tme.*'time', 'x'"):
        plan(step(1, 1.0), step(2, 2.0), dim="tme")


def test_several_files_need_a_dimension():
    """Nothing is guessed."""
    with pytest.raises(CombineError, match="concat_dim"):
        plan(step(1, 1.0), step(2, 2.0), dim=None)


@pytest.mark.parametrize("policy", ["drop", "drop_conflicts", "no_conflicts", "identical"])
def test_attributes_that_decode_stay_whatever_the_policy(policy):
    """A packed variable without its scale would show other values."""
    packed = {"attributes": attributes(scale_factor=np.float32(0.1), note="x")}
    made = plan(
        file(1, lambda u: data(u, 1, **packed), time([1.0])),
        file(2, lambda u: data(u, 1, **packed), time([2.0])),
        combine_attrs=policy,
    )
    document = json.loads(made.arrays[0].zarr_json)
    assert document["attributes"]["units"] == "K"
    assert document["icevirt"]["attribute_dtypes"]["scale_factor"] == "f4"
    assert ("note" in document["attributes"]) == (policy != "drop")


def test_files_of_different_variables_at_equal_times_are_merged():
    """They lie in one cell; the coordinate is stored once."""
    made = plan(
        file(1, lambda u: data(u, 1), time([2.0])),
        file(2, lambda u: data(u, 1, path="/sos"), time([2.0])),
        file(3, lambda u: data(u, 1, path="/sos"), time([1.0])),
        file(4, lambda u: data(u, 1), time([1.0])),
        file(5, static),
    )
    assert [url[-5:] for url in made.files.url] == [f"f{n}.nc" for n in (3, 4, 1, 2, 5)]
    tos, coordinate, sos, mask = made.arrays
    assert (tos.shape, sos.shape, coordinate.shape, mask.mode) == (
        (2, 4),
        (2, 4),
        (2,),
        ArrayMode.once,
    )
    assert (tos.files.tolist(), sos.files.tolist(), mask.files.tolist()) == ([1, 2], [0, 3], [4])
    assert (tos.starts.tolist(), coordinate.starts.tolist()) == ([[0], [1]], [[0], [0], [1], [1]])
    assert (tos.expected, sos.expected, coordinate.expected) == (2, 2, 1)


def test_disagreement_is_reported_before_order():
    """Files of one variable that decodes differently do not just "overlap"."""
    other = attributes(scale_factor=0.1)
    with pytest.raises(CombineError, match="scale_factor"):
        plan(step(1, 1.0), file(2, lambda u: data(u, 1, attributes=other), time([1.0])))


def test_a_variable_in_two_files_for_the_same_steps_is_refused():
    """Also where another one is in one of them only."""
    other = file(3, lambda u: data(u, 1), lambda u: data(u, 1, path="/more"), time([2.0]))
    with pytest.raises(CombineError, match=r"overlap.*both hold /tos"):
        plan(step(1, 1.0), step(2, 2.0), other)


def test_labels_are_ordered_as_they_decode():
    """Unsigned bytes above 127 come after those below; a negative scale turns the order round."""

    def byte(number, value, **attrs):
        raw = np.array([value], np.uint8).view("i1").tobytes()
        label = time(
            [0.0],
            data_type="int8",
            labels=raw,
            labels_dtype="|i1",
            references=ChunkTable.of_inline(index=np.zeros((1, 1)), chunks=[raw]),
            attributes=Attributes(values=attrs),
        )
        return file(number, lambda u: data(u, 1), label)  # fmt: skip

    def names(**attrs):
        made = plan(*(byte(n, v, **attrs) for n, v in enumerate((100, 200, 156))))
        return [url[-4] for url in made.files.url]

    assert names(_Unsigned="true") == ["0", "2", "1"]
    assert names(_Unsigned="true", scale_factor=-2.0) == ["1", "2", "0"]


def test_attributes_follow_the_policy():
    """xarray's policies, on the groups' attributes."""
    files = (step(1, 1.0, attrs={"a": 1, "b": 1}), step(2, 2.0, attrs={"a": 1, "b": 2}))
    shown = {
        policy: json.loads(plan(*files, combine_attrs=policy).groups["/"])["attributes"]
        for policy in ("override", "drop", "drop_conflicts")
    }
    assert shown == {"override": {"a": 1, "b": 1}, "drop": {}, "drop_conflicts": {"a": 1}}
    for policy in ("identical", "no_conflicts"):
        with pytest.raises(CombineError, match="override"):
            plan(*files, combine_attrs=policy)


def test_no_item_holds_two_windows_of_one_array():
    """A manifest has one table for each array; a second window would replace the first."""
    made = plan(*(file(n, lambda u: data(u, 4), time([4.0 * n + k for k in range(4)])) for n in range(5)),
                max_references=3)  # fmt: skip
    items = list(write_items(made))
    assert len(items) > 5
    for item in items:
        nodes = [window.node_id for window in item.windows]
        assert len(set(nodes)) == len(nodes)
    boxes = [w.box for item in items for w in item.windows if w.source_path == "/tos"]
    assert sorted(low for (low, _), _ in boxes) == list(range(0, 20, 3))


def test_items_cover_every_window_once_and_share_small_manifests():
    """Small arrays over the same files lie in one manifest."""
    made = plan(*(step(n, float(n), static) for n in range(5)))
    items = list(write_items(made))
    assert [len(item.windows) for item in items] == [2, 1]
    assert sum(len(pile) for pile in balance(made, list(drafts(made)), 3)) == len(items)


@pytest.mark.parametrize("limit", [1, 2, 4, 7, 100])
def test_a_window_takes_the_files_whose_boxes_meet_it(limit):
    """Along two dimensions, one of them new, with a hole, in no order."""
    files = [
        file(10 * member + step, lambda u: data(u, 2, fill_value="NaN"), time([2.0 * step, 2.0 * step + 1]))
        for step in (2, 0, 1)
        for member in (3, 1, 2)
        if (member, step) != (2, 1)
    ]  # fmt: skip
    made = plan(
        *files, dim=("member", "time"), labels={"member": r"regex:f(\d)\d?\.nc"},
        missing="reserve", max_references=limit,
    )  # fmt: skip
    tos = next(array for array in made.arrays if array.path == "/tos")
    assert (tos.axes, tos.shape, tos.grid) == ((0, 1), (3, 6, 4), (3, 6, 1))
    ends = tos.starts + tos.lengths
    seen = []
    for item in write_items(made):
        for window in (each for each in item.windows if each.source_path == "/tos"):
            low, high = np.array(window.box[:2]).T
            wanted = ((tos.starts < high) & (ends > low)).all(axis=1)
            taken = {item.files.url[row] for row in np.flatnonzero(window.takes).tolist()}
            assert taken == {made.files.url[row] for row in tos.files[wanted].tolist()}
            seen.append(window.box)
    assert len(set(seen)) == len(seen)
    assert sum(np.prod([b - a for a, b in box]) for box in seen) >= tos.expected == 16
