"""verify looks at files of which everything was copied, as no read ever asks them."""

import os
from pathlib import Path

import netCDF4
import pytest
import zarr

import icevirt
from builds.support import official, opened
from icevirt.errors import UnauthorizedError

pytestmark = pytest.mark.usefixtures("in_process")


def write(path, day, value, *, large=False):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [day]
        file.createVariable("number", "i4", ("time",))[:] = [value]
        if large:
            file.createDimension("x", 50)
            file.createVariable("field", "f4", ("time", "x"), chunksizes=(1, 50))[:] = value
    os.utime(path, (1.6e9 + 10 * day + value,) * 2)


@pytest.fixture(params=[False, True], ids=["all copied", "referenced and copied"])
def built(request, tmp_path):
    archive, repo = tmp_path / "archive", str(tmp_path / "repo")
    archive.mkdir()
    for day in (1, 2, 3):
        write(archive / f"day{day}.nc", day, day, large=request.param)
    icevirt.build(str(archive), repo, concat_dim="time")
    return archive, repo, request.param


def differences(repo, *places, **how):
    report = icevirt.verify(repo, authorize_virtual_chunk_access=places, **how)
    assert report.ok == (not report.checked.differences)
    return {(str(each.kind), Path(each.file).name) for each in report.checked.differences}


DEEDS = {
    "rewritten": (lambda path, how: write(path, 2, 7, large=how), "changed"),
    "touched": (lambda path, _: os.utime(path, (1.7e9, 1.7e9)), "changed"),
    "gone": (lambda path, _: path.unlink(), "missing"),
}


@pytest.mark.parametrize(("act", "kind"), DEEDS.values(), ids=DEEDS)
def test_a_file_that_changed_is_named_once_for_all_that_was_copied(act, kind, built):
    archive, repo, is_referenced = built
    assert differences(repo, str(archive)) == set()
    act(archive / "day2.nc", is_referenced)
    assert differences(repo, str(archive), references=True) == {(kind, "day2.nc")}
    assert opened(repo).number.values.tolist() == [1, 2, 3]
    if not is_referenced:
        assert differences(repo, str(archive), values=5) == set()  # it compares values alone


def test_a_later_commit_of_others_hides_no_file(built):
    archive, repo, is_referenced = built
    session = official(repo).writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["note"] = "theirs"
    session.commit("theirs")
    write(archive / "day2.nc", 2, 7, large=is_referenced)
    assert ("changed", "day2.nc") in differences(repo, str(archive))
    icevirt.update(repo)
    assert differences(repo, str(archive)) == set()
    assert opened(repo).number.values.tolist() == [1, 7, 3]


def test_nothing_below_other_places_is_looked_at(built, monkeypatch, tmp_path):
    archive, repo, is_referenced = built
    write(archive / "day2.nc", 2, 7, large=is_referenced)
    real, looked = os.stat, []

    def stat(path, *args, **how):
        looked.append(os.fspath(path) if not isinstance(path, int) else "")
        return real(path, *args, **how)

    monkeypatch.setattr(os, "stat", stat)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UnauthorizedError, match="that of no virtual chunk container"):
        differences(repo, str(tmp_path / "elsewhere"))
    assert not [each for each in looked if each.startswith(str(archive))]


def test_a_list_that_is_gone_is_said_to_be_and_stops_nothing(built):
    archive, repo, _ = built
    for path in Path(repo, "icevirt", "listings").iterdir():
        path.unlink()
    report = icevirt.verify(repo, authorize_virtual_chunk_access=[str(archive)])
    assert report.ok
    assert "does not say which files" in dict(report.checked.not_compared)["/"]
