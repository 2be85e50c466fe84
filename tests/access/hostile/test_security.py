"""What a hostile repository, server or redirect could try; each attempt has a name."""

import pickle

import numpy as np
import pytest

import icevirt
from access.remote.hosts import TOKEN, VALUES, array, with_token
from access.remote.objects import refer
from icevirt.connect.container import endpoint_of
from icevirt.errors import InvalidInputError, StorageError, UnauthorizedError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.objects.authorize import Authorizer, RemoteGrant
from icevirt.objects.backends import reach_for_grant
from icevirt.redaction import without_secrets
from icevirt.repo.authorization import authorize
from icevirt.repo.repository import Repository
from servers.faults import Fault, Response

# -- locations -------------------------------------------------------------------------------

ATTEMPTS = {
    "two dots": "{prefix}../secret",
    "two dots further down": "{prefix}a/../../secret",
    "encoded dots": "{prefix}%2e%2e/secret",
    "half encoded dots": "{prefix}.%2E/secret",
    "an encoded slash after dots": "{prefix}..%2fsecret",
    "an encoded slash": "{prefix}a%2fb",
    "a backslash": "{prefix}..\\secret",
    "an encoded backslash": "{prefix}..%5csecret",
    "dots around a newline that URL parsers drop": "{prefix}.\n./secret",
    "dots around a tab that URL parsers drop": "{prefix}.\t./secret",
    "an encoded line end that would end the request": "{prefix}a%0d%0aX-Evil: 1",
    "an encoded NUL": "{prefix}a.bin%00.txt",
    "a query": "{prefix}a.bin?x=/../secret",
    "an encoded query stays a name": "{prefix}a.bin%3Fx=1",
    "a fragment": "{prefix}a.bin#/../secret",
    "an empty part of the path": "{prefix}/etc//passwd",
    "the prefix itself": "{prefix}",
    "a user name that looks like the host": "http://{host}@{other}/data/a.bin",
    "a user name": "http://user:password@{host}/data/a.bin",
    "another port": "http://127.0.0.1:1/data/a.bin",
    "another host": "http://{other}/data/a.bin",
    "a host that begins like it": "http://{host}.evil.example/data/a.bin",
    "another scheme": "https://{host}/data/a.bin",
    "the same scheme in capitals": "HTTP://{host}/data/a.bin",
    "no scheme": "//{host}/data/a.bin",
    "a prefix without its slash": "http://{host}/datasecret",
    "a file": "file:///etc/passwd",
    "a bucket": "s3://data/a.bin",
    "the metadata address of a cloud": "http://169.254.169.254/latest/meta-data/",
    "a chain of file systems": "zip://a.bin::http://{host}/data/a.zip",
    "an unknown container": "vcc://there/a.bin",
    "bytes that are not UTF-8": "{prefix}%ff",
    "a scheme of scripts": "javascript:alert(1)",
    "nothing": "",
}


@pytest.mark.servers
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_a_location_reads_nothing_outside_its_prefix(trusted, other, tmp_path, attempt):
    for server in (trusted, other):
        for name in ("secret", "datasecret", "etc//passwd", "data/a/b", "data/"):
            server.put(name)
    prefix = trusted.url + "/data/"
    location = attempt.format(prefix=prefix, host=trusted.host, other=other.host)
    with pytest.raises((InvalidInputError, StorageError)) as caught:
        hostile(tmp_path, prefix, location)[:]
    assert not isinstance(caught.value, KeyError | FileNotFoundError)
    assert other.rules.requests == []
    asked = {request.target for request in trusted.rules.requests}
    assert asked <= {"/data/a.bin%3Fx=1"}


def hostile(tmp_path, prefix, location):
    """Commit a reference as somebody would who writes manifests without asking."""
    made = refer(
        tmp_path / "repo", prefix, store=ObjectStoreConfig("http", {}), location=location, chunks=4
    )
    return made.array()


@pytest.mark.servers
def test_double_encoding_is_decoded_once(trusted, tmp_path):
    trusted.put("data/%2e%2e/a.bin")
    found = hostile(tmp_path, trusted.url + "/data/", trusted.url + "/data/%252e%252e/a.bin")
    np.testing.assert_array_equal(found[:], VALUES)
    assert {request.target for request in trusted.rules.requests} == {"/data/%252e%252e/a.bin"}


