"""What a build of many variables does for each of them does not depend on how many there are."""

import h5py
import numpy as np
import pytest
import xarray as xr

import icevirt
from icevirt.planning.axes.axis import CombinedVariable
from icevirt.repo.assets import Assets

FILES = 5


@pytest.fixture(params=[2, 8])
def archive(request, tmp_path):
    """Files with variables of their own, as many as the test says."""
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        with h5py.File(tmp_path / "in" / f"{number}.nc", "w") as file:
            file["time"] = [float(number)]
            file["time"].make_scale()
            file["time"].attrs["units"] = "days since 2000-01-01"
            for own in range(request.param):
                name = f"v{number}_{own}"
                made = file.create_dataset(name, data=np.full((1, 4), float(own)), chunks=(1, 4))
                made.dims[0].attach_scale(file["time"])
                made.attrs["_FillValue"] = np.nan
    return request.param, tmp_path


def test_a_manifest_is_read_once_for_the_log_and_lengths_are_gathered_once_a_group(
    archive, monkeypatch, in_process
):
    count, folder = archive
    read, gathered = [], []
    read_indices, along_axes = Assets.read_indices, CombinedVariable.along_axes
    monkeypatch.setattr(
        Assets, "read_indices", lambda assets, key: read.append(key) or read_indices(assets, key)
    )
    monkeypatch.setattr(
        CombinedVariable,
        "along_axes",
        lambda member, axes: gathered.append(member.path) or along_axes(member, axes),
    )
    report = icevirt.build(
        f"{folder}/in/*.nc",
        folder / "repo",
        concat_dim="time",
        combine_options={"missing": "reserve"},
    )
    assert len(read) == len(set(read)) == report.manifests
    assert len(gathered) <= 8 * FILES * count
    with report.open() as dataset:
        for number in range(FILES):
            found = dataset[f"v{number}_{count - 1}"].dropna("time")
            xr.testing.assert_equal(found.time, dataset.time[number : number + 1])
            assert (found == count - 1).all()
