"""Splitting and location compression as values: what one client sets, the other reads."""

import icechunk
import numpy as np
import pytest
import zarr

import icevirt
from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.document import RepositoryConfig, SplitRule
from icevirt.repo.maintenance.check import check
from icevirt.repo.reader import ArrayReader
from icevirt.repo.repository import Repository
from icevirt.storage.memory import MemoryStorage
from repo.support import array_json


def every_rule(module):
    """Each kind of condition once, made with the classes of either client."""
    array, dim = module.ManifestSplitCondition, module.ManifestSplitDimCondition
    return module.ManifestSplittingConfig.from_dict(
        {
            array.or_conditions([array.path_matches("^/a$"), array.name_matches("b.")]): {
                dim.Axis(0): 3,
                dim.DimensionName("^t"): 5,
            },
            array.and_conditions([array.path_matches("x"), array.AnyArray()]): {dim.Any(): 7},
            array.AnyArray(): {dim.Axis(1): 2**32 - 1},
        }
    )


def compression(module):
    return module.ManifestVirtualChunkLocationCompressionConfig(
        min_num_chunks=10, dictionary_max_size_bytes=4096
    )


def config_of(module):
    config = module.RepositoryConfig.default()
    config.manifest = module.ManifestConfig(
        splitting=every_rule(module), virtual_chunk_location_compression=compression(module)
    )
    return config


def test_rules_that_the_official_client_persisted_are_read(repo_path):
    storage = icechunk.local_filesystem_storage(repo_path)
    icechunk.Repository.create(storage, config_of(icechunk)).save_config()
    found = Repository.open(repo_path).config.manifest
    assert found.splitting == every_rule(icevirt)
    assert found.virtual_chunk_location_compression == compression(icevirt)


def test_rules_that_we_persist_are_the_official_clients(repo_path):
    Repository.create(repo_path, config_of(icevirt))
    found = icechunk.Repository.open(icechunk.local_filesystem_storage(repo_path)).config.manifest
    assert found.splitting == every_rule(icechunk)
    theirs = found.virtual_chunk_location_compression
    assert (theirs.min_num_chunks, theirs.dictionary_max_size_bytes) == (10, 4096)
    assert (theirs.compression_level, theirs.dictionary_max_training_samples) == (None, None)


def test_manifests_are_split_as_the_rules_say(repo_path):
    dim, array = icevirt.ManifestSplitDimCondition, icevirt.ManifestSplitCondition
    config = RepositoryConfig()
    config.manifest = icevirt.ManifestConfig(
        splitting=icevirt.ManifestSplittingConfig.from_dict(
            {array.name_matches("^x"): {dim.DimensionName("t"): 3}}
        )
    )
    repo = Repository.create(repo_path, config)
    for path in ("/x1", "/y"):
        session = repo.writable_session("main")
        session.add_array(
            path, array_json((8, 4), (1, 2), dimension_names=["t", "s"]), ChunkTable.empty(2)
        )
        zarr.open_array(session.store, path=path)[:] = np.arange(32).reshape(8, 4) + 1
        session.commit(path)
    found = repo.readonly_session("main")
    windows = {ref.extents for ref in found.array("/x1").manifests}
    assert windows == {((0, 3), (0, 2)), ((3, 6), (0, 2)), ((6, 8), (0, 2))}
    assert len(found.array("/y").manifests) == 1


def test_rules_go_to_a_mapping_and_back():
    splitting = every_rule(icevirt)
    assert icevirt.ManifestSplittingConfig.from_dict(splitting.to_dict()) == splitting
    assert list(splitting.to_dict().values())[1] == {icevirt.ManifestSplitDimCondition.Any(): 7}
    assert hash(splitting) == hash(every_rule(icevirt))


def test_keys_of_newer_clients_survive_a_new_value():
    config = RepositoryConfig.from_document(
        {
            "news": 1,
            "manifest": {
                "preload": {"max_total_refs": 5, "news": 6},
                "news": [2],
                "splitting": {"split_sizes": [], "news": 3},
                "virtual_chunk_location_compression": {"min_num_chunks": 1, "news": 4},
            },
        }
    )
    config.manifest = icevirt.ManifestConfig(
        preload=icevirt.ManifestPreloadConfig(max_arrays_to_scan=8),
        splitting=every_rule(icevirt),
        virtual_chunk_location_compression=compression(icevirt),
    )
    manifest = config.document["manifest"]
    assert (config.document["news"], manifest["news"]) == (1, [2])
    assert manifest["preload"]["news"] == 6
    assert manifest["preload"]["max_total_refs"] is None
    assert manifest["splitting"]["news"] == 3
    assert manifest["virtual_chunk_location_compression"]["news"] == 4
    assert config.manifest.splitting == every_rule(icevirt)
    config.manifest = None
    assert config.manifest == icevirt.ManifestConfig()
    assert config.document["manifest"]["news"] == [2]


