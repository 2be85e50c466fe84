"""A huge file is scanned by several tasks; what they find is what one would have found."""

import contextlib
import json
import os
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    opened,
    output,
    write_days,
)
from fixtures import hdf5_cases
from grouping import grouped
from icevirt.api.dataset import scanning as scanning_files
from icevirt.planning.schedule import balance_scans
from icevirt.tasks import scan as scanning
from icevirt.tasks.scan_pieces import Pieces
from long_forms import IS_LONG, crossed
from scanners.hdf5.random_trees import plans, write
from tasks.test_kills import KILLED, Mortal, in_child

pytestmark = pytest.mark.usefixtures("in_process")


@contextlib.contextmanager
def in_pieces(count, *, run=1):
    """Scan every file in so many pieces, and cut arrays of so many chunks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scanning_files, "pieces_of", lambda files: {f.url: count for f in files})
        patched.setattr(balance_scans, "RUN", run)
        patched.setattr(balance_scans, "BLOCK_REFS", run)
        yield


def scan(sources, catalog, **options):
    return icevirt.scan_files(sources, catalog, **grouped(options, max_bad_files="100%"))


def counted(monkeypatch):
    """Note what is scanned: None for a whole file, else which piece."""
    noted, attempt = [], scanning.attempt

    def note(file, options, opening, piece=None):
        noted.append(piece)
        return attempt(file, options, opening, piece)

    monkeypatch.setattr(scanning, "attempt", note)
    return noted


def write_many(path, arrays=30, *, libver="earliest"):
    """Write arrays of many chunks, of which one is not written at all and one only here and there."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w", libver=libver) as file:
        for name, length in (("time", 12), ("x", 7)):
            file[name] = np.arange(length, dtype="f8")
            file[name].make_scale(name)
        for number in range(arrays):
            made = file.create_dataset(
                f"v{number:02d}", (12, 7), "f4", chunks=(1, 2), compression="gzip"
            )
            if number == 1:
                made[3:5, 2:] = 7
            elif number:
                made[...] = rng.random((12, 7))
            for axis, name in enumerate(("time", "x")):
                made.dims[axis].attach_scale(file[name])
    return str(path)


@pytest.mark.ci
@pytest.mark.parametrize(("count", "libver"), crossed([2, 7, 64], ["earliest", "latest"]))
def test_pieces_make_the_catalog_and_the_repository_of_the_whole(
    tmp_path, monkeypatch, count, libver
):
    path = write_many(tmp_path / "many.nc", libver=libver)
    noted = counted(monkeypatch)
    scan(path, tmp_path / "whole", concat_dim="time")
    with in_pieces(count):
        report = scan(path, tmp_path / "pieces", concat_dim="time")
    assert report.files_scanned == 1
    assert noted[0] is None
    assert sorted(noted[1:]) == [(number, count) for number in range(count)]
    assert output(tmp_path / "pieces") == output(tmp_path / "whole")
    assert not (tmp_path / "pieces" / "pieces").exists()
    for name in ("whole", "pieces"):
        icevirt.build(
            path,
            str(tmp_path / f"{name}.icechunk"),
            concat_dim="time",
            catalog=str(tmp_path / name),
        )
    one, other = (objects(tmp_path / f"{name}.icechunk") for name in ("whole", "pieces"))
    assert one == other
    assert one
    assert_same_dataset(
        opened(str(tmp_path / "pieces.icechunk")), expected_dataset([path], "time").load()
    )


def objects(repo):
    """Return the manifests and chunks of a repository by name; both are named by what they hold."""
    return {
        path.name: path.read_bytes()
        for folder in ("manifests", "chunks")
        for path in (repo / folder).rglob("*")
        if path.is_file()
    }


def test_large_arrays_are_cut_into_runs_of_their_chunks(tmp_path, monkeypatch):
    path = write_many(tmp_path / "one.nc", arrays=1)
    with h5py.File(path, "a") as file:
        del file["v00"]
        file.create_dataset("big", (40, 50), "i2", chunks=(1, 5), shuffle=True)[...] = 3
    held = []
    write_piece = Pieces.write

    def write(self, outcome):
        held.append({a.path: len(a.references) for a in outcome.scanned.arrays}.get("/big"))
        write_piece(self, outcome)

    monkeypatch.setattr(Pieces, "write", write)
    with in_pieces(4, run=16):
        scan(path, tmp_path / "pieces")
    assert [n for n in held if n] == [n for n in held if n and n < 400]
    assert sum(filter(None, held)) == 400
    assert len([n for n in held if n]) >= 3


