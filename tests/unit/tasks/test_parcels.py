"""Items travel small, and come out as they went in."""

import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from icevirt.archive.plan import FileRows, ManifestTask
from icevirt.tasks.write_manifests import PackedTasks, _Pickler


def passed(value):
    raw = io.BytesIO()
    _Pickler(raw).dump(value)
    return pickle.loads(raw.getvalue())


@given(
    arrays.arrays(
        st.sampled_from(["<i4", "<i8", "<u4", "|u1", "<u8", "|b1", "<f4"]),
        st.tuples(st.integers(0, 200), st.integers(0, 3)),
    )
)
def test_every_column_comes_out_as_it_went_in(column):
    found = passed(column)
    assert (found.dtype, found.shape) == (column.dtype, column.shape)
    assert found.tobytes() == column.tobytes()


@pytest.mark.parametrize("dtype", ["|b1", "|u1", "<i4", "<i8"])
@pytest.mark.parametrize("shape", [(), (2,), (0,)])
def test_equal_rows_take_the_memory_of_one(dtype, shape):
    column = np.full((1000, *shape), 1, dtype)
    found = passed(column)
    assert np.array_equal(found, column)
    assert found.dtype == column.dtype
    assert found.strides[0] == 0


@pytest.mark.parametrize("step", [1, -1, 127, 200, -129, 40_000, 1 << 33], ids=str)
def test_steps_of_every_size_come_back(step):
    column = 5_000_000_000 + step * np.array([0, 1, 3] * 50).cumsum()
    assert np.array_equal(passed(column), column)


@pytest.mark.parametrize("dtype", ["<i8", "<u8", "<i4", "|u1"])
def test_differences_wrap_and_come_back(dtype):
    ends = np.iinfo(dtype)
    column = np.array([ends.max, ends.min] * 50, dtype)
    assert np.array_equal(passed(column), column)


def test_what_items_share_they_share_again_and_half_a_million_files_are_a_few_kilobytes():
    count = 500_000
    files = FileRows(
        parts=tuple(f"part-{n:05d}" for n in range(2000)),
        part=(np.arange(count) // 250).astype(np.int32),
        row=(np.arange(count) % 250).astype(np.int32),
    )
    items = [ManifestTask(number=n, files=files, windows=()) for n in range(11)]
    parcel = PackedTasks.of(items)
    assert len(parcel.payload) < 20_000
    found = parcel.unpack()
    assert parcel.numbers == tuple(item.number for item in found) == tuple(range(11))
    assert all(item.files is found[0].files for item in found)
    assert np.array_equal(found[0].files.part, files.part)
    assert np.array_equal(found[0].files.row, files.row)
