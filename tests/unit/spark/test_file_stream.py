"""Offsets tell which shares of a listing changed; names of Spark become paths that Python opens."""

import copy
import os
from datetime import datetime
from types import SimpleNamespace

import pytest

from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import local_path
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.spark.file_stream import (
    SHARES,
    FileNames,
    FileNamesReader,
    Listing,
    differing,
    list_files,
    share_of,
)
from icevirt.spark.foreach_batch import _LISTED, exact_url, files_of, foreach_batch, source_of

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable
except ImportError:
    ReadAllAvailable = None

FILES = [SourceFile(url=f"s3://b/{at}.nc", size=at, etag=str(at)) for at in range(2000)]
NOTHING = Listing().offset


def offset(files):
    return Listing(files).offset


def test_a_new_file_changes_its_share_alone_and_order_none():
    old, new = FILES[:-1], FILES[::-1]
    assert offset(old) == offset(old[::-1])
    assert differing(offset(old), offset(new)) == {share_of(FILES[-1].url)}
    assert differing(NOTHING, offset([])) == frozenset()
    assert differing(NOTHING, offset(FILES)) == frozenset(range(SHARES))


@pytest.mark.parametrize(
    "output", [{"size": 1}, {"etag": "x"}, {"last_modified": 1}, {"url": "s3://b/x"}]
)
def test_whatever_identifies_a_file_changes_the_offset(output):
    file = {"url": "s3://b/k.nc", "size": 2, "etag": "a", "last_modified": 5}
    one, other = SourceFile(**file), SourceFile(**(file | output))
    assert differing(offset([one]), offset([other]))


@pytest.mark.parametrize("odd", [{}, {"shares": "0"}, {"time": "5"}])
def test_an_offset_of_another_source_is_refused(odd):
    with pytest.raises(InvalidInputError, match="new checkpoint"):
        differing(odd, NOTHING)


def names(rows):
    return [os.path.basename(row[0]) for row in rows]


def test_a_query_that_ends_repeats_its_last_batch_and_names_what_came_since(tmp_path):
    """After a kill, by one call: files that come later still are for the next one."""
    (tmp_path / "a.nc").write_bytes(b"a")
    killed = FileNamesReader({"path": str(tmp_path)})
    start = killed.initialOffset()
    rows, journaled = killed.read(start)
    assert names(rows) == ["a.nc"]
    (tmp_path / "b.nc").write_bytes(b"b")
    source = FileNames({"path": str(tmp_path)})
    reader = source.streamReader(None)
    reader.simple_reader.prepareForTriggerAvailableNow()
    (tmp_path / "c.nc").write_bytes(b"c")
    again = names(reader.getCache(start, journaled))
    assert "a.nc" in again
    new, end = reader.simple_reader.read(journaled)
    new = names(new)
    assert "b.nc" in new
    assert "c.nc" not in again + new
    assert reader.simple_reader.read(end)[1] == end
    asked = (end, ReadAllAvailable()) if ReadAllAvailable else ()  # Spark 4.1 and before say less
    noted = [(reader.latestOffset(*asked) == end, len(reader.cache)) for _ in range(2)]
    assert noted == [(True, 0 if asked else 1)] * 2  # a query that waits notes no look


def test_a_query_that_goes_on_names_what_its_last_batch_did_not_have(tmp_path):
    """Not what it named before of the same share; a file that was written again counts as new."""
    for number in range(600):
        (tmp_path / f"{number}.nc").write_bytes(b"a")
    reader = FileNamesReader({"path": str(tmp_path)})
    _, end = reader.read(reader.initialOffset())
    (tmp_path / "600.nc").write_bytes(b"a")
    (tmp_path / "7.nc").write_bytes(b"ab")
    rows, last = reader.read(end)
    copied = copy.copy(rows)
    assert names(rows) == names(copied) == ["7.nc", "600.nc"]
    os.remove(tmp_path / "9.nc")
    rows, after = reader.read(last)
    assert (names(rows), after == last) == ([], False)
    assert len(names(reader.read(end)[0])) > 2  # of all shares that changed


def test_a_prefix_without_files_has_none_yet(tmp_path):
    with pytest.raises(NotFoundError):
        list_files(str(tmp_path / "later"), "")
    assert list_files(str(tmp_path), "") == ()
    assert list_files(str(tmp_path / "*.nc"), "") == ()


