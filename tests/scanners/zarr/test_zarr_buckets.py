"""Stores in buckets: sizes and etags of all chunks come from listings, none is asked for itself."""

from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import icechunk
import numpy as np
import obstore
import pytest
import xarray as xr

import icevirt
from api.sources.test_object_stores import access_to, below
from icevirt.errors import StaleReferenceError, StorageError
from icevirt.objects import source_access, store_listings, stores
from scanners.zarr.zarr_stores import consolidate, month, write_month

pytestmark = pytest.mark.servers


def upload(place, folder: Path, name: str):
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{name}/{path.relative_to(folder)}"
            obstore.put(place.store(), key, path.read_bytes())


def found(repo, authorize):
    with xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=authorize) as each:
        return each.load()


@pytest.mark.parametrize("listing", ["flat", "by branch"])
def test_a_stack_of_stores_in_a_bucket(s3, tmp_path, monkeypatch, listing):
    if listing == "by branch":
        monkeypatch.setattr(store_listings, "_FEW", 1)
    for number in (1, 2):
        write_month(tmp_path / f"m{number}.zarr", number)
        if number == 2:
            consolidate(tmp_path / f"m{number}.zarr")
        upload(s3, tmp_path / f"m{number}.zarr", f"z/m{number}.zarr")
    access, credentials = access_to(s3)
    how = {"access": access, "executor": "in-process"}
    repo = below(s3, "repo").icevirt()
    asked = []
    real = stores.RemoteSource
    monkeypatch.setattr(stores, "RemoteSource", lambda url: asked.append(url) or real(url))
    report = icevirt.build(f"{s3.url}/z/*.zarr", repo, **how)
    assert not [url for url in asked if "/t/c/" in url]  # no chunk of the data
    authorize = dict.fromkeys(report.containers, credentials)
    expected = xr.concat([month(1), month(2)], "time", data_vars="minimal")
    xr.testing.assert_identical(found(repo, authorize), expected)
    checked = icevirt.verify(
        repo, full=True, references=True, authorize_virtual_chunk_access=authorize
    )
    assert checked.ok
    assert not checked.checked.unverifiable

    theirs = icechunk.Repository.open(
        below(s3, "repo").official(),
        authorize_virtual_chunk_access=icechunk.containers_credentials(
            {
                prefix: icechunk.s3_credentials(access_key_id="test", secret_access_key="test")
                for prefix, _ in report.containers
            }
        ),
    )
    with xr.open_zarr(theirs.readonly_session("main").store, consolidated=False) as read:
        np.testing.assert_array_equal(read["t"].values, expected["t"].values)

    # the same length in the same second: only the etag tells
    key = "z/m2.zarr/t/c/0/0/0"
    body = bytes(obstore.get(s3.store(), key).bytes())
    write_month(tmp_path / "other.zarr", 3)
    other = (tmp_path / "other.zarr/t/c/0/0/0").read_bytes()
    obstore.put(s3.store(), key, other)
    assert other != body
    with pytest.raises(StaleReferenceError):
        found(repo, authorize)
    icevirt.update(repo, **how)
    first = found(repo, authorize)["t"].values[3]
    np.testing.assert_array_equal(first[:2], month(3)["t"].values[0, :2])


def test_a_store_is_named_by_its_folder_or_its_document(s3, tmp_path):
    write_month(tmp_path / "m.zarr", 1, 2)
    upload(s3, tmp_path / "m.zarr", "plain")
    access, _ = access_to(s3)
    for name in ("plain", "plain/", "plain/.zgroup"):
        plan = icevirt.plan(f"{s3.url}/{name}", access=access, executor="in-process")
        assert len(plan.arrays) == 5


ODD = (
    'f #"%l~t'  # characters that URLs and paths of obstore escape, some before and some behind "%"
)


