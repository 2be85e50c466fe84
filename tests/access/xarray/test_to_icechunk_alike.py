"""The same program under `icechunk.xarray.to_icechunk` and ours leaves the same, or fails alike."""

import dask
import icechunk
import icechunk.xarray
import numpy as np
import pytest
import xarray as xr

import icevirt
import icevirt.xarray
from access.xarray.compare import same_dataset
from long_forms import crossed

pytestmark = pytest.mark.ci

CHUNKS = {"a": {"chunks": (2, 4)}}


def dataset(start=0, stop=6):
    """Return steps from ``start`` to ``stop`` of one long dataset."""
    values = np.arange(48.0).reshape(12, 4)
    values[0, 0] = np.nan
    whole = xr.Dataset(
        {"a": (("t", "x"), values), "b": ("x", np.arange(4, dtype="i2"))},
        coords={"t": xr.date_range("2000-01-01", periods=12), "x": [1.5, 2.5, 3.5, 4.5]},
        attrs={"title": "whole"},
    )
    return whole.isel(t=slice(start, stop))


def steps(start, stop):
    return dataset(start, stop).drop_vars("b")


def region(start, stop):
    """Return what has no other variables than those along ``t``."""
    return (steps(start, stop) * -1).drop_vars("x")


FIRST = {"encoding": CHUNKS}
NAMED = xr.DataArray([1.0, 2.0], dims="x", coords={"x": [3, 4]}, name="x")

# each a list of writes: what, and how
PROGRAMS = {
    "once": [(dataset(), {})],
    "into a group": [(dataset(), {"group": "deep/er"})],
    "w over what is there": [(dataset(), {}), (steps(0, 3), {"mode": "w"})],
    "a over what is there": [(dataset(), {}), (dataset() * 2, {"mode": "a"})],
    "nothing said over what is there": [(dataset(), {}), (dataset(), {})],
    "w- over what is there": [(dataset(), {}), (dataset(), {"mode": "w-"})],
    "r+ where nothing is": [(dataset(), {"mode": "r+"})],
    "r+ over what is there": [(dataset(), {}), (dataset() * 2, {"mode": "r+"})],
    "append": [(dataset(0, 4), FIRST), (steps(4, 8), {"append_dim": "t"})],
    "append twice": [(dataset(0, 4), FIRST)]
    + [(steps(n, n + 2), {"append_dim": "t"}) for n in (4, 6)],
    "append in the middle of a chunk": [
        (dataset(0, 3), FIRST),
        (steps(3, 8), {"append_dim": "t"}),
    ],
    "append with what does not have the dimension": [
        (dataset(0, 4), FIRST),
        (dataset(4, 8).assign(b=("x", np.arange(4, 8, dtype="i2"))), {"append_dim": "t"}),
    ],
    "append only what has the dimension": [
        (dataset(0, 4), FIRST),
        (
            dataset(4, 8).assign(b=("x", np.arange(4, 8, dtype="i2"))),
            {"append_dim": "t", "mode": "a-"},
        ),
    ],
    "append a variable that is new": [
        (dataset(0, 4), FIRST),
        (steps(4, 8).rename(a="new"), {"append_dim": "t"}),
    ],
    "append where nothing is": [(dataset(0, 4), {"append_dim": "t"})],
    "append along a dimension that is not there": [
        (dataset(0, 4), FIRST),
        (steps(4, 8), {"append_dim": "z"}),
    ],
    "append another width": [
        (dataset(0, 4), FIRST),
        (steps(4, 8).isel(x=[0, 1]), {"append_dim": "t"}),
    ],
    "append another dtype": [
        (dataset(0, 4), FIRST),
        (steps(4, 8).astype("i4"), {"append_dim": "t"}),
    ],
    "append with an encoding": [
        (dataset(0, 4), FIRST),
        (steps(4, 8), {"append_dim": "t", "encoding": CHUNKS}),
    ],
    "append with mode w": [
        (dataset(0, 4), FIRST),
        (steps(4, 8), {"append_dim": "t", "mode": "w"}),
    ],
    "append with dask": [(dataset(0, 4), FIRST), (steps(4, 8).chunk(t=2), {"append_dim": "t"})],
    "append with dask in the middle of a chunk": [
        (dataset(0, 3), FIRST),
        (steps(3, 8).chunk(t=2), {"append_dim": "t"}),
    ],
    "append with dask aligned": [
        (dataset(0, 3), FIRST),
        (steps(3, 8).chunk(t=2), {"append_dim": "t", "align_chunks": True}),
    ],
    "a region": [(dataset(), FIRST), (region(2, 4), {"region": {"t": slice(2, 4)}})],
    "a region in the middle of a chunk": [
        (dataset(), FIRST),
        (region(1, 4), {"region": {"t": slice(1, 4)}}),
    ],
    "a region found": [(dataset(), FIRST), (region(2, 4), {"region": {"t": "auto"}})],
    "all regions found": [
        (dataset(), FIRST),
        ((steps(2, 4) * -1).isel(x=[1, 2]), {"region": "auto"}),
    ],
    "a region that is nowhere": [(dataset(), FIRST), (region(6, 8), {"region": {"t": "auto"}})],
    "a region beyond the end": [
        (dataset(), FIRST),
        (region(6, 8), {"region": {"t": slice(6, 8)}}),
    ],
    "a region of another size": [
        (dataset(), FIRST),
        (region(2, 4), {"region": {"t": slice(2, 5)}}),
    ],
    "a region with variables outside it": [
        (dataset(), FIRST),
        (dataset(2, 4), {"region": {"t": slice(2, 4)}}),
    ],
    "a region with a variable that is new": [
        (dataset(), FIRST),
        (region(2, 4).rename(a="new"), {"region": {"t": slice(2, 4)}}),
    ],
    "a region that is appended to": [
        (dataset(), FIRST),
        (region(2, 4), {"region": {"t": slice(2, 4)}, "append_dim": "t"}),
    ],
    "a region where nothing is": [(region(2, 4), {"region": {"t": slice(2, 4)}})],
    "a region with dask": [
        (dataset(), FIRST),
        (region(2, 6).chunk(t=2), {"region": {"t": slice(2, 6)}}),
    ],
    "a region with dask in the middle of a chunk": [
        (dataset(), FIRST),
        (region(1, 5).chunk(t=2), {"region": {"t": slice(1, 5)}}),
    ],
    "dask": [(dataset().chunk(t=2), {})],
    "dask, split": [(dataset().chunk(t=1), {"split_every": 2})],
    "dask across chunks": [(dataset().chunk(t=3), FIRST)],
    "dask across chunks, aligned": [(dataset().chunk(t=3), FIRST | {"align_chunks": True})],
    "dask of unequal chunks": [(dataset().chunk(t=(1, 3, 2)), {})],
    "an array": [(dataset()["a"], {})],
    "an array without a name": [(dataset()["a"].rename(None), {})],
    "an array of the name of its coordinate": [(NAMED, {})],
    "a variable without a name": [(xr.Dataset({"": ("x", [1])}), {})],
    "a variable named by a number": [(xr.Dataset({5: ("x", [1])}), {})],
    "an encoding of nothing": [(dataset(), {"encoding": {"z": {"dtype": "i2"}}})],
    "an encoding that is none": [(dataset(), {"encoding": {"a": {"zlib": True}}})],
    "packed": [
        (dataset(), {"encoding": {"a": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}})
    ],
}
GROUPS = {"into a group": "deep/er"}