@pytest.mark.ci
def test_every_odd_file_is_described_the_same(tmp_path, monkeypatch):
    """Those that are refused too, with every word of the error; in CI every second one."""
    folder = tmp_path / "files"
    folder.mkdir()
    paths = []
    for name, case in [*hdf5_cases.CASES.items()][:: 1 if IS_LONG else 2]:
        paths.append(folder / f"{name}.h5")
        with contextlib.suppress(Exception):
            case.write(paths[-1])
    paths = [str(path) for path in paths if path.exists()]
    scan(paths, tmp_path / "whole", concat_dim="time")
    noted = counted(monkeypatch)
    with in_pieces(3):
        report = scan(paths, tmp_path / "pieces", concat_dim="time")
    assert noted.count(None) < len(report.bad_files) + len(paths) / 10
    whole, pieces = output(tmp_path / "whole"), output(tmp_path / "pieces")
    for table in whole:
        assert pieces[table] == whole[table], table


@pytest.mark.ci
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(
    st.lists(plans(), min_size=1, max_size=5),
    st.lists(st.sampled_from(["g", "g/h", "g/h/i/j", "c"]), max_size=3),
    st.sampled_from(["earliest", "latest"]),
    st.sampled_from([None, "phony_dim_0", "a"]),
    st.sampled_from(["fail", "skip"]),
    st.integers(2, 6),
)
def test_a_random_tree_is_described_the_same(
    tmp_path_factory, found, groups, libver, concat_dim, policy, count
):
    folder = tmp_path_factory.mktemp("tree")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(folder / "file.h5", groups, found, libver=libver, track_order=False)
    path = str(folder / "file.h5")
    scan(path, folder / "whole", concat_dim=concat_dim, variable_policy=policy)
    with in_pieces(count):
        scan(path, folder / "pieces", concat_dim=concat_dim, variable_policy=policy)
    assert output(folder / "pieces") == output(folder / "whole")


@pytest.mark.ci
def test_a_scan_that_is_killed_scans_the_missing_pieces_only(tmp_path, monkeypatch):
    path = write_many(tmp_path / "many.nc", arrays=4)
    scan(path, tmp_path / "expected")
    expected = output(tmp_path / "expected")
    written, write_piece = [], Pieces.write
    monkeypatch.setattr(Pieces, "write", lambda *how: (written.append(how), write_piece(*how)))
    with in_pieces(3):
        Mortal.calls, Mortal.limit = 0, 10**9
        scan(path, Mortal(tmp_path / "undisturbed"))
        calls = Mortal.calls
        for number in range(calls):
            catalog = tmp_path / str(number)
            assert in_child(lambda: scan(path, Mortal(catalog)), number) == KILLED  # noqa: B023
            there = len(list(catalog.glob("pieces/*/found/*")))
            complete = bool(list(catalog.glob("files/*.parquet")))
            written.clear()
            scan(path, catalog)
            assert len(written) == (0 if complete else 3 - there), number
            assert output(catalog) == expected, number
            assert not (catalog / "pieces").exists()
    assert calls > 10


def replaced_after(monkeypatch, path, number):
    """Replace the file when so many pieces are scanned."""
    attempt, seen = scanning.attempt, []

    def scanned(file, options, opening, piece=None):
        outcome = attempt(file, options, opening, piece)
        seen.extend([] if piece is None else [piece])
        if len(seen) == number:
            write_many(path, arrays=5)
            os.utime(path, ns=(1, 1))
        return outcome

    monkeypatch.setattr(scanning, "attempt", scanned)


