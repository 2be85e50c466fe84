"""Granules of different length: uncompressed chunks are cut so that a regular grid fits, and nothing is stored."""

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import official
from grouping import grouped
from icevirt.archive.joining import Form

pytestmark = pytest.mark.usefixtures("in_process")

WIDE = 4000  # float32 a step: more than is worth a chunk


def write(path, begin, steps, *, chunk, width=WIDE, rows=1, **how):
    """Write steps of an uncompressed variable, contiguous if ``chunk`` is None."""
    with h5py.File(path, "w") as file:
        time = file.create_dataset("time", data=np.arange(begin, begin + steps, dtype="f8"))
        time.make_scale("time")
        values = np.arange(begin * rows * width, (begin + steps) * rows * width, dtype="f4")
        chunks = None if chunk is None else (chunk, 1, width)
        data = file.create_dataset(
            "v", data=values.reshape(steps, rows, width), chunks=chunks, **how
        )
        data.dims[0].attach_scale(time)


def archive(folder, lengths, chunks, **how):
    files, begin = [], 0
    for number, (steps, chunk) in enumerate(zip(lengths, chunks, strict=True)):
        files.append(str(folder / f"g{number:02d}.nc"))
        write(files[-1], begin, steps, chunk=chunk, **how)
        begin += steps
    return files


def built(files, repo, **options):
    """Build and verify; return the references of ``/v`` and its chunks."""
    report = icevirt.build(files, repo, concat_dim="time", **grouped(options))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        store = official(repo).readonly_session("main").store
        array = zarr.open_array(store, path="v", mode="r")
        theirs = np.concatenate([h5py.File(path)["v"][...] for path in files])
        np.testing.assert_array_equal(array[...], theirs)
        checked = icevirt.verify(repo, values=8, authorize_virtual_chunk_access=report.containers)
        assert checked.ok, checked
    return next(each.references for each in report.arrays if each.path == "/v"), array


def test_chunks_of_thirty_days_are_cut_to_days(tmp_path, repo_path):
    """Ends of files within a chunk are no reason to copy a value."""
    files = archive(tmp_path, (95, 96, 95), (30, 30, 30), rows=2)
    kinds, array = built(files, repo_path)
    assert (kinds.virtual, kinds.native + kinds.inline) == (2 * 286, 0)
    assert array.chunks == (1, 1, WIDE)


def test_chunks_are_as_long_as_all_lengths_allow(tmp_path, repo_path):
    files = archive(tmp_path, (80, 90, 80), (40, 40, 40))
    kinds, array = built(files, repo_path)
    assert kinds.virtual == 25
    assert array.chunks == (10, 1, WIDE)


def test_other_chunks_are_no_mismatch(tmp_path, repo_path):
    """Also not those of contiguous files of the same shape."""
    files = archive(tmp_path, (100, 100, 100), (20, 50, 30))
    kinds, array = built(files, repo_path)
    assert kinds.virtual == 30
    assert array.chunks == (10, 1, WIDE)


def test_contiguous_and_chunked_files_make_one_array(tmp_path, repo_path):
    files = archive(tmp_path, (70, 70, 70), (None, 20, None))
    kinds, array = built(files, repo_path)
    assert kinds.virtual == 210
    assert array.chunks == (1, 1, WIDE)


def test_the_last_file_may_end_anywhere(tmp_path, repo_path):
    """The array ends with it, so chunks stay as they are."""
    files = archive(tmp_path, (90, 90, 85), (30, 30, 30))
    kinds, array = built(files, repo_path)
    assert (kinds.virtual, kinds.native) == (9, 0)
    assert array.chunks == (30, 1, WIDE)


def test_compressed_chunks_cannot_be_cut(tmp_path, repo_path):
    files = archive(tmp_path, (95, 96), (30, 30), compression="gzip")
    kinds, array = built(files, repo_path)
    assert kinds.native
    assert array.chunks == (30, 1, WIDE)


def test_values_of_a_few_bytes_a_step_are_cut_where_runs_are_long_enough(tmp_path, repo_path):
    """Not to runs of a value or two: these would be more references than values."""
    for lengths, virtual in (((300_000, 320_000), 31), ((300_001, 320_000), 0)):
        (folder := tmp_path / str(virtual)).mkdir()
        files = archive(folder, lengths, (None, None), rows=1, width=1)
        kinds, array = built(files, f"{repo_path}{virtual}", on_mismatch="native")
        assert kinds.virtual in {virtual, 1}
        assert array.chunks[0] == (20_000 if virtual else 300_001) or not virtual


def test_a_file_with_holes_is_not_cut(tmp_path, repo_path):
    """Where chunks were never written, it is not known how many lie behind the end."""
    files = archive(tmp_path, (95, 96), (30, 30))
    with h5py.File(files[0], "r+") as file:
        hole = file.create_dataset("w", (95, 1, WIDE), "f4", chunks=(30, 1, WIDE))
        hole.dims[0].attach_scale(file["time"])
        hole[30:60] = 1
        del file["v"]
        file.move("w", "v")
    kinds, array = built(files, repo_path)
    assert kinds.native
    assert array.chunks == (30, 1, WIDE)


@pytest.mark.ci
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.integers(90, 140), st.sampled_from([None, 7, 20, 90])), min_size=2, max_size=4
    ),
    st.sampled_from(["regular", "rectilinear"]),
)
def test_any_lengths_and_chunks_are_all_referenced(tmp_path_factory, made, grid):
    folder = tmp_path_factory.mktemp("granules")
    lengths, chunks = zip(*made, strict=True)
    files = archive(folder, lengths, chunks, width=3000)
    kinds, _ = built(files, str(folder / "repo"), chunk_grid=grid)
    assert kinds.native == 0


def test_only_arrays_that_need_it_are_cut(tmp_path):
    files = archive(tmp_path, (90, 90), (30, 30))
    plan = icevirt.plan(files, concat_dim="time")
    (array,) = (each for each in plan.arrays if each.path == "/v")
    assert array.form is None or not (array.form == Form.cut).any()
