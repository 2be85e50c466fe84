"""Builds into buckets: tasks write there by themselves, the driver commits."""

import icechunk
import xarray as xr

import icevirt
from grouping import grouped

HOW = {"concat_dim": "time_counter", "combine": "nested"}


def test_a_build_into_a_bucket_equals_its_files(spark, nemo_files, s3):
    storage = s3.icevirt()
    report = icevirt.build(nemo_files, storage, **grouped(HOW), executor=spark)
    assert report.snapshot_id
    prefix = f"file://{nemo_files[0].rpartition('/')[0]}/"
    with (
        xr.set_options(use_new_combine_kwarg_defaults=True),
        xr.open_mfdataset(nemo_files, combine="nested", concat_dim="time_counter") as files,
        xr.open_dataset(
            storage, engine="icevirt", authorize_virtual_chunk_access=[prefix]
        ) as found,
    ):
        for name in found.data_vars:
            xr.testing.assert_equal(found[name].load(), files[name].load())
    assert icevirt.check(storage).ok
    theirs = icechunk.Repository.open(s3.official())
    assert next(theirs.ancestry(branch="main")).id == report.snapshot_id

    again = icevirt.build(nemo_files, storage, **grouped(HOW), executor=spark)
    assert again.snapshot_id == report.snapshot_id