PATHS = {
    "file:/a/b c%20.nc": "/a/b c%20.nc",  # as Hadoop writes paths: not encoded
    "file:///a/b%20c.nc": "/a/b c.nc",
    "/a/b.nc": "/a/b.nc",
    "dbfs:/mnt/a.nc": "dbfs:/mnt/a.nc",  # as `icevirt.connect.urls` translates it
    "s3a://b/k.nc": "s3a://b/k.nc",
    "abfss://c@a.dfs.core.windows.net/k.nc": "abfss://c@a.dfs.core.windows.net/k.nc",
}


@pytest.mark.parametrize(("named", "path"), PATHS.items(), ids=PATHS)
def test_a_path_of_spark_is_one_that_python_programs_open(named, path):
    assert source_of(named) == path


# -- rows are data of others: each names one file, and nothing in it stands for others -------------

NO_FILES = {
    "stdin": "-",
    "a list": "@/tmp/list.txt",
    "relative": "a.nc",
    "a function": "os:system",
    "a folder": "{folder}",
    "a folder with a slash": "file:///{folder}/",
    "a prefix": "s3://bucket/archive/",
    "the folder above": "{folder}/..",
}


@pytest.mark.parametrize("row", NO_FILES.values(), ids=NO_FILES.keys())
def test_a_row_that_is_not_one_file_is_refused(row, tmp_path):
    with pytest.raises(InvalidInputError):
        exact_url(source_of(row.format(folder=tmp_path)))


@pytest.mark.parametrize("name", ["a*.nc", "a[1].nc", "a?.nc", "@a.nc", "-", "a%20b.nc", "é b.nc"])
def test_a_name_means_itself(name, tmp_path):
    for each in ("a1.nc", "ab.nc", "a b.nc", "e b.nc"):
        (tmp_path / each).write_bytes(b"x")
    with pytest.raises(NotFoundError):
        list_files(exact_url(f"{tmp_path}/{name}"), "")
    (tmp_path / name).write_bytes(b"y")
    (found,) = list_files(exact_url(f"{tmp_path}/../{tmp_path.name}/{name}"), "")
    assert local_path(found.url) == str(tmp_path / name)
    assert exact_url("s3://b/a*[1]?.nc") == "s3://b/a%2A%5B1]%3F.nc"
    assert exact_url("https://h/a.nc?x=1") == "https://h/a.nc?x=1"  # refused when it is looked at


class Batch:
    """Rows of a stream, without Spark."""

    dtypes = (("path", "string"),)
    sparkSession = SimpleNamespace()

    def __init__(self, *rows):
        self._rows = [(row,) for row in rows]

    def select(self, _name):
        return self

    def distinct(self):
        return self

    def collect(self):
        return self._rows


def test_rows_of_icevirt_files_say_what_was_listed_and_others_are_names():
    """To whole seconds, as a file says when it is opened. Of local files only the name counts."""
    moment = datetime(2024, 10, 27, 2, 30, 0, 999, fold=1)  # noqa: DTZ001  # as Spark has it
    listed = Batch()
    listed.dtypes = tuple(_LISTED.items())
    listed._rows = [("s3://b/k*.nc", 5, '"e"', moment), ("s3://b/a.nc", 6, "", moment)]
    seconds = int(moment.timestamp())
    file = SourceFile(url="s3://b/k*.nc", size=5, etag='"e"', last_modified=seconds * 10**9)
    assert files_of(listed) == {"s3://b/a.nc": None, "s3://b/k%2A.nc": file}
    listed._rows = [("/a.nc", 5, "", moment), ("file:/b.nc", 5, '"e"', moment)]
    assert [*files_of(listed).values()] == [None, None]
    assert files_of(Batch("s3://b/k.nc")) == {"s3://b/k.nc": None}


def test_a_first_batch_without_rows_ends_no_query(tmp_path):
    appending = foreach_batch(tmp_path / "repo", concat_dim="time", executor="in-process")
    appending(Batch(), 0)
    appending(Batch(None, ""), 1)
    assert not (tmp_path / "repo").exists()
    with pytest.raises(InvalidInputError, match="does not name one file"):
        appending(Batch("-"), 2)
