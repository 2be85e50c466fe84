"""What commands print: flags of options, and content as files have it."""

import h5py
import netCDF4
import numpy as np
import pytest


@pytest.fixture(params=["object references", "compounds with text"])
def odd_types(request, tmp_path):
    """Write files with a variable that Zarr cannot hold."""
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["time"] = np.arange(2.0) + 2 * number
            file["time"].make_scale("time")
            file["x"] = np.arange(2.0)
            file["x"].dims[0].attach_scale(file["time"])
            if request.param == "object references":
                made = file.create_dataset("odd", (1,), dtype=h5py.ref_dtype)
                made[0] = file["x"].ref
            else:
                kind = [("a", "i4"), ("b", h5py.string_dtype())]
                file["odd"] = np.array([(1, "x")], kind)
    return tmp_path


def test_types_that_zarr_lacks_are_left_out_by_the_command_that_is_printed(odd_types, run):
    status, _, printed = run("build", f"{odd_types}/*.h5", odd_types / "repo", "-q")
    assert status == 1
    assert "Leave them out: --drop-variable /odd" in printed
    assert "--variable-policy skip" in printed
    assert "drop_variables" not in printed
    assert "--drop-variable /odd  # the dataset lacks /odd" in printed
    status, _, _ = run(
        "build", f"{odd_types}/*.h5", odd_types / "repo", "-q", "--drop-variable", "/odd"
    )
    assert status == 0


def test_a_group_that_files_lack_is_named_by_its_own_flag(odd_types, run):
    _, _, printed = run("build", f"{odd_types}/*.h5", odd_types / "r", "--source-group", "none")
    assert "Name one that is there in --source-group, or omit it" in printed
    assert " --group" not in printed


def test_members_that_are_called_like_options_stay_as_they_are(tmp_path, run):
    for number, members in enumerate(({"missing": 0, "group": 1}, {"group": 0, "missing": 1})):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("time", 2)
            time = file.createVariable("time", "i4", ("time",))
            time.units = "days since 2000-01-01"
            time[:] = [2 * number, 2 * number + 1]
            kind = file.createEnumType("u1", "kind", members)
            file.createVariable("sky", kind, ("time",))[:] = 0
    _, _, printed = run("build", f"{tmp_path}/*.nc", tmp_path / "repo", "-q")
    assert "members missing=0, group=1" in printed
    assert "members group=0, missing=1" in printed
    _, printed, _ = run("plan", f"{tmp_path}/*.nc", "--on-mismatch", "eras", "-q")
    assert "--missing" not in printed
    assert "--group 1" not in printed
