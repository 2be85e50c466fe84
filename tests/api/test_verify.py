"""`icevirt.verify` finds what differs between a repository and its files, and nothing else."""

import io
import os
import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from rich.console import Console

import icevirt
from builds.kept import Kept
from builds.support import write_day
from fixtures import hdf5_cases
from grouping import grouped
from icevirt.archive.reports.verification import DifferenceKind
from icevirt.display.repository import verify_report
from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.execution.selection import default_executor
from icevirt.model.chunks import ChunkTable
from icevirt.tasks.verify import comparison, references
from tasks import deadly


def made(place):
    """Return a repository over four days, its url prefix, the files and the number of references."""
    files = [write_day(place / f"day{day}.nc", day) for day in range(4)]
    repo = str(place / "repo")
    report = icevirt.build(files, repo, concat_dim="time")
    return repo, report.containers, files, report.references.virtual


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), made)


@pytest.fixture
def built(kept, in_process):
    return kept.lay_down()


def verify(built, **how):
    with default_executor("in-process"):  # in one task
        return icevirt.verify(built[0], authorize_virtual_chunk_access=built[1], **how)


def kinds(report):
    return {difference.kind for difference in report.checked.differences}


def test_a_fresh_build_has_no_difference(built):
    report = verify(built, references=True, full=True)
    assert report.ok, report
    checked = report.checked
    assert checked.files == 4
    assert checked.chunks == checked.references == built[3] >= 4 * 4
    assert checked.arrays >= 4 * 3  # time, y and x of each file
    assert not checked.not_compared


ODD = [
    *(
        "opaque",
        "names",
        "nc_short",
        "nc_unfilled",
        "nc_not_a_coordinate",
        "unrepresentable_dropped",
    ),
    *("external_linked", "vds", "compounds", "booleans_wide", "mask_shuffle", "strings_variable"),
]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_has_no_difference_either(name, tmp_path, in_process):
    case, path, repo = hdf5_cases.CASES[name], tmp_path / "odd.h5", str(tmp_path / "repo")
    case.write(path)
    how = {"concat_dim": None, "drop_variables": list(case.drop)}
    report = icevirt.build([str(path)], repo, **grouped(how))
    checked = verify((repo, report.containers), references=True, full=True).checked
    assert checked.differences == checked.not_compared == ()
    # what is stored is compared beside references
    assert bool(checked.unmatched) is not bool(report.references.virtual)
    assert bool(checked.values) is bool(report.references.virtual)


@pytest.mark.parametrize("where", ["/in", "/in/deep", "/"])
def test_a_group_that_became_the_root_has_no_difference_either(where, tmp_path, in_process):
    path, repo = tmp_path / "in.h5", str(tmp_path / "repo")
    with h5py.File(path, "w") as file:
        file["d"] = np.zeros(3)
        for group in ("in", "in/deep"):
            file.create_dataset(f"{group}/d", data=np.arange(40), chunks=(10,))
            file[f"{group}/s"] = "text"
        for group in ("a", "b"):  # one dataset, two names
            file[f"in/{group}/e"] = file["in/d"]
    report = icevirt.build([str(path)], repo, concat_dim=None, scan_options={"source_group": where})
    checked = verify((repo, report.containers), references=True, full=True).checked
    assert checked.differences == checked.not_compared == ()
    assert checked.chunks == report.references.virtual > 0


def test_by_default_references_and_a_sample_are_checked(built):
    report = verify(built)
    assert report.ok
    assert report.checked.files == 4
    assert 0 < report.checked.chunks <= 100


def test_a_sample_is_repeated_by_its_seed(built):
    one, other = (verify(built, values=5, seed=7).checked for _ in range(2))
    assert one == other
    assert one.files == 0


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (os.remove, DifferenceKind.missing),
        (lambda path: os.utime(path, (4e9, 4e9)), DifferenceKind.changed),
        (lambda path: later(path, os.truncate(path, 3000)), DifferenceKind.changed),
        (lambda path: keep_time(path, lambda: os.truncate(path, 3000)), DifferenceKind.truncated),
        (lambda path: later(path, Path(path).write_bytes(b"other")), DifferenceKind.changed),
    ],
    ids=["deleted", "touched", "truncated", "truncated and as old", "rewritten"],
)
@pytest.mark.parametrize("how", [{"references": True}, {"values": 500}, {"full": True}])
def test_a_file_that_is_gone_or_touched_is_named(built, damage, kind, how):
    damage(built[2][2])
    report = verify(built, **how)
    assert not report.ok
    (difference,) = {(each.kind, Path(each.file).name) for each in report.checked.differences}
    assert difference == (kind, "day2.nc")
    regions = {each.array: each.region for each in report.checked.differences}
    assert regions == {"/packed": "[8:12, 0:5, 0:6]"}


