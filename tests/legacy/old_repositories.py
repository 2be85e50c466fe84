"""Repositories of the format generations before V1, and what their writers put into them.

Real ones are data of icechunk's own test suite. The others are made of real ones here, by the
description of a generation of which no repository is left, and are called synthetic.
"""

import io
import json
import tarfile
from pathlib import Path

import msgpack
import numpy as np
import zstandard

from icevirt.ids import base32, unbase32
from icevirt.storage.memory import MemoryStorage

FIXTURES = Path(__file__).parents[2] / "fixtures" / "legacy"
REAL = {"E1": "E1", "E3": "E3", "E4": "E4", "E5": "E5", "E5b": "E5", "E6": "E6"}
"""Generations of real repositories, by the name of the file."""

MAIN = ("set virtual chunk", "fill data", "empty structure", "Repository initialized")
MINE = ("some more structure", "delete a chunk", *MAIN)
_LEVELS = MINE[::-1]


def files(name):
    """Return the files of a packed repository, by path."""
    with tarfile.open(FIXTURES / f"{name}.tar.gz") as packed:
        members = [member for member in packed if member.isfile()]
        return {m.name.partition("/")[2]: packed.extractfile(m).read() for m in members}


def in_memory(found):
    storage = MemoryStorage()
    for path, body in found.items():
        storage.put(path, body)
    return storage


def on_disk(found, root):
    for path, body in found.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(body)
    return root


def expected(message):
    """Return the arrays of a snapshot; the virtual quarter of big_chunks is None."""
    level = _LEVELS.index(message)
    arrays = {}
    if level >= 1:
        big = np.full((10, 10), np.nan if level == 1 else 42.0, "f4")
        small = np.full(5, 8 if level == 1 else 84, "i1")
        small[4] = 8 if level >= 4 else small[4]
        arrays = {"group1/big_chunks": big, "group1/small_chunks": small}
    if level >= 5:
        arrays["group2/group3/group4/group5/inner"] = np.full((10, 10), np.nan, "f4")
    return arrays, level >= 3


def unpacked(raw):
    """Return the MessagePack value of a file."""
    if raw.startswith(b"ICE"):
        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw[39:])).read()
    return msgpack.unpackb(raw, strict_map_key=False, use_list=False)


# -- synthetic ones --------------------------------------------------------------------------------


def _ids(found, folder):
    return [path.partition("/")[2] for path in found if path.startswith(folder + "/")]


def as_e1a(found):
    """The reference names of the crate's first release: a colon, and 13 letters."""
    made = {}
    for path, body in found.items():
        made[_first_names(path) if path.startswith("refs/") else path] = body
    return made


def _first_names(path):
    folder, kind, file = path.split("/")
    if kind.startswith("branch."):
        number = (1 << 40) - 1 - _of_base32(file.removesuffix(".json"))
        file = base32(((1 << 64) - 1 - number).to_bytes(8)) + ".json"
    return f"{folder}/{kind.replace('.', ':', 1)}/{file}"


def _of_base32(text):
    return int.from_bytes(unbase32(text, 5))


def as_e2(found, url):
    """As E3, but locations are marked as absolute, without checksums; no configuration."""
    made = {path: body for path, body in found.items() if path != "config.yaml"}
    for path in [path for path in made if path.startswith("manifests/")]:
        version, flags, chunks = unpacked(made[path])
        chunks = {key: _absolute(payload, url) for key, payload in chunks.items()}
        made[path] = msgpack.packb((version, flags, chunks))
    return made


def _absolute(payload, url):
    if "Virtual" not in payload:
        return payload
    _, offset, length = payload["Virtual"][:3]
    return {"Virtual": ({"Absolute": url}, offset, length)}


def as_e3b(found):
    """As E3, but snapshots name the size of manifests, which are zstd frames."""
    made = dict(found)
    for path in found:
        if path.startswith("manifests/"):
            made[path] = zstandard.ZstdCompressor().compress(found[path])
    for path in found:
        if path.startswith("snapshots/"):
            value = list(unpacked(found[path]))
            value[2] = [(k, v, len(made[f"manifests/{k}"])) for k, v in value[2]]
            made[path] = msgpack.packb(value)
    return made


_SNAPSHOT = (
    "total_parents short_term_parents short_term_history metadata started_at properties nodes"
).split()
_ARRAY = (
    "shape data_type chunk_shape chunk_key_encoding fill_value codecs storage_transformers "
    "dimension_names"
).split()


