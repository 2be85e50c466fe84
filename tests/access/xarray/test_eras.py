"""The engine shows eras as one lazy dataset: all that it shows equals what xarray concatenates."""

import asyncio
import pickle
from itertools import product

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.access.xarray.backend import IcevirtBackendEntrypoint
from icevirt.access.xarray.era_arrays import EraSteps
from icevirt.errors import CombineError, FormatError, InvalidInputError, NodeNotFoundError
from icevirt.repo.repository import Repository
from long_forms import crossed

pytestmark = pytest.mark.ci


def written(root, *datasets, parent=None, marked=True, dimension="t", contiguous=True, **mark):
    """Write datasets as eras, each by its own encoding."""
    repo = Repository.create(root)
    session = repo.writable_session("main")
    names = [f"era_{number}" for number in range(len(datasets))]
    output = {
        "version": 1, "dimension": dimension, "groups": names, "order": "coordinate",
        "contiguous": contiguous,
    } | mark  # fmt: skip
    at = "" if parent is None else f"{parent}/"
    xr.Dataset(attrs={"icevirt_eras": output} if marked else {}).to_zarr(
        session.store, group=parent, mode="a", zarr_format=3, consolidated=False
    )
    for number, (name, dataset) in enumerate(zip(names, datasets, strict=True)):
        groups = dataset if isinstance(dataset, dict) else {"": dataset}
        for inner, each in groups.items():
            output = {} if inner else {"icevirt_era": number, "icevirt_era_files": 1}
            each.assign_attrs(output).to_zarr(
                session.store, group=f"{at}{name}/{inner}".rstrip("/"), zarr_format=3,
                consolidated=False,
            )  # fmt: skip
    session.commit("eras")
    return root


def by_xarray(*datasets):
    return xr.concat(
        datasets, "t", data_vars="minimal", coords="minimal", compat="equals", join="exact",
        combine_attrs="override",
    )  # fmt: skip


def opened(root, **options):
    return xr.open_dataset(root, engine="icevirt", eras="concat", **options)


def days(first, count):
    return xr.date_range("2000-01-01", periods=first + count)[first:].to_numpy()


def packed(first, count, scale, **attrs):
    """Integers with a scale, in chunks of two steps."""
    values = (np.arange(count * 3).reshape(count, 3) + first) * scale
    values[0, 0] = np.nan
    dataset = xr.Dataset(
        {"a": (("t", "x"), values, {"units": "K", **attrs})},
        coords={"t": days(first, count), "x": [1.0, 2.0, 3.0], "depth": 5.0},
        attrs={"title": f"from {first}"},
    )
    dataset["a"].encoding = {
        "dtype": "i2", "scale_factor": scale, "_FillValue": np.int16(-1), "chunks": (2, 3),
    }  # fmt: skip
    dataset["t"].encoding = {"units": "days since 2000-01-01", "chunks": (4,)}
    return dataset


def test_other_scales_are_decoded_each_by_its_own(tmp_path):
    eras = packed(0, 5, 0.5), packed(5, 4, 0.25), packed(9, 1, 2.0)
    found = opened(written(tmp_path / "repo", *eras))
    xr.testing.assert_identical(found.load(), by_xarray(*eras))


def test_steps_are_in_the_order_of_their_coordinate_whichever_era_they_are_of(tmp_path):
    whole = packed(0, 12, 0.5)
    one, other = whole.isel(t=[0, 1, 2, 3, 8, 9, 11]), whole.isel(t=[4, 5, 6, 7, 10])
    root = written(tmp_path / "repo", one, other, contiguous=False)
    xr.testing.assert_identical(opened(root).load(), whole)


def test_a_coordinate_may_fall(tmp_path):
    whole = packed(0, 9, 0.5).isel(t=slice(None, None, -1))
    root = written(tmp_path / "repo", whole.isel(t=slice(0, 6)), whole.isel(t=slice(6, None)))
    xr.testing.assert_identical(opened(root).load(), whole)


def test_eras_without_a_coordinate_follow_one_another(tmp_path):
    eras = packed(0, 3, 0.5).drop_vars("t"), packed(3, 2, 0.5).drop_vars("t")
    xr.testing.assert_identical(opened(written(tmp_path / "repo", *eras)).load(), by_xarray(*eras))