def run(client, to_icechunk, root, program, *, commit):
    """Return what the program leaves, or the kind of error it ends with."""
    repo = client.Repository.create(client.local_filesystem_storage(str(root)))
    session = repo.writable_session("main")
    try:
        for what, how in program:
            to_icechunk(what, session, **how)
            if commit:
                session.commit("a write")
                session = repo.writable_session("main")
    except Exception as error:  # noqa: BLE001 - whatever it is, the other has to raise it too
        return error
    if not commit:
        session.commit("all writes")
    return None


@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
@pytest.mark.parametrize(
    ("name", "commit"),
    [
        *((name, False) for name, writes in PROGRAMS.items() if len(writes) == 1),
        # several writes take turns: all in one commit, or a commit each
        *crossed([name for name, writes in PROGRAMS.items() if len(writes) > 1], [True, False]),
    ],
)
def test_a_program_has_the_same_outcome_under_both_clients(tmp_path, name, commit):
    program = PROGRAMS[name]
    with dask.config.set(scheduler="threads", num_workers=2):
        theirs = run(
            icechunk,
            icechunk.xarray.to_icechunk,
            tmp_path / "theirs",
            program,
            commit=commit,
        )
        ours = run(icevirt, icevirt.xarray.to_icechunk, tmp_path / "ours", program, commit=commit)
    if theirs is not None:
        assert isinstance(ours, kind_of(theirs)), (theirs, ours)
        return
    assert ours is None
    expected, found = (shown(tmp_path / who, GROUPS.get(name)) for who in ("theirs", "ours"))
    if isinstance(expected, str):
        assert found == expected
        return
    same_dataset(found, expected)
    for variable in expected.variables:
        chunks = expected[variable].encoding.get("chunks")
        assert found[variable].encoding.get("chunks") == chunks


def shown(root, group):
    """Return the dataset, or why xarray finds none."""
    try:
        return xr.open_dataset(root, engine="icevirt", group=group).load()
    except ValueError as error:
        return str(error)


def kind_of(error):
    """Return the builtin kind of an error, which code that catches it goes by."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
