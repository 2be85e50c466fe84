"""Virtual chunks on every kind of server: values, checksums, what is told when it goes wrong."""

import pickle
import subprocess
import sys
import warnings
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fsspec
import numpy as np
import obstore
import pytest
import xarray as xr
import zarr

import icevirt
from access.remote.objects import CHUNK, Remote, document, refer, values
from icevirt.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    StaleReferenceError,
    StorageError,
    UnauthorizedError,
)
from icevirt.model.config.containers import ObjectStoreConfig, fsspec_store
from icevirt.objects.answers import StaleReferenceWarning
from servers import azurite

VALUES = values(8)


@dataclass
class Archive:
    """Objects below one prefix of a server, and how a repository says so."""

    prefix: str
    config: ObjectStoreConfig
    authorize: Any
    put: Any
    delete: Any
    facts: Any  # name to (etag, last modified in seconds)

    def refer(self, tmp_path, **options) -> Remote:
        root = tmp_path / "repo"
        return refer(
            root, self.prefix, store=self.config, **{"authorize": self.authorize} | options
        )


@pytest.fixture
def http_archive(http_server):
    prefix = http_server.url + "/data/"
    return Archive(
        prefix=prefix,
        config=ObjectStoreConfig("http", {}),
        authorize=[prefix],
        put=lambda name, body: http_server.files.put(f"data/{name}", body),
        delete=lambda name: http_server.files.objects.pop(f"data/{name}"),
        facts=lambda name: (http_server.files.etags[f"data/{name}"], http_server.files.modified),
    )


def bucket_archive(place, config, authorize, prefix=None):
    store = place.store()

    def facts(name):
        head = obstore.head(store, name)
        return head["e_tag"], head["last_modified"].timestamp()

    return Archive(
        prefix=prefix or place.url + "/",
        config=config,
        authorize=authorize,
        put=lambda name, body: obstore.put(store, name, body),
        delete=lambda name: obstore.delete(store, name),
        facts=facts,
    )


@pytest.fixture
def s3_archive(s3):
    options = {"region": "us-east-1", "endpoint_url": s3.endpoint, "allow_http": True}
    options["force_path_style"] = True
    credentials = icevirt.s3_credentials(access_key_id="test", secret_access_key="test")
    granted = {(s3.url + "/", s3.endpoint): credentials}
    return bucket_archive(s3, ObjectStoreConfig("s3_compatible", options), granted)


@pytest.fixture
def gcs_archive(gcs):
    key = gcs.options["service_account_key"]
    granted = {gcs.url + "/": icevirt.gcs_credentials(service_account_key=key)}
    return bucket_archive(gcs, ObjectStoreConfig("gcs", {"allow_http": "true"}), granted)


@pytest.fixture
def azure_archive(azure):
    options = {
        "account": azurite.ACCOUNT,
        "azure_storage_endpoint": azure.endpoint,
        "azure_allow_http": "true",
    }
    credentials = icevirt.azure_credentials(access_key=azurite.KEY)
    granted = {(azure.url + "/", azure.endpoint): credentials}
    return bucket_archive(azure, ObjectStoreConfig("azure", options), granted)


@pytest.fixture
def fsspec_archive(tmp_path):
    filesystem = fsspec.filesystem("memory")
    prefix = f"memory://{tmp_path.name}/"

    def put(name, body):
        filesystem.pipe_file(f"/{tmp_path.name}/{name}", body)

    return Archive(
        prefix=prefix,
        config=fsspec_store(),
        authorize={prefix: filesystem},
        put=put,
        delete=lambda name: filesystem.rm(f"/{tmp_path.name}/{name}"),
        facts=lambda name: (
            None,
            filesystem.modified(f"/{tmp_path.name}/{name}").timestamp(),
        ),
    )


KINDS = [
    "fsspec",
    *(pytest.param(kind, marks=pytest.mark.servers) for kind in ("http", "s3", "gcs", "azure")),
]


@pytest.fixture(params=KINDS)
def archive(request) -> Archive:
    made = request.getfixturevalue(f"{request.param}_archive")
    made.put("a.bin", VALUES.tobytes())
    return made


