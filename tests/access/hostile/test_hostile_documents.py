"""Documents that nobody sound wrote: whatever a user does, an error of icevirt's says what is wrong.

``ICEVIRT_FUZZ_SECONDS`` makes the random part longer.
"""

import copy
import json
import os
import random
import time

import pytest
import xarray as xr

import icevirt
from access.hostile.documents import (
    COSTLY,
    USES,
    kept,
    made,
    restored,
    used,
    with_config,
    with_metadata,
)
from access.virtual import document
from icevirt.errors import FormatError, InvalidInputError
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.storage.local import LocalStorage
from icevirt.wire.repo_info import file
from long_forms import IS_LONG
from repo.v1.clients import NAMES, in_memory, unpacked

SECONDS = float(os.environ.get("ICEVIRT_FUZZ_SECONDS", "1"))
SOUND = json.loads(document())
BYTES = SOUND["codecs"]
GONE = object()
QUICK = {name: use for name, use in USES.items() if name not in ("upkeep", "commit")}
SHOWING = ("open_dataset", "open_dataset, decoded", "open_datatree", "info", "check")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    storage = made(tmp_path_factory.mktemp("hostile"))
    return storage, kept(storage)


@pytest.fixture
def storage(repository):
    held, objects = repository
    restored(held, objects)
    return held


def output(**changes):
    found = SOUND | changes
    return json.dumps({key: value for key, value in found.items() if value is not GONE}).encode()


def nested(levels):
    return b'{"a": ' + b"[" * levels + b"]" * levels + b"}"


def with_attributes(raw):
    return document().replace(b'"attributes": {}', b'"attributes": ' + raw)


def grid(*edges):
    return {"name": "regular", "configuration": {"chunk_shape": list(edges)}}


def extended(**more):
    return output(icevirt={"must_understand": False, **more}, attributes={"a": 1})


UNUSABLE = {
    "empty": b"",
    "cut short": document()[:50],
    "not UTF-8": document().replace(b'"y"', b'"\xff"'),
    "UTF-16": document().decode().encode("utf-16"),
    "nested without end": b'{"a":' * 100_000,
    "attributes nested 2,000 levels deep": with_attributes(nested(2000)),
    "attributes nested 150 levels deep": with_attributes(nested(150)),
    "a length of 5,000 digits": document().replace(b"[8, 5]", b"[8, " + b"9" * 5000 + b"]"),
    "a length of 4,000 digits": document().replace(b"[8, 5]", b"[8, " + b"9" * 4000 + b"]"),
    "a list": b"[]",
    "null": b"null",
    "a group's": b'{"zarr_format": 3, "node_type": "group"}',
    "no shape": output(shape=GONE),
    "a shape of text": output(shape="ab"),
    "a negative shape": output(shape=[-8, 5]),
    "one more dimension": output(shape=[8, 5, 1]),
    "no data type": output(data_type=GONE),
    "an unknown data type": output(data_type="bogus"),
    "a data type without a name": output(data_type={"name": ["x"]}),
    "a data type of impossible length": output(
        data_type={"name": "raw_bytes", "configuration": {"length_bytes": 1 << 62}}
    ),
    "an unknown grid": output(chunk_grid={"name": "hexagonal", "configuration": {}}),
    "a grid of text": output(chunk_grid="regular"),
    "a grid without lengths": output(chunk_grid={"name": "regular"}),
    "chunks of no length": output(chunk_grid=grid(0, 5)),
    "chunks of negative length": output(chunk_grid=grid(-1, 5)),
    "chunks of one dimension": output(chunk_grid=grid(2)),
    "a trillion chunks that are listed": output(
        shape=[1 << 40, 5],
        chunk_grid={
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": [[[1, 1 << 40]], [5]]},
        },
    ),
    "no codecs": output(codecs=[]),
    "an unknown codec": output(codecs=[{"name": "bogus"}]),
    "a codec that would unpickle": output(codecs=[{"name": "numcodecs.pickle"}]),
    "codecs out of order": output(codecs=[{"name": "gzip", "configuration": {"level": 1}}, *BYTES]),
    "a codec's settings of another kind": output(codecs=[{"name": "bytes", "configuration": []}]),
    "no fill value": output(fill_value=GONE),
    "a fill value of another kind": output(fill_value={"a": 1}),
    "one name for two dimensions": output(dimension_names=["y"]),
    "dimensions of numbers": output(dimension_names=[1, 2]),
    "attributes in a list": output(attributes=[1]),
    "a field that must be understood": output(bogus={"must_understand": True}),
}
SHOWN = {
    "chunks of 2^40 elements": output(chunk_grid=grid(1 << 40, 1 << 40)),
    "shards of 2^40 chunks": output(
        chunk_grid=grid(1 << 40, 5),
        codecs=[
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [1, 1],
                    "codecs": BYTES,
                    "index_codecs": BYTES,
                    "index_location": "end",
                },
            }
        ],
    ),
    "an array of 2^62 rows": output(shape=[1 << 62, 5]),
    "half a character in an attribute": output(attributes={"a\ud800": "\udfff"}),
    "names of half characters": output(dimension_names=["\0", "\ud800"]),
    "times that are none": output(attributes={"units": "days since never", "calendar": [1]}),
    "a scale factor of text": output(attributes={"scale_factor": "x", "add_offset": {}}),
    "a data type in the attributes": output(
        attributes={"dtype": "timedelta64[zz]", "units": "days"}
    ),
    "an extension that is a number": output(icevirt=5),
    "recorded dtypes in a list": extended(attribute_dtypes=[1]),
    "a recorded dtype of a terabyte": extended(attribute_dtypes={"a": "V1099511627776"}),
    "a recorded dtype that is an object": extended(attribute_dtypes={"a": {}}),
    "replaced attributes that are no pairs": extended(replaced_attributes={"a": [1]}),
    "a filter of a terabyte": output(
        codecs=[
            {
                "name": "numcodecs.astype",
                "configuration": {"encode_dtype": "S1099511627776", "decode_dtype": "f8"},
            },
            *BYTES,
        ]
    ),
}