BUCKETS = {
    "two dots": "s3://bucket/data/../secret",
    "encoded dots": "s3://bucket/data/%2e%2e/secret",
    "an encoded slash after dots": "s3://bucket/data/..%2fsecret",
    "a backslash": "s3://bucket/data/..\\secret",
    "a query": "s3://bucket/data/a?versionId=1",
    "a fragment": "s3://bucket/data/a#b",
    "an empty part": "s3://bucket/data//a",
    "another bucket": "s3://bucket2/data/a",
    "a bucket as user name": "s3://bucket@evil/data/a",
    "a port": "s3://bucket:80/data/a",
    "another spelling of the scheme": "s3a://bucket/data/a",
}


@pytest.mark.parametrize("location", BUCKETS.values(), ids=BUCKETS.keys())
def test_a_location_reads_nothing_outside_its_bucket_and_prefix(location):
    container = VirtualChunkContainer("s3://bucket/data/", ObjectStoreConfig("s3", {}))
    with pytest.raises(InvalidInputError):
        Authorizer({container.url_prefix: container}, [container.url_prefix]).grant(location)


FILE_SYSTEMS = {
    "two dots": "memory://d/../secret",
    "encoded dots": "memory://d/%2e%2e/secret",
    "a chain": "memory://d/a::file:///etc/passwd",
    "an encoded chain": "memory://d/a%3a%3afile:///etc/passwd",
    "an absolute path": "memory://d//etc/passwd",
    "another file system": "file:///etc/passwd",
}


@pytest.mark.parametrize("location", FILE_SYSTEMS.values(), ids=FILE_SYSTEMS.keys())
def test_a_location_reads_nothing_outside_its_file_system_and_prefix(location):
    container = VirtualChunkContainer("memory://d/", icevirt.fsspec_store())
    with pytest.raises(InvalidInputError):
        Authorizer({container.url_prefix: container}, [container.url_prefix]).grant(location)


# -- endpoints -------------------------------------------------------------------------------

ENDPOINTS = {
    "S3": ("s3://bucket/", "s3", {"endpoint_url": "https://evil.example"}),
    "S3, the metadata address": ("s3://bucket/", "s3", {"endpoint_url": "http://169.254.169.254"}),
    "S3 compatible": (
        "s3://bucket/",
        "s3_compatible",
        {"endpoint_url": "https://evil.example", "anonymous": True},
    ),
    "S3, a host that looks like Amazon's": (
        "s3://bucket/",
        "s3",
        {"endpoint_url": "https://s3.us-east-1.amazonaws.com.evil.example"},
    ),
    "S3, a load balancer at Amazon": (
        "s3://bucket/",
        "s3",
        {"endpoint_url": "https://s3-evil.us-east-1.elb.amazonaws.com"},
    ),
    "S3, Amazon without encryption": (
        "s3://bucket/",
        "s3",
        {"endpoint_url": "http://s3.us-east-1.amazonaws.com"},
    ),
    "S3, but the kind is Tigris": ("s3://bucket/", "tigris", {}),
    "Tigris, elsewhere": ("tigris://bucket/", "tigris", {"endpoint_url": "https://evil.example"}),
    "Google, in capitals": ("gs://bucket/", "gcs", {"GOOGLE_BASE_URL": "https://evil.example"}),
    "Google, in mixed case": ("gs://bucket/", "gcs", {"Base_Url": "https://evil.example"}),
    "Azure, in capitals": (
        "az://container/",
        "azure",
        {"AZURE_ENDPOINT": "https://evil.example", "ACCOUNT": "trusted"},
    ),
    "another account at Azure, in mixed case": ("az://container/", "azure", {"Account": "evil"}),
    "another account at Azure, an @ in the path": (
        "az://container/a@b/",
        "azure",
        {"account": "evil"},
    ),
    "Google": ("gs://bucket/", "gcs", {"google_base_url": "https://evil.example"}),
    "Azure": ("az://container/", "azure", {"azure_storage_endpoint": "https://evil.example"}),
    "another account at Azure": ("az://container/", "azure", {"account": "evil"}),
}


@pytest.mark.parametrize(("prefix", "kind", "options"), ENDPOINTS.values(), ids=ENDPOINTS.keys())
def test_a_prefix_does_not_authorise_a_server_of_the_repositorys_choice(prefix, kind, options):
    container = VirtualChunkContainer(prefix, ObjectStoreConfig(kind, options))
    containers = {prefix: container}
    credentials = object()
    with pytest.raises(UnauthorizedError) as caught:
        Authorizer(containers, authorize({prefix: credentials})).grant(prefix + "a")
    endpoint = endpoint_of(container)
    assert caught.value.facts["endpoint"] == without_secrets(endpoint)
    assert f'("{prefix}", "{without_secrets(endpoint)}")' in caught.value.do
    granted = Authorizer(containers, authorize({(prefix, endpoint): credentials}))
    assert granted.grant(prefix + "a").credentials is credentials
    with pytest.raises(UnauthorizedError):
        Authorizer(containers, authorize([(prefix, "https://another.example")])).grant(prefix)