def recorded(archive, name="a.bin"):
    etag, seconds = archive.facts(name)
    return {"etag": etag} if etag else {"last_modified": int(-(-seconds // 1))}


def test_values_are_those_of_the_object(archive, tmp_path):
    remote = archive.refer(tmp_path, checksum=recorded(archive))
    np.testing.assert_array_equal(remote.array()[:], VALUES)
    for number in (0, 7):
        one = remote.store().get_sync(f"v/c/{number}/0")
        assert one.to_bytes() == VALUES[number].tobytes()


def test_a_modification_time_is_as_good_as_an_etag(archive, tmp_path):
    _, seconds = archive.facts("a.bin")
    remote = archive.refer(tmp_path, checksum={"last_modified": int(-(-seconds // 1))})
    np.testing.assert_array_equal(remote.array()[:], VALUES)
    assert remote.store().verification.unverifiable == 0


def test_an_older_modification_time_is_stale(archive, tmp_path):
    _, seconds = archive.facts("a.bin")
    remote = archive.refer(tmp_path, checksum={"last_modified": int(seconds) - 5})
    with pytest.raises(StaleReferenceError, match="changed after it was scanned"):
        remote.array()[:]


@pytest.mark.parametrize("name", ["a b.bin", "ü/x+y&z=1.bin", "50%.bin", "a;b,c@d~.bin"])
def test_names_that_urls_encode(archive, tmp_path, name):
    from urllib.parse import quote

    archive.put(name, VALUES.tobytes())
    remote = archive.refer(tmp_path, location=archive.prefix + quote(name))
    np.testing.assert_array_equal(remote.array()[:], VALUES)


def test_a_container_is_found_by_its_name(archive, tmp_path):
    remote = archive.refer(tmp_path, name="there", location="vcc://there/a.bin")
    np.testing.assert_array_equal(remote.array()[:], VALUES)


READS = {
    "store.get_sync": lambda remote, **how: remote.store(**how).get_sync("v/c/0/0"),
    "zarr": lambda remote, **how: remote.array(**how)[:],
    "xarray": lambda remote, **how: xr.open_zarr(
        remote.store(**how), consolidated=False, zarr_format=3
    )["v"].load(),
    "the engine": lambda remote, **how: xr.open_dataset(
        remote.root,
        engine="icevirt",
        authorize_virtual_chunk_access=remote.authorize,
        **how,
    )["v"].load(),
}


@pytest.fixture(params=READS.values(), ids=READS.keys())
def read(request):
    return request.param


def named(tmp_path, archive, **options):
    return archive.refer(tmp_path, document=document(8, dimension_names=["y", "x"]), **options)


def test_an_object_that_changed_is_stale(archive, tmp_path, read):
    remote = named(tmp_path, archive, checksum=stale(archive))
    with pytest.raises(StaleReferenceError) as caught:
        read(remote)
    facts = caught.value.facts
    assert facts["location"].endswith("a.bin")
    assert facts["recorded"] != facts["found"]
    if not archive.facts("a.bin")[0]:  # no etag
        dates = [datetime.fromisoformat(facts[name]) for name in ("recorded", "found")]
        assert 5 <= (dates[1] - dates[0]).total_seconds() < 6
    assert pickle.loads(pickle.dumps(caught.value)).facts.keys() == facts.keys()


def stale(archive):
    etag, seconds = archive.facts("a.bin")
    return {"etag": '"another"'} if etag else {"last_modified": int(seconds) - 5}


def test_what_to_do_about_stale_objects_is_a_choice(archive, tmp_path, read):
    remote = named(tmp_path, archive, checksum=stale(archive))
    with pytest.warns(StaleReferenceWarning, match="changed after it was scanned"):
        read(remote, on_stale="warn")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(remote, on_stale="ignore")


def test_stale_values_are_those_of_the_object_as_it_is(archive, tmp_path):
    remote = archive.refer(tmp_path, checksum=stale(archive))
    array = remote.array(on_stale="ignore")
    np.testing.assert_array_equal(array[:], VALUES)
    assert array.store.verification.stale > 0


def test_without_a_checksum_chunks_are_counted_as_unverifiable(archive, tmp_path):
    array = archive.refer(tmp_path).array()
    np.testing.assert_array_equal(array[:], VALUES)
    assert array.store.verification.unverifiable == len(VALUES)
    assert array.store.verification.verifiable == 0


def test_an_object_that_is_gone_is_never_taken_for_fill_values(archive, tmp_path, read):
    remote = named(tmp_path, archive)
    archive.delete("a.bin")
    with pytest.raises(ObjectNotFoundError, match="does not exist") as caught:
        read(remote)
    assert not isinstance(caught.value, KeyError | FileNotFoundError)


def test_an_object_that_ends_too_early_is_reported(archive, tmp_path, read):
    remote = named(tmp_path, archive)
    archive.put("a.bin", VALUES.tobytes()[: CHUNK // 2])
    with pytest.raises(StorageError, match="ends too early"):
        read(remote)


def test_a_truncated_object_fails_only_the_chunks_that_it_lost(archive, tmp_path):
    remote = archive.refer(tmp_path)
    archive.put("a.bin", VALUES.tobytes()[: CHUNK * 5 + 1])
    bodies = read_each(remote.store(), range(8))
    assert [isinstance(body, bytes) for body in bodies] == [True] * 5 + [False] * 3
    assert all(
        "ends too early" in str(body) and body.facts["available"] == (1 if at == 5 else 0)
        for at, body in enumerate(bodies)
        if at >= 5
    )


def read_each(store, numbers):
    """Ask for chunks at once; return bytes or error of each."""
    import asyncio

    async def ask():
        wanted = (store.get(f"v/c/{number}/0") for number in numbers)
        return await asyncio.gather(*wanted, return_exceptions=True)

    return [
        body if isinstance(body, BaseException) else body.to_bytes() for body in asyncio.run(ask())
    ]


def test_without_authorisation_nothing_is_asked_of_the_server(archive, tmp_path, read):
    remote = named(tmp_path, archive, authorize=None)
    with pytest.raises(UnauthorizedError) as caught:
        read(remote)
    assert archive.prefix in caught.value.fixes[0].python


def test_the_refusal_holds_what_to_pass(archive, tmp_path):
    remote = archive.refer(tmp_path, authorize=None)
    with pytest.raises(UnauthorizedError) as caught:
        remote.array()[:]
    _, _, argument = caught.value.fixes[0].python.partition("authorize_virtual_chunk_access=")
    (entry,) = eval(argument)
    assert entry in archive.authorize


@pytest.mark.servers
def test_a_forked_child_reads_too(http_archive, s3_archive, gcs_archive, azure_archive, tmp_path):
    """Of every kind of server, in one process."""
    remotes = []
    for number, archive in enumerate((http_archive, s3_archive, gcs_archive, azure_archive)):
        archive.put("a.bin", VALUES.tobytes())
        remotes.append(archive.refer(tmp_path / f"{number}"))
        np.testing.assert_array_equal(remotes[-1].array()[:], VALUES)
    script = f"""
import os, pickle, sys
sys.path[:0] = {sys.path!r}
remotes = pickle.loads(bytes.fromhex({pickle.dumps(remotes).hex()!r}))
for remote in remotes:
    remote.array()[:]  # opens connections and stores
for number, remote in enumerate(remotes):
    child = os.fork()
    if child == 0:
        os._exit(0 if int(remote.array()[:].sum()) == {int(VALUES.sum())} else 1)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"remote {{number}}")
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_store_pickles_with_its_access(archive, tmp_path):
    store = pickle.loads(pickle.dumps(archive.refer(tmp_path).store()))
    np.testing.assert_array_equal(zarr.open_array(store, path="v", mode="r")[:], VALUES)


@pytest.mark.servers
def test_credentials_of_another_kind_are_refused(http_archive, tmp_path):
    http_archive.put("a.bin", VALUES.tobytes())
    remote = http_archive.refer(
        tmp_path, authorize={http_archive.prefix: icevirt.s3_credentials(anonymous=True)}
    )
    with pytest.raises(InvalidInputError, match="another kind of store"):
        remote.array()[:]


def test_a_file_system_has_to_be_passed(fsspec_archive, tmp_path):
    fsspec_archive.put("a.bin", VALUES.tobytes())
    remote = fsspec_archive.refer(tmp_path, authorize=[fsspec_archive.prefix])
    with pytest.raises(InvalidInputError, match=r"fsspec\.filesystem"):
        remote.array()[:]


def test_the_file_system_of_this_machine_is_no_way_around_file_containers(fsspec_archive, tmp_path):
    local = fsspec.filesystem("file")
    remote = fsspec_archive.refer(tmp_path, authorize={fsspec_archive.prefix: local})
    with pytest.raises(InvalidInputError, match="file:// container"):
        remote.array()[:]


def test_a_member_of_a_zip_file_is_read_by_its_file_system(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("in/a.bin", VALUES.tobytes())
    filesystem = fsspec.filesystem("zip", fo=str(tmp_path / "all.zip"))
    remote = refer(
        tmp_path / "repo", "zip://in/", store=fsspec_store(), authorize={"zip://in/": filesystem}
    )
    np.testing.assert_array_equal(remote.array()[:], VALUES)
    filesystem.close()
    filesystem.zip.close()


def test_the_official_client_opens_a_repository_with_such_a_container(fsspec_archive, tmp_path):
    import icechunk

    remote = fsspec_archive.refer(tmp_path)
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(remote.root)))
    assert fsspec_archive.prefix in repo.config.virtual_chunk_containers


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    import re
    from pathlib import Path

    page = Path(__file__).parents[3] / "docs" / "virtual-chunks.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks
    exec(block, {})
