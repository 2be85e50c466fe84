"""A repository whose containers have options that no reader takes: only reading there is refused."""

import numpy as np
import pytest
import zarr

import icevirt
from access.remote.objects import refer
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.repo.repository import Repository

HOSTILE = {
    "an unknown option": ("s3://bucket/data/", "s3", {"bogus": "x"}),
    "a region that is a server": ("s3://bucket/data/", "s3", {"region": "x@127.0.0.1:1/"}),
    "another spelling": ("gs://bucket/data/", "gcs", {"Base_Url": "https://u:p@evil.example"}),
    "a proxy": ("az://bucket/data/", "azure", {"account": "acc", "proxy_url": "http://evil"}),
    "a header": ("https://host.example/data/", "http", {"headers": {"Host": "evil"}}),
    "an option of a later version": ("gs://bucket/data/", "gcs", {"shiny": "true"}),
}


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request, tmp_path):
    prefix, kind, options = request.param
    made = refer(tmp_path / "repo", prefix, store=ObjectStoreConfig(kind, options), chunks=2)
    session = Repository.open(made.root).writable_session("main")
    native = zarr.create_array(session.store, name="native", shape=3, chunks=3, dtype="i4")
    native[:] = [1, 2, 3]
    session.commit("native")
    return made


def containers_of(root):
    return Repository.open(root).config.document["virtual_chunk_containers"]


def test_it_is_opened_and_what_is_native_is_read(hostile):
    store = hostile.store()
    np.testing.assert_array_equal(zarr.open_array(store, path="native", mode="r")[:], [1, 2, 3])
    assert zarr.open_array(store, path="v", mode="r").shape[0] == 2
    assert icevirt.info(hostile.root).arrays


def test_saving_another_setting_keeps_the_container_as_it_is(hostile):
    before = containers_of(hostile.root)
    repo = Repository.open(hostile.root)
    repo.config.inline_chunk_threshold_bytes = 7
    repo.save_config()
    zarr.open_array(repo.writable_session("main").store, path="native")[:] = 4
    assert containers_of(hostile.root) == before
    assert Repository.open(hostile.root).config.inline_chunk_threshold_bytes == 7


def test_reading_there_is_refused_with_the_option_and_the_container(hostile):
    array = zarr.open_array(hostile.store(), path="v", mode="r")
    with pytest.raises(InvalidInputError, match="virtual chunk container has an option") as caught:
        array[:]
    assert caught.value.facts["container"] == hostile.prefix
    assert "save_config" in caught.value.do


def test_verifying_there_is_refused_too(hostile):
    with pytest.raises(InvalidInputError, match="virtual chunk container has an option"):
        icevirt.verify(hostile.root, authorize_virtual_chunk_access=[hostile.prefix])