@pytest.mark.parametrize("raw", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_zarr_json_that_cannot_be_used_is_a_format_error(storage, raw):
    with_metadata(storage, "/v", raw)
    refused = used(storage, {name: USES[name] for name in SHOWING})
    for use in ("open_dataset", "open_dataset, decoded", "open_datatree"):
        assert isinstance(refused[use], FormatError), use
        assert refused[use].facts["path"] == "/v"
        assert refused[use].do
        assert len(str(refused[use])) < 1500


@pytest.mark.parametrize("raw", SHOWN.values(), ids=SHOWN.keys())
def test_odd_metadata_is_shown_or_refused_and_harms_nobody(storage, raw):
    with_metadata(storage, "/v", raw)
    assert "check" not in used(storage, QUICK)


GROUPS = {
    "a list": b"[]",
    "attributes of a number": b'{"zarr_format": 3, "node_type": "group", "attributes": 5}',
    "nested without end": b"[" * 100_000,
}


@pytest.mark.parametrize("raw", GROUPS.values(), ids=GROUPS.keys())
def test_a_group_whose_zarr_json_cannot_be_used_is_a_format_error(storage, raw):
    with_metadata(storage, "/", raw)
    refused = used(storage, QUICK)
    for use in ("open_dataset", "open_datatree", "info"):
        assert isinstance(refused[use], FormatError), use


def test_check_names_the_node_and_goes_on(storage):
    with_metadata(storage, "/v", UNUSABLE["nested without end"])
    (found,) = [each for each in check(storage).problems if each.code == "metadata"]
    assert "/v" in found.what
    assert "levels deep" in found.what


def test_verify_and_virtualizarr_refuse_metadata_that_cannot_be_used(storage):
    with_metadata(storage, "/v", UNUSABLE["no codecs"])
    assert isinstance(used(storage, COSTLY)["virtualizarr"], FormatError)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["info", "check"])
def test_a_command_says_what_is_wrong_on_one_line(storage, tmp_path, name, run):
    disk = LocalStorage(tmp_path / "repo")
    with_metadata(storage, "/v", UNUSABLE["nested without end"])
    restored(disk, kept(storage))
    status, out, err = run(name, tmp_path / "repo")
    assert status == 1
    assert "levels deep" in out + err
    assert "Traceback" not in err


# -- the configuration -----------------------------------------------------------------------------


ODD = (
    *(5, -1, 1 << 63, 1.5, True, "x", [], [1], [[]], [{}], {}, {"a": 1}, {"": None}),
    [["any_array", 5]],
    [["any_array", [{"condition": "Any", "num_chunks": "x"}]]],
)
PLACES = (
    ("virtual_chunk_containers",),
    ("virtual_chunk_containers", "*"),
    *(("virtual_chunk_containers", "*", name) for name in ("url_prefix", "store", "name")),
    *(("virtual_chunk_containers", "*", "store", kind) for kind in ("s3", "http", "gcs", "bogus")),
    ("inline_chunk_threshold_bytes",),
    ("num_updates_per_repo_info_file",),
    *(("compression", name) for name in ("level", "algorithm")),
    ("compression",),
    ("storage",),
    ("manifest",),
    ("manifest", "splitting"),
    ("manifest", "splitting", "split_sizes"),
    ("manifest", "preload"),
    ("manifest", "virtual_chunk_location_compression"),
    ("manifest", "virtual_chunk_location_compression", "dictionary_max_size_bytes"),
    ("a setting of the future",),
)
PREFIXES = ("file:///", "file:///a%00b/", "http://[bad/", "https://a:99999999/", "x", "s3:///")


def changed_at(config, place, value):
    """Return a configuration with a value at a place; ``*`` is the first key there."""
    config = copy.deepcopy(config)
    at = config
    for name in place[:-1]:
        own = _named(at, name)
        if not isinstance(at.get(own), dict):
            at[own] = {}
        at = at[own]
    at[_named(at, place[-1])] = value
    return config


