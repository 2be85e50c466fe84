"""Paths and URLs as Spark's platforms write them: each is translated or refused, none is a name."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.api.recipe import dump_recipe, load_recipe
from icevirt.api.sources.reader_urls import prefix_url
from icevirt.connect.urls import PROVIDERS, Address, as_local_path, is_url, spell
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.model.config.containers import SCHEMES, ObjectStoreConfig, VirtualChunkContainer
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess
from icevirt.objects.source_lists.formats import rows_of
from icevirt.objects.source_lists.listing import list_sources
from icevirt.repo.authorization import authorize
from icevirt.repo.repository import Repository
from icevirt.scan.elsewhere import prefixes_of
from icevirt.storage.constructors import storage_of

AZURE = "c@acc.dfs.core.windows.net"
SPELLED = {
    "a path": ("/a/b", "/a/b"),
    "a relative path": ("a/b:c", "a/b:c"),
    "a file of WRF": ("wrfout_d01_2005-08-28_12:00:00", "wrfout_d01_2005-08-28_12:00:00"),
    "a file with a colon at its end": ("a:", "a:"),
    "Hadoop's local file": ("file:/a/b", "file:///a/b"),
    "in capitals": ("FILE:///a", "file:///a"),
    "a file URL": ("file:///a/b", "file:///a/b"),
    "a bucket": ("s3://b/k", "s3://b/k"),
    "Hadoop's bucket": ("s3a://b/k//x/*.nc", "s3://b/k//x/*.nc"),
    "an old one": ("S3N://B/K", "s3://B/K"),
    "Google": ("gs://b/k", "gs://b/k"),
    "Azure by Hadoop": (f"abfss://{AZURE}/k", f"abfs://{AZURE}/k"),
    "Azure without a path": (f"abfss://{AZURE}", f"abfs://{AZURE}"),
    "Azure before": ("wasbs://c@acc.blob.core.windows.net/k/*", f"abfs://{AZURE}/k/*"),
    "without encryption": ("wasb://c@acc.blob.core.windows.net/k", f"abfs://{AZURE}/k"),
    "Azure without an account": ("abfss://c/k", "az://c/k"),
    "as fsspec": ("abfs://c/k", "abfs://c/k"),
    "a volume": ("dbfs:/Volumes/c/s/v/x.nc", "/Volumes/c/s/v/x.nc"),
    "all of a volume": ("dbfs:/Volumes/c/", "/Volumes/c/"),
    "Databricks": ("dbfs:/mnt/a/*.nc", "/dbfs/mnt/a/*.nc"),
    "with three slashes": ("dbfs:///mnt/a", "/dbfs/mnt/a"),
    "its root": ("dbfs:/", "/dbfs"),
    "out of a volume": ("dbfs:/Volumes/../x", "/dbfs/x"),
    "above its root": ("dbfs:/../../etc/x", "/dbfs/etc/x"),
    "nearly a volume": ("dbfs:/Volumes2/x", "/dbfs/Volumes2/x"),
    "a foreign file system": ("ftp://host/a", "ftp://host/a"),
}


@pytest.mark.parametrize(("given", "expected"), SPELLED.values(), ids=SPELLED.keys())
def test_a_place_is_spelled_in_one_way(given, expected):
    found = spell(given, is_there=lambda _: True)
    assert found == expected
    assert spell(found, is_there=lambda _: True) == expected


REFUSED = {
    "hdfs:/a/b": "distcp",
    "viewfs:/a": "distcp",
    "s3:/bucket/key": "two slashes",
    "s3a:/bucket/key": "two slashes",
    "gs:/bucket/key": "two slashes",
    "https:/host/key": "two slashes",
    "C:/data": "/mnt/c",
    "run1:/data": f"{os.getcwd()}/run1:/data",
    "host:/export/data": "whole path",
    "dbfs://mnt/x": "one slash",
}


@pytest.mark.parametrize(("given", "remedy"), REFUSED.items(), ids=REFUSED.keys())
def test_what_has_no_meaning_here_is_refused_with_what_to_write(given, remedy):
    with pytest.raises(InvalidInputError) as raised:
        spell(given)
    assert remedy in str(raised.value)


@pytest.mark.parametrize("given", ["dbfs:/x", "dbfs:/Volumes/a/b/c"])
def test_storage_of_databricks_is_refused_where_it_is_not_mounted(given):
    with pytest.raises(InvalidInputError, match="is not on this machine"):
        spell(given, is_there=lambda _: False)


@pytest.mark.parametrize("given", ["hdfs://nn:8020/a", "hdfs:///a", "HDFS://nn/a"])
def test_hadoops_file_system_is_refused_with_two_ways_out(given):
    for asked in (Address.parse, storage_of, list_sources, open_source):
        with pytest.raises(InvalidInputError, match="distcp"):
            asked(given)


WORDS = st.text("abcXYZ012 .+-_%é*/:@", max_size=12)
NAMES = st.sampled_from(
    ["dbfs", "file", "hdfs", "s3", "s3a", "wasb", "abfss", "C", "run1", "x+y", "a.b-c", "my_fs"]
)


@given(NAMES, st.integers(1, 4), WORDS, st.booleans())
def test_no_text_that_begins_like_a_url_stays_a_relative_path(scheme, slashes, rest, mounted):
    """Whatever follows: it is an absolute path, a URL, or refused; and spelled once for all."""
    try:
        found = spell(f"{scheme}:{'/' * slashes}{rest}", is_there=lambda _: mounted)
    except InvalidInputError:
        return
    assert found.startswith("/") or is_url(found)
    assert spell(found, is_there=lambda _: mounted) == found


@given(st.text(min_size=1))
def test_what_does_not_begin_like_a_url_stays_as_it_is(text):
    if not spelled_like_a_url(text):
        assert spell(text) == text


def spelled_like_a_url(text):
    head, colon, rest = text.partition(":")
    return bool(colon) and rest.startswith("/") and head.isascii() and head[:1].isalpha()


@given(
    st.sampled_from(sorted(PROVIDERS)),
    st.from_regex(r"[a-z][a-z0-9-]{2,12}", fullmatch=True),
    st.text("abc/%20.nc", max_size=9),
)
def test_every_store_is_known_by_a_scheme_that_containers_have(scheme, bucket, key):
    try:
        address = Address.parse(f"{scheme}://{bucket}/{key}")
    except InvalidInputError:
        return  # a key that is not well encoded
    assert address.scheme in SCHEMES
    assert address.provider == PROVIDERS[scheme]


# -- everywhere ------------------------------------------------------------------------------------

PREFIXES = {
    "access": lambda text: [grant.prefix for grant in SourceAccess.of({text: "anonymous"}).grants],
    "authorize": lambda text: list(authorize([text])),
    "containers, publish_as": lambda text: [prefix_url(text)],
    "allow_references_to": lambda text: list(prefixes_of([text])),
}


@pytest.mark.parametrize("read", PREFIXES.values(), ids=PREFIXES.keys())
def test_prefixes_are_spelled_as_containers_are(read):
    assert read("s3a://bucket/a/") == ["s3://bucket/a/"]
    assert read(f"abfss://{AZURE}/a") == [f"abfs://{AZURE}/a/"]
    with pytest.raises(InvalidInputError):
        read("s3:/bucket/a")


def listed(text):
    return list(rows_of(text, None))


PLACES = {
    "a repository or catalog": storage_of,
    "a repository to open": Repository.open,
    "sources": list_sources,
    "a source": open_source,
    "a list": listed,
    "a path": as_local_path,
}


@pytest.mark.parametrize("name", ["run1:/data.txt", "hdfs:/data.txt", "s3:/data.txt"])
@pytest.mark.parametrize("ask", PLACES.values(), ids=PLACES.keys())
def test_no_way_in_takes_it_for_a_directory(ask, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for typed in (name, Path(name)) if ask is not listed else (name,):
        with pytest.raises(InvalidInputError):
            ask(typed)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("of", ["file:{}", "file://{}", "FILE:{}"])
def test_local_files_are_found_by_what_hadoop_calls_them(of, tmp_path):
    file = tmp_path / "a.nc"
    file.write_bytes(b"CDF\x01")
    assert [each.url for each in list_sources(of.format(file))] == [file.as_uri()]
    (tmp_path / "list.txt").write_text(of.format(file))
    (row,) = rows_of(of.format(tmp_path / "list.txt"), None)
    assert list_sources(row.url)[0].url == file.as_uri()
    assert storage_of(of.format(tmp_path)).url == tmp_path.as_uri()


def test_a_row_of_a_list_that_is_no_place_is_named(tmp_path):
    listing = tmp_path / "list.txt"
    listing.write_text(f"{tmp_path}/a.nc\nrun1:/a.nc\n")
    with pytest.raises(InvalidInputError) as raised:
        list(rows_of(str(listing), None))
    assert raised.value.facts["line"] == 2


def test_a_container_says_how_its_prefix_is_written():
    with pytest.raises(IcevirtError, match="Write s3:// in the place of s3a://"):
        VirtualChunkContainer("s3a://b/", ObjectStoreConfig("s3", {}))


def test_places_of_a_recipe_are_spelled_too(tmp_path):
    recipe = tmp_path / "r.toml"
    dump_recipe({"sources": ["s3a://b/a.nc", "file:/x.nc"], "repo": "s3a://b/r"}, recipe)
    found = load_recipe(recipe)
    assert (found["sources"], found["repo"]) == (["s3://b/a.nc", "file:///x.nc"], "s3://b/r")
    recipe.write_text(recipe.read_text().replace("s3://b/r", "run1:/r"))
    with pytest.raises(InvalidInputError):
        load_recipe(recipe)


def test_a_file_system_of_the_caller_may_have_any_scheme():
    assert list(authorize({"hdfs://nn/a/": object()})) == ["hdfs://nn/a/"]
