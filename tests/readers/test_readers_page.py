"""Other readers see what h5py sees in the file of a build, or docs/reading.md says why not.

A build references the file over HTTP, and each reader opens its repository. The official client is
in every environment. JavaScript runs where `just readers` has installed its packages; GDAL where
rasterio is, whose wheel brings it. ``ICEVIRT_WRITE_PAGE=1`` needs both, and writes the table.
"""

import base64
import importlib.util
import math
import os
import re
from importlib.metadata import version
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr
from kerchunk.utils import refs_as_store

import icevirt
from icevirt.planning.reader_support import readers_of_document
from readers import javascript
from readers.encodings import ENCODINGS, POLICY, written
from servers.faults import without

pytestmark = [
    pytest.mark.ci,
    pytest.mark.filterwarnings("ignore:Dataset has no geotransform"),
]

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
EQUAL = "equal"


@pytest.fixture
def built(tmp_path, http_server):
    """Return values by array, the repository, and the prefix of the file."""
    truth = written(str(tmp_path / "encodings.h5"))
    http_server.files.put("data/encodings.h5", (tmp_path / "encodings.h5").read_bytes())
    rule = http_server.rules.add(without("etag"), target="^/data/", times=math.inf)
    source = f"{http_server.url}/data/encodings.h5"
    options = {"variable_policy": POLICY}
    report = icevirt.build(source, tmp_path / "repo", scan_options=options)
    rule.times = 0
    icevirt.build(tmp_path / "encodings.h5", tmp_path / "local", scan_options=options)
    icevirt.build(source, tmp_path / "tagged", scan_options={"variables": ["contiguous"]})
    for path in (tmp_path / "repo").rglob("*"):
        if path.is_file():
            http_server.files.put(f"repo/{path.relative_to(tmp_path / 'repo')}", path.read_bytes())
    (prefix,) = report.containers
    return truth, tmp_path / "repo", prefix


def ours(path, prefix):
    repo = icevirt.Repository.open(path, authorize_virtual_chunk_access=[prefix])
    return repo.readonly_session("main")


def official(path, prefix):
    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(path)),
        authorize_virtual_chunk_access={prefix: icechunk.credentials.HttpAccess},
    )
    return repo.readonly_session("main").store


def of_zarr(store, name):
    return zarr.open_array(store, path=name, mode="r")[...]


def of_javascript(answer):
    """Return values of what the program printed."""
    if "error" in answer:
        raise ValueError(answer["error"])
    kind, shape = answer["dtype"], answer["shape"]
    if "bytes" in answer:
        return np.frombuffer(base64.b64decode(answer["bytes"]), kind).reshape(shape)
    if kind == "string":
        return np.array(answer["list"], object).reshape(shape)
    parse = {"bool": lambda text: text == "true", "float64": float}.get(kind, int)
    return np.array([parse(text) for text in answer["list"]], kind).reshape(shape)


def of_gdal(session, name, folder, expected):
    """Return values as GDAL reads them through a file of references; rasters have no other types."""
    import rasterio

    path = f"{folder}/{name}.json"
    icevirt.to_kerchunk(session, f"/{name}", path)
    with rasterio.open(f'ZARR:"/vsikerchunk_json_ref/{{{path}}}"') as opened:
        if not opened.count:
            raise ValueError("no raster")
        values = opened.read(1).reshape(expected.shape)
    return values.astype(bool) if expected.dtype == bool else values


def of_references(session, name, folder):
    """Return values as fsspec and zarr read them through a file of references."""
    path = f"{folder}/{name}.json"
    icevirt.to_kerchunk(session, f"/{name}", path)
    return zarr.open_array(refs_as_store(path), path=name, mode="r", zarr_format=2)[...]


def verdict(read, *arguments, expected):
    """Return what the table says of what a reader gave."""
    try:
        found = np.asarray(read(*arguments))
    except Exception as error:  # noqa: BLE001 - whatever a reader raises is its answer
        return f"no: {shortened(str(error))}"
    if found.shape != expected.shape:
        return f"differs: shape {found.shape}"
    if found.dtype.kind in "OTU" or expected.dtype.kind in "OTU":
        return EQUAL if found.tolist() == expected.tolist() else "differs: values"
    native = expected.dtype.newbyteorder("=")
    if found.dtype.newbyteorder("=") != native:
        return f"differs: {found.dtype}"
    is_same = found.astype(native).tobytes() == expected.astype(native).tobytes()
    return EQUAL if is_same else "differs: values"


def shortened(error):
    output = error.strip().partition(" (")[0].splitlines()[0]
    return re.sub(r"[|\s]+", " ", output)[:80]


