"""Each command that a refusal prints is run: what is missing then is what the command says.

The first one lacks nothing that another one keeps.
"""

from collections import defaultdict

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from archives import instruments, proposals, scenes_and_levels
from archives.archive import CATALOG
from icevirt.errors import CombineError, DataLoss
from long_forms import cases

pytestmark = pytest.mark.ci
ROOMS = (proposals.__name__, instruments.__name__)
UNCOUNTED = {  # `elements_of_files` counts otherwise
    "cfradial-volumes-with-sweeps": "what two of three files hold is lost once",
    "scans-with-statistics": "a value of each file, which it gets for each step, is lost with the file",
    "scans-that-end-early": "the same",
    "orbits-of-two-groups": "netCDF4 finds no dimensions there",
    "eos-grids": "netCDF4 calls two dimensions alike there",
}
OFTEN = proposals.__name__, "parts-of-other-heights", "a-group-that-repeats"
MADE = [
    each
    for each in CATALOG
    if each.choose and each.make.__module__ in ROOMS and each.name not in UNCOUNTED
]


def elements_of_files(files):
    """Return how many values the files hold of each variable, and the bytes of one.

    Equal arrays count once, and of the labels of dimensions equal ones.
    """
    arrays, labels, width = defaultdict(list), defaultdict(set), {}

    def walk(group):
        for name, each in group.variables.items():
            each.set_auto_maskandscale(False)
            values = np.asarray(each[...])
            path = f"{group.path.rstrip('/')}/{name}"
            width[path] = values.dtype.itemsize
            if each.dimensions == (name,):
                labels[path].update(values.tolist())
            else:
                arrays[path].append((values.tobytes(), values.size))
        for below in group.groups.values():
            walk(below)

    for file in files:
        with netCDF4.Dataset(file) as opened:
            walk(opened)
    held = {path: len(each) for path, each in labels.items()}
    for path, each in arrays.items():
        some = {*each} if len({*each}) == 1 else each
        held[path] = sum(size for _, size in some)
    return {path: (count, width[path]) for path, count in held.items()}


