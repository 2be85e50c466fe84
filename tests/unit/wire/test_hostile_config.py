"""Configurations that are damaged or made to harm: an error that is ours, or values, and soon."""

import os
import random
import time

import pytest

from icevirt.errors import FormatError, IcevirtError
from icevirt.model.config.document import RepositoryConfig
from icevirt.wire import config_yaml
from icevirt.wire.header import FileKind

SECONDS = float(os.environ.get("ICEVIRT_FUZZ_SECONDS", "4")) / len(FileKind)
YAML = b"""
virtual_chunk_containers:
  s3://bucket/:
    name: a
    url_prefix: s3://bucket/
    store: !s3
      region: eu-west-1
      anonymous: true
manifest:
  splitting:
    split_sizes:
    - - !path_matches
        regex: ^/a
      - - condition: !Axis 0
          num_chunks: 10
inline_chunk_threshold_bytes: 512
compression: {algorithm: zstd, level: 3}
"""
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "m0: &m0 {k: 1}\n" + "".join(
    f"m{n}: &m{n} {{!!merge <<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 40)
)
BAD_YAML = {
    "lists nested without end": "a: " + "[" * 5000 + "]" * 5000,
    "mappings nested without end": "".join(" " * n + "a:\n" for n in range(300)),
    "a list within itself": "a: &a [*a]",
    "a mapping within itself": "a: &a {b: *a}",
    "a document within itself": "&a {b: *a}",
    "a tagged list within itself": "a: &a !or [*a]",
    "a billion values by aliases": LAUGHS,
    "a trillion values by merges": MERGES,
    "a number of 5,000 digits": "a: " + "9" * 5000,
    "a number that is none": "a: !!int abc",
    "a number of 5,000 octal digits": "a: !!int 0o" + "7" * 5000,
    "a number of 5,000 old octal digits": "a: !!int 0" + "7" * 5000,
    "a number of 5,000 hexadecimal digits": "a: !!int 0x" + "f" * 5000,
    "a number of 20,000 binary digits": "a: !!int -0b" + "1" * 20_000,
    "a number of 4,000 digits of base 60": "a: !!int " + ":".join(["59"] * 4000),
    "a date that is none": "a: !!timestamp 2001-99-99",
    "bytes": "a: !!binary zzz",
    "an object of Python": "a: !!python/object/apply:os.system [x]",
    "a key that is a number": "1: 2",
    "a key that is a list": "[1]: 2",
    "two documents": "a: 1\n---\nb: 2",
    "an alias of nothing": "a: *b",
    "not UTF-8": b"a: \xff\xfe",
    "a NUL": "a: \0",
    "a megabyte": "a: '" + "x" * (1 << 20) + "'",
    "a list at the top": "[1]",
}


def read_config(raw):
    """Read a configuration and ask for all of it; return None where it is refused."""
    try:
        config = RepositoryConfig.from_document(config_yaml.loads(raw))
        repr(config), repr(config.virtual_chunk_containers), config == config.merge(config)
        _ = config.inline_threshold, config.splitting_document, config.manifest, config.compression
        _ = config.storage, config.caching, config.compression_level
    except IcevirtError as error:
        refusal = error
    else:
        return config
    assert len(str(refusal)) < 2000
    assert refusal.do
    return None


@pytest.mark.parametrize("raw", BAD_YAML.values(), ids=BAD_YAML.keys())
def test_a_configuration_that_harms_its_readers_is_refused(raw):
    with pytest.raises(FormatError, match="configuration of this repository"):
        config_yaml.loads(raw if isinstance(raw, bytes) else raw.encode())


def test_numbers_are_decimal_as_in_yaml_1_2():
    """As readers in Rust take them; leading zeros make no octal number."""
    document = config_yaml.loads(b"a: !!int 017\nb: !!int -4\nc: !!int +0\nd: 17\ne: !Axis 2")
    assert document == {"a": 17, "b": -4, "c": 0, "d": 17, "e": {"Axis": 2}}


def test_aliases_of_a_sane_size_are_read():
    assert config_yaml.loads(b"a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.ci
def test_random_damage_of_a_configuration_is_refused_or_read():
    assert read_config(YAML) is not None
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    words = [raw if isinstance(raw, bytes) else raw.encode() for raw in BAD_YAML.values()]
    words += [b"&a ", b"*a", b"!s3 ", b"!!set ", b"- ", b"? ", b": ", b"{", b"]", b"\n ", b"~"]
    until = time.monotonic() + SECONDS
    tried = 0
    while time.monotonic() < until or tried < 20:
        raw = bytearray(YAML)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(raw))
            if rng.random() < 0.5:
                raw[at] = rng.randrange(256)
            else:
                raw[at : at + rng.randrange(4)] = rng.choice(words)[:400]
        started = time.monotonic()
        try:
            read_config(bytes(raw))
        except BaseException as error:
            error.add_note(f"seed {seed}, attempt {tried}, file {bytes(raw)!r}")
            raise
        assert time.monotonic() - started < 5, f"seed {seed}"
        tried += 1