def later(path, _):
    os.utime(path, (4e9, 4e9))


def keep_time(path, change):
    facts = os.stat(path)
    change()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def test_what_would_look_at_nothing_is_refused(built):
    for nothing in ({"values": 0}, {"references": False}):
        with pytest.raises(InvalidInputError, match="nothing to verify"):
            verify(built, **nothing)


def test_a_value_that_changed_in_place_is_found(built):
    """Bytes of a chunk swapped with those of another: both decode, neither is right."""
    path = built[2][3]
    with h5py.File(path) as file:
        one, other = (file["packed"].id.get_chunk_info(n) for n in (0, 1))
    raw = bytearray(Path(path).read_bytes())
    # the repository was built before; h5py now sees what it always did, the repository the same
    table_moved = one.byte_offset, other.byte_offset
    assert table_moved[0] != table_moved[1]
    repo = icevirt.Repository.open(built[0])
    session = repo.writable_session("main")
    held = session.array_table("/packed")
    rows = np.arange(len(held))
    rows[[0, 1]] = 1, 0
    session.set_chunks(
        "/packed",
        ChunkTable(
            index=held.index,
            kind=held.kind[rows],
            source=held.source[rows],
            offset=held.offset[rows],
            length=held.length[rows],
            locations=held.locations,
        ),
    )
    session.commit("two chunks swapped")
    assert raw == Path(path).read_bytes()
    report = verify(built, full=True)
    assert not report.ok
    assert kinds(report) <= {DifferenceKind.value, DifferenceKind.place}
    assert {each.array for each in report.checked.differences} & {"/packed", "/time"}
    assert verify(built, references=True).ok  # only values tell


def test_a_coordinate_that_is_not_the_files_is_found(built):
    session = icevirt.Repository.open(built[0]).writable_session("main")
    time = zarr.open_array(session.store, path="time", mode="r+")
    time[5] = 1e6
    session.commit("a wrong time")
    report = verify(built, full=True)
    (difference,) = report.checked.differences
    assert difference.kind == DifferenceKind.value
    assert (difference.array, Path(difference.file).name) == ("/time", "day1.nc")


def test_a_replaced_file_with_other_values_is_found_by_values(built, tmp_path):
    path = built[2][0]
    other = tmp_path / "other.nc"
    write_day(other, 9)
    keep_time(path, lambda: shutil.copyfile(other, path))
    assert verify(built, references=True).ok
    assert not verify(built, full=True).ok


def test_containers_must_be_authorised(built):
    with pytest.raises(UnauthorizedError, match="authorize") as caught:
        icevirt.verify(built[0], authorize_virtual_chunk_access=[])
    assert built[1][0] in str(caught.value)


def test_a_negative_sample_is_refused(built):
    with pytest.raises(InvalidInputError, match="negative"):
        verify(built, values=-1)


def test_real_files_have_no_difference(nemo_files, repo_path, in_process):
    report = icevirt.build(
        nemo_files, repo_path, concat_dim="time_counter", combine_options={"combine": "nested"}
    )
    checked = icevirt.verify(
        repo_path, full=True, authorize_virtual_chunk_access=report.containers
    ).checked
    assert not checked.differences
    assert not checked.not_compared
    assert checked.chunks == report.references.virtual


@pytest.mark.ci
def test_a_file_that_crashes_its_library_is_reported_and_the_others_compared(built, monkeypatch):
    """Files are read in a child: whoever verifies lives on."""
    name = Path(built[2][1]).name
    assert name == deadly.NAME
    monkeypatch.setattr(comparison, "compare_file", deadly.compare)
    report = verify(built, full=True)
    (difference,) = report.checked.differences
    assert difference.file.endswith(name)
    assert difference.kind is DifferenceKind.unreadable
    assert "crashes its process" in difference.what
    assert report.checked.chunks > 0


