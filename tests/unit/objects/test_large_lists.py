"""Lists of gigabytes are read as streams, or refused before they fill the memory."""

import gzip
import io
import tracemalloc

import pytest

from icevirt.api.sources.inputs import Inputs, PackedRows
from icevirt.archive.sources import SourceFile
from icevirt.errors import InvalidInputError, StorageError
from icevirt.objects.source import OpenedSource
from icevirt.objects.source_lists import formats
from icevirt.objects.source_lists import formats as streams
from icevirt.objects.source_lists.formats import LONGEST_LINE, RemoteStream
from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository

GIGABYTES = 5 << 30
BOUND = 100 << 20


def sparse(path, size=GIGABYTES):
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def peak_of(act) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["l.txt", "l.csv", "l.jsonl", "l.json", "l.parquet", "list"])
def test_gigabytes_without_a_line_are_refused_early(tmp_path, name):
    path = sparse(tmp_path / name)

    def read():
        with pytest.raises(InvalidInputError) as caught:
            Inputs([f"@{path}"])
        assert caught.value.facts["list"] == str(path)
        assert caught.value.do

    assert peak_of(read) < BOUND


@pytest.mark.parametrize("name", ["l.txt.gz", "l.csv.gz"])
def test_a_small_file_that_unpacks_to_a_huge_line_is_refused_early(tmp_path, name):
    with gzip.open(tmp_path / name, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))

    def read():
        with pytest.raises(InvalidInputError, match="longer than 16 MiB"):
            list(formats.rows_of(str(tmp_path / name)))

    assert peak_of(read) < BOUND


def test_a_packed_document_is_bounded_after_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LARGEST_DOCUMENT", 1000)
    with gzip.open(tmp_path / "l.json.gz", "wb") as file:
        file.write(b" " * 1001)
    with pytest.raises(InvalidInputError, match=r"\.jsonl"):
        list(formats.rows_of(str(tmp_path / "l.json.gz")))


def test_lines_up_to_the_longest_are_read(tmp_path):
    (tmp_path / "l").write_bytes(b"a" * (LONGEST_LINE - 1) + b"\n" + b"b\n")
    assert [len(row.url) for row in formats.rows_of(str(tmp_path / "l"))] == [LONGEST_LINE - 1, 1]


def test_millions_of_rows_are_held_in_a_few_bytes_each():
    def rows():
        for n in range(20_000):
            url = f"s3://bucket/archive/2001/{n % 12:02d}/file_{n:08d}.nc"
            yield "l", SourceFile(url=url, size=n, etag=f'"{n:032x}"', last_modified=n)

    packed = PackedRows(rows())
    assert packed.nbytes < 40 * 20_000
    assert [row for piece in packed.pieces() for row in piece] == list(rows())


class Held(OpenedSource):
    """A file on a server that counts what is read at once."""

    local_path = None

    def __init__(self, body):
        self.body, self.most = body, 0
        self.file = SourceFile(url="s3://b/l", size=len(body), etag="", last_modified=0)

    def read(self, offset, length):
        self.most = max(self.most, length)
        return self.body[offset : offset + length]

    def check_unchanged(self):
        """Nothing changes."""

    def close(self):
        """Nothing is open."""


def test_lists_on_servers_are_read_in_ranges(monkeypatch):
    monkeypatch.setattr(streams, "_BUFFER", 1000)
    source = Held(b"".join(b"s3://b/%d.nc\n" % n for n in range(1000)))
    monkeypatch.setattr(formats, "open_source", lambda _: source)
    rows = list(formats.rows_of("s3://b/l"))
    assert [row.url for row in rows] == [f"s3://b/{n}.nc" for n in range(1000)]
    assert source.most <= 1000


def test_a_stream_seeks_as_files_do():
    body = bytes(range(256)) * 40
    ours, theirs = io.BufferedReader(RemoteStream(Held(body)), 8 << 20), io.BytesIO(body)
    for offset, whence in ((10, 0), (-100, 2), (5, 0), (20, 1), (0, 2), (3, 0)):
        assert ours.seek(offset, whence) == theirs.seek(offset, whence)
        assert ours.read(7) == theirs.read(7)
    assert ours.read() == theirs.read()


@pytest.mark.parametrize("kind", ["repo", "manifests", "snapshots", "transactions"])
def test_metadata_of_gigabytes_are_refused_before_they_are_read(tmp_path, kind):
    repo = Repository.create(tmp_path / "repo")
    session = repo.writable_session("main")
    session.add_group("/g", b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    tip = session.commit("x")
    name = {"repo": "repo", "manifests": f"manifests/{tip}"}.get(kind, f"{kind}/{tip}")
    (tmp_path / "repo" / name).parent.mkdir(exist_ok=True)
    sparse(tmp_path / "repo" / name)

    def read():
        with pytest.raises(StorageError, match="larger than any file of the format"):
            repo.storage.get(name)
        if kind == "repo":
            with pytest.raises(StorageError):
                Repository.open(tmp_path / "repo")
        elif kind != "manifests":
            assert not check(tmp_path / "repo").ok

    assert peak_of(read) < BOUND