def test_an_order_that_a_person_gave_counts_more_than_a_coordinate(tmp_path):
    eras = packed(5, 3, 0.5), packed(0, 3, 0.25)
    root = written(tmp_path / "repo", *eras, order="given")
    xr.testing.assert_identical(opened(root).load(), by_xarray(*eras))
    root = written(tmp_path / "other", *eras, order="given", contiguous=False)
    with pytest.raises(CombineError, match="orders them"):
        opened(root)


def test_a_coordinate_that_is_everywhere_the_same_orders_nothing(tmp_path):
    eras = packed(0, 1, 0.5), packed(4, 1, 0.5)
    eras = eras[0], eras[1].assign_coords(t=eras[0].t)
    xr.testing.assert_identical(opened(written(tmp_path / "repo", *eras)).load(), by_xarray(*eras))


ONE = {"t": [0, 1], "x": [1.0, 2.0, 3.0]}
OTHER = {"t": [2, 3, 4], "x": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("calendar", ["noleap", "360_day"])
def test_dates_of_other_calendars_are_ordered_too(tmp_path, calendar):
    times = xr.date_range("2000-02-27", periods=6, calendar=calendar, use_cftime=True)
    whole = packed(0, 6, 0.5).assign_coords(t=times)
    whole["t"].encoding = {"units": "days since 2000-01-01", "calendar": calendar}
    eras = whole.isel(t=[0, 1, 4]), whole.isel(t=[2, 3, 5])
    root = written(tmp_path / "repo", *eras, contiguous=False)
    xr.testing.assert_identical(opened(root).load(), whole)


KINDS = {
    "small integers": (np.int16, np.int32),
    "an integer and a small float": (np.int16, np.float32),
    "a wide integer and a small float": (np.int64, np.float32),
    "floats": (np.float32, np.float64),
    "signed and unsigned": (np.int64, np.uint64),
    "booleans and numbers": (np.bool_, np.int8),
    "texts of other lengths": ("U2", "U7"),
    "bytes of other lengths": ("S2", "S7"),
    "dates": ("M8[ns]", "M8[ns]"),
}


@pytest.mark.parametrize(
    ("name", "missing"),
    [*product(KINDS, [None]), *crossed(KINDS, [0, 1])],
)
def test_dtypes_and_missing_variables_are_those_of_xarray(tmp_path, name, missing):
    eras = []
    for kind, coords in zip(KINDS[name], (ONE, OTHER), strict=True):
        shape = (len(coords["t"]), 3)
        values = np.arange(6 if coords is ONE else 9).reshape(shape).astype("i8").astype(kind)
        eras.append(xr.Dataset({"a": (("t", "x"), values), "b": ("t", values[:, 0])}, coords))
    if missing is not None:
        eras[missing] = eras[missing].drop_vars("a")
    root = written(tmp_path / "repo", *eras)
    each = [xr.open_dataset(root, engine="icevirt", group=f"era_{n}") for n in (0, 1)]
    expected = by_xarray(*(one.drop_attrs().load() for one in each))
    found = opened(root)
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name  # before a value is read
    xr.testing.assert_identical(found.load(), expected)
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name
    assert list(found.variables) == list(expected.variables)


def test_groups_below_eras_are_opened_without_their_names(tmp_path):
    eras = [
        {"": xr.Dataset(attrs={"title": "t"}), "grid": packed(first, 2, 0.5)} for first in (0, 2)
    ]
    root = written(tmp_path / "repo", *eras, parent="sat/goes")
    whole = by_xarray(*(each["grid"] for each in eras))
    xr.testing.assert_identical(opened(root, group="sat/goes/grid").load(), whole)
    assert opened(root, group="sat/goes").attrs == {"title": "t"}
    assert not opened(root, group="sat").variables
    one = opened(root, group="sat/goes/era_1/grid")  # by its name it is one era
    xr.testing.assert_identical(one.load(), eras[1]["grid"])
    tree = xr.open_datatree(root, engine="icevirt", eras="concat")
    assert [node.path for node in tree.subtree] == ["/", "/sat", "/sat/goes", "/sat/goes/grid"]
    xr.testing.assert_identical(tree["sat/goes/grid"].to_dataset().load(), whole)
    tree = xr.open_datatree(root, engine="icevirt", eras="concat", group="sat/goes/grid")
    xr.testing.assert_identical(tree.to_dataset().load(), whole)


def test_a_group_without_eras_is_shown_as_it_is(tmp_path):
    root = written(tmp_path / "repo", packed(0, 3, 0.5), marked=False)
    assert not opened(root).variables
    xr.testing.assert_identical(
        opened(root, group="era_0").load().drop_attrs(deep=False),
        packed(0, 3, 0.5).drop_attrs(deep=False),
    )


# -- laziness --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory):
    """Twelve steps of three eras, one without the variable b."""
    whole = packed(0, 12, 0.5)
    whole["b"] = ("t", "x"), np.arange(36, dtype=np.int8).reshape(12, 3)
    whole["text"] = "t", np.array([f"step {n}" for n in range(12)], object)
    parts = [whole.isel(t=[0, 1, 5, 6]), whole.isel(t=[2, 3, 4, 11]), whole.isel(t=[7, 8, 9, 10])]
    parts[1] = parts[1].drop_vars("b")
    root = written(tmp_path_factory.mktemp("eras") / "repo", *parts, contiguous=False)
    return root, opened(root).load(), opened(root)


END = st.none() | st.integers(-13, 13)
SLICE = st.builds(slice, END, END, st.sampled_from([None, 1, 2, 5, -1, -3]))
INDEX = st.one_of(
    st.integers(-12, 11),
    # xarray itself fails on slices that fall and hold nothing
    SLICE.filter(lambda s: (s.step or 1) > 0 or len(range(*s.indices(12)))),
    st.lists(st.integers(-12, 11), min_size=1, max_size=9),
)  # fmt: skip
SHORT = st.one_of(
    st.integers(-3, 2), st.builds(slice, st.none() | st.integers(0, 3)), st.just([2, 0])
)


@pytest.mark.ci
@settings(max_examples=15)
@given(name=st.sampled_from(["a", "b", "text"]), along=INDEX, across=SHORT)
def test_what_is_indexed_is_read_as_from_memory(interleaved, name, along, across):
    _, expected, lazy = interleaved
    key = {"t": along, "x": across} if name != "text" else {"t": along}
    xr.testing.assert_identical(lazy[name].isel(key).load(), expected[name].isel(key))


@settings(max_examples=10)
@given(points=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 2)), min_size=1, max_size=8))
def test_points_are_read_as_from_memory(interleaved, points):
    _, expected, lazy = interleaved
    key = {
        name: xr.DataArray([point[axis] for point in points], dims="p")
        for axis, name in enumerate(("t", "x"))
    }
    xr.testing.assert_identical(lazy["b"].isel(key).load(), expected["b"].isel(key))