def _named(at, name):
    return next(iter(at)) if name == "*" else name


def config_of(repository):
    return dict(file.decode(repository[1]["repo"]).config)


@pytest.mark.ci
@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_configuration_that_cannot_be_used_harms_nobody(repository, storage, place):
    uses = {name: USES[name] for name in ("settings", "the store", "check", "commit")}
    for value in ODD if IS_LONG else ODD[PLACES.index(place) % 2 :: 2]:
        restored(storage, repository[1])
        with_config(storage, changed_at(config_of(repository), place, value))
        used(storage, uses)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_container_whose_prefix_is_no_url_harms_nobody(repository, storage, prefix):
    config = config_of(repository)
    (entry,) = config["virtual_chunk_containers"].values()
    config["virtual_chunk_containers"] = {prefix: {**entry, "url_prefix": prefix}}
    with_config(storage, config)
    assert "check" not in used(storage, QUICK)


def test_a_setting_of_another_kind_is_named(storage):
    config = RepositoryConfig.from_document({"inline_chunk_threshold_bytes": "many"})
    with pytest.raises(FormatError, match="inline_chunk_threshold_bytes"):
        _ = config.inline_threshold
    config = RepositoryConfig.from_document({"manifest": {"splitting": {"split_sizes": 5}}})
    with pytest.raises(FormatError, match="splitting"):
        _ = config.splitting_document


# -- at random -------------------------------------------------------------------------------------


def damaged(value, rng):
    """Return JSON with something in it that is of another kind, or somewhere else."""
    value = copy.deepcopy(value)
    places = [(value, key) for key in value]
    for at, key in places:
        inner = at[key]
        keys = (
            inner
            if isinstance(inner, dict)
            else range(len(inner))
            if isinstance(inner, list)
            else ()
        )
        places += [(inner, each) for each in keys]
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, key = rng.choice(places)
        other, name = rng.choice(places)
        at[key] = rng.choice((*ODD, None, 1 << 40, other[name] if other is not value else "x"))
    return value


def bytes_of(value, rng):
    """Return the text of JSON, now and then with a byte that is another."""
    try:
        raw = bytearray(json.dumps(value).encode())
    except (ValueError, RecursionError):  # it is within itself
        return b"{}"
    if rng.random() < 0.3:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return bytes(raw)


@pytest.mark.ci
@pytest.mark.parametrize("what", ["zarr.json", "config"])
def test_random_damage_harms_nobody(repository, storage, what, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    rng = random.Random(seed)
    config = config_of(repository)
    until = time.monotonic() + SECONDS / 2
    tried = 0
    while time.monotonic() < until or tried < 3:
        restored(storage, repository[1])
        try:
            if what == "config":
                try:
                    with_config(storage, damaged(config, rng))
                except InvalidInputError:  # our own writer nests nothing that deep
                    continue
            else:
                with_metadata(
                    storage, rng.choice(("/v", "/native")), bytes_of(damaged(SOUND, rng), rng)
                )
            used(storage, USES if SECONDS > 60 else QUICK)
        except BaseException as error:
            error.add_note(f"seed {seed}, attempt {tried}")
            raise
        tried += 1
    record_property("tried", tried)


# -- V1 --------------------------------------------------------------------------------------------

CONFIGS = {
    "nested without end": b"a: " + b"[" * 1000,
    "within itself": b"a: &a [*a]",
    "a number of 5,000 digits": b"a: " + b"9" * 5000,
    "a date that is none": b"a: !!timestamp 2001-99-99",
}
V1_USES = {
    "open": Repository.open,
    "info": lambda storage: summary(Repository.open(storage)),
    "open_dataset": lambda storage: xr.open_dataset(storage, engine="icevirt"),
    "check": check,
    "upgrade": lambda storage: icevirt.upgrade_icechunk_repository(Repository.open(storage)),
}


@pytest.fixture(scope="module")
def v1(tmp_path_factory):
    return in_memory(unpacked(NAMES[0], tmp_path_factory.mktemp("v1")))


@pytest.mark.parametrize("raw", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_v1_repository_with_a_hostile_config_yaml_is_refused(v1, raw):
    v1.put("config.yaml", raw)
    refused = used(v1, V1_USES)
    assert refused.keys() == V1_USES.keys()
    for error in refused.values():
        assert isinstance(error, FormatError)
        assert "config.yaml" in str(error)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b"\xff", b"[]", b'{"snapshot": 5}'])
def test_a_v1_branch_that_is_no_reference_is_refused(v1, raw):
    v1.put("config.yaml", b"")
    objects = kept(v1)
    v1.put("refs/branch.main/ref.json", raw)
    try:
        refused = used(v1, {"info": V1_USES["info"]})
        assert isinstance(refused["info"], FormatError)
    finally:
        restored(v1, objects)
