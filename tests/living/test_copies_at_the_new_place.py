"""What a dataset copied of files is compared where these moved and got another time."""

import os
import shutil

import netCDF4
import numpy as np
import pytest

import icevirt
from builds.support import opened
from icevirt.connect.urls import file_url
from icevirt.errors import VerificationError
from icevirt.tasks.compare_files import gaps

pytestmark = pytest.mark.usefixtures("in_process")
LARGE = 300_000  # numbers of the variable that is only referred to


def write(path, day):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", LARGE)
        file.createDimension("station", 3)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [day]
        large = file.createVariable("large", "f4", ("time", "x"), chunksizes=(1, LARGE))
        large.units = "K"
        large[:] = np.random.default_rng(day).normal(size=(1, LARGE))
        file.createVariable("count", "i4", ("time",))[:] = [day]  # of chunks that are not full
        file.createVariable("height", "f8", ("station",))[:] = [1, 2, 3]
        file.createVariable("name", str, ("station",))[:] = np.array(["a", "b", "c"], object)


@pytest.fixture
def places(tmp_path):
    """An archive, its repository, and a copy of the archive with other times."""
    old, new, repo = tmp_path / "old", tmp_path / "new", str(tmp_path / "repo")
    old.mkdir()
    for day in range(1, 4):
        write(old / f"day{day}.nc", day)
        os.utime(old / f"day{day}.nc", (1.6e9 + day,) * 2)
    icevirt.build(str(old), repo, concat_dim="time")
    shutil.copytree(old, new)
    return old, new, repo


def relocated(old, new, repo, **how):
    for number, path in enumerate(sorted(new.iterdir())):
        os.utime(path, (1.7e9 + number,) * 2)
    prefixes = [file_url(old), file_url(new)]
    return icevirt.relocate(repo, old, new, authorize_virtual_chunk_access=prefixes, **how)


def change(name, value):
    def changed(path):
        with netCDF4.Dataset(path, "a") as file:
            file[name][-1] = value

    return changed


def change_units(path):
    raw = path.read_bytes()
    assert raw.count(b"days since 2000-01-01") == 1
    path.write_bytes(raw.replace(b"days since 2000-01-01", b"days since 2001-01-01"))


CHANGES = {
    "a label": change("time", 9),
    "a value in a chunk that is not full": change("count", 77),
    "a text": change("name", "z"),
    "an attribute that decodes values": change_units,
}


@pytest.mark.parametrize("catalog", [True, False], ids=["described", "not described any more"])
@pytest.mark.parametrize("act", CHANGES.values(), ids=CHANGES)
def test_a_copy_that_would_be_another_value_stops_it(act, catalog, places):
    old, new, repo = places
    act(new / "day2.nc")
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    if not catalog:
        shutil.rmtree(f"{repo}/icevirt/catalog")
    with pytest.raises(VerificationError, match=r"1 of 3 files.*not at the new place") as caught:
        relocated(old, new, repo)
    assert caught.value.facts["file"] == file_url(new / "day2.nc")
    assert icevirt.Repository.open(repo).lookup_branch("main") == tip
    with netCDF4.Dataset(old / "day2.nc") as file:
        assert opened(repo)["count"].values[1] == file["count"][0]


def test_what_is_only_referred_to_is_not_read(places):
    old, new, repo = places
    report = relocated(old, new, repo, compare=1)
    size = sum(path.stat().st_size for path in new.iterdir())
    large = 3 * 4 * LARGE
    assert report.files_restamped == 3
    assert large < report.bytes_compared <= size  # nothing twice: the sample, and all else
    shutil.rmtree(old)
    assert icevirt.update(repo).already_built
    with netCDF4.Dataset(new / "day3.nc") as file:
        assert (opened(repo).large.values[2] == file["large"][0]).all()


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ([], [(0, 10)]),
        ([(0, 10)], []),
        ([(2, 3)], [(0, 2), (5, 5)]),
        ([(6, 4), (0, 2)], [(2, 4)]),
        ([(1, 5), (2, 1), (4, 4)], [(0, 1), (8, 2)]),
        ([(8, 9)], [(0, 8)]),
    ],
)
def test_gaps_are_what_ranges_leave_of_an_object(taken, left):
    offset, length = np.array(taken, np.int64).reshape(-1, 2).T
    begin, size = gaps(offset, length, 10)
    assert [*zip(begin.tolist(), size.tolist(), strict=True)] == left


def rewrite(path, later, like):
    """Write a file again, with other numbers in what is only referred to, so many seconds later."""
    time = path.stat().st_mtime
    with netCDF4.Dataset(path, "a") as file:
        file["large"][:] = np.random.default_rng(like).normal(size=(1, LARGE))
    os.utime(path, (time + later,) * 2)


@pytest.mark.parametrize("is_named", [False, True], ids=["prefix", "named container"])
def test_a_copy_that_is_older_than_the_file_is_compared(tmp_path, is_named):
    """Readers accept a file that is older than references record, which may be an earlier one."""
    old, new, repo = tmp_path / "old", tmp_path / "new", str(tmp_path / "repo")
    old.mkdir()
    for day in range(1, 4):
        write(old / f"day{day}.nc", day)
        os.utime(old / f"day{day}.nc", (1.6e9 + day,) * 2)
    shutil.copytree(old, new)
    rewrite(old / "day2.nc", 100, 77)
    options = {"containers": {"archive": str(old)}} if is_named else {}
    icevirt.build(str(old), repo, concat_dim="time", commit_options=options)
    prefixes = [file_url(old), file_url(new)]
    for seed in range(3):  # whichever file is drawn
        with pytest.raises(
            VerificationError, match=r"1 of 3 files.*not at the new place"
        ) as caught:
            icevirt.relocate(
                repo, old, new, compare=1, seed=seed, authorize_virtual_chunk_access=prefixes
            )
        assert caught.value.facts["file"] == file_url(new / "day2.nc")


@pytest.mark.parametrize("is_older", [True, False], ids=["both older", "as listed"])
def test_a_file_that_is_not_as_listed_vouches_for_no_copy(tmp_path, is_older):
    """An update of the place says what such a file is; until then it does not move."""
    old, new, repo = tmp_path / "old", tmp_path / "new", str(tmp_path / "repo")
    old.mkdir()
    for day in range(1, 4):
        write(old / f"day{day}.nc", day)
        os.utime(old / f"day{day}.nc", (1.6e9 + day,) * 2)
    icevirt.build(str(old), repo, concat_dim="time")
    shutil.copytree(old, new)
    if is_older:
        for place in (old, new):
            rewrite(place / "day2.nc", -100, 77)
    prefixes = [file_url(old), file_url(new)]

    def relocate():
        return icevirt.relocate(repo, old, new, authorize_virtual_chunk_access=prefixes)

    if is_older:
        with pytest.raises(VerificationError, match="no longer as listed"):
            relocate()
        assert icevirt.update(repo).files_corrected == 1
    relocate()
    assert icevirt.update(repo).already_built
    with netCDF4.Dataset(new / "day2.nc") as file:
        assert (opened(repo).large.values[1] == file["large"][0]).all()