def elements_of_repository(path):
    """Return how many values a dataset has of each variable, in all of its eras."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        session = icevirt.Repository.open(path).readonly_session(branch="main")
        root, found = zarr.open_group(session.store, mode="r"), defaultdict(int)
        for name, each in root.members(max_depth=None):
            if isinstance(each, zarr.Array):
                parts = [part for part in name.split("/") if not part.startswith("era_")]
                found["/" + "/".join(parts)] += each.size
    return found


@pytest.fixture
def refused(tmp_path):
    """Return what makes the files of an archive, and the error that refuses them."""

    def refuse(make):
        folder = tmp_path / "in"
        folder.mkdir()
        make(folder)
        with pytest.raises(CombineError) as caught:
            icevirt.build(f"{folder}/*", str(tmp_path / "none"))
        return sorted(folder.iterdir()), caught.value

    return refuse


def lost(files, repo, fix, tmp_path):
    """Return the bytes of values that a dataset lacks, built with a fix."""
    icevirt.build(f"{tmp_path / 'in'}/*", str(repo), **fix.arguments)
    given = fix.arguments.get("combine_options", {}).get("rename", {})
    renamed = {f"/{old.strip('/')}": new for old, new in given.items()}  # within its group
    there = elements_of_repository(str(repo))
    held = defaultdict(int)
    for path, (count, width) in elements_of_files(files).items():
        group, _, name = path.rpartition("/")
        held[f"{group}/{renamed.get(path, name)}", width] += count
    return sum(max(0, count - there[path]) * width for (path, width), count in held.items())


def open_as_one(repo, files):
    """Open all groups of a repository of eras as if there were none."""
    allowed = {f"{files.as_uri()}/": None}
    how = {"eras": "concat", "authorize_virtual_chunk_access": allowed}
    with xr.open_datatree(repo, engine="icevirt", **how) as tree:
        assert not any(name.startswith("era_") for name in tree.children)


@pytest.mark.parametrize(
    "made",
    cases(MADE, *(e for e in MADE if e.often and {e.name, e.make.__module__} & {*OFTEN})),
    ids=lambda each: each.name,
)
def test_what_a_command_says_is_missing_and_the_first_lacks_least(made, refused, tmp_path):
    files, error = refused(made.make)
    assert error.fixes, error
    assert made.choose is None or made.choose in " ".join(error.fixes[0].flags)
    missing = []
    for at, fix in enumerate(error.fixes):
        missing.append(lost(files, tmp_path / f"repo{at}", fix, tmp_path))
        assert fix.loss is not None, fix
        assert fix.loss.bytes == missing[-1], fix
        if "eras" in fix.flags and not fix.loss.groups:
            open_as_one(tmp_path / f"repo{at}", tmp_path / "in")
    assert missing[0] == min(missing)
    assert [each.loss.rank for each in error.fixes] == sorted(e.loss.rank for e in error.fixes)


def test_a_vertex_of_bounds_is_never_proposed(refused):
    _, error = refused(proposals.make_images_with_bounds_of_their_time.make)
    assert not any("number_of_time_bounds" in each.flags for each in error.fixes)


def test_duplicates_say_which_files_and_steps_they_discard(refused):
    _, error = refused(proposals.make_scans_of_several_granules.make)
    newest = next(each for each in error.fixes if "newest" in each.flags)
    assert newest.loss == DataLoss(files=2, steps=8, bytes=2 * (4 * 8 + 4 * 6 * 4))
    assert newest.cost.endswith("discards 2 files, 8 steps: 256 bytes of values")


@pytest.mark.parametrize(
    "made",
    [
        scenes_and_levels.make_scenes_with_times_of_lines,
        scenes_and_levels.make_levels_as_single_values,
    ],
    ids=lambda each: each.name,
)
def test_what_places_files_is_proposed_first(made, refused):
    _, error = refused(made.make)
    assert made.choose in " ".join(error.fixes[0].flags)
    assert not error.fixes[0].loss


def test_labels_that_are_packed_are_no_positions(refused):
    def make(folder):
        for at, edge in enumerate((1, 1, 2)):
            with netCDF4.Dataset(folder / f"C0{edge}_{at}.nc", "w") as file:
                for name, length in (("y", 4 * edge), ("x", 6 * edge)):
                    file.createDimension(name, length)
                    packed = {"scale_factor": 1.0 / edge, "add_offset": 0.5 / edge}
                    proposals.variable(file, name, "i2", (name,), np.arange(length), **packed)
                field = np.arange(24.0 * edge * edge).reshape(4 * edge, 6 * edge) + 1000 * at
                proposals.variable(file, "Rad", "f4", ("y", "x"), field)

    _, error = refused(make)
    assert error.fixes
    assert not any("nested" in each.flags and "file" not in each.flags for each in error.fixes)


def test_eras_that_two_dimensions_part_are_opened_one_by_one(refused):
    _, error = refused(instruments.make_parts_of_other_heights.make)
    (eras,) = [each for each in error.fixes if "eras" in each.flags]
    assert eras.loss == DataLoss(groups=2)


def test_groups_that_are_named_by_iteration_are_not_promised_as_one(refused):
    def make(folder):
        for number in (0, 100, 200):
            proposals.iteration(folder / f"data{number:08}.h5", number)

    _, error = refused(make)
    assert error.fixes[0].loss == DataLoss(groups=3)
    assert not any("concat" in each.cost for each in error.fixes)


def test_the_odd_file_is_the_one_that_is_named(refused):
    def make(folder):
        for at, kind in enumerate(("f8", "f4", "f4")):
            proposals.typed(folder / f"field_{at}.nc", at, kind)

    files, _ = refused(make)
    how = {"concat_dim": "n", "combine_options": {"combine": "nested"}}
    with pytest.raises(CombineError, match="in 1 of 3 files") as caught:
        icevirt.build([*map(str, files)], str(files[0].parents[1] / "r"), **how)
    assert caught.value.facts["other"].endswith("field_0.nc")
