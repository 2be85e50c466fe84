"""Every setting of a configuration: what either client persists, the other reads as the same."""

import icechunk
import pytest

import icevirt
from icevirt.errors import InvalidInputError
from icevirt.model.config import containers as config
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.commits.build_commit import BuildCommit
from icevirt.repo.repository import Repository
from icevirt.versioning.merge.kept_nodes import Claim


def preload_if(module):
    condition = module.ManifestPreloadCondition
    return condition.or_conditions(
        [
            condition.name_matches("x") & condition.num_refs(3, None),
            condition.path_matches("^/a") | condition.num_refs(None, 4),
            condition.and_conditions([condition.true(), condition.false()]),
            condition.num_refs(1, 9),
        ]
    )


def config_of(module):
    """A configuration in which nothing has its default, made with the classes of either client."""
    manifest = module.ManifestConfig(
        preload=module.ManifestPreloadConfig(7, preload_if(module), 8),
        max_concurrent_manifest_fetches_during_commit=3,
    )
    storage = module.StorageSettings(
        concurrency=module.StorageConcurrencySettings(2, 3),
        retries=module.StorageRetriesSettings(4, 5, 6),
        timeouts=module.StorageTimeoutSettings(1, 2, 3, 4),
        unsafe_use_conditional_create=True,
        unsafe_use_metadata=False,
        # on this kind of storage the official client sets it anyway
        unsafe_use_conditional_update=False,
        storage_class="A",
        metadata_storage_class="B",
        chunks_storage_class="C",
        minimum_size_for_multipart_upload=9,
    )
    return module.RepositoryConfig(
        inline_chunk_threshold_bytes=10,
        get_partial_values_concurrency=12,
        compression=module.CompressionConfig(module.CompressionAlgorithm.Zstd, 4),
        max_concurrent_requests=11,
        caching=module.CachingConfig(1, 2, 3, 4, 5),
        storage=storage,
        manifest=manifest,
        num_updates_per_repo_info_file=14,
        max_concurrent_decodes=13,
    )


SETTINGS = [
    "inline_chunk_threshold_bytes",
    "get_partial_values_concurrency",
    "max_concurrent_requests",
    "max_concurrent_decodes",
    "num_updates_per_repo_info_file",
]
SECTIONS = {
    "compression": ["level"],
    "caching": [
        "num_snapshot_nodes",
        "num_chunk_refs",
        "num_transaction_changes",
        "num_bytes_attributes",
        "num_bytes_chunks",
    ],
    "storage": [
        "unsafe_use_conditional_create",
        "unsafe_use_conditional_update",
        "unsafe_use_metadata",
        "storage_class",
        "metadata_storage_class",
        "chunks_storage_class",
        "minimum_size_for_multipart_upload",
    ],
}


def test_what_the_official_client_persists_is_read(repo_path):
    icechunk.Repository.create(icechunk.local_filesystem_storage(repo_path), config_of(icechunk))
    found, wanted = Repository.open(repo_path).config, config_of(icevirt)
    for name in (*SETTINGS, *SECTIONS, "manifest"):
        assert getattr(found, name) == getattr(wanted, name), name


def test_what_we_persist_the_official_client_reads(repo_path):
    Repository.create(repo_path, config_of(icevirt))
    found = icechunk.Repository.open(icechunk.local_filesystem_storage(repo_path)).config
    wanted = config_of(icechunk)
    for name in SETTINGS:
        assert getattr(found, name) == getattr(wanted, name), name
    for section, names in SECTIONS.items():
        for name in names:
            ours, theirs = getattr(found, section), getattr(wanted, section)
            assert getattr(ours, name) == getattr(theirs, name), name
    assert found.compression.algorithm == icechunk.CompressionAlgorithm.Zstd
    assert found.storage.timeouts.operation_attempt_timeout_ms == 4
    assert found.storage.retries.max_backoff_ms == 6
    assert found.storage.concurrency.ideal_concurrent_request_size == 3
    assert found.manifest.preload.preload_if == preload_if(icechunk)
    assert found.manifest.max_concurrent_manifest_fetches_during_commit == 3


def test_documents_are_the_same_key_by_key(tmp_path):
    documents = []
    for module, name in ((icechunk, "theirs"), (icevirt, "ours")):
        storage = module.local_filesystem_storage(str(tmp_path / name))
        module.Repository.create(storage, config_of(module))
        document = Repository.open(tmp_path / name).config.document
        documents.append({k: v for k, v in document.items() if v is not None})
    assert documents[0] == {**documents[1], "manifest": documents[0]["manifest"]}
    theirs, ours = (document["manifest"] for document in documents)
    assert theirs == ours