@pytest.mark.ci
@pytest.mark.parametrize("number", [1, 2])
def test_a_file_that_changes_between_its_pieces_is_bad(tmp_path, monkeypatch, number):
    path = write_many(tmp_path / "many.nc")
    write_many(tmp_path / "good.nc", arrays=2)
    replaced_after(monkeypatch, path, number)
    with in_pieces(3):
        report = scan([path, str(tmp_path / "good.nc")], tmp_path / "catalog")
    (bad,) = report.bad_files
    assert bad.code == "stale-reference"
    assert bad.url.endswith("many.nc")
    arrays = icevirt.catalog_view(tmp_path / "catalog").arrays().read_pandas()
    assert not arrays[arrays.url == bad.url].shape[0]


def test_one_bad_array_makes_the_file_bad_once(tmp_path):
    """It is told as by one task, and counted as one file."""
    path = write_many(tmp_path / "many.nc", arrays=8)
    with h5py.File(path, "a") as file:
        for name in ("bad", "worse"):
            file[name] = np.array([file.ref], h5py.ref_dtype)
    whole = scan(path, tmp_path / "whole")
    with in_pieces(5):
        pieces = scan(path, tmp_path / "pieces")
    assert len(pieces.bad_files) == 1
    assert pieces.bad_files == whole.bad_files
    assert "/bad" in pieces.bad_files[0].error
    assert "/worse" in pieces.bad_files[0].error


def test_values_to_be_stored_are_counted_over_all_pieces(tmp_path):
    path = tmp_path / "many.nc"
    with h5py.File(path, "w") as file:
        for number in range(6):
            file.create_dataset(
                f"v{number}",
                data=np.full((500, 4), number, "f8"),
                fletcher32=True,
                chunks=(50, 4),
                scaleoffset=None,
            )
            file.create_dataset(f"c{number}", data=np.array([(1, 2.0)] * 5000, "i4,f8"))
    for most in (100_000, 10_000_000):
        name = str(most)
        whole = scan(
            path,
            tmp_path / f"whole{name}",
            variable_policy={"v*": "native"},
            max_native_bytes_per_file=most,
        )
        with in_pieces(3):
            pieces = scan(
                path,
                tmp_path / f"pieces{name}",
                variable_policy={"v*": "native"},
                max_native_bytes_per_file=most,
            )
        assert pieces.bad_files == whole.bad_files
        assert output(tmp_path / f"pieces{name}") == output(tmp_path / f"whole{name}")


def test_files_of_other_formats_are_scanned_whole(tmp_path):
    days = write_days(tmp_path, 1)
    import netCDF4

    with netCDF4.Dataset(tmp_path / "classic.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", 3)
        file.createVariable("time", "f8", ("time",))[:] = [1, 2, 3]
    sources = [*days, str(tmp_path / "classic.nc")]
    scan(sources, tmp_path / "whole", concat_dim="time")
    with in_pieces(3):
        assert not scan(sources, tmp_path / "pieces", concat_dim="time").bad_files
    assert output(tmp_path / "pieces") == output(tmp_path / "whole")


def test_pieces_that_do_not_fit_are_not_joined(tmp_path, monkeypatch):
    """Where libhdf5 counts more chunks than all runs have, one task scans the file whole."""
    path = write_many(tmp_path / "many.nc", arrays=2)
    scan(path, tmp_path / "whole")
    noted = counted(monkeypatch)
    real = Pieces.write

    def wrong(self, outcome):
        if self.part.piece == 1 and outcome.scanned.tally.get("/v00") is not None:
            outcome.scanned.tally["/v00"] -= 1
        real(self, outcome)

    monkeypatch.setattr(Pieces, "write", wrong)
    with in_pieces(3):
        scan(path, tmp_path / "pieces")
    assert noted[-1] is None
    assert output(tmp_path / "pieces") == output(tmp_path / "whole")


def test_the_catalog_says_the_same_of_findings_whoever_found_them(tmp_path):
    path = write_many(tmp_path / "many.nc", arrays=3)
    with h5py.File(path, "a") as file:
        for name in ("v02", "v00"):
            file[name].attrs["odd"] = np.array([file.ref], h5py.ref_dtype)
        file["link"] = h5py.SoftLink("/nowhere")
    with in_pieces(2):
        scan(path, tmp_path / "pieces")
    view = icevirt.catalog_view(tmp_path / "pieces").files().read_pandas()
    found = view["findings"][0]
    found = json.loads(found) if isinstance(found, str) else list(found)
    assert [Path(each["path"]).name for each in found] == ["link", "v00", "v02"]