AMAZON = [
    "https://s3.amazonaws.com",
    "https://s3.us-west-2.amazonaws.com/",
    "https://s3-us-west-2.amazonaws.com",
    "https://s3.dualstack.eu-central-1.amazonaws.com",
    "https://s3.cn-north-1.amazonaws.com.cn",
    "https://s3-fips.us-gov-west-1.amazonaws.com",
]


@pytest.mark.parametrize("endpoint", AMAZON)
def test_the_regional_endpoints_of_amazon_are_what_the_prefix_says(endpoint):
    store = ObjectStoreConfig("s3", {"endpoint_url": endpoint})
    assert endpoint_of(VirtualChunkContainer("s3://bucket/", store)) is None


def test_an_endpoint_in_the_callers_own_configuration_is_the_callers_choice(tmp_path):
    store = ObjectStoreConfig("s3", {"endpoint_url": "https://store.example"})
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer("s3://bucket/", store))
    given = {"authorize_virtual_chunk_access": ["s3://bucket/"]}
    for repo in (
        Repository.create(tmp_path / "repo", config, **given),
        Repository.open(tmp_path / "repo", config, **given),
        Repository.open(tmp_path / "repo", config, **given).reopen(),
    ):
        assert granted_by(repo).url == "s3://bucket/a"
    with pytest.raises(UnauthorizedError, match=r"store\.example"):
        granted_by(Repository.open(tmp_path / "repo", **given))


def granted_by(repo):
    containers = repo.config.virtual_chunk_containers
    return Authorizer(containers, repo.readonly_session("main").credentials).grant("s3://bucket/a")


OPTIONS = {
    "a proxy": ("gcs", "gs://b/", {"proxy_url": "http://evil.example"}),
    "any certificate": ("gcs", "gs://b/", {"allow_invalid_certificates": "true"}),
    "an authority of its own": ("gcs", "gs://b/", {"root_certificate": "pem"}),
    "a file of this machine": ("gcs", "gs://b/", {"google_service_account": "/etc/passwd"}),
    "who is asked for tokens": (
        "azure",
        "az://c@acc.blob.core.windows.net/",
        {"account": "a", "azure_authority_host": "https://evil.example"},
    ),
    "who is asked for tokens of this machine": (
        "azure",
        "az://c/",
        {"account": "a", "azure_msi_endpoint": "https://evil.example"},
    ),
    "a proxy of S3": ("s3", "s3://b/", {"proxy_url": "http://evil.example"}),
    "who is asked for tokens of S3": ("s3", "s3://b/", {"metadata_endpoint": "http://evil"}),
}


@pytest.mark.parametrize(("kind", "prefix", "options"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options_that_are_for_the_reader_to_choose_are_refused(kind, prefix, options):
    container = VirtualChunkContainer(prefix, ObjectStoreConfig(kind, options))
    with pytest.raises(InvalidInputError):
        reach_for_grant(RemoteGrant("", "", container))


# -- secrets ---------------------------------------------------------------------------------


@pytest.mark.servers
def test_no_secret_is_shown(trusted, tmp_path):
    trusted.files.tokens = set()
    found = array(tmp_path, trusted.url + "/data/", authorize=with_token(trusted))
    with pytest.raises(StorageError) as caught:
        found[:]
    session = found.store.session
    containers = session.config.virtual_chunk_containers
    grant = Authorizer(containers, session.credentials).grant(trusted.url + "/data/a.bin")
    reach = reach_for_grant(grant)
    shown = [caught.value, session, session.credentials, grant, reach, found.store]
    for each in (*shown, pickle.dumps(caught.value)):
        assert TOKEN not in f"{each!r} {each!s}"


@pytest.mark.servers
def test_secrets_do_not_reach_the_repository(trusted, tmp_path):
    array(tmp_path, trusted.url + "/data/", authorize=with_token(trusted))[:]
    for path in (tmp_path / "repo").rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes()


@pytest.mark.servers
@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_credentials_is_reported_with_the_argument(trusted, tmp_path, status):
    trusted.rules.add(Fault(answer=Response(status=status)), times=1e9)
    with pytest.raises(StorageError, match="authorize_virtual_chunk_access") as caught:
        array(tmp_path, trusted.url + "/data/")[:]
    assert trusted.url + "/data/" in caught.value.do
    assert len(trusted.rules.requests) == 1
