"""Which locations a session may read, and what it says about the others."""

import pytest

from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.objects.authorize import Authorizer

ARCHIVE = "file:///data/archive/"


def container(prefix=ARCHIVE, name=None, path="/data/archive"):
    return VirtualChunkContainer(prefix, local_filesystem_store(path), name)


def authorizer(*containers, authorized=(ARCHIVE,)):
    found = containers or (container(name="archive"),)
    return Authorizer({cont.url_prefix: cont for cont in found}, authorized)


def test_a_location_below_an_authorised_prefix_is_granted_with_its_decoded_path():
    grant = authorizer().grant(ARCHIVE + "2024/a%20b.nc")
    assert grant.path == "/data/archive/2024/a b.nc"
    assert grant.root == "/data/archive/"


def test_an_authorized_prefix_covers_the_containers_below_it():
    deep = container(ARCHIVE + "deep/")
    grant = authorizer(container(), deep).grant(ARCHIVE + "deep/a.nc")
    assert (grant.path, grant.root) == ("/data/archive/deep/a.nc", "/data/archive/")
    wide = authorizer(authorized=["file:///data/"]).grant(ARCHIVE + "a.nc")
    assert wide.root == "/data/"  # which symbolic links must not leave


def test_the_longest_prefix_that_covers_a_container_decides():
    deep = container(ARCHIVE + "deep/")
    made = authorizer(deep, authorized={"file:///data/": None, ARCHIVE: None})
    assert made.grant(ARCHIVE + "deep/a.nc").root == "/data/archive/"


@pytest.mark.parametrize(
    "prefix",
    [
        "file:///data/archive/../../etc/",
        "file:///data/archive/%2e%2e/etc/",
        "file:///data/archive//etc/",
        "file:///data/archive/a\\b/",
    ],
)
def test_a_prefix_covers_no_container_that_can_be_read_in_two_ways(prefix):
    with pytest.raises(InvalidInputError):
        authorizer(container(prefix)).grant(prefix + "a.nc")


def test_a_named_location_is_resolved_below_its_container():
    assert authorizer().grant("vcc://archive/2024/a.nc").url == ARCHIVE + "2024/a.nc"


def test_an_authorised_prefix_may_lack_its_slash_and_may_be_a_mapping():
    by_name = {ARCHIVE.rstrip("/"): None}
    assert authorizer(authorized=by_name).grant(ARCHIVE + "a.nc").path == "/data/archive/a.nc"


def test_the_refusal_holds_the_argument_to_pass():
    with pytest.raises(UnauthorizedError) as refused:
        authorizer(authorized=()).grant(ARCHIVE + "a.nc")
    assert 'authorize_virtual_chunk_access=["file:///data/archive/"]' in str(refused.value)


@pytest.mark.parametrize(
    "prefix", ["file:///data/archive/2024/", "file:///", "file:///dat", "file:///data/archive2/"]
)
def test_authorising_a_narrower_or_another_prefix_does_not_authorise_the_container(prefix):
    with pytest.raises(UnauthorizedError):
        authorizer(authorized=[prefix]).grant(ARCHIVE + "2024/a.nc")


def test_a_location_that_no_container_covers_is_named_with_the_remedy():
    with pytest.raises(InvalidInputError, match="set_virtual_chunk_container") as refused:
        authorizer().grant("file:///data/archive2/a.nc")
    assert refused.value.facts["location"] == "file:///data/archive2/a.nc"
    assert not isinstance(refused.value, UnauthorizedError)


def test_an_unknown_container_name_is_named():
    with pytest.raises(InvalidInputError, match="of the name 'attic'"):
        authorizer().grant("vcc://attic/a.nc")


ESCAPES = {
    "two dots": ARCHIVE + "../secret",
    "two dots further down": ARCHIVE + "a/../../secret",
    "encoded dots": ARCHIVE + "%2e%2e/secret",
    "half encoded dots": ARCHIVE + ".%2E/secret",
    "encoded slash": ARCHIVE + "..%2fsecret",
    "dots split by a newline that URL parsers drop": ARCHIVE + ".\n./secret",
    "dots split by a tab that URL parsers drop": ARCHIVE + ".\t./secret",
    "a named container and dots": "vcc://archive/../secret",
    "a named container and encoded dots": "vcc://archive/%2e%2e/secret",
    "a query": ARCHIVE + "a.nc?x=/../secret",
    "a fragment": ARCHIVE + "a.nc#/../secret",
    "an encoded NUL": ARCHIVE + "a.nc%00",
    "bytes that are not UTF-8": ARCHIVE + "%ff.nc",
    "another host": "file://evil.example/data/archive/secret",
    "another host that looks like a prefix": "file://data/archive/secret",
    "another scheme": "s3://data/archive/secret",
    "http": "http://169.254.169.254/data/archive/",
    "no scheme": "/data/archive/secret",
    "a prefix without its slash": "file:///data/archivesecret",
    "an upper-case scheme": "FILE:///etc/passwd",
    "nothing at all": "",
}


@pytest.mark.parametrize("location", ESCAPES.values(), ids=ESCAPES.keys())
def test_no_way_out_of_an_authorised_prefix(location):
    with pytest.raises(InvalidInputError):
        authorizer().grant(location)


def test_a_percent_sign_is_decoded_once():
    assert authorizer().grant(ARCHIVE + "%252e%252e/a").path == "/data/archive/%2e%2e/a"


def test_distinct_locations_are_decided_once():
    grants = authorizer().grants([ARCHIVE + "a.nc"] * 3 + [ARCHIVE + "b.nc"])
    assert list(grants) == [ARCHIVE + "a.nc", ARCHIVE + "b.nc"]


def test_one_forbidden_location_refuses_the_whole_request():
    with pytest.raises(InvalidInputError):
        authorizer().grants([ARCHIVE + "a.nc", "file:///etc/passwd"])