def test_nothing_is_read_of_eras_that_were_not_asked_for(interleaved, monkeypatch):
    from icevirt.access.xarray.datastore import LazyArray

    dataset, read = opened(interleaved[0]), []
    plain = LazyArray.__getitem__
    monkeypatch.setattr(
        LazyArray,
        "__getitem__",
        lambda self, key: read.append(self._array.zarr.path) or plain(self, key),
    )
    dataset["a"].variable.isel(t=slice(7, 11)).load()
    assert set(read) == {"era_2/a"}
    read.clear()
    dataset["a"].variable.isel(t=[0, 5, 11]).load()
    assert sorted(read) == ["era_0/a", "era_1/a"]


def test_it_can_be_sent_to_other_processes(interleaved):
    root, expected, _ = interleaved
    xr.testing.assert_identical(pickle.loads(pickle.dumps(opened(root))).load(), expected)


def test_it_is_read_by_dask_in_chunks_that_end_with_an_era(interleaved):
    root, expected, _ = interleaved
    lazy = opened(root, chunks={})
    assert lazy["a"].chunks == ((2, 2, 1, 2, 2, 2, 1), (3,))
    xr.testing.assert_identical(lazy.compute(scheduler="threads"), expected)


def test_chunks_of_one_length_are_reported_as_one_number(tmp_path):
    root = written(tmp_path / "repo", packed(0, 4, 0.5), packed(4, 3, 0.25))
    assert opened(root)["a"].encoding["preferred_chunks"] == {"t": 2, "x": 3}


def test_it_is_read_asynchronously(interleaved):
    root, expected, _ = interleaved
    loaded = asyncio.run(opened(root)[["a", "b"]].load_async())
    xr.testing.assert_identical(loaded, expected[["a", "b"]])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_runs_tell_the_same_as_a_row_for_each_step(eras):
    era = np.array(eras)
    inner = np.array([eras[:at].count(each) for at, each in enumerate(eras)])
    steps = EraSteps.of(era, inner)
    found = steps.find(np.arange(len(eras)))
    assert [each.tolist() for each in found] == [era.tolist(), inner.tolist()]
    assert steps.lengths.sum() == steps.total == len(eras)