@pytest.mark.parametrize("kind", ["NETCDF3_64BIT_OFFSET", "NETCDF4"])
def test_files_whose_dimensions_were_renamed_are_compared(kind, tmp_path, in_process):
    """Uncompressed values are cut along the dimension, whatever a file calls it."""
    files = [str(tmp_path / f"f{n}.nc") for n in range(3)]
    for number, path in enumerate(files):
        with netCDF4.Dataset(path, "w", format=kind) as file:
            file.createDimension("T" if number else "time", 2)
            file.createDimension("x", 400)
            name = next(iter(file.dimensions))
            file.createVariable(name, "f8", (name,))[:] = [2 * number, 2 * number + 1]
            held = file.createVariable("t2m" if number == 2 else "tas", "f4", (name, "x"))
            held[:] = np.arange(800).reshape(2, 400) + number
    repo, rename = str(tmp_path / "repo"), {"T": "time", "t2m": "tas"}
    report = icevirt.build(files, repo, concat_dim="time", combine_options={"rename": rename})
    checked = verify((repo, report.containers), full=True).checked
    assert checked.differences == checked.not_compared == ()
    assert checked.chunks == report.references.virtual == 6
    session = icevirt.Repository.open(repo).writable_session("main")
    zarr.open_array(session.store, path="time", mode="r+")[3] = 77
    session.commit("a wrong time")
    (difference,) = verify((repo, report.containers), full=True).checked.differences
    assert (difference.array, Path(difference.file).name) == ("/time", "f1.nc")


@pytest.mark.ci
def test_values_within_the_tolerance_of_a_build_are_no_difference(tmp_path, in_process):
    """Those of the first file count; what differs by more is one."""
    files = [write_day(tmp_path / f"d{day}.nc", day) for day in range(3)]
    with netCDF4.Dataset(files[1], "r+") as file:
        file["y"][2] += 1e-5
    repo = str(tmp_path / "repo")
    report = icevirt.build(
        files,
        repo,
        concat_dim="time",
        combine_options={"tolerance": 1e-4},
        commit_options={"verify": 1000},
    )
    with netCDF4.Dataset(files[1]) as file:
        there = file["y"][2]
    assert there != np.float32(0.5)
    assert verify((repo, report.containers), full=True).ok
    session = icevirt.Repository.open(repo).writable_session("main")
    zarr.open_array(session.store, path="y", mode="r+")[2] = 0.6
    zarr.open_array(session.store, path="time", mode="r+")[5] += 1e-5
    output = icevirt.Repository.open(repo).readonly_session("main").snapshot.metadata
    session.commit("other values", metadata=dict(output))
    found = verify((repo, report.containers), full=True).checked.differences
    assert {each.array for each in found} == {"/y", "/time"}


def test_arrays_that_no_file_was_compared_with_are_reported(tmp_path, in_process):
    """Those of which nothing is a reference: verification does not say that they are right."""
    files = [write_day(tmp_path / f"d{day}.nc", day) for day in range(2)]
    repo = str(tmp_path / "repo")
    report = icevirt.build(
        files,
        repo,
        concat_dim="time",
        scan_options={"variables": ["packed", "time"]},
        combine_options={"float_variables": "packed"},
    )
    assert not report.references.virtual
    found = verify((repo, report.containers), full=True)
    assert not found.checked.differences
    assert found.checked.unmatched == ("/packed",)
    output = io.StringIO()
    Console(file=output, width=200).print(verify_report(found))
    assert "/packed" in output.getvalue()


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_group_is_given_by_the_path_that_is_most_alike(first):
    """A dataset with several names in a file leads to no other one's group."""
    names = ["/in/a/e", "/in/b/e", "/in/d"]
    order = names[first:] + names[:first]
    assert [references.group_of(path, order) for path in ("/a/e", "/b/e", "/d")] == ["/in"] * 3
    assert references.group_of("/x/e", order) in {"/in/a", "/in/b"}
    assert references.group_of("/f", order) == "/"


@pytest.mark.ci
def test_who_verifies_hears_how_far_it_is(spark, tmp_path):
    files = [str(tmp_path / f"day{day}.nc") for day in range(4)]
    for day, path in enumerate(files):
        write_day(path, day)
    repo = str(tmp_path / "repo")
    built = icevirt.build(files, repo, concat_dim="time", executor=spark)
    steps = []
    report = icevirt.verify(
        repo,
        references=True,
        full=True,
        authorize_virtual_chunk_access=built.containers,
        executor=spark,
        progress=steps.append,
    )
    assert report.ok
    for phase in ("references", "values"):
        output = [step for step in steps if step.phase == phase and step.total]
        assert output[-1].done == output[-1].total > 0
        assert output[-1].seconds > 0
        assert [step.done for step in output] == sorted(step.done for step in output)
