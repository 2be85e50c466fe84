"""Other readers see what h5py sees in the file of a build, or docs/readers.md says why not.

A build references the file over HTTP and on disk, and each reader opens its repository or what was exported of it. Some
readers are in every environment. JavaScript runs where `just readers` has installed its packages.
``ICEVIRT_WRITE_PAGE=1`` needs it, runs those of ``outside.py`` in environments of their own, and writes the tables.
"""

import asyncio
import base64
import datetime as dt
import json
import math
import os
import re
import urllib.request
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from kerchunk.utils import refs_as_store

import icevirt
from icevirt.planning.reader_support import readers_of_document
from readers import javascript, outside
from readers.encodings import ENCODINGS, NATIVE, POLICY, written
from servers.faults import without
from servers.fixtures import HttpServer

pytestmark = [pytest.mark.ci]

PAGE = Path(__file__).parents[2] / "docs" / "readers.md"
TABLES = ("of repositories", "of exports")
EQUAL = "equal"
ALL = {**ENCODINGS, **NATIVE}


@dataclass(frozen=True)
class Built:
    """Values by array, the repository of a file behind a server and that of a file on disk, and their prefixes."""

    truth: dict[str, Any]
    served: Path
    prefix: str
    local: Path
    folder: Path

    @property
    def near(self):
        """The prefix of the file on disk."""
        return f"{self.folder.as_uri()}/"


@pytest.fixture
def built(tmp_path, http_server):
    truth = written(str(tmp_path / "encodings.h5"))
    http_server.files.put("data/encodings.h5", (tmp_path / "encodings.h5").read_bytes())
    rule = http_server.rules.add(without("etag"), target="^/data/", times=math.inf)
    source = f"{http_server.url}/data/encodings.h5"
    options = {"variable_policy": POLICY}
    report = icevirt.build(source, tmp_path / "repo", scan_options=options)
    rule.times = 0
    icevirt.build(tmp_path / "encodings.h5", tmp_path / "local", scan_options=options)
    for path in (tmp_path / "repo", tmp_path / "local"):
        session = icevirt.Repository.open(path).writable_session("main")
        for name, encoding in NATIVE.items():
            encoding.make(zarr.open_group(session.store), name)
            truth[name] = zarr.open_array(session.store, path=name)[...]
        session.commit("native arrays")
    for path in (tmp_path / "repo").rglob("*"):
        if path.is_file():
            http_server.files.put(f"repo/{path.relative_to(tmp_path / 'repo')}", path.read_bytes())
    (prefix,) = report.containers
    return Built(truth, tmp_path / "repo", prefix, tmp_path / "local", tmp_path)


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


def of_dask(groups, name):
    """Return values as xarray computes them from blocks of dask."""
    group, _, last = name.rpartition("/")
    return groups[f"/{group}"][last].compute().values


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


def of_references(session, name, folder):
    """Return values as fsspec and zarr read them through a file of references."""
    path = f"{folder}/{name.replace('/', '.')}.json"
    icevirt.to_kerchunk(session, f"/{name}", path)
    last = name.rpartition("/")[2]
    return zarr.open_array(refs_as_store(path), path=last, mode="r", zarr_format=2)[...]


def of_answer(answer):
    """Return values that a reader in an environment of its own gave."""
    if isinstance(answer, str):
        raise ValueError(answer)  # noqa: TRY004 - what the reader said
    return answer


def verdict(read, *arguments, expected):
    """Return what the table says of what a reader gave."""
    try:
        found = np.asarray(read(*arguments))
    except Exception as error:  # noqa: BLE001 - whatever a reader raises is its answer
        return f"no: {shortened(str(error))}"
    remark = "" if found.shape == expected.shape else f", as {'x'.join(map(str, found.shape))}"
    if found.size != expected.size:
        return f"WRONG: shape {found.shape}"
    found = found.reshape(expected.shape)
    if expected.dtype.kind in "MS" and found.tolist() == expected.astype("U").tolist():
        return f"{EQUAL}, as text{remark}"
    if found.dtype.kind in "OTU" or expected.dtype.kind in "OTU":
        return EQUAL + remark if found.tolist() == expected.tolist() else "WRONG: values"
    native = expected.dtype.newbyteorder("=")
    if found.dtype.newbyteorder("=") != native:
        is_same = np.array_equal(found, expected, equal_nan=expected.dtype.kind in "fc")
        return f"{EQUAL if is_same else 'WRONG'}, as {found.dtype}{remark}"
    is_same = found.astype(native).tobytes() == expected.astype(native).tobytes()
    return EQUAL + remark if is_same else "WRONG: values"