# -- encodings ------------------------------------------------------------------------------------


def test_packing_that_differs_is_not_half_kept(tmp_path):
    """Whoever writes the dataset again must not round its values."""
    eras = packed(0, 3, 0.5), packed(3, 2, 0.003)
    found = opened(written(tmp_path / "repo", *eras))
    assert not {"dtype", "scale_factor", "_FillValue", "add_offset"} & found["a"].encoding.keys()
    assert found["t"].encoding["units"] == "days since 2000-01-01"
    found.to_netcdf(tmp_path / "again.nc")
    with xr.open_dataset(tmp_path / "again.nc") as again:
        xr.testing.assert_identical(again.load(), by_xarray(*eras))


def test_packing_that_is_the_same_is_kept(tmp_path):
    found = opened(written(tmp_path / "repo", packed(0, 3, 0.5), packed(3, 2, 0.5)))
    assert found["a"].encoding["scale_factor"] == 0.5
    assert found["a"].encoding["dtype"] == np.int16
    assert found["a"].encoding["_FillValue"] == -1


def test_another_spelling_of_a_unit_is_that_unit(tmp_path):
    eras = [packed(0, 3, 0.5, units="m s-1"), packed(3, 2, 0.5, units="metres / second")]
    assert opened(written(tmp_path / "repo", *eras))["a"].attrs["units"] == "m s-1"


# -- what is refused -------------------------------------------------------------------------------


def plain(first=3, **changes):
    return packed(first, 2, 0.5).assign(**changes)


