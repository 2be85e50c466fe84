"""A layout of the chunks' directory that is not known is named, and refused before any write."""

import pytest
import zarr

import icevirt
from icevirt.errors import SpecVersionError
from icevirt.repo import layout
from icevirt.storage.memory import MemoryStorage
from icevirt.wire import header
from icevirt.wire.repo_info import file

UNKNOWN = {
    "word": {"chunk_layout": "id-prefix"},
    "mapping": {"chunk_directory_layout": {"kind": "prefix", "length": 2}},
    "in a section": {"storage": {"native_chunk_object_layout": {"prefix": [2, 2]}}},
    "sharding": {"chunk_sharding": "zarr-path"},
}
KNOWN = {
    "none": {"chunk_layout": None},
    "flat": {"chunk_layout": "Flat"},
    "flat mapping": {"native_chunk_layout": {"kind": "flat"}},
    "name of a container": {"virtual_chunk_containers": {"chunk_layout": {"name": "chunk_layout"}}},
    "another setting": {"inline_chunk_threshold_bytes": 100},
}


def made(config):
    storage = MemoryStorage()
    repo = icevirt.Repository.create(storage)
    zarr.create_group((session := repo.writable_session("main")).store)
    session.commit("a group")
    raw, version = storage.get_versioned(layout.REPO)
    info = file.decode(raw)
    document = {**(info.config or {}), **config}
    storage.put_if(layout.REPO, file.encode(info._replace(config=document)), was=version)
    return storage, repo


@pytest.mark.parametrize("config", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_layout_is_named_before_anything_is_written(config):
    storage, repo = made(config)
    before = storage.get(layout.REPO), {info.path for info in storage.list()}
    for act in (
        lambda: icevirt.Repository.open(storage),
        lambda: repo.writable_session("main"),
        lambda: repo.create_tag("t", repo.lookup_branch("main")),
        repo.garbage_collect,
    ):
        with pytest.raises(SpecVersionError, match="directories") as caught:
            act()
        assert caught.value.facts["layout"] in [
            *config.values(),
            *config.get("storage", {}).values(),
        ]
    assert (storage.get(layout.REPO), {info.path for info in storage.list()}) == before


def test_a_session_of_before_does_not_commit_to_an_unknown_layout():
    storage, repo = made({})
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="other")
    raw, version = storage.get_versioned(layout.REPO)
    info = file.decode(raw)
    document = {**(info.config or {}), "chunk_layout": "id-prefix"}
    storage.put_if(layout.REPO, file.encode(info._replace(config=document)), was=version)
    after = storage.get(layout.REPO)
    with pytest.raises(SpecVersionError):
        session.commit("too late")
    assert storage.get(layout.REPO) == after


@pytest.mark.parametrize("config", KNOWN.values(), ids=KNOWN.keys())
def test_the_flat_layout_and_other_settings_are_no_obstacle(config):
    layout.refuse_other_layouts(config, "memory://")


def test_another_major_version_is_refused():
    storage, _ = made({})
    raw, version = storage.get_versioned(layout.REPO)
    at = header.FIELDS["spec_version"][0]
    storage.put_if(layout.REPO, raw[:at] + bytes([3]) + raw[at + 1 :], was=version)
    with pytest.raises(SpecVersionError):
        icevirt.Repository.open(storage)
