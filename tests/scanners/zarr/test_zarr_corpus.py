"""Every array of a store is what zarr-python reads there, in icevirt and in the official client."""

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from scanners.zarr.zarr_stores import REFUSED, arrays_in, write_store

# leaves the values of all arrays of each repository in a file: pairs of paths
OFFICIAL = """
import sys, pickle
import icechunk, numpy as np, zarr
from icechunk.credentials import LocalFileSystemAccess
for place, output in zip(sys.argv[1::2], sys.argv[2::2]):
    storage = icechunk.local_filesystem_storage(place)
    prefixes = icechunk.Repository.open(storage).config.virtual_chunk_containers
    access = dict.fromkeys(prefixes, LocalFileSystemAccess)
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    found = {
        name: (np.asarray(node[...]), dict(node.attrs), str(node.fill_value))
        for name, node in root.members(max_depth=None) if isinstance(node, zarr.Array)
    }
    with open(output, "wb") as file:
        pickle.dump(found, file)
"""


STORES = [(2, False), (2, True), (3, False), (3, True)]


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Each store, and the repository made of it."""
    made = {}
    for zarr_format, consolidated in STORES:
        folder = tmp_path_factory.mktemp("zarr")
        write_store(folder / "s.zarr", zarr_format, consolidated=consolidated)
        report = icevirt.build(folder / "s.zarr", folder / "repo", executor="in-process")
        made[zarr_format, consolidated] = folder / "s.zarr", folder / "repo", report
    return made


@pytest.fixture(params=STORES, ids=str)
def build(request, builds):
    return builds[request.param]


@pytest.fixture(scope="module")
def by_official(builds):
    """What the official client reads of each repository, in a process that has no icevirt."""
    places = {repo: repo.with_name("found") for _, repo, _ in builds.values()}
    words = [word for pair in places.items() for word in pair]
    subprocess.run([sys.executable, "-c", OFFICIAL, *words], check=True)
    return {repo: np.load(output, allow_pickle=True) for repo, output in places.items()}


def assert_same(mine, theirs, name):
    mine = np.asarray(mine)
    assert mine.shape == theirs.shape, name
    if theirs.dtype.kind in "OTU":
        assert mine.tolist() == theirs.tolist(), name
    else:
        assert mine.dtype == theirs.dtype.newbyteorder("="), name
        assert mine.tobytes() == theirs.astype(theirs.dtype.newbyteorder("=")).tobytes(), name


@pytest.mark.ci
def test_both_clients_read_what_zarr_reads(build, by_official):
    store, repo, _ = build
    official = by_official[repo]
    session = icevirt.Repository.open(
        repo, authorize_virtual_chunk_access=[store]
    ).readonly_session("main")
    mine = zarr.open_group(session.store, mode="r")
    names = arrays_in(store)
    assert set(names) == set(official) == set(arrays_in(session.store))
    for name in names:
        source = zarr.open_array(store, path=name, mode="r")
        values = np.asarray(source[...])
        assert_same(mine[name][...], values, name)
        assert_same(official[name][0], values, name)
        for attributes in (dict(mine[name].attrs), official[name][1]):
            attributes.pop("_FillValue", None)  # of v2, as xarray reads it
            assert attributes == dict(source.attrs), name
        if source.fill_value is not None:
            assert official[name][2] == str(source.fill_value), name
    assert dict(mine.attrs) == dict(zarr.open_group(store, mode="r").attrs)
    assert mine["group/inner"].attrs["depth"] == 2


def test_missing_chunks_stay_missing_and_no_value_is_copied(build):
    store, _, _ = build
    scanned = scan_file(store)
    assert scanned.counts()["inline"] == 0
    chunks = [
        path for path in store.rglob("*") if path.is_file() and not path.name.startswith(".z")
    ]
    assert scanned.counts()["virtual"] == sum(path.name != "zarr.json" for path in chunks)
    assert len(scanned.array("/fill0").references) == 1
    assert len(scanned.array("/missing").references) == 0


@pytest.mark.ci
def test_verify_compares_with_zarr(build):
    store, repo, _ = build
    access = {"authorize_virtual_chunk_access": [store], "executor": "in-process"}
    checked = icevirt.verify(repo, values=40, seed=1, **access)
    assert checked.ok
    assert not checked.checked.not_compared
    assert checked.checked.values


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_the_official_client_cannot_read_is_refused_by_name(zarr_format, tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=zarr_format)
    root.create_array("good", shape=(2,), dtype="f4")
    root.create_array("struct", shape=(2,), dtype=REFUSED["struct"])
    path = tmp_path / "s.zarr/good" / (".zarray" if zarr_format == 2 else "zarr.json")
    with pytest.raises(UnsupportedError, match="compound data type") as error:
        scan_file(tmp_path / "s.zarr")
    assert error.value.facts["variable"] == "/struct"
    known = {"scan_options": {"drop_variables": ["struct"]}}
    assert [array.path for array in scan_file(tmp_path / "s.zarr", **known).arrays] == ["/good"]
    document = json.loads(path.read_text())
    unknown = {"id": "nobodys", "name": "nobodys", "configuration": {}}
    document |= {"compressor": unknown} if zarr_format == 2 else {"codecs": [unknown]}
    path.write_text(json.dumps(document))
    with pytest.raises(UnsupportedError, match="nobodys") as error:
        scan_file(tmp_path / "s.zarr", **known)
    assert error.value.facts["variable"] == "/good"
