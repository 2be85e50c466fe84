"""Files of the V1 format: what is written reads back, and as the official client writes them."""

import json
import zipfile
from pathlib import Path

import icechunk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.errors import FormatError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId8, ObjectId12
from icevirt.model.snapshot import Snapshot, node_of
from icevirt.wire import config_yaml, metadata, ref, snapshot
from icevirt.wire import transaction_log as log_file
from icevirt.wire.header import FIELDS
from icevirt.wire.manifests import manifest
from icevirt.wire.ref import Ref
from repo.support import array_json

FIXTURES = Path(__file__).parents[3] / "fixtures" / "icechunk"
V1 = ("v1-by-0.2.18", "v1-by-1.1.21")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(params=V1)
def root(request, tmp_path):
    with zipfile.ZipFile(FIXTURES / f"{request.param}.zip") as packed:
        packed.extractall(tmp_path)
    return tmp_path


@given(JSON)
def test_message_pack_reads_back(value):
    assert metadata.read_message_pack(metadata.write_message_pack(value)) == value


@pytest.mark.parametrize(
    ("value", "raw"),
    {
        "small": (127, "7f"),
        "u8": (128, "cc80"),
        "u16": (256, "cd0100"),
        "negative": (-32, "e0"),
        "i8": (-33, "d0df"),
        "short string": ("é", "a2c3a9"),
        "str8": ("a" * 32, "d920" + "61" * 32),
        "array16": ([None] * 16, "dc0010" + "c0" * 16),
        "map": ({"a": {}}, "81a16180"),
    }.values(),
)
def test_message_pack_has_its_shortest_form(value, raw):
    assert metadata.write_message_pack(value).hex() == raw


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_message_pack_refuses_integers_of_more_than_64_bits(value):
    with pytest.raises(ValueError, match="64 bits"):
        metadata.write_message_pack(value)


def test_snapshots_written_again_say_the_same(root):
    for path in sorted((root / "snapshots").iterdir()):
        found = snapshot.decode(path.read_bytes())
        raw = snapshot.encode(found, spec_version=1)
        assert raw[FIELDS["spec_version"][0]] == 1
        assert snapshot.decode(raw) == found


def test_a_summary_is_what_the_whole_says(root):
    for path in (root / "snapshots").iterdir():
        raw = path.read_bytes()
        whole, output = snapshot.decode(raw), snapshot.decode_summary(raw)
        for name in ("id", "parent_id", "flushed_at", "message", "metadata"):
            assert getattr(output, name) == getattr(whole, name)


def test_a_summary_of_a_damaged_file_is_refused(root):
    raw = next((root / "snapshots").iterdir()).read_bytes()
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            snapshot.decode_summary(raw[:size])


def said(repo, key):
    """What the client says of a snapshot, less who wrote it."""
    return {name: value for name, value in repo.inspect_snapshot(key).items() if name != "header"}


def test_the_official_client_reads_what_is_written_again(root):
    storage = icechunk.local_filesystem_storage(str(root))
    before = icechunk.Repository.open(storage)
    output = {path.name: said(before, path.name) for path in (root / "snapshots").iterdir()}
    for folder, codec in (("snapshots", snapshot), ("transactions", log_file)):
        for path in (root / folder).iterdir():
            path.write_bytes(codec.encode(codec.decode(path.read_bytes()), spec_version=1))
    after = icechunk.Repository.open(storage)
    assert {name: said(after, name) for name in output} == output
    for name in ("main", "dev"):
        assert [s.id for s in after.ancestry(branch=name)] == [
            s.id for s in before.ancestry(branch=name)
        ]


def test_manifests_have_the_byte_and_no_dictionary(root):
    for path in (root / "manifests").iterdir():
        found = manifest.decode(path.read_bytes())
        again = manifest.encode(found.arrays, spec_version=1)
        assert again.raw[FIELDS["spec_version"][0]] == 1
        assert again.raw != manifest.encode(found.arrays).raw
        assert manifest.decode(again.raw).num_chunk_refs == found.num_chunk_refs


def test_a_rectilinear_grid_is_refused():
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[40, 8]]}}
    node = node_of("/a", array_json(chunk_grid=grid), ObjectId8.random())
    made = Snapshot(id=ObjectId12.random(), nodes=(node,), flushed_at=1, message="")
    with pytest.raises(FormatError, match="regular"):
        snapshot.encode(made, spec_version=1)
    snapshot.encode(made)