def stored(session, name):
    """Return where the chunks are, how they are encoded, and the metadata."""
    indices = session.chunk_coordinates(f"/{name}").tolist()
    (kind,) = {icevirt.ChunkType(session.chunk_type(f"/{name}", index)).name for index in indices}
    metadata = zarr.open_array(session.store, path=name, mode="r").metadata.to_dict()
    codecs = []
    for codec in metadata["codecs"]:
        is_big = (codec.get("configuration") or {}).get("endian") == "big"
        codecs.append(codec["name"].removeprefix("numcodecs.") + " (big)" * is_big)
    return f"{kind}: {', '.join(codecs)}", metadata


def committed():
    """Return the lines of the table of the page, by the title of the encoding."""
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {row[0]: row for row in rows}


def rows_of(built, http_server, tmp_path, *, gdal):
    """Return the lines: title, what is stored, a verdict for each reader; None where it did not run."""
    truth, path, prefix = built
    session, theirs = ours(path, prefix), official(path, prefix)
    local = ours(tmp_path / "local", f"{tmp_path.as_uri()}/")
    scripted = None
    if javascript.installed():
        scripted = javascript.read(f"{http_server.url}/repo", prefix, list(ENCODINGS))
    for name, encoding in ENCODINGS.items():
        how, metadata = stored(session, name)
        readers = [
            (of_zarr, session.store, name),
            (of_zarr, theirs, name),
            (of_javascript, scripted[name]) if scripted else None,
            (of_gdal, session, name, tmp_path, truth[name]) if gdal else None,
            (of_references, local, name, tmp_path),
        ]
        found = [each and verdict(*each, expected=truth[name]) for each in readers]
        yield [encoding.title, how, *found[:3], by_documents(metadata), *found[3:]]


def by_documents(metadata):
    """Say whether GDAL's documents of its driver promise to read an array."""
    lacks = readers_of_document(metadata).gdal_lacks
    if lacks == ("strings of more than 256 bytes",):
        return "yes, cut after 256 bytes"
    return f"no: {', '.join(lacks).replace('numcodecs.', '')}" if lacks else "yes"


def test_the_page_says_what_readers_read(built, tmp_path, http_server):
    writes = os.environ.get("ICEVIRT_WRITE_PAGE") == "1"
    gdal = importlib.util.find_spec("rasterio") is not None
    rows = list(rows_of(built, http_server, tmp_path, gdal=gdal))
    assert {row[2] for row in rows} == {row[3] for row in rows} == {EQUAL}
    if writes:
        assert gdal
        assert javascript.installed()
        write(rows)
    known = committed()
    assert list(known) == [row[0] for row in rows]
    for row in rows:
        now = [old if new is None else new for old, new in zip(known[row[0]], row, strict=True)]
        assert now == known[row[0]]


def test_the_official_client_reads_no_reference_with_an_etag_over_http(built, tmp_path):
    """It sends the etag without quotes, which no server of the web takes; the page says so."""
    truth, _, prefix = built
    tagged = tmp_path / "tagged"
    np.testing.assert_array_equal(
        of_zarr(ours(tagged, prefix).store, "contiguous"), truth["contiguous"]
    )
    with pytest.raises(icechunk.IcechunkError, match="checksum"):
        of_zarr(official(tagged, prefix), "contiguous")


def blocks(language):
    """Return the code of a language below the table of the page."""
    below = PAGE.read_text().partition(END)[2]
    return re.findall(rf"^```{language}\n(.*?)^```", below, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not javascript.installed(), reason="just readers")
def test_the_program_of_the_page_runs(built, http_server):
    _, _, prefix = built
    (program,) = blocks("javascript")
    printed = javascript.run(program, f"{http_server.url}/repo", prefix, "/large")
    assert printed == "[ 2 ] BigInt64Array(2) [ 4611686018427387905n, -5n ]\n"


@pytest.mark.skipif(importlib.util.find_spec("rasterio") is None, reason="just readers")
def test_gdal_reads_as_the_page_says(built, monkeypatch, capsys):
    _, path, _ = built
    monkeypatch.chdir(path.parent)
    (program,) = blocks("python")
    exec(program, {})
    assert capsys.readouterr().out == "(6, 8)\n"


def write(rows):
    """Write the table into the page."""
    import rasterio

    head = [
        "array of the file",
        "stored as",
        "icevirt",
        f"icechunk {icechunk.__version__}",
        f"JavaScript, Node {javascript.node_version()}",
        "GDAL 3.14",
        f"GDAL {rasterio.__gdal_version__}, kerchunk",
        f"kerchunk {version('kerchunk')}, zarr {zarr.__version__}",
    ]
    lines = [head, ["---"] * len(head), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2])
