"""Stacks of stores: built, appended, updated, undone, and read as xarray reads them together."""

import os
import shutil

import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs.numcodecs

import icevirt
from builds.support import official
from icevirt.errors import CombineError, StaleReferenceError
from icevirt.objects.store_listings import list_store
from scanners.zarr.zarr_stores import write_month

FILTERS = {
    "none": (),
    "transposed": [zarr.codecs.TransposeCodec(order=(1, 0))],
    "transposed differences": [
        zarr.codecs.TransposeCodec(order=(1, 0)), zarr.codecs.numcodecs.Delta(dtype="<f4"),
    ],
    "scaled": [zarr.codecs.numcodecs.FixedScaleOffset(offset=0, scale=8, dtype="<f4", astype="<i2")],
    "rounded": [zarr.codecs.numcodecs.BitRound(keepbits=9)],
    "quantized": [zarr.codecs.numcodecs.Quantize(digits=2, dtype="<f4")],
    "of another type": [zarr.codecs.numcodecs.AsType(encode_dtype="<f8", decode_dtype="<f4")],
    "scaled by zarr": [zarr.codecs.ScaleOffset(scale=2, offset=1)],
}  # fmt: skip


def expected(folder, numbers):
    stores = [xr.open_zarr(folder / f"2020-{each:02}.zarr", consolidated=False) for each in numbers]
    how = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "override"}
    return xr.concat(stores, "time", **how).load()


def found(repo):
    with xr.open_dataset(repo, engine="icevirt") as dataset:
        return dataset.load()


@pytest.mark.ci
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_stack_of_stores_is_a_dataset_like_one_of_files(zarr_format, tmp_path):
    archive, repo, how = tmp_path / "z", tmp_path / "repo", {"executor": "in-process"}
    archive.mkdir()
    for number in (1, 2):
        write_month(archive / f"2020-{number:02}.zarr", number, zarr_format)
    first = icevirt.build(f"{archive}/*.zarr", repo, **how)
    assert first.files_scanned == 2
    xr.testing.assert_identical(found(repo), expected(archive, (1, 2)))

    write_month(archive / "2020-03.zarr", 3, zarr_format)
    icevirt.update(repo, **how)
    xr.testing.assert_identical(found(repo), expected(archive, (1, 2, 3)))
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    icevirt.update(repo, **how)
    assert icevirt.Repository.open(repo).lookup_branch("main") == tip  # nothing is new

    # one chunk of one store, and no metadata
    zarr.open_group(archive / "2020-02.zarr", mode="r+")["t"][0, 0, 0] = 99
    files = (path for path in (archive / "2020-02.zarr/t").rglob("*") if path.is_file())
    written = max(files, key=lambda path: path.stat().st_mtime_ns)
    later = written.stat().st_mtime + 2  # checksums count seconds, and all of this took one
    os.utime(written, (later, later))
    with pytest.raises(StaleReferenceError, match="changed"):
        found(repo)
    assert not icevirt.verify(repo, **how).ok
    icevirt.update(repo, **how)
    xr.testing.assert_identical(found(repo), expected(archive, (1, 2, 3)))

    write_month(tmp_path / "z/2020-04.zarr", 4, zarr_format)
    icevirt.append(archive / "2020-04.zarr", repo, **how)
    xr.testing.assert_identical(found(repo), expected(archive, (1, 2, 3, 4)))
    assert icevirt.verify(repo, full=True, references=True, **how).ok

    shutil.rmtree(archive / "2020-01.zarr")
    icevirt.update(repo, vanished="remove", **how)
    xr.testing.assert_identical(found(repo), expected(archive, (2, 3, 4)))
    icevirt.undo(repo)
    with xr.open_dataset(repo, engine="icevirt") as dataset:
        assert dataset.sizes["time"] == 12


def test_labels_come_from_the_names_of_stores(tmp_path):
    for number in (1, 2):
        root = zarr.open_group(tmp_path / f"m{number}.zarr", mode="w")
        array = root.create_array("t", shape=(4,), chunks=(2,), dtype="f4", dimension_names=["x"])
        array[...] = number
    pattern = "m{member:d}.zarr"
    icevirt.build(
        f"{tmp_path}/*.zarr",
        tmp_path / "repo",
        concat_dim="member",
        combine_options={"labels": {"member": pattern}},
        executor="in-process",
    )
    dataset = found(tmp_path / "repo")
    assert dataset["member"].values.tolist() == [1, 2]
    np.testing.assert_array_equal(dataset["t"].values[:, 0], [1, 2])