def test_a_default_configuration_has_no_settings_of_manifests():
    config = RepositoryConfig()
    assert config.manifest is None
    config.manifest = None
    assert config.document == {}


def test_a_save_of_rules_leaves_what_others_saved_meanwhile(repo, source):
    other = Repository.open(repo.storage)
    other.config.document["inline_chunk_threshold_bytes"] = 9
    other.save_config()
    repo.config.manifest = icevirt.ManifestConfig(splitting=every_rule(icevirt))
    repo.save_config()
    found = Repository.open(repo.storage).config
    assert found.inline_chunk_threshold_bytes == 9
    assert found.manifest.splitting == every_rule(icevirt)
    assert list(found.virtual_chunk_containers) == [source.prefix]


@pytest.mark.parametrize("number", [0, -1, 2**32])
def test_a_number_of_chunks_that_is_none_is_refused(number):
    with pytest.raises(InvalidInputError, match="between 1 and"):
        icevirt.ManifestSplittingConfig.from_dict(
            {
                icevirt.ManifestSplitCondition.AnyArray(): {
                    icevirt.ManifestSplitDimCondition.Any(): number
                }
            }
        )


@pytest.mark.parametrize(
    "sizes",
    [
        [["every_second_array", []]],
        [[{"path_matches": {"glob": "*"}}, []]],
        [["any_array", [{"condition": {"Odd": 1}, "num_chunks": 1}]]],
        [["any_array", [{"condition": "Any"}]]],
        ["any_array"],
    ],
)
def test_rules_of_the_future_are_said_and_kept(sizes):
    config = RepositoryConfig.from_document({"manifest": {"splitting": {"split_sizes": sizes}}})
    with pytest.raises(InvalidInputError, match="not understood"):
        config.manifest  # noqa: B018 - reading is what fails
    assert config.document["manifest"]["splitting"]["split_sizes"] == sizes


@pytest.mark.parametrize(
    ("before", "after", "most"),
    [
        ((2, 8), (2, 8), 1),
        ((2, 8), (4, 8), 2),
        ((8, 8), (2, 2), 1),
        ((4, 4), (2, 2), 2),  # their cells alternate
        ((2, 8), (8, 4), 4),  # one cell takes rows of each
        (
            (3, 8),
            (2, 8),
            2,
        ),  # the second begins in a cell of the first, the third in one of its own
        ((3, 3), (2, 5), 6),
        ((8, 2), (2, 8), 4),
        ((2, 2), (2, 8), 4),
    ],
)
def test_manifests_are_rewritten_with_those_that_share_cells(monkeypatch, before, after, most):
    taken = []
    read = ArrayReader.table_to_rewrite

    def counted(reader, refs):
        taken.append(len(refs))
        return read(reader, refs)

    storage = MemoryStorage()
    repo = Repository.create(storage)
    repo.config.add_split_rules([SplitRule(path_regex=None, num_chunks=(*enumerate(before),))])
    repo.save_config()
    session = repo.writable_session("main")
    session.add_array("/a", array_json((8, 8), (1, 1)), ChunkTable.empty(2))
    values = np.arange(64, dtype="i4").reshape(8, 8) % 5 - 1  # -1 is not stored
    zarr.open_array(session.store, path="a")[:] = values
    session.commit("values")
    repo.config.add_split_rules([SplitRule(path_regex=None, num_chunks=(*enumerate(after),))])
    repo.save_config()
    monkeypatch.setattr(ArrayReader, "table_to_rewrite", counted)
    repo.rewrite_manifests("again", branch="main")
    assert max(taken) == most
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array.resize((11, 7))
    values = np.pad(values[:, :7], ((0, 3), (0, 0)), constant_values=-1)
    values[5:10, 3:5] = array[5:10, 3:5] = 9
    session.commit("over some of them, and beyond")
    found = repo.readonly_session("main")
    np.testing.assert_array_equal(zarr.open_array(found.store, path="a", mode="r")[:], values)
    boxes = [ref.extents for ref in found.array("/a").manifests]
    cells = {tuple(low // step for step, (low, _) in zip(after, box, strict=True)) for box in boxes}
    assert len(cells) == len(boxes)
    assert all(each.advice for each in check(storage).problems)  # of the first version
