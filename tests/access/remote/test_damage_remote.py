"""What is gone from a bucket or a web server is an error, for every public way to read.

As test_damage.py, which has more kinds of damage, where each answer takes a request.
"""

from dataclasses import dataclass
from typing import Any

import obstore
import pytest

import icevirt
from access.reads import READS
from access.virtual import SOURCE, refer
from icevirt.errors import IcevirtError
from icevirt.model.chunks import Locations
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository


@dataclass(frozen=True, kw_only=True)
class Remote:
    root: Any  # the repository's storage
    bucket: Any  # where it is, as obstore sees it
    options: dict[str, Any]
    change_source: Any  # to other bytes, or away

    def store(self):
        return Repository.open(self.root, **self.options).readonly_session("main").store

    def below(self, folder):
        """Return the names of the objects in a folder."""
        return [found["path"] for part in obstore.list(self.bucket, folder) for found in part]


@pytest.fixture
def on_s3(s3):
    options = {"region": "us-east-1", "endpoint_url": s3.endpoint, "allow_http": True}
    config = ObjectStoreConfig("s3_compatible", options | {"force_path_style": True})
    credentials = icevirt.s3_credentials(access_key_id="test", secret_access_key="test")
    prefix = f"{s3.url}/archive/"

    def change(body=None):
        name = "archive/source.bin"
        if body is None:
            obstore.delete(s3.store(), name)
        else:
            obstore.put(s3.store(), name, body)

    return remote(s3, prefix, config, {(prefix, s3.endpoint): credentials}, change)


@pytest.fixture
def on_http(s3, http_server):
    prefix = f"{http_server.url}/archive/"

    def change(body=None):
        if body is None:
            del http_server.files.objects["archive/source.bin"]
        else:
            http_server.files.put("archive/source.bin", body)

    return remote(s3, prefix, ObjectStoreConfig("http", {}), [prefix], change)


def remote(s3, prefix, store, authorize, change):
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer(prefix, store))
    storage = s3.icevirt()
    refer(Repository.create(storage, config), Locations.one(prefix + "source.bin"))
    change(SOURCE)
    return Remote(
        root=storage,
        bucket=s3.store(),
        options={"authorize_virtual_chunk_access": authorize},
        change_source=change,
    )


def gone(folder):
    return lambda at: obstore.delete(at.bucket, at.below(folder))


def cut_short(folder):
    def damage(at):
        for name in at.below(folder):
            body = bytes(obstore.get(at.bucket, name).bytes())
            obstore.put(at.bucket, name, body[:-20])

    return damage


REPOSITORY = {
    "chunk objects are gone": gone("chunks"),
    "chunk objects are cut short": cut_short("chunks"),
    "manifests are gone": gone("manifests"),
    "manifests are cut short": cut_short("manifests"),
    "snapshots are gone": gone("snapshots"),
    "snapshots are cut short": cut_short("snapshots"),
    "repo is gone": lambda at: obstore.delete(at.bucket, "repo"),
    "the bucket is empty": gone(None),
}
SOURCES = {
    "the source is gone": lambda at: at.change_source(),
    "the source is empty": lambda at: at.change_source(b""),
    "the source is cut short": lambda at: at.change_source(SOURCE[:30]),
}


@pytest.mark.parametrize("damage", REPOSITORY.values(), ids=REPOSITORY.keys())
def test_damage_of_a_repository_in_a_bucket_is_given_by_every_read(on_s3, damage):
    every_read_tells(on_s3, damage)


@pytest.mark.parametrize("damage", SOURCES.values(), ids=SOURCES.keys())
def test_damage_of_a_source_in_a_bucket_is_given_by_every_read(on_s3, damage):
    every_read_tells(on_s3, damage)


@pytest.mark.parametrize("damage", SOURCES.values(), ids=SOURCES.keys())
def test_damage_of_a_source_on_a_web_server_is_given_by_every_read(on_http, damage):
    every_read_tells(on_http, damage)


def every_read_tells(at, damage):
    for read in READS.values():
        read(at, at.options)
    damage(at)
    for name, read in READS.items():
        output = raised_by(read, at)
        assert isinstance(output, IcevirtError), name
        assert not isinstance(output, KeyError | FileNotFoundError), name


def raised_by(read, at):
    try:
        read(at, at.options)
    except Exception as error:  # noqa: BLE001 - which is what is asked
        return error
    return None