def shortened(error):
    """Return what an error says, without the names of its classes, of drivers and of folders."""
    output = error.strip().partition(" (")[0].splitlines()[0]
    output = re.sub(r"^(?:\w+(?:Error|Exception): |[A-Z_]+: )+", "", output)
    output = re.sub(r"Error opening \"zarr3\" driver: Error reading [^:]*: ", "", output)
    output = re.sub(r"Error parsing (object member \"\w+\"|value at position \d+): ", "", output)
    output = re.sub(r'\{ "name": "([\w.]+)".*', r"\1", output)
    output = re.sub(r" \[tensorstore_spec.*|: bool, int2.*", "", output)
    output = re.sub(r"(file://)?/\S*/", "", output)
    return re.sub(r"[|\s<]+", " ", output)[:80].strip()


def stored(session, name):
    """Return where the chunks are, how they are encoded, and the metadata."""
    indices = session.chunk_coordinates(f"/{name}").tolist()
    kinds = {icevirt.ChunkType(session.chunk_type(f"/{name}", index)).name for index in indices}
    metadata = zarr.open_array(session.store, path=name, mode="r").metadata.to_dict()
    codecs = []
    for codec in metadata["codecs"]:
        is_big = (codec.get("configuration") or {}).get("endian") == "big"
        codecs.append(codec["name"].removeprefix("numcodecs.") + " (big)" * is_big)
    return f"{', '.join(kinds) or 'no chunk'}: {', '.join(codecs)}", metadata


def by_documents(metadata):
    """Say whether GDAL's documents of its driver promise to read an array."""
    lacks = readers_of_document(metadata).gdal_lacks
    if lacks == ("strings of more than 256 bytes",):
        return "yes, cut after 256 bytes"
    return f"no: {', '.join(lacks).replace('numcodecs.', '')}" if lacks else "yes"


# -- the tables ------------------------------------------------------------------------------------


def inside(built: Built, http_server: HttpServer):
    """Return the columns of readers that every environment has: table, title, verdicts by array.

    None stands for a verdict that only a run of all readers has.
    """
    served, near = ours(built.served, built.prefix), ours(built.local, built.near)
    theirs = official(built.served, built.prefix)
    scripted = None
    if javascript.installed():
        scripted = javascript.read(f"{http_server.url}/repo", built.prefix, list(ALL))
    repositories, exports = TABLES
    groups = xr.open_groups(
        built.local,
        engine="icevirt",
        authorize_virtual_chunk_access=[built.near],
        mask_and_scale=False,  # of decode_cf=False it knows nothing (findings)
        chunks={},
    )

    def column(table, title, read):
        return table, title, {n: verdict(read, n, expected=built.truth[n]) for n in ALL}

    yield column(repositories, "icevirt", lambda n: of_zarr(served.store, n))
    yield column(
        repositories,
        f"icevirt, xarray {xr.__version__}, dask {version('dask')}",
        lambda n: of_dask(groups, n),
    )
    yield column(repositories, f"icechunk {icechunk.__version__}", lambda n: of_zarr(theirs, n))
    node = f"JavaScript, Node {javascript.node_version()}" if scripted else "JavaScript, Node"
    if scripted:
        yield column(repositories, node, lambda n: of_javascript(scripted[n]))
    promised = {n: by_documents(stored(served, n)[1]) for n in ALL}
    yield repositories, "GDAL 3.14, by its documents", promised
    yield column(
        exports,
        f"kerchunk {version('kerchunk')}, zarr {zarr.__version__}: references",
        lambda n: of_references(near, n, built.folder),
    )


async def copy(store, folder):
    """Copy all keys of a store."""
    async for key in store.list():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            (await store.get(key, zarr.core.buffer.default_buffer_prototype())).to_bytes()
        )


