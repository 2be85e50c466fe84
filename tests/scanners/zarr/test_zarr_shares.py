"""A store that several tasks scan in shares; what they find is what one would have found."""

import contextlib
import shutil
import warnings

import numpy as np
import pytest
import zarr

import icevirt
from builds.support import output
from grouping import grouped
from icevirt.api.dataset import scanning
from icevirt.errors import SourcesChangedError
from icevirt.objects import stores
from icevirt.planning.schedule import balance_scans
from icevirt_scanners.zarr import shares
from icevirt_scanners.zarr.scanner import ZarrScanner
from scanners.zarr.test_zarr_buckets import access_to, upload

pytestmark = pytest.mark.usefixtures("in_process")


@contextlib.contextmanager
def in_shares(count):
    """Scan every store in so many shares, and cut arrays of so few chunks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scanning, "pieces_of", lambda files: {each.url: count for each in files})
        patched.setattr(balance_scans, "RUN", 3)
        patched.setattr(balance_scans, "BLOCK_REFS", 1)
        patched.setattr(shares, "_FOLDER", 2)
        yield


def write_store(store, zarr_format):
    """Write arrays of many chunks, with holes, in groups; one with files that are no chunks."""
    root = zarr.open_group(store, mode="w", zarr_format=zarr_format)
    for path, shape, separator in (
        ("large", (12, 6), "/"),
        ("deep/er/large", (7, 4, 2), "/"),
        ("deep/dotted", (5, 4), "."),
        ("line", (9,), "/"),
        ("scalar", (), "/"),
    ):
        names = ["time", *"yx"][: len(shape)]
        name = "v2" if zarr_format == 2 else "default"
        array = root.create_array(
            path,
            shape=shape,
            chunks=(1,) * len(shape),
            dtype="f4",
            fill_value=-1,
            chunk_key_encoding={"name": name, "separator": separator},
            **({} if zarr_format == 2 else {"dimension_names": names}),
        )
        if zarr_format == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = names
        array[...] = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
        if len(shape) == 2:
            array[3:5, 2:] = -1
    return root


def foreign_files(store):
    (store / "README").write_text("!")
    (store / "large/notes.txt").write_text("!")
    (store / "deep/strange").mkdir()
    (store / "deep/strange/x").write_text("!")


def scan(store, catalog, **how):
    return icevirt.scan_files(str(store), str(catalog), **grouped({"concat_dim": "time", **how}))


def compare(one, other):
    """Compare two catalogs; each share names what it leaves out."""
    one, other = output(one), output(other)
    named = ["leaf/" in each["files"]["findings"][0] for each in (one, other)]
    assert named[0] == named[1]
    for name in ("README", "deep/strange/x", "large/notes.txt"):
        assert all(name in each["files"]["findings"][0] for each in (one, other))
    for column in ("findings", "requests", "bytes_fetched"):
        del one["files"][column], other["files"][column]
    assert one == other


@pytest.mark.parametrize(("zarr_format", "consolidated"), [(2, False), (2, True), (3, True)])
def test_shares_make_the_catalog_of_the_whole(zarr_format, consolidated, tmp_path, monkeypatch):
    store, listed = tmp_path / "s.zarr", []
    write_store(store, zarr_format)
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that v3 does not say what it is
            zarr.consolidate_metadata(store)
    else:  # a group by its attributes alone
        (store / "deep/leaf").mkdir()
        (store / "deep/leaf/.zattrs").write_text("{}")
    foreign_files(store)
    scan(store, tmp_path / "whole")
    listing = stores.list_store
    monkeypatch.setattr(stores, "list_store", lambda *how: listed.append(how) or listing(*how))
    with in_shares(9):
        scan(store, tmp_path / "shares")
    assert {len(how) for how in listed} == {2}  # by folders: nobody lists the whole store
    compare(tmp_path / "shares", tmp_path / "whole")


@pytest.mark.ci
def test_shares_of_a_store_in_a_bucket(s3, tmp_path):
    write_store(tmp_path / "s.zarr", 3)
    foreign_files(tmp_path / "s.zarr")
    upload(s3, tmp_path / "s.zarr", "z/s.zarr")
    access, _ = access_to(s3)
    for name in ("whole", "shares"):
        with in_shares(5) if name == "shares" else contextlib.nullcontext():
            scan(f"{s3.url}/z/s.zarr", tmp_path / name, access=access)
    compare(tmp_path / "shares", tmp_path / "whole")


@pytest.mark.parametrize(
    "damage",
    ["deleted metadata", "no metadata", "node below an array", "folder without a document"],
)
def test_a_damaged_store_is_as_damaged_in_shares(damage, tmp_path):
    """One task scans it whole, and says what that says."""
    store = tmp_path / "s.zarr"
    write_store(store, 3)
    match damage:
        case "deleted metadata":
            (store / "line/zarr.json").unlink()
        case "no metadata":
            for document in store.rglob("*/zarr.json"):
                document.unlink()
        case "node below an array":
            shutil.copytree(store / "line", store / "large/line")
        case _:
            (store / "deep/zarr.json").unlink()
    said = []
    for name in ("whole", "shares"):
        with in_shares(5) if name == "shares" else contextlib.nullcontext():
            report = scan(store, tmp_path / name, max_bad_files="100%")
        said.append((report.files_scanned, output(tmp_path / name)))
    assert said[0] == said[1]


def test_a_grid_that_is_all_but_empty_is_not_listed_step_by_step(tmp_path):
    """It has more folders than a task can ask for, and few of them are there."""
    how = {"dtype": "i1", "fill_value": -1, "dimension_names": ["time", "x"]}
    array = zarr.open_group(tmp_path / "s.zarr", mode="w").create_array(
        "sparse", shape=(1 << 31, 1 << 20), chunks=(1, 1), **how
    )
    array[5, 7] = 3
    with in_shares(5):
        scan(tmp_path / "s.zarr", tmp_path / "shares")
    assert len(output(tmp_path / "shares")["references"]["length"]) == 1


def test_a_store_that_changes_after_a_share_was_scanned_is_not_committed(tmp_path, monkeypatch):
    store = tmp_path / "s.zarr"
    write_store(store, 3)
    scanned = ZarrScanner.scan

    def scan_and_write(self, source, options):
        found = scanned(self, source, options)
        if options.share.covers("/large"):
            (store / "large/c/1/1").write_bytes(bytes(4))
        return found

    monkeypatch.setattr(ZarrScanner, "scan", scan_and_write)
    with in_shares(5), pytest.raises(SourcesChangedError):
        icevirt.build(store, tmp_path / "repo", concat_dim="time")
    assert not icevirt.Repository.exists(tmp_path / "repo")
