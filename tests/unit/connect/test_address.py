"""Addresses of objects: bucket and key out of a URL, and back."""

import pytest

from icevirt.connect.urls import Address
from icevirt.errors import InvalidInputError

CASES = {
    "plain": ("s3://bucket/a/b.nc", "s3", "bucket", "a/b.nc"),
    "no key": ("s3://bucket", "s3", "bucket", ""),
    "encoded": ("s3://bucket/a%20b%25%3F%23.nc", "s3", "bucket", "a b%?#.nc"),
    "unicode": ("gs://bucket/%C3%BC.nc", "gcs", "bucket", "ü.nc"),
    "two slashes": ("s3://bucket/a//b", "s3", "bucket", "a//b"),
    "container": ("az://container/a", "azure", "container", "a"),
    "port": ("http://host:8080/a/b", "http", "host:8080", "a/b"),
    "tigris": ("tigris://bucket/a", "s3", "bucket", "a"),
    "with an account": ("abfs://c@acc.dfs.core.windows.net/a", "azure", "c", "a"),
}  # fmt: skip


@pytest.mark.parametrize(("url", "provider", "bucket", "key"), CASES.values(), ids=CASES.keys())
def test_a_url_has_a_bucket_and_a_key_and_is_written_back(url, provider, bucket, key):
    found = Address.parse(url)
    assert (found.provider, found.bucket, found.key) == (provider, bucket, key)
    assert found.url == url
    assert Address.parse(found.url) == found


def test_query_and_fragment_are_no_part_of_a_key():
    assert Address.parse("https://host/a.nc?b=c#d").key == "a.nc"


def test_schemes_are_read_in_any_case():
    assert Address.parse("S3://Bucket/A").url == "s3://Bucket/A"


@pytest.mark.parametrize(
    "url",
    ["", "/a/path", "s3:/b/c", "s3://", "s3:///key", "ftp://host/a", "file:///a", "s3://b/%ff",
     "s3://b/a%00", "https://user:CANARY@host/a", "s3://CANARY@bucket/a"],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_showing_a_password(url):
    with pytest.raises(InvalidInputError) as caught:
        Address.parse(url)
    assert "CANARY" not in str(caught.value)


# a bucket that becomes part of a host would end there: at Amazon it stands before ".s3.region..."
ELSEWHERE = [
    "s3://2130706433\\/a", "s3://evil\\x/a", "s3://host:443/a", "s3://host%2f/a", "s3://a b/c",
    "s3://a\tb/c", "s3://\uff45vil/a", "s3://evil\u2024example/a", "s3://a|b/c", "s3://[::1]/a",
    "s3://-a/b", "gs://evil\\x/a", "gs://a:1/b", "az://evil\\x/a", "az://a@b/c",
    "abfss://c@acc/a", "abfss://c@acc.evil.example/a", "abfss://c@acc.dfs.core.chinacloudapi.cn/a",
    "abfss://c@acc.dfs.core.windows.net.evil.example/a", "abfss://c@acc.dfs.core.windows.net:1/a",
    "abfss://c@a/b@acc.dfs.core.windows.net/a", "abfss://c@/a", "abfss://@acc.dfs.core.windows.net/a",
    "abfss://c:CANARY@acc.dfs.core.windows.net/a", "abfss://c@Acc.dfs.core.windows.net/a",
    "https://host\\evil/a", "https://host%2fevil/a", "https://ho st/a", "https://host\x00/a",
]  # fmt: skip


@pytest.mark.parametrize("url", ELSEWHERE, ids=repr)
def test_a_bucket_account_or_host_that_libraries_could_read_differently_is_refused(url):
    with pytest.raises(InvalidInputError) as caught:
        Address.parse(url)
    assert "CANARY" not in str(caught.value)