def of_all_others(built: Built):
    """Return the columns of readers that have an environment of their own, and of cubed."""
    import cubed

    spec, store = (
        cubed.Spec(str(built.folder), allowed_mem="200MB"),
        ours(built.local, built.near).store,
    )
    yield (
        TABLES[0],
        f"icevirt, cubed {version('cubed')}",
        {
            n: verdict(
                lambda n: cubed.from_zarr(store, path=n, spec=spec).compute(), n, expected=truth
            )
            for n, truth in built.truth.items()
        },
    )
    asyncio.run(copy(store, built.folder / "zarr"))
    job = {
        "repo": str(built.local),
        "prefix": built.near,
        "zarr": str(built.folder / "zarr"),
        "refs": str(built.folder),
        "names": list(ALL),
    }
    for reader in outside.OUTSIDE:
        found, title = outside.read(reader, json.dumps(job), built.folder)
        values = {n: verdict(of_answer, found[n], expected=built.truth[n]) for n in ALL}
        if title.endswith("references"):
            lacks = {n for n in ALL if not (built.folder / f"{n.replace('/', '.')}.json").exists()}
            values |= dict.fromkeys(lacks, "no references")
        yield TABLES[reader.of_export], title, values


def committed(table):
    """Return the columns of a table of the page: verdicts by title of the reader and of the encoding."""
    begin, end = (f"<!-- {edge} {table} -->\n" for edge in ("table", "end of table"))
    lines = PAGE.read_text().partition(begin)[2].partition(end)[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {title: {row[0]: row[at] for row in rows} for at, title in enumerate(head) if at}


def put(table, session, columns):
    """Write a table into the page. Readers that refuse everything in the same words are a line below."""
    lines = [["array of the file", "stored as", *columns], ["---"] * (len(columns) + 2)]
    for name, encoding in ALL.items():
        cells = [each[name] for each in columns.values()]
        lines.append([encoding.title, stored(session, name)[0], *cells])
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    begin, end = (f"<!-- {edge} {table} -->\n" for edge in ("table", "end of table"))
    before, _, rest = PAGE.read_text().partition(begin)
    page = before + begin + text + end + rest.partition(end)[2]
    today = dt.date.today().isoformat()  # noqa: DTZ011 - of this machine
    PAGE.write_text(re.sub(r"Run on \d{4}-\d\d-\d\d", f"Run on {today}", page))


def test_the_page_says_what_readers_read(built, http_server):
    columns = list(inside(built, http_server))
    if os.environ.get("ICEVIRT_WRITE_PAGE") == "1":
        assert javascript.installed()
        columns += of_all_others(built)
        for table in TABLES:
            columns.sort(key=lambda column: "documents" in column[1])
            chosen = {title: values for each, title, values in columns if each == table}
            put(table, ours(built.served, built.prefix), chosen)
    titles = {name: encoding.title for name, encoding in ALL.items()}
    for table, title, values in columns:
        assert {titles[n]: each for n, each in values.items()} == committed(table)[title]
        if title.startswith(("icevirt", "icechunk")):
            assert set(values.values()) == {EQUAL}, title


def test_the_official_client_reads_no_reference_with_an_etag_over_http(
    built, tmp_path, http_server
):
    """It sends the etag without quotes, which no server of the web takes; a list says times only."""
    tagged = tmp_path / "tagged"
    source = f"{http_server.url}/data/encodings.h5"
    icevirt.build(source, tagged, scan_options={"variables": ["contiguous"]})
    np.testing.assert_array_equal(
        of_zarr(ours(tagged, built.prefix).store, "contiguous"), built.truth["contiguous"]
    )
    with pytest.raises(icechunk.IcechunkError, match="checksum"):
        of_zarr(official(tagged, built.prefix), "contiguous")
    with urllib.request.urlopen(source) as answer:
        facts = [source, answer.headers["content-length"], answer.headers["last-modified"]]
    names, dated = tmp_path / "files.csv", tmp_path / "dated"
    names.write_text('url,size,last_modified\n{},{},"{}"\n'.format(*facts))
    icevirt.build(f"@{names}", dated, scan_options={"variables": ["contiguous"]})
    np.testing.assert_array_equal(
        of_zarr(official(dated, built.prefix), "contiguous"), built.truth["contiguous"]
    )


def blocks(language):
    """Return the code of a language below the tables of the page."""
    below = PAGE.read_text().rpartition("<!-- end of table")[2]
    return re.findall(rf"^```{language}\n(.*?)^```", below, re.MULTILINE | re.DOTALL)


def test_the_program_in_r_is_the_one_that_was_run():
    (program,) = blocks("r")
    assert outside.IN_R in program


@pytest.mark.skipif(not javascript.installed(), reason="just readers")
def test_the_program_of_the_page_runs(built, http_server):
    (program,) = blocks("javascript")
    printed = javascript.run(program, f"{http_server.url}/repo", built.prefix, "/large")
    assert printed == "[ 2 ] BigInt64Array(2) [ 4611686018427387905n, -5n ]\n"