def as_e0(found, url, *, as_document):
    """As the first specification says, by its letter or as the code of that time wrote it.

    Its letter: JSON, structs by name, ids of 16 numbers, references without a kind. The code:
    MessagePack, structs by position, ids as text.
    """
    made = {}
    for path, body in found.items():
        folder, _, rest = path.partition("/")
        suffix = "" if as_document else ".msgpack"
        match folder:
            case "refs":
                ref = {"snapshot": _wide(json.loads(body)["snapshot"], as_document)}
                if as_document:
                    ref |= {"timestamp": "2024-09-19T00:00:00Z", "properties": {}}
                made[_e0_ref(path, as_document)] = json.dumps(ref).encode()
            case "snapshots":
                made[f"s/{_name(rest)}{suffix}"] = _e0_snapshot(body, as_document)
            case "manifests":
                made[f"m/{_name(rest)}{suffix}"] = _e0_manifest(body, url, as_document)
            case "chunks":
                made[f"c/{_name(rest)}"] = body
    return made


def _e0_ref(path, as_document):
    if not as_document:
        return _first_names(path).replace("refs/", "r/", 1)
    _, kind, file = path.split("/")
    name = kind.partition(".")[2]
    return f"r/{name}/{file}" if kind.startswith("branch") else f"r/{name}.json"


def _name(text):
    return base32(unbase32(text, 12) + b"wide")


def _wide(text, as_document):
    return list(unbase32(text, 12) + b"wide") if as_document else _name(text)


def _struct(names, values, as_document):
    return dict(zip(names, values, strict=True)) if as_document else tuple(values)


def _packed(value, as_document):
    return json.dumps(value).encode() if as_document else msgpack.packb(value)


def _e0_snapshot(body, as_document):
    *_, total, here, history, meta, started, properties, nodes = unpacked(body)

    def struct(names, *values):
        return _struct(names.split(), values, as_document)

    def meta_of(each):
        return struct("id written_at message", _wide(each[0], as_document), *each[1:])

    def array_of(metadata, manifests):
        *first, fill, codecs, transformers, names = metadata
        if as_document:  # JSON has no NaN, so it stands for another number here
            fill = {"Float32": 8.0} if "Float32" in fill else fill
        codecs = [struct("name configuration", *codec) for codec in codecs]
        refs = [
            struct("object_id flags extents", _wide(m, as_document), (), e) for m, e in manifests
        ]
        values = (*first, fill, codecs, transformers, names)
        return {"Array": (_struct(_ARRAY, values, as_document), refs)}

    made = {}
    for path, (number, _, attributes, data) in nodes.items():
        what = data if data == "Group" else array_of(*data["Array"])
        made[path] = struct("id path user_attributes node_data", number, path, attributes, what)
    values = (total, here, [*map(meta_of, history)], meta_of(meta), started, properties, made)
    return _packed(_struct(_SNAPSHOT, values, as_document), as_document)


def _e0_manifest(body, url, as_document):
    _, _, chunks = unpacked(body)
    made = {}
    for (node, index), payload in chunks.items():
        name = f"{node}/{'/'.join(map(str, index))}" if as_document else (node, index)
        made[name] = _e0_payload(payload, url, as_document)
    return _packed({"chunks": made} if as_document else (made,), as_document)


def _e0_payload(payload, url, as_document):
    ((kind, value),) = payload.items()
    match kind:
        case "Virtual":
            value = _struct(("location", "offset", "length"), (url, *value[1:]), as_document)
        case "Ref":
            values = (_wide(value[0], as_document), *value[1:])
            value = _struct(("id", "offset", "length"), values, as_document)
        case "Inline" if as_document:
            value = list(value)
    return {kind: value}


def synthetic(url):
    """Return the files of each synthetic repository, with its generation; ``url`` is virtual."""
    e1, e3 = files("E1"), files("E3")
    return {
        "synthetic E1a": ("E1", as_e1a(e1)),
        "synthetic E2": ("E2", as_e2(e3, url)),
        "synthetic E3b": ("E3", as_e3b(e3)),
        "synthetic E0 by the code": ("E0", as_e0(e1, url, as_document=False)),
        "synthetic E0 by the letter": ("E0", as_e0(e1, url, as_document=True)),
    }


SYNTHETIC = (*synthetic("x"),)
