"""What can never be read is refused when it is written, whichever way it comes in."""

import json
from contextlib import suppress

import numpy as np
import pytest
import xarray as xr
import zarr
from virtualizarr.manifests import ChunkManifest, ManifestArray

import icevirt
import icevirt.icechunk as names
from icevirt.errors import IcevirtError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.strings import Strings
from icevirt.objects.locations import check_locations

ODD = {
    "query": "https://host/a.nc?download=1",
    "query of a bucket": "s3://bucket/a.nc?versionId=1",
    "fragment": "s3://bucket/a.nc#part",
    "way up": "s3://bucket/x/../a.nc",
    "way up at the end": "s3://bucket/..",
    "encoded way up": "s3://bucket/%2e%2e/a.nc",
    "no name": "s3://bucket/x//a.nc",
    "no name at first": "https://host//a.nc",
    "URL in a URL": "s3://bucket/x://a.nc",
    "backslash": "s3://bucket/a\\b.nc",
    "encoded backslash": "s3://bucket/a%5Cb.nc",
    "NUL": "s3://bucket/a\0b.nc",
    "encoded NUL": "s3://bucket/a%00b.nc",
    "line end": "https://host/a\nb.nc",
    "no UTF-8": "s3://bucket/a%ff.nc",
    "encoded slash": "https://host/a%2Fb.nc",
    "prefix": "s3://bucket/folder/",
    "bucket": "s3://bucket/",
    "no bucket": "s3:///a.nc",
    "user": "https://me:secret@host/a.nc",
    "encoded host": "https://%41/a.nc",
    "encoded dot of a host": "https://host%2eorg/a.nc",
    "encoded bucket": "s3://buck%65t/a.nc",
    "space in a host": "https://ho st/a.nc",
    "space in a bucket": "gs://bu cket/a.nc",
    "no host": "https:///a.nc",
    "no label of a host": "https://host..org/a.nc",
    "other signs in a host": "https://host,org/a.nc",
    "port beyond all": "https://host:65536/a.nc",
    "port zero": "https://host:0/a.nc",
    "port of letters": "https://host:http/a.nc",
    "two ports": "https://host:80:80/a.nc",
    "port of a bucket": "s3://bucket:9000/a.nc",
    "half an address": "https://[::1/a.nc",
    "no address": "https://[1]/a.nc",
    "account of nobody": "abfs://box@host.org/a.nc",
    "directory": "file:///archive/",
    "way up on disk": "file:///archive/../a.nc",
    "query on disk": "file:///archive/a.nc?x",
    "backslash on disk": "file:///archive/a\\b.nc",
    "NUL on disk": "file:///archive/a\0b.nc",
    "other host": "file://host/archive/a.nc",
}
PLAIN = [
    "s3://bucket/a%20b/.hidden/é@x,y.nc",
    "s3://bucket/a:b/c..d",
    "gs://bucket/%3Fa%23b",
    "https://host/a%3Fb%3A.nc",
    "https://host:8443/a.nc",
    "https://a_b.host-2.org./a.nc",
    "https://größe.org/a.nc",
    "http://[::1]:8080/a.nc",
    "az://$web/a.nc",
    "abfs://box@account.dfs.core.windows.net/a.nc",
    "memory://x/y",
    "file:///archive/a%20b.nc",
    "vcc://name/a.nc",
]
STORES = {
    "s3://bucket/": icevirt.s3_store(region="us-east-1"),
    "https://host/": icevirt.http_store(),
    "file:///archive/": icevirt.local_filesystem_store("/archive/"),
}


def configured(client):
    config = client.RepositoryConfig()
    for prefix, store in STORES.items():
        config.set_virtual_chunk_container(client.VirtualChunkContainer(prefix, store))
    return config


def session_of(client):
    made = client.Repository.create(names.in_memory_storage(), configured(client))
    session = made.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2,), chunks=(1,), dtype="i4")
    return session


def single(client, url, **more):
    session = session_of(client)
    session.store.set_virtual_ref("a/c/0", url, offset=0, length=4, **more)


def specs(client, url, **more):
    session = session_of(client)
    session.store.set_virtual_refs("a", [client.VirtualChunkSpec([0], url, 0, 4)], **more)


def box(client, url, **more):
    session = session_of(client)
    session.store.set_virtual_refs_arr(
        "a", (1,), [url], np.zeros(1, "u8"), np.ones(1, "u8"), **more
    )


def table(client, url):
    places = Locations(
        url=Strings.of([url]), etag=Strings.empty(1), last_modified=np.zeros(1, "u4")
    )
    chunks = ChunkTable.virtual(
        index=np.zeros((1, 1), "u4"),
        source=np.zeros(1, "u4"),
        offset=np.zeros(1, "u8"),
        length=np.full(1, 4, "u8"),
        locations=places,
    )
    session_of(client).set_chunks("/a", chunks)


def virtual_dataset(_, url):
    known = np.array([url], np.dtypes.StringDType())
    manifest = ChunkManifest.from_arrays(
        paths=known, offsets=np.zeros(1, "u8"), lengths=np.full(1, 4, "u8"), validate_paths=False
    )
    like = zarr.create_array({}, shape=(1,), chunks=(1,), dtype="i4", compressors=None).metadata
    array = ManifestArray(metadata=like, chunkmanifest=manifest)
    icevirt.from_virtualizarr(xr.Dataset({"v": (("x",), array)}), session_of(icevirt), group="g")


OURS = [single, specs, box, table, virtual_dataset]


@pytest.mark.parametrize("url", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("way", OURS, ids=lambda way: way.__name__)
def test_what_can_never_be_read_is_refused_by_sessions(way, url):
    with pytest.raises(IcevirtError) as caught:
        way(icevirt, url)
    assert "secret" not in str(caught.value)
    assert caught.value.do


@pytest.mark.parametrize("is_checked", [True, False], ids=["with containers", "without"])
@pytest.mark.parametrize("url", ODD.values(), ids=ODD.keys())
def test_so_it_is_by_icechunks_names(url, is_checked):
    with pytest.raises(names.IcechunkError):
        single(names, url, validate_container=is_checked)
    for way in (specs, box):
        if is_checked and not url.startswith(tuple(STORES)):
            with suppress(names.IcechunkError):  # of a user name; others are left out
                way(names, url, validate_containers=True)
            continue
        with pytest.raises(names.IcechunkError) as caught:
            way(names, url, validate_containers=is_checked)
        assert caught.value.kind == names.ErrorKind.INVALID_VIRTUAL_REF


@pytest.mark.parametrize("url", ODD.values(), ids=ODD.keys())
def test_so_it_is_in_files_of_references(url, tmp_path):
    name = tmp_path / "refs.json"
    array = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "<i4", "compressor": None}
    metadata = json.dumps({**array, "filters": None, "fill_value": 0, "order": "C"})
    references = {".zgroup": '{"zarr_format":2}', "v/.zarray": metadata, "v/0": [url, 0, 4]}
    references["v/.zattrs"] = '{"_ARRAY_DIMENSIONS":["x"]}'
    name.write_text(json.dumps({"version": 1, "refs": references}))
    options = {"allow_references_to": ["https://host/", "s3://", "file:///"]}
    repo = tmp_path / "repo"
    with pytest.raises(IcevirtError):
        icevirt.build([str(name)], str(repo), executor="in-process", scan_options=options)
    assert not (repo / "repo").exists()


def test_plain_locations_are_taken():
    check_locations(Strings.of(PLAIN))
    single(icevirt, PLAIN[0])
    single(names, PLAIN[2], validate_container=False)
