"""Locations with a query, which other clients store, are read where no credentials go along."""

import icechunk as official
import numpy as np
import pytest
import zarr

import icevirt
from icevirt.connect.credentials.common import Anonymous, FromEnv, NoCredentials
from icevirt.errors import InvalidInputError

pytestmark = pytest.mark.servers
VALUES = np.arange(8, dtype="<i4")


@pytest.fixture
def archive(http_server, tmp_path):
    """A repository of the official client, whose chunks are below a server."""
    http_server.files.put("archive/a.bin", VALUES.tobytes())
    prefix = f"{http_server.url}/archive/"
    config = official.RepositoryConfig.default()
    store = official.http_store({"allow_http": "true"})
    config.set_virtual_chunk_container(official.VirtualChunkContainer(prefix, store))
    storage = official.local_filesystem_storage(str(tmp_path / "repo"))
    session = official.Repository.create(storage, config=config).writable_session("main")
    plain = {"compressors": None, "filters": None, "dtype": "i4"}
    for name, end in {"v": "a.bin?download=1", "w": "x//a.bin", "x": "a.bin#part"}.items():
        zarr.create_array(session.store, name=name, shape=(8,), chunks=(8,), **plain)
        place = {"offset": 0, "length": 32, "validate_container": False}
        session.store.set_virtual_ref(f"{name}/c/0", prefix + end, **place)
    session.commit("written")
    return str(tmp_path / "repo"), prefix


def opened(archive, authorized):
    path, _ = archive
    store = icevirt.Repository.open(path, None, authorized).readonly_session("main").store
    return zarr.open_group(store, mode="r")


PUBLIC = [None, icevirt.HttpAccess, Anonymous("http"), NoCredentials("http"), FromEnv("http")]


@pytest.mark.parametrize("how", ["a list", *PUBLIC], ids=repr)
def test_a_public_file_with_a_query_is_read(archive, http_server, how):
    _, prefix = archive
    granted = [prefix] if how == "a list" else {prefix: how}
    assert opened(archive, granted)["v"][:].tolist() == VALUES.tolist()
    assert {each.target for each in http_server.rules.requests} == {"/archive/a.bin?download=1"}


def test_the_query_goes_with_every_request_also_over_a_connection_that_is_idle(
    archive, http_server
):
    _, prefix = archive
    for _ in range(3):
        assert opened(archive, [prefix])["v"][:].tolist() == VALUES.tolist()
    assert {each.target for each in http_server.rules.requests} == {"/archive/a.bin?download=1"}
    assert len(http_server.rules.requests) == 3


def test_no_credentials_go_with_a_query(archive, http_server):
    _, prefix = archive
    token = icevirt.http_credentials(bearer_token="CANARY")
    with pytest.raises(InvalidInputError, match="credentials would go with it") as caught:
        opened(archive, {prefix: token})["v"][:]
    assert "download" not in str(caught.value)
    assert not http_server.rules.requests


@pytest.mark.parametrize("name", ["w", "x"])
def test_others_are_errors_that_name_the_location(archive, http_server, name):
    _, prefix = archive
    with pytest.raises(InvalidInputError, match="not a plain object URL") as caught:
        opened(archive, [prefix])[name][:]
    assert "a.bin" in str(caught.value)
    assert caught.value.do
    assert not http_server.rules.requests


def test_check_names_what_no_reader_follows(archive):
    path, _ = archive
    found = [problem for problem in icevirt.check(path).problems if problem.code == "location"]
    assert len(found) == 2
    assert all("/w" in each.what or "/x" in each.what for each in found)