def test_a_merge_is_the_official_clients():
    over = {"inline_chunk_threshold_bytes": 1, "max_concurrent_decodes": 2}
    for module in (icechunk, icevirt):
        base = config_of(module)
        other = module.RepositoryConfig(caching=module.CachingConfig(num_chunk_refs=99), **over)
        found = base.merge(other)
        assert [found.inline_chunk_threshold_bytes, found.max_concurrent_decodes] == [1, 2]
        assert (found.caching.num_chunk_refs, found.caching.num_bytes_chunks) == (99, 5)
        assert found.max_concurrent_requests == 11
        assert base.inline_chunk_threshold_bytes == 10


def test_nothing_is_set_in_a_default():
    for module in (icechunk, icevirt):
        config = module.RepositoryConfig.default()
        assert [getattr(config, name) for name in (*SETTINGS, *SECTIONS)] == [None] * 8
        assert config == module.RepositoryConfig()
    assert config.document == {}


def test_keys_of_newer_clients_survive_in_every_section():
    config = RepositoryConfig.from_document(
        {"news": 1, "storage": {"news": 2, "retries": {"news": 3}}, "caching": {"news": 4}}
    )
    config.storage = icevirt.StorageSettings(retries=icevirt.StorageRetriesSettings(5))
    config.caching = icevirt.CachingConfig()
    assert config.document["news"] == 1
    assert config.document["storage"]["news"] == 2
    assert config.document["storage"]["retries"]["news"] == 3
    assert config.document["storage"]["retries"]["max_tries"] == 5
    assert config.document["caching"]["news"] == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: RepositoryConfig(inline_chunk_threshold_bytes="many"),
        lambda: RepositoryConfig(max_concurrent_requests=True),
        lambda: RepositoryConfig(max_concurrent_decodes=-1),
        lambda: RepositoryConfig(caching={"num_chunk_refs": 1}),
        lambda: icevirt.CachingConfig(num_chunk_refs=-1),
        lambda: icevirt.StorageSettings(storage_class=1),
        lambda: icevirt.StorageSettings(unsafe_use_metadata=1),
        lambda: icevirt.CompressionConfig("zstd"),
        lambda: RepositoryConfig.from_document({"caching": 5}).caching,
        lambda: (
            RepositoryConfig.from_document({"manifest": {"preload": {"preload_if": 1}}}).manifest
        ),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused(make):
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert caught.value.do


TERSE = {
    "s3://b/p/": ("s3", {}),
    "s3://b/q/": ("s3", {"requester_pays": True}),
    "s3://b/r/": ("s3_compatible", {"endpoint_url": "https://s3.test"}),
    "tigris://b/p/": ("tigris", {}),
    "gs://b/p/": ("gcs", {}),
    "az://b/p/": ("azure", {}),
    "https://b.test/p/": ("http", {}),
}


@pytest.mark.parametrize("prefix", TERSE)
def test_the_official_client_opens_what_containers_say_little_of(tmp_path, prefix):
    """What a build from an archive on a server persists where the environment says the rest."""
    terse = icevirt.RepositoryConfig()
    store = ObjectStoreConfig(*TERSE[prefix])
    terse.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    icevirt.Repository.create(tmp_path / "repo", terse)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    assert list(theirs.config.virtual_chunk_containers) == [prefix]
    ours = icevirt.Repository.open(tmp_path / "repo").config.virtual_chunk_containers[prefix]
    assert ours.store.options == ours.store.options | TERSE[prefix][1]


def test_a_build_completes_a_container_that_the_official_client_refuses(tmp_path, monkeypatch):
    container = icevirt.VirtualChunkContainer("s3://b/p/", ObjectStoreConfig("s3", {}))
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repo"))

    def build():
        BuildCommit(
            storage=tmp_path / "repo",
            branch="main",
            groups={"/": b'{"zarr_format": 3, "node_type": "group"}'},
            arrays={},
            manifest_files=[],
            message="build",
            claim=Claim(group="/", replaces=True),
            containers=[container],
        ).publish()

    with monkeypatch.context() as before:
        before.setattr(config, "_ON_S3", ())
        build()
    with pytest.raises(icechunk.IcechunkError, match="anonymous"):
        icechunk.Repository.open(storage)
    build()
    assert list(icechunk.Repository.open(storage).config.virtual_chunk_containers) == ["s3://b/p/"]
