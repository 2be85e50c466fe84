"""The scanner that a build named reads its files again, and no repository names code that runs."""

import sys
import tomllib
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import zarr

import icevirt
from icevirt import errors
from icevirt.api.dataset.records import KeptRecipe, keep_recipe, recipe_named
from icevirt.api.recipe import toml
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.schema import ScannedGroup
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.planning.records import METADATA
from icevirt.storage.local import LocalStorage

pytestmark = pytest.mark.usefixtures("in_process")

NAMED = f"{__name__}:Numbers"


class Numbers:
    """Scans three numbers in a file, and reads them as their own library."""

    name, version = "numbers", "1"

    def accepts(self, head):
        return False

    def scan(self, source, options):
        file = source.file
        if file.size != 12:
            raise errors.ScanError("these are not three numbers", file=file.url)
        return ScannedFile(
            source=file,
            scanner=self.name,
            scanner_version=self.version,
            groups=(ScannedGroup(path="/"),),
            arrays=(
                ScannedArray(
                    path="/v",
                    dimension_names=("x",),
                    shape=(3,),
                    chunk_shape=(3,),
                    data_type="int32",
                    codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
                    fill_value=0,
                    references=ChunkTable.virtual(
                        index=np.zeros((1, 1), np.int64),
                        offset=np.zeros(1, np.int64),
                        length=np.array([12]),
                        locations=Locations.one(
                            file.url, etag=file.etag, last_modified=file.last_modified_seconds
                        ),
                    ),
                ),
            ),
        )

    def read_values(self, source, path, region):
        other = Path(f"{source.file.url.removeprefix('file://')}.other")  # in any process
        raw = other.read_bytes() if other.exists() else source.read(0, 12)
        return np.frombuffer(raw, "<i4")[region]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(3):
        np.arange(3, dtype="<i4").tofile(tmp_path / "in" / f"{number}.bin")
    return [str(tmp_path / "in" / f"{number}.bin") for number in range(3)]


@pytest.fixture
def repo(files, tmp_path):
    made = str(tmp_path / "repo")
    icevirt.build(
        files[:2],
        made,
        concat_dim="x",
        scan_options={"scanner": NAMED},
        commit_options={"verify": 5},
    )
    return made


@pytest.fixture
def go_elsewhere(tmp_path, monkeypatch):
    """Forget what this user named, as another machine has never known it."""
    return lambda: monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def verify(repo, files, **how):
    place = files[0].rpartition("/")[0]
    return icevirt.verify(repo, authorize_virtual_chunk_access=[place], full=True, **how)


def forge(repo, **changes):
    """Commit that the last build had other options, as anybody can who may write."""
    opened = icevirt.Repository.open(repo)
    held = dict(next(iter(opened.ancestry(branch="main"))).metadata[METADATA])
    session = opened.writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["n"] = 1
    output = {
        n: {**held[n], **each} if isinstance(each, dict) else each for n, each in changes.items()
    }
    session.commit("somebody's", metadata={METADATA: {**held, **output}})


def test_the_scanner_that_a_build_named_reads_values_again(repo, files):
    found = verify(repo, files)
    assert (found.ok, found.checked.values, found.checked.not_compared) == (True, 6, ())
    np.arange(3, 6, dtype="<i4").tofile(f"{files[0]}.other")
    assert not verify(repo, files).ok


def test_a_name_that_this_user_did_not_give_is_refused_until_it_is_given(repo, files, go_elsewhere):
    go_elsewhere()
    for call in (lambda: verify(repo, files), lambda: icevirt.append(files[2], repo)):
        with pytest.raises(errors.InvalidInputError, match="not taken from the repo") as caught:
            call()
        assert caught.value.fixes[0].flags == ("--scanner", NAMED)
    assert verify(repo, files, scanner=NAMED).ok


def test_a_forged_name_imports_nothing(repo, files):
    forge(repo, scan={"scanner": "colorsys:rgb_to_hsv"})
    sys.modules.pop("colorsys", None)
    for call in (lambda: verify(repo, files), lambda: icevirt.append(files[2], repo)):
        with pytest.raises(errors.InvalidInputError, match="not taken from the repository"):
            call()
    assert "colorsys" not in sys.modules


def test_a_recipe_of_others_imports_nothing(repo, files, tmp_path):
    storage = LocalStorage(repo)
    opened = icevirt.Repository.open(repo)
    held = next(iter(opened.ancestry(branch="main"))).metadata[METADATA]
    recipe = tomllib.loads(recipe_named(storage, held["recipe"]).text)
    kept = KeptRecipe(toml({**recipe, "scan_options": {"scanner": "colorsys:rgb_to_hsv"}}))
    keep_recipe(storage, kept)
    forge(repo, recipe=kept.digest)
    sys.modules.pop("colorsys", None)
    with pytest.raises(errors.InvalidInputError, match="did not make the recipe"):
        icevirt.update(repo)
    assert "colorsys" not in sys.modules


def test_a_scanner_that_is_not_installed_is_named(repo, files):
    forge(repo, scan={"scanner": "grib99"})
    with pytest.raises(errors.InvalidInputError, match="'grib99', and no scanner of that name is"):
        verify(repo, files)


def test_appends_and_updates_go_on_with_it(repo, files):
    assert icevirt.append(files[2], repo).files_appended == 1
    np.arange(9, 12, dtype="<i4").tofile(files[2])
    assert icevirt.update(repo, authorize=[files[0].rpartition("/")[0]]).files_corrected == 1
    assert verify(repo, files).ok
    assert icevirt.open(repo)["v"].values.tolist() == [0, 1, 2, 0, 1, 2, 9, 10, 11]


def test_the_name_of_an_installed_scanner_is_no_code(tmp_path, go_elsewhere):
    path = str(tmp_path / "a.nc")
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 3)
        file.createVariable("v", "i4", ("x",))[:] = [1, 2, 3]
    made = str(tmp_path / "repo")
    icevirt.build(path, made, scan_options={"scanner": "netcdf3"})
    go_elsewhere()
    assert verify(made, [path]).ok


def test_files_to_which_references_lead_are_read_by_their_content(tmp_path):
    path, made = str(tmp_path / "a.nc"), str(tmp_path / "repo")
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("v", "i4", ("x",))[:] = [1, 2, 3]
    first = str(tmp_path / "first")
    icevirt.build(path, first)
    icevirt.export(first, str(tmp_path / "a.json"))
    icevirt.build(str(tmp_path / "a.json"), made, scan_options={"scanner": "kerchunk"})
    found = verify(made, [path])
    assert (found.ok, found.checked.values) == (True, 3)
