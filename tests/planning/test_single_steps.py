"""Files of a single step without its dimension are appended, updated and verified as steps."""

import pytest

import icevirt
from archives.archive import DECODED, differences
from archives.single_steps import along, save, steps

pytestmark = pytest.mark.usefixtures("in_process")

LAID_OUT = {
    "a single step last": ((0, 2, False), (2, 2, False), (4, 1, True)),
    "steps after a single one": ((0, 1, True), (1, 2, False), (3, 2, False)),
    "several of both": ((0, 2, False), (2, 1, True), (3, 1, True), (4, 2, False)),
}


def write(folder, laid_out):
    files = []
    for number, (begin, count, is_single) in enumerate(laid_out):
        files.append(str(folder / f"f{number}.nc"))
        save(steps(begin, count, bounds=True), files[-1], single=is_single)
    return files


def unlike(repo, folder, files):
    """Return how a dataset differs from xarray's answer, and from its files."""
    access = [f"{folder.as_uri()}/"]
    held = icevirt.open(repo, authorize_virtual_chunk_access=access, decode_times=DECODED).load()
    assert icevirt.verify(repo, authorize_virtual_chunk_access=access).ok
    return differences(held, along("time")(files))


@pytest.mark.parametrize("case", LAID_OUT)
def test_a_build_and_an_append_make_what_xarray_makes(case, tmp_path):
    files = write(tmp_path, LAID_OUT[case])
    repos = [str(tmp_path / f"repo{n}") for n in range(2)]
    icevirt.build(files, repos[0])
    icevirt.build(files[:-1], repos[1])
    icevirt.append(files[-1:], repos[1])
    for repo in repos:
        assert not unlike(repo, tmp_path, files)


def test_an_update_adds_a_single_step(tmp_path):
    files = write(tmp_path, LAID_OUT["a single step last"])
    held = tmp_path / "last.nc"
    (tmp_path / "f2.nc").rename(held)
    repo = str(tmp_path / "repo")
    icevirt.build([str(tmp_path / "f*.nc")], repo)
    held.rename(tmp_path / "f2.nc")
    icevirt.update(repo)
    assert not unlike(repo, tmp_path, files)