@pytest.mark.parametrize("sealed", [False, True])
def test_references_read_back(sealed):
    output = Ref(INITIAL_SNAPSHOT_ID, sealed=sealed)
    assert ref.decode(ref.encode(output)) == output


def test_a_reference_is_what_the_official_client_writes(root):
    raw = (root / "refs" / "branch.main" / "ref.json").read_bytes()
    assert ref.encode(ref.decode(raw)) == raw


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b'{"snapshot":"x"}', b"[]", b"\xff", b'{"snapshot":1}']
)
def test_a_damaged_reference_is_said(raw):
    with pytest.raises(FormatError, match="reference file"):
        ref.decode(raw)


def test_the_official_client_does_not_understand_a_sealed_reference(root):
    """So that a V1 writer fails instead of committing where nobody looks."""
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(root)))
    session = repo.writable_session("main")
    path = root / "refs" / "branch.main" / "ref.json"
    path.write_bytes(ref.encode(Ref(ref.decode(path.read_bytes()).snapshot, sealed=True)))
    with pytest.raises(icechunk.IcechunkError):
        session.commit("lost", allow_empty=True)


@pytest.fixture
def configured(tmp_path):
    """What the official client persists: every kind of store, nested conditions."""
    config = icechunk.RepositoryConfig.default()
    stores = {
        "file:///data/": icechunk.local_filesystem_store("/data"),
        "s3://b/p/": icechunk.s3_store(region="us-east-1", endpoint_url="http://x:1"),
        "gcs://b/p/": icechunk.gcs_store(),
        "https://b/p/": icechunk.http_store(),
    }
    for prefix, store in stores.items():
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    condition, axis = icechunk.ManifestSplitCondition, icechunk.ManifestSplitDimCondition
    both = condition.path_matches("a.*b") | condition.name_matches("c") & condition.AnyArray()
    sizes = {both: {axis.Axis(0): 3, axis.DimensionName("x"): 2, axis.Any(): 7}}
    preload = icechunk.ManifestPreloadCondition
    config.manifest = icechunk.ManifestConfig(
        splitting=icechunk.ManifestSplittingConfig.from_dict(sizes),
        preload=icechunk.ManifestPreloadConfig(
            max_total_refs=7,
            preload_if=preload.or_conditions([preload.num_refs(1, 5), preload.name_matches("12")]),
        ),
    )
    storage = icechunk.local_filesystem_storage(str(tmp_path))
    icechunk.Repository.create(storage, config, spec_version=1)
    return storage, tmp_path / "config.yaml"


def test_a_configuration_is_written_as_the_official_client_does(configured):
    _, path = configured
    raw = path.read_bytes()
    document = config_yaml.loads(raw)
    assert config_yaml.dumps(document, over=raw) == raw
    assert document["virtual_chunk_containers"]["file:///data/"]["store"] == {
        "local_file_system": "/data"
    }
    json.dumps(document)


SCALARS = [
    "no",
    "1:30",
    "2024-01-01",
    "null",
    "true",
    "007",
    "",
    "~",
    "a: b",
    1.5,
    -3,
    0,
    True,
    None,
]


@pytest.mark.parametrize("value", SCALARS, ids=map(repr, SCALARS))
def test_scalars_keep_their_types(value):
    """By PyYAML's own rules some of them would be booleans, times or dates."""
    for document in (
        {"a": value},
        {"virtual_chunk_containers": {"x": {"store": {"local_file_system": value}}}},
    ):
        assert config_yaml.loads(config_yaml.dumps(document)) == document


def test_yaml_12_decides_what_plain_scalars_are():
    assert config_yaml.loads(b"a: no\nb: 1:30\nc: 2024-01-01\nd:\n") == {
        "a": "no",
        "b": "1:30",
        "c": "2024-01-01",
        "d": None,
    }


def test_tags_that_would_be_lost_are_refused():
    raw = b"new: !thing 1\n"
    with pytest.raises(FormatError, match="newer client"):
        config_yaml.dumps(config_yaml.loads(raw), over=raw)


@pytest.mark.parametrize("raw", [b"- 1", b"{", b"\xff\xfe\xff", b"a: !x [", b"3"])
def test_a_damaged_configuration_is_said(raw):
    with pytest.raises(FormatError, match="configuration"):
        config_yaml.loads(raw)