def test_long_folders_are_listed_by_their_folders_and_short_ones_at_once(s3, monkeypatch):
    """The same objects, whichever folders are long; what lies in a folder follows one another.

    Flat ones are listed in ranges of names: each object is in one of them, and all are in order.
    """
    keys = [f"a/c/{row}/{column}" for row in range(4) for column in range(3)]
    keys += ["zarr.json", "a/zarr.json", "a/c/odd", "b/zarr.json", "b/c/0"]
    flat = [
        f"{ODD}/zarr.json",
        *(f"{ODD}/c.{row}.{column}" for row in range(13) for column in "01"),
    ]
    line = ["line/.zarray", *(f"line/{number}" for number in range(23))]
    keys += [*flat, *line]
    for key in keys:
        obstore.put(s3.store(), f"deep.zarr/{key}", b"x")
    access, _ = access_to(s3)
    asked = []
    real = store_listings._flat
    monkeypatch.setattr(
        store_listings, "_flat", lambda *a, **n: asked.append(a[1]) or real(*a, **n)
    )
    monkeypatch.setattr(store_listings, "_PAGE_OF_BUCKET", 2)
    for few, most in ((20_000, 2000), (2, 2000), (2, 3), (10, 1)):
        monkeypatch.setattr(store_listings, "_FEW", few)
        monkeypatch.setattr(store_listings, "_MOST", most)
        with source_access.grant_access(source_access.SourceAccess.of(access)):
            found = store_listings.list_store(f"{s3.url}/deep.zarr/zarr.json")
        names = [*found.keys]
        low, high = found.find("a/c", names.index("a/c/2/1"))
        assert names[low:high] == [name for name in names if name.startswith("a/c/")]
        assert sorted(names) == sorted(keys)
        for some in (flat, line):
            assert [name for name in names if name in some] == sorted(some)
    divided = {each.folder.rpartition("/")[2] for each in asked if each.after}
    assert {ODD, "line"} <= divided


@pytest.mark.parametrize("server", ["s3", "gcs"])
def test_a_flat_folder_is_listed_in_ranges_or_refused_where_names_are_out_of_order(
    server, request, monkeypatch
):
    place = request.getfixturevalue(server)
    keys = sorted(["zarr.json", *(f"c.{row}.{column}" for row in range(12) for column in "01")])
    for key in keys:
        obstore.put(place.store(), f"{ODD}/{key}", b"x")
    monkeypatch.setattr(store_listings, "_PAGE_OF_BUCKET", 2)
    monkeypatch.setattr(store_listings, "_FEW", 2)
    library = store_listings.obstore()
    offsets = []

    def listed(*given, offset=None, **how):
        offsets.append(offset)
        return library.list(*given, offset=offset, **how)

    def disordered(*given, offset=None, **how):
        pages = library.list(*given, offset=offset, **how)
        return (page[::-1] if offset else page for page in pages)

    url = f"{place.url}/{quote(ODD)}/zarr.json"
    with source_access.grant_access(source_access.SourceAccess.of(access_to(place)[0])):
        monkeypatch.setattr(store_listings, "obstore", lambda: SimpleNamespace(list=listed))
        assert [*store_listings.list_store(url).keys] == keys
        assert any(offsets)
        monkeypatch.setattr(store_listings, "obstore", lambda: SimpleNamespace(list=disordered))
        with pytest.raises(StorageError, match="in the order of their names"):
            store_listings.list_store(url)


@pytest.mark.parametrize("server", ["gcs", "azure"])
def test_a_store_in_a_bucket_of_others(server, request, tmp_path):
    """Listings there have etags and times of their own form, which references carry."""
    place = request.getfixturevalue(server)
    write_month(tmp_path / "m.zarr", 1)
    upload(place, tmp_path / "m.zarr", "z/m.zarr")
    access, credentials = access_to(place)
    how = {"access": access, "executor": "in-process"}
    report = icevirt.build(f"{place.url}/z/m.zarr", tmp_path / "repo", **how)
    authorize = dict.fromkeys(report.containers, credentials)
    xr.testing.assert_identical(found(tmp_path / "repo", authorize), month(1))
    key = "z/m.zarr/t/c/0/0/0"
    obstore.put(place.store(), key, bytes(obstore.get(place.store(), key).bytes())[::-1])
    with pytest.raises(StaleReferenceError):
        found(tmp_path / "repo", authorize)