def write_days(path, first, last, **how):
    days = np.arange(first, last)
    data = (("time", "x"), np.arange(4.0 * first, 4.0 * last, dtype="f4").reshape(-1, 4))
    dataset = xr.Dataset({"t": data}, {"time": ("time", days, {"units": "days since 2000-01-01"})})
    dataset.to_zarr(path, consolidated=False, **how)


CHUNKS = {"t": {"chunks": (5, 4)}, "time": {"chunks": (100,)}}


@pytest.mark.parametrize("call", ["update", "append"])
def test_a_store_that_grew_along_time_is_a_dataset_that_grew(call, tmp_path):
    store, repo, how = tmp_path / "a.zarr", tmp_path / "repo", {"executor": "in-process"}
    write_days(store, 0, 10, encoding=CHUNKS)
    icevirt.build(str(store), repo, **how)
    for first, last in ((10, 15), (15, 17)):  # whole chunks, and a part of one
        write_days(store, first, last, append_dim="time")
        if call == "update":
            assert icevirt.update(repo, **how).files_corrected == 1
        else:
            icevirt.append(str(store), repo, on_changed="replace", **how)
        with xr.open_zarr(store, consolidated=False) as whole:
            xr.testing.assert_identical(found(repo), whole.load())


def test_a_store_on_another_grid_is_held_back_with_the_command_that_takes_it(tmp_path):
    store, repo, how = tmp_path / "a.zarr", tmp_path / "repo", {"executor": "in-process"}
    write_days(store, 0, 10, encoding=CHUNKS)
    icevirt.build(str(store), repo, **how)
    wide = xr.Dataset({"t": (("time", "x"), np.ones((12, 8), "f4"))}, {"time": np.arange(12)})
    wide["time"].attrs["units"] = "days since 2000-01-01"
    wide.to_zarr(store, mode="w", consolidated=False)
    report = icevirt.update(repo, **how)
    assert [each.code for each in report.held] == ["plan-changed"]
    (command,) = [note.rpartition(": icevirt.")[2] for note in report.findings if "asked" in note]
    eval(f"icevirt.{command}", {"icevirt": icevirt, "repo": repo})
    with xr.open_zarr(store, consolidated=False) as whole:
        xr.testing.assert_identical(found(repo), whole.load())


def test_eras_of_stores_are_called_by_the_names_of_stores(tmp_path):
    for number, dtype in enumerate(("f4", "i4")):
        days = xr.Dataset(
            {"t": ("time", np.ones(2, dtype))}, {"time": [2 * number, 2 * number + 1]}
        )
        days["time"].attrs["units"] = "days since 2000-01-01"
        days.to_zarr(tmp_path / f"day{number}.zarr", consolidated=False)
    with pytest.raises(CombineError, match=r"era_0 at day0\.zarr, era_1 at day1\.zarr"):
        icevirt.build(
            f"{tmp_path}/*.zarr", tmp_path / "repo", concat_dim="time", executor="in-process"
        )


def test_a_folder_of_many_folders_is_listed_in_the_order_of_names(tmp_path):
    """Side by side, and files stand between folders where their names do."""
    keys = [f"a/c/{row}/{column}" for row in range(40) for column in (0, 1, 10, 2)]
    keys += ["zarr.json", "a/zarr.json", "a/c/2x", "a.json"]
    for key in keys:
        path = tmp_path / "s.zarr" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (1 + len(key)))
    found = list_store((tmp_path / "s.zarr/zarr.json").as_uri())
    assert [*found.keys] == sorted(keys, key=lambda key: key.split("/"))
    assert found.sizes.tolist() == [1 + len(key) for key in found.keys]
    assert found.times.tolist() == [
        (tmp_path / "s.zarr" / key).stat().st_mtime_ns for key in found.keys
    ]


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_shards_take_the_new_dimension_of_a_stack(filters, tmp_path):
    index_location = "end" if filters else "start"
    values = np.random.default_rng(1).integers(-64, 64, (2, 13, 9)).astype("f4") / 8
    for number in (0, 1):
        root = zarr.open_group(tmp_path / f"m{number}.zarr", mode="w")
        array = root.create_array(
            "t", shape=(13, 9), chunks=(2, 3), dtype="f4", dimension_names=["y", "x"],
            shards={"shape": (6, 6), "index_location": index_location}, filters=filters,
        )  # fmt: skip
        array[...] = values[number]
    how = {"combine_options": {"labels": "m{member:d}.zarr"}, "executor": "in-process"}
    icevirt.build(f"{tmp_path}/*.zarr", tmp_path / "repo", **how)
    theirs = official(tmp_path / "repo").readonly_session("main").store
    np.testing.assert_array_equal(zarr.open_group(theirs, mode="r")["t"][...], values)
    np.testing.assert_array_equal(found(tmp_path / "repo").t, values)
