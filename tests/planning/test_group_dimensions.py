"""Dimensions of one name in sibling groups are several dimensions: held against xarray, by group."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import verified
from icevirt.errors import CombineError, OverlapError

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def group(file, name, labels, number, *, coordinate=True, row=True, chunks=None):
    """Write a group (or the root) with rows along a dimension ``y`` of its own."""
    held = file.createGroup(name) if name else file
    held.createDimension("y", len(labels))
    if coordinate:
        held.createVariable("y", "f8", ("y",))[:] = labels
    held.createVariable("data", "f4", ("y",), chunksizes=chunks)[:] = (
        100 * number + np.arange(len(labels)) + 1000 * len(name)
    )
    if row:
        held.createVariable("row", "i4", ())[...] = 10 * number + len(name)


def write(folder, specs, **how):
    """Write a file for each mapping of groups to labels."""
    paths = []
    for number, spec in enumerate(specs):
        paths.append(str(folder / f"f{number}.nc"))
        with netCDF4.Dataset(paths[-1], "w") as file:
            for name, labels in spec.items():
                group(file, name, labels, number, **how)
    return paths


def by_xarray(files, name, *, given=True):
    """Return what xarray makes of one group of the files, in the order given."""
    found = []
    for path in files:
        try:
            found.append(xr.open_dataset(path, group=name or None).load())
        except OSError:  # the file lacks the group
            continue
    names = ["data", "row"] if given else ["data"]
    return xr.concat(
        found, "y", data_vars=names, coords="minimal", compat="override", join="override",
        combine_attrs="override",
    )  # fmt: skip


def held_alike(repo, report, files, groups, **how):
    """Compare each group with xarray's, through a tree and alone, and every chunk with its file."""
    verified(repo, report.containers)
    tree = xr.open_datatree(
        repo, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    for name in groups:
        expected = by_xarray(files, name, **how)
        xr.testing.assert_identical(tree[f"/{name}"].to_dataset(inherit=False).load(), expected)


def along(*lengths):
    """Return labels for files of some lengths, which follow one another."""
    ends = np.cumsum(lengths)
    return [np.arange(end - n, end, dtype=float) for n, end in zip(lengths, ends, strict=True)]


def files_of(**lengths):
    """Return the groups of each file, given the lengths of each group."""
    held = {name: along(*each) for name, each in lengths.items()}
    return [
        {name: labels[at] for name, labels in held.items()}
        for at in range(len(next(iter(held.values()))))
    ]


LENGTHS = {
    "the same lengths": {"a": (4, 4, 4), "b": (4, 4, 4)},
    "other lengths": {"a": (4, 4, 4), "b": (2, 2, 2)},
    "other lengths, equal totals": {"a": (4, 4, 4), "b": (2, 4, 6)},
    "three groups": {"a": (1, 2), "b": (2, 1), "c": (3, 3)},
    "the first group is shorter": {"a": (1, 1, 1), "b": (2, 4, 6)},
    "one step of one": {"a": (1, 1), "b": (1, 5)},
}


@pytest.mark.parametrize("coordinate", [True, False], ids=["with labels", "without"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_what_gets_the_dimension_is_as_long_as_in_its_own_group(
    tmp_path, repo_path, lengths, coordinate
):
    files = write(tmp_path, files_of(**lengths), coordinate=coordinate)
    report = icevirt.build(files, repo_path, concat_dim="y", combine_options={"data_vars": ["row"]})
    held_alike(repo_path, report, files, lengths)


def test_the_proposed_command_gives_each_group_its_own_lengths(tmp_path, repo_path):
    files = write(tmp_path, files_of(a=(4, 4, 4), b=(2, 4, 6)))
    with pytest.raises(CombineError, match="/a/row does not have the dimension") as caught:
        icevirt.build(files, repo_path)
    options = caught.value.fixes[0].arguments["combine_options"]
    assert options == {"data_vars": ["/a/row", "/b/row"]}
    report = icevirt.build(files, repo_path, combine_options=options)
    held_alike(repo_path, report, files, "ab")


def test_a_variable_sees_the_dimension_of_the_group_above(tmp_path, repo_path):
    """Of the nearest one: the root has another dimension of that name."""
    files = []
    for number, labels in enumerate(along(2, 3)):
        files.append(str(tmp_path / f"{number}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            group(file, "", [10.0 * number], number, row=False)
            group(file, "a", labels, number, row=False)
            below = file["a"].createGroup("meta")
            below.createVariable("row", "i4", ())[...] = number
    report = icevirt.build(files, repo_path, concat_dim="y", combine_options={"data_vars": ["row"]})
    verified(repo_path, report.containers)
    found = xr.open_dataset(
        repo_path, engine="icevirt", group="a/meta",
        authorize_virtual_chunk_access=report.containers,
    )  # fmt: skip
    assert found.row.values.tolist() == [0, 0, 1, 1, 1]


def test_a_variable_that_sees_several_lengths_is_refused(tmp_path, repo_path):
    """It lies above the groups that have the dimension, and they do not agree."""
    files = write(tmp_path, files_of(a=(4, 4), b=(2, 3)), row=False)
    for number, path in enumerate(files):
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("row", "i4", ())[...] = number
    with pytest.raises(CombineError, match="/row cannot get the dimension 'y'") as caught:
        icevirt.build(files, repo_path, concat_dim="y", combine_options={"data_vars": ["row"]})
    assert caught.value.facts["lengths"] == {"/a": 4, "/b": 2}
    assert caught.value.facts["file"].endswith("f0.nc")


def test_a_variable_above_groups_that_agree_gets_their_length(tmp_path, repo_path):
    files = write(tmp_path, files_of(a=(4, 3), b=(4, 3)), row=False)
    for number, path in enumerate(files):
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("row", "i4", ())[...] = number
    report = icevirt.build(files, repo_path, concat_dim="y", combine_options={"data_vars": ["row"]})
    found = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    assert found.row.values.tolist() == [0] * 4 + [1] * 3


# -- order and duplicates --------------------------------------------------------------------------

AGREE = {
    "another direction": [([0, 1], [11, 10]), ([2, 3], [9, 8])],
    "other labels": [([0, 1], [100, 200]), ([2, 3], [300, 400])],
    "labels that give no order": [([0, 1, 2], [5, 3, 4]), ([3, 4, 5], [4, 9, 1])],
    "labels with NaN": [([0, 1], [np.nan, 5]), ([2, 3], [7, 5])],
}


@pytest.mark.parametrize("spec", AGREE.values(), ids=AGREE)
def test_groups_whose_labels_do_not_contradict_build(tmp_path, repo_path, spec):
    files = write(tmp_path, [{"a": a, "b": b} for a, b in spec], row=False)
    report = icevirt.build(files, repo_path, concat_dim="y")
    held_alike(repo_path, report, files, "ab", given=False)


CONTRADICT = {
    "the second group overlaps": (
        [([0, 1], [0, 1]), ([2, 3], [1, 2])], OverlapError, "two files overlap along 'y' in /b"
    ),
    "the second group repeats its steps": (
        [([0, 1], [0, 1]), ([2, 3], [0, 1])], CombineError, "hold the same steps along 'y' in one"
    ),
    "the second group is the other way round": (
        [([0, 1], [12, 13]), ([2, 3], [10, 11])], CombineError, "another order than in /a"
    ),
    "the first group is the other way round": (
        [([2, 3], [0, 1]), ([0, 1], [2, 3])], CombineError, "another order than in /a"
    ),
    "three files, the last two swapped": (
        [([0, 1], [0, 1]), ([2, 3], [4, 5]), ([4, 5], [2, 3])],
        CombineError, "another order than in /a",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "error", "match"), CONTRADICT.values(), ids=CONTRADICT)
def test_groups_whose_labels_contradict_are_refused_and_the_first_fix_keeps_all(
    tmp_path, repo_path, spec, error, match
):
    """In the order given each group is what xarray's ``concat`` makes of it."""
    files = write(tmp_path, [{"a": a, "b": b} for a, b in spec], row=False)
    with pytest.raises(error, match=match) as caught:
        icevirt.build(files, repo_path, concat_dim="y")
    assert 'source_group="/b", group="/b"' in caught.value.do
    made = caught.value.fixes[0].arguments
    assert made == {"concat_dim": ["y"], "combine_options": {"combine": "nested"}}
    report = icevirt.build(files, repo_path, **made)
    held_alike(repo_path, report, files, "ab", given=False)


def test_a_rule_of_duplicates_leaves_out_what_all_groups_repeat(tmp_path, repo_path):
    spec = [([0, 1, 2], [0, 1, 2]), ([2, 3, 4], [2, 3, 4])]
    files = write(tmp_path, [{"a": a, "b": b} for a, b in spec], row=False)
    report = icevirt.build(
        files, repo_path, concat_dim="y", combine_options={"duplicates": "first"}
    )
    verified(repo_path, report.containers)
    for name in "ab":
        found = xr.open_dataset(
            repo_path, engine="icevirt", group=name,
            authorize_virtual_chunk_access=report.containers,
        )  # fmt: skip
        assert found.y.values.tolist() == [0, 1, 2, 3, 4]
        assert found.data.values.tolist() == [1000, 1001, 1002, 1101, 1102]


@pytest.mark.parametrize(
    "spec",
    [
        [([0, 1, 2], [0, 1, 2]), ([2, 3, 4], [3, 4, 5])],
        [([0, 1], [0, 1]), ([0, 1], [2, 3])],
        [([0, 1, 2], [0, 1]), ([2, 3, 4], [1, 2])],
    ],
    ids=["a step", "a file", "a step of a group of another length"],
)
def test_a_rule_of_duplicates_takes_nothing_that_one_group_holds_once(tmp_path, repo_path, spec):
    files = write(tmp_path, [{"a": a, "b": b} for a, b in spec], row=False)
    with pytest.raises(CombineError, match="repeat other steps along 'y' in /b") as caught:
        icevirt.build(files, repo_path, concat_dim="y", combine_options={"duplicates": "newest"})
    assert caught.value.facts["variable"] == "/b/y"


# -- files without a group, reserved steps, growth -------------------------------------------------


@pytest.mark.parametrize("lacking", ["a", "b"])
def test_a_file_without_a_group_has_no_steps_there(tmp_path, repo_path, lacking):
    """Its labels say which steps the group has; nothing is reserved, and a note tells."""
    specs = files_of(a=(4, 4, 4), b=(2, 2, 2))
    del specs[1][lacking]
    files = write(tmp_path, specs)
    report = icevirt.build(files, repo_path, concat_dim="y", combine_options={"data_vars": ["row"]})
    held_alike(repo_path, report, files, "ab")
    if lacking == "b":  # the order is that of /a
        assert "1 of 3 files have no steps along 'y' in /b" in report.findings


def test_missing_steps_are_found_in_each_group(tmp_path, repo_path):
    files = write(
        tmp_path,
        [{"a": [0, 1], "b": [0.0]}, {"a": [4, 5], "b": [2.0]}],
        row=False,
        chunks=(1,),
    )
    report = icevirt.build(files, repo_path, concat_dim="y", combine_options={"spacing": 1.0})
    for name, labels in (("a", range(6)), ("b", range(3))):
        found = xr.open_dataset(
            repo_path, engine="icevirt", group=name,
            authorize_virtual_chunk_access=report.containers,
        )  # fmt: skip
        expected = by_xarray(files, name, given=False).reindex(y=[float(n) for n in labels])
        np.testing.assert_array_equal(found.y.values, expected.y.values)
        np.testing.assert_array_equal(found.data.values, expected.data.values)


@pytest.mark.parametrize("lacking", [None, 1, 2, 3])
def test_appends_make_what_one_build_makes(tmp_path, repo_path, lacking):
    """Also where a file lacks a group: in the middle, at the end, and among the new ones."""
    specs = files_of(a=(2, 2, 2, 2), b=(1, 1, 1, 1))
    if lacking is not None:
        del specs[lacking]["b"]
    files = write(tmp_path, specs, row=False)
    report = icevirt.build(files[:3], repo_path, concat_dim="y")
    icevirt.append(files[3:], repo_path)
    held_alike(repo_path, report, files, "ab", given=False)


def test_an_append_whose_groups_contradict_is_refused(tmp_path, repo_path):
    """A new file lies behind the others in one group, and between them in another one."""
    spec = [([0, 1], [0, 1]), ([2, 3], [20, 21]), ([4, 5], [10, 11])]
    files = write(tmp_path, [{"a": a, "b": b} for a, b in spec], row=False)
    icevirt.build(files[:2], repo_path, concat_dim="y")
    before = icevirt.Repository.open(repo_path).lookup_branch("main")
    with pytest.raises(CombineError, match="another order than in /a"):
        icevirt.append(files[2:], repo_path)
    assert icevirt.Repository.open(repo_path).lookup_branch("main") == before


def test_padded_dimensions_are_as_long_as_in_the_group_that_has_them(tmp_path, repo_path):
    """A group below has the root's; a sibling has its own."""
    files = []
    for number, (long, short) in enumerate(((5, 1), (3, 2))):
        files.append(str(tmp_path / f"{number}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            file.createDimension("time", 1)
            file.createVariable("time", "f8", ("time",))[:] = number
            file.createDimension("n", long)
            file.createVariable("u", "f4", ("time", "n"))[:] = number
            if number:  # only the file that is shorter has it
                below = file.createGroup("below")
                below.createVariable("v", "f4", ("n",))[:] = number
            own = file.createGroup("own")
            own.createDimension("n", short)
            own.createVariable("w", "f4", ("time", "n"))[:] = number
    plan = icevirt.plan(
        files, concat_dim="time",
        combine_options={"pad": ["n"], "data_vars": ["v"], "missing": "reserve"},
    )  # fmt: skip
    shapes = {array.path: array.shape for array in plan.arrays}
    assert shapes == {"/time": (2,), "/u": (2, 5), "/below/v": (2, 5), "/own/w": (2, 2)}


def test_grids_are_compared_by_group(tmp_path):
    """Groups of other lengths are no files of several grids."""
    files = write(tmp_path, [{"a": [0, 1, 2, 3], "b": [0, 1]}] * 2, row=False)
    with pytest.raises(CombineError) as caught:
        icevirt.plan(files)
    assert "several grids" not in caught.value.what