REFUSED = {
    "other units": (packed(3, 2, 0.5, units="degC"), "attribute units"),
    "other flags": (packed(3, 2, 0.5, flag_meanings="a b"), "attribute flag_meanings"),
    "other dimensions": (
        plain(a=plain().a.transpose("x", "t")), "other dimensions",
    ),
    "no dimension": (plain(a=("x", [1.0, 2.0, 3.0])).drop_vars("t"), "other dimensions"),
    "another grid": (plain().isel(x=[0, 1]), "dimension 'x' differs"),
    "other coordinate values": (plain().assign_coords(x=[1.0, 2.0, 3.5]), "'x' is not the same"),
    "numbers of its own steps": (
        plain(n=("t", [1, 0], {"instance_dimension": "t"})), "'n' numbers the steps along 't'",
    ),
    "a step twice": (plain(2), "two hold the same step of 't'"),
    "a missing coordinate along it": (
        plain().assign_coords(extra=("t", [1, 2])), "coordinate 'extra' not present",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("other", "match"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_one_dataset_is_refused(tmp_path, other, match):
    root = written(tmp_path / "repo", packed(0, 3, 0.5), other)
    with pytest.raises(CombineError, match=match) as caught:
        opened(root)
    assert "era_" in str(caught.value) or "extra" in str(caught.value)


def test_a_variable_without_the_dimension_that_differs_is_refused_when_it_is_read(tmp_path):
    eras = [
        packed(first, 2, 0.5).assign(height=("x", [1.0, 2.0, last]))
        for first, last in ((0, 3.0), (2, 4.0))
    ]
    dataset = opened(written(tmp_path / "repo", *eras))
    with pytest.raises(CombineError, match="'height' is not the same in all eras"):
        dataset["height"].load()
    assert dataset["height"].isel(x=slice(0, 2)).values.tolist() == [1.0, 2.0]
    assert dataset["a"].load().sizes["t"] == 4


def test_packed_values_of_other_scales_are_not_put_together_undecoded(tmp_path):
    root = written(tmp_path / "repo", packed(0, 3, 0.5), packed(3, 2, 0.25))
    with pytest.raises(CombineError, match="attribute scale_factor"):
        opened(root, mask_and_scale=False)
    raw = opened(root, mask_and_scale=False, drop_variables="a")
    assert set(raw.variables) == {"t", "x", "depth"}


def test_eras_along_several_dimensions_are_refused(tmp_path):
    root = written(tmp_path / "repo", packed(0, 2, 0.5), packed(2, 2, 0.5), dimension=None)
    with pytest.raises(CombineError, match="along several dimensions"):
        opened(root)


def test_groups_of_a_mark_that_are_not_there_are_reported(tmp_path):
    for number, names in enumerate((["era_0", "gone"], ["gone"], ["era_0", "../era_0"])):
        root = written(tmp_path / f"{number}", packed(0, 2, 0.5), groups=names)
        with pytest.raises((CombineError, NodeNotFoundError, InvalidInputError)):
            opened(root)


def test_eras_between_one_another_need_a_coordinate(tmp_path):
    eras = [packed(first, 2, 0.5).drop_vars("t") for first in (0, 2)]
    root = written(tmp_path / "repo", *eras, contiguous=False)
    with pytest.raises(CombineError, match="no coordinate 't' orders them"):
        opened(root)


def test_a_group_that_only_some_eras_have_is_refused(tmp_path):
    eras = {"": packed(0, 2, 0.5), "more": packed(0, 2, 0.5)}, packed(2, 2, 0.5)
    root = written(tmp_path / "repo", *eras)
    with pytest.raises(CombineError, match="not in all eras") as caught:
        opened(root, group="more")
    assert caught.value.facts["lacking"] == ["era_1"]
    with pytest.raises(NodeNotFoundError):
        opened(root, group="nowhere")


MARKS = {
    "of a newer version": {"version": 2},
    "without groups": {"groups": []},
    "of no words": {"groups": "era_0"},
    "with a number as dimension": {"dimension": 7},
    "of an unknown order": {"order": "random"},
}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS.keys())
def test_a_mark_is_refused_that_is(tmp_path, mark):
    root = written(tmp_path / "repo", packed(0, 2, 0.5), **mark)
    with pytest.raises(FormatError, match="not valid"):
        opened(root)
    assert not xr.open_dataset(root, engine="icevirt").variables


def test_another_way_to_show_eras_is_refused(tmp_path):
    root = written(tmp_path / "repo", packed(0, 2, 0.5))
    for call in (xr.open_dataset, xr.open_datatree):
        with pytest.raises(InvalidInputError, match="unknown value"):
            call(root, engine="icevirt", eras="stack")
    assert "eras" in IcevirtBackendEntrypoint.open_dataset_parameters


# -- durations -----------------------------------------------------------------------------------

MARKED = {"ns": "timedelta64[ns]", "s": "timedelta64[s]", "plain": None}


def leads(first, count, unit, mark):
    """Hours after the start of a run, counted in a unit; marked as xarray does it, or not."""
    per = {"days": 24.0, "hours": 1.0, "seconds": 1 / 3600, "nanoseconds": 1 / 3600e9}[unit]
    numbers = (np.arange(first, first + count) * 24 / per).astype("i8")
    attrs = {"units": unit, **({"dtype": MARKED[mark]} if MARKED[mark] else {})}
    return xr.Dataset({"lead": ("t", numbers, attrs)}, {"t": days(first, count)})


@pytest.mark.parametrize(
    "ways",
    [
        [("nanoseconds", "ns"), ("seconds", "s")],
        [("seconds", "s"), ("seconds", "ns")],
        [("days", "plain"), ("hours", "plain")],
        [("hours", "plain"), ("hours", "ns")],
        [("days", "ns"), ("hours", "plain"), ("seconds", "s")],
    ],
)
def test_durations_that_are_marked_differently_are_durations(tmp_path, ways):
    eras = [leads(2 * n, 2, *way) for n, way in enumerate(ways)]
    root = written(tmp_path / "repo", *eras)
    wanted = by_xarray(*(xr.decode_cf(each, decode_timedelta=True) for each in eras))
    xr.testing.assert_equal(opened(root).load(), wanted)
    assert opened(root).lead.dtype.kind == "m"
    xr.testing.assert_equal(opened(root, decode_timedelta=True).load(), wanted)
    if len({unit for unit, _ in ways}) > 1:
        with pytest.raises(CombineError, match="attribute units of variable 'lead'"):
            opened(root, decode_timedelta=False)


@pytest.mark.parametrize("other", [{"units": "K"}, {"units": "weeks"}, {}])
def test_what_is_no_duration_in_an_era_is_refused_there(tmp_path, other):
    eras = leads(0, 2, "hours", "plain"), leads(2, 2, "days", "plain")
    eras[1]["lead"].attrs = other
    with pytest.raises(CombineError, match="attribute"):
        opened(written(tmp_path / "repo", *eras))
