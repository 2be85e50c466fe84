"""Virtual datasets are resolved to the chunks of their sources, and never read as silent fill."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import icevirt
from fixtures import hdf5_cases
from icevirt.errors import ScanError, StaleReferenceError, UnsupportedError
from icevirt_scanners.hdf5 import representation
from scanners.materialise import materialise

ALL = {
    name: case
    for name, case in hdf5_cases.CASES.items()
    if name.startswith("vds") and not case.refused
}
FIT = {name: case for name, case in ALL.items() if "virtual-dataset" in case.codes}


def write(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "odd.h5"
    ALL[name].write(path)
    return path


def wanted(path):
    with h5py.File(path) as file:
        return file["d"][...]


@pytest.mark.parametrize("name", FIT)
def test_what_fits_together_is_referenced_with_the_times_of_the_sources(name, tmp_path):
    path = write(name, tmp_path)
    scanned = icevirt.scan_file(
        path, scan_options={"max_native_bytes_per_file": 1000}
    )  # a masked chunk
    array = scanned.array("d")
    assert array.references.count(3) == (1 if "chunks-stored" in FIT[name].codes else 0)
    table = array.references
    for url, seconds in zip(
        table.locations.url, table.locations.last_modified.tolist(), strict=True
    ):
        facts = Path(url.removeprefix("file://")).stat()
        assert seconds == -(-facts.st_mtime_ns // 10**9)
    np.testing.assert_array_equal(materialise(array), wanted(path))


@pytest.mark.parametrize("name", sorted(set(ALL) - set(FIT)))
def test_what_does_not_fit_needs_the_budget_and_says_why(name, tmp_path):
    path = write(name, tmp_path)
    with pytest.raises(UnsupportedError, match="a virtual dataset: ") as caught:
        icevirt.scan_file(path, scan_options={"max_native_bytes_per_file": 10})
    assert "drop_variables" in str(caught.value)
    np.testing.assert_array_equal(materialise(icevirt.scan_file(path).array("d")), wanted(path))


@pytest.mark.ci
@pytest.mark.parametrize("name", ALL)
def test_a_build_is_verified_and_its_references_are_those_of_the_scan(name, tmp_path, in_process):
    """What both clients read of each is in test_official_client."""
    path, repo = write(name, tmp_path / "in"), str(tmp_path / "repo")
    containers = icevirt.build([str(path)], repo, concat_dim=None).containers
    report = icevirt.verify(
        repo, authorize_virtual_chunk_access=containers, full=True, references=True
    )
    assert report.ok, report.checked.differences
    assert report.checked.references == icevirt.scan_file(path).counts()["virtual"]


def test_verify_names_a_source_that_changed_and_reading_refuses_it(tmp_path, in_process):
    path, repo = write("vds_stacked", tmp_path / "in"), str(tmp_path / "repo")
    containers = icevirt.build([str(path)], repo, concat_dim=None).containers
    os.utime(path.parent / "s1.h5", (4e9, 4e9))
    found = icevirt.verify(repo, authorize_virtual_chunk_access=containers, references=True)
    assert {Path(each.file).name for each in found.checked.differences} == {"s1.h5"}
    session = icevirt.Repository.open(
        repo, authorize_virtual_chunk_access=containers
    ).readonly_session("main")
    held = zarr.open_array(session.store, path="d", mode="r")
    held[0]
    with pytest.raises(StaleReferenceError):
        held[1]


def test_a_source_elsewhere_is_followed_where_that_is_allowed(tmp_path):
    path = write("vds_stacked", tmp_path / "a")
    (tmp_path / "b").mkdir()
    (path.parent / "s1.h5").rename(tmp_path / "b" / "s1.h5")
    (path.parent / "s1.h5").symlink_to(tmp_path / "b" / "s1.h5")
    with pytest.raises(UnsupportedError, match="outside the directory") as caught:
        icevirt.scan_file(path)
    assert "allow_references_to=" in str(caught.value)
    scanned = icevirt.scan_file(path, scan_options={"allow_references_to": str(tmp_path / "b")})
    np.testing.assert_array_equal(materialise(scanned.array("d")), wanted(path))


def test_a_source_in_the_working_directory_is_not_taken_for_one_beside_the_file(
    tmp_path, monkeypatch
):
    path = write("vds_one_gone", tmp_path / "a")
    (tmp_path / "cwd").mkdir()
    (path.parent / "s0.h5").rename(tmp_path / "cwd" / "s0.h5")
    monkeypatch.chdir(tmp_path / "cwd")
    with pytest.raises(ScanError, match="working directory"):
        icevirt.scan_file(path)


def test_a_prefix_in_the_environment_is_refused(tmp_path, monkeypatch):
    path = write("vds_stacked", tmp_path)
    monkeypatch.setenv("HDF5_VDS_PREFIX", "/elsewhere")
    with pytest.raises(ScanError, match="HDF5_VDS_PREFIX"):
        icevirt.scan_file(path)


@pytest.mark.parametrize("name", ["vds_stacked", "vds_converted", "external"])
def test_a_source_that_changes_while_it_is_scanned_stops_the_scan(name, tmp_path, monkeypatch):
    path = tmp_path / "odd.h5"
    hdf5_cases.CASES[name].write(path)
    kept = representation.represent

    def slow(variable, context):
        found = kept(variable, context)
        (other,) = [*tmp_path.glob("s1.h5"), *tmp_path.glob("two.bin")]
        os.utime(other, (1e9, 1e9))
        return found

    monkeypatch.setattr("icevirt_scanners.hdf5.scanner.represent", slow)
    with pytest.raises(StaleReferenceError, match="changed during the scan") as caught:
        icevirt.scan_file(path)
    assert "drop_variables" not in str(caught.value)


@pytest.mark.ci
def test_many_mappings_of_one_source_are_columns(tmp_path):
    frames, size = 1_000, 8
    data = np.arange(frames * size, dtype="<i4").reshape(frames, size)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("data", data=data, chunks=(1, size), compression="gzip")
    layout = h5py.VirtualLayout(shape=(frames, size), dtype="<i4")
    source = h5py.VirtualSource("s.h5", "data", shape=(frames, size))
    for frame in range(frames):
        layout[frame] = source[frames - 1 - frame]
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("d", layout, fillvalue=-1)
    table = icevirt.scan_file(tmp_path / "v.h5").array("d").references
    assert len(table) == frames
    assert len(table.locations) == 1
    plain = icevirt.scan_file(tmp_path / "s.h5").array("data").references
    np.testing.assert_array_equal(table.offset, plain.offset[::-1])


@pytest.mark.parametrize("name", ["vds_stacked", "vds_one_gone", "vds_nested"])
def test_sources_of_a_remote_file_are_referenced_below_its_prefix(name, tmp_path, http_server):
    path = write(name, tmp_path)
    url = http_server.url
    for each in tmp_path.rglob("*.h5"):
        http_server.files.put(str(each.relative_to(tmp_path)), each.read_bytes())
    remote, local = icevirt.scan_file(f"{url}/odd.h5"), icevirt.scan_file(path)
    theirs, ours = remote.array("d").references, local.array("d").references
    for column in ("index", "offset", "length", "source"):
        np.testing.assert_array_equal(getattr(theirs, column), getattr(ours, column))
    names = [each.removeprefix(f"{url}/") for each in theirs.locations.url]
    assert names == [each.removeprefix(f"{tmp_path.as_uri()}/") for each in ours.locations.url]
    assert all(theirs.locations.etag)


@pytest.mark.parametrize(
    ("name", "why"),
    [("vds_unlimited", "unlimited"), ("vds_numbered", "unlimited"), ("vds_cut", "read")],
)
def test_of_a_remote_file_nothing_is_read_through_libhdf5(name, why, tmp_path, http_server):
    write(name, tmp_path)
    for each in tmp_path.rglob("*.h5"):
        http_server.files.put(str(each.relative_to(tmp_path)), each.read_bytes())
    with pytest.raises(UnsupportedError, match=why) as caught:
        icevirt.scan_file(f"{http_server.url}/odd.h5")
    assert "drop_variables" in str(caught.value)
