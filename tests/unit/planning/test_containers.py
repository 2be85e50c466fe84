"""A build authorises as little of the disk as both clients can do with, and never all of it."""

import pytest

from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.model.strings import Strings
from icevirt.planning.containers import containers_for, merge_container

CASES = {
    "one directory": (["/data/a/1.nc", "/data/a/2.nc"], [("/data/a/", "/data/a/")]),
    "one below the other": (["/data/1.nc", "/data/a/2.nc"], [("/data/", "/data/")]),
    "names that begin alike": (["/data/ab/1.nc", "/data/a/2.nc"], [("/data/", "/data/")]),
    "two disks": (
        ["/mnt/a/1.nc", "/data/b/2.nc", "/mnt/c/3.nc"],
        [("/data/b/", "/data/b/"), ("/mnt/", "/mnt/")],
    ),
    "a file name that is encoded": (["/data/a/%231.nc"], [("/data/a/", "/data/a/")]),
    "a directory that is encoded": (["/data/a/my%20own/x/1.nc"], [("/data/a/", "/data/a/")]),
    "an encoded name in the middle of a name": (["/data/a%25b/1.nc"], [("/data/", "/data/")]),
    "a top directory that is encoded": (
        ["/d%C3%A4ta/x/1.nc", "/d%C3%A4ta/x/2.nc"],
        [("/d%C3%A4ta/x/", "/däta/x/")],
    ),
    "two top directories, one encoded": (
        ["/my%20own/1.nc", "/data/a%20b/1.nc"],
        [("/data/", "/data/"), ("/my%20own/", "/my own/")],
    ),
}


@pytest.mark.parametrize(("paths", "expected"), CASES.values(), ids=CASES.keys())
def test_containers_cover_the_files(paths, expected):
    """The prefix is a URL, the store's path is decoded."""
    made = containers_for(Strings.of("file://" + path for path in paths))
    assert [(each.url_prefix, each.store.options) for each in made] == [
        ("file://" + prefix, path) for prefix, path in expected
    ]


@pytest.mark.parametrize("others", [[], ["file:///data/2.nc"]], ids=["alone", "beside others"])
def test_a_file_in_the_root_directory_is_refused(others):
    """A reader would have to authorise the whole disk."""
    with pytest.raises(InvalidInputError, match=r"root directory.*file:///1\.nc") as caught:
        containers_for(Strings.of([*others, "file:///1.nc"]))
    assert caught.value.do


def test_files_on_servers_have_a_container_for_each_server():
    urls = ["s3://b/x/1/a.nc", "s3://b/x/2/a.nc", "https://h:1/d/a.nc", "file:///d/e/a.nc"]
    found = containers_for(Strings.of(urls))
    assert {one.url_prefix: one.store.kind for one in found} == {
        "s3://b/x/": "s3",
        "https://h:1/d/": "http",
        "file:///d/e/": "local_file_system",
    }


def test_a_file_at_the_top_of_a_bucket_makes_the_bucket_the_container():
    (found,) = containers_for(Strings.of(["gs://b/a.nc", "gs://b/%20x/a.nc"]))
    assert (found.url_prefix, found.store.kind) == ("gs://b/", "gcs")


def test_a_source_that_no_container_can_hold_is_refused():
    with pytest.raises(InvalidInputError, match="no container"):
        containers_for(Strings.of(["ftp://host/d/a.nc"]))


MINIO = ObjectStoreConfig("s3_compatible", {"endpoint_url": "https://minio.example"})
PAID = ObjectStoreConfig("s3", {"requester_pays": True})
URLS = Strings.of([f"s3://b/x/{year}/a.nc" for year in (1, 2)] + ["s3://b/y/a.nc", "s3://c/a.nc"])


def test_a_container_says_how_the_objects_of_its_prefix_are_reached():
    found = containers_for(URLS, stores=[("s3://b/x/", MINIO), ("s3://b/", PAID)])
    assert {one.url_prefix: one.store for one in found} == {
        "s3://b/x/": MINIO,
        "s3://b/y/": PAID,
        "s3://c/": ObjectStoreConfig("s3", {}),
    }


def test_named_containers_have_the_prefixes_that_were_named():
    named = {"s3://b/": "all", "s3://b/x/2/": "second"}
    found = containers_for(URLS, named=named, stores=[("s3://b/x/2/", MINIO)])
    assert {one.url_prefix: (one.name, one.store.kind) for one in found} == {
        "s3://b/": ("all", "s3"),
        "s3://b/x/2/": ("second", "s3_compatible"),
        "s3://c/": (None, "s3"),
    }


CONTRADICTIONS = {
    "nothing below": ({"s3://b/z/": "n"}, (), "no file lies below"),
    "reached in two ways": ({"s3://b/": "n"}, [("s3://b/x/", MINIO)], "different access"),
}


@pytest.mark.parametrize(
    ("named", "stores", "output"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys()
)
def test_names_that_fit_no_files_are_refused(named, stores, output):
    with pytest.raises(InvalidInputError, match=output) as caught:
        containers_for(URLS, named=named, stores=stores)
    assert caught.value.facts["name"] == "n"


def container(prefix="s3://b/", store=MINIO, name="archive"):
    return VirtualChunkContainer(prefix, store, name)


PLAIN = ObjectStoreConfig("s3", {"region": None, "anonymous": False})
KEPT = {
    "nothing was there": (None, container(), container()),
    "neither name nor server is said": (container(), container(store=PLAIN, name=None), container()),
    "the name is new": (container(name=None), container(store=PLAIN), container()),
    "the server is new": (container(store=PLAIN), container(), container()),
    "other options": (
        container(store=PAID),
        container(store=ObjectStoreConfig("s3", {"region": "eu"})),
        container(store=ObjectStoreConfig("s3", {"region": "eu"})),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("here", "wanted", "expected"), KEPT.values(), ids=KEPT.keys())
def test_what_a_repository_says_of_a_container_stays(here, wanted, expected):
    known = {} if here is None else {here.url_prefix: here}
    assert merge_container(known | {"s3://z/": container("s3://z/", name="z")}, wanted) == expected


OTHER = ObjectStoreConfig("s3_compatible", {"endpoint_url": "https://other.example"})
REFUSED = {
    "the name of another prefix": (container("s3://z/"), container(), "belongs to another prefix"),
    "another name": (container(name="old"), container(), "has another name"),
    "another server": (container(), container(store=OTHER), "another server"),
    "Amazon instead": (container(), container(store=PAID), "another server"),
}


@pytest.mark.parametrize(("here", "wanted", "output"), REFUSED.values(), ids=REFUSED.keys())
def test_containers_that_would_lead_references_astray_are_refused(here, wanted, output):
    with pytest.raises(InvalidInputError, match=output):
        merge_container({here.url_prefix: here}, wanted)
