"""'public' authorizes what everybody can read on the internet: no file, no network here, no secret.

Tests look names up and connect by functions of their own: nothing else than a test can pass these.
"""

import socket
import ssl
from types import SimpleNamespace

import numpy as np
import pytest

import icevirt
from access.hostile.canaries import BODY, CANARIES
from access.remote.hosts import VALUES
from access.remote.objects import document, refer
from icevirt.access.columns.stored_array import open_array
from icevirt.errors import IcevirtError, InvalidInputError, UnauthorizedError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.objects import fetch, public_network
from icevirt.objects import web_connections as connections
from icevirt.objects.authorize import PUBLIC, Authorizer, LocalGrant, find_covering
from icevirt.objects.backends import reach_for_grant, server_of
from icevirt.repo.authorization import authorize

OUTSIDE = "93.184.215.14"
PUBLIC_ACCESS = authorize("public", reads_chunks=True)


def container(prefix, kind="http", **options):
    return VirtualChunkContainer(prefix, ObjectStoreConfig(kind, options))


def read(of, name="a.bin"):
    """Read a chunk as a session does that authorized what is public."""
    grant = Authorizer({of.url_prefix: of}, PUBLIC_ACCESS).grant(of.url_prefix + name)
    return bytes(fetch.read(grant, offset=4, length=6))


@pytest.fixture
def internet(listeners, monkeypatch):
    """Let names lead to addresses, and addresses to listeners on loopback, whatever their name."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name)
    found = SimpleNamespace(names={}, servers={}, asked=[], dialed=[])

    def resolve(host, port, **_):
        found.asked.append(host)
        addresses = found.names[host]
        addresses = addresses.pop(0) if isinstance(addresses[0], list) else addresses
        return [(0, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    def dial(server, timeout):
        found.dialed.append(server[0])
        return socket.create_connection(("127.0.0.1", found.servers[server[0]]), timeout)

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    monkeypatch.setattr(public_network, "_resolve", resolve)
    monkeypatch.setattr(public_network, "_dial", dial)
    monkeypatch.setattr(connections, "_trust", lambda: context)
    return found


# -- addresses -----------------------------------------------------------------------------------

PUBLIC_ONES = ["8.8.8.8", OUTSIDE, "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::808:808"]
OTHERS = {
    "loopback": "127.0.0.1 127.255.255.254 ::1 0.0.0.0 ::",
    "of a link": "169.254.0.1 169.254.169.254 fe80::1 fe80::1%eth0 2606:4700::1%eth0",
    "private": "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd00:ec2::254 fec0::1",
    "of a carrier": "100.64.0.1 100.100.100.200 100.127.255.255",
    "of services of clouds": "168.63.129.16 192.0.0.192",
    "documentation and measurements": "192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 2001:db8::1",
    "of many, or of nobody": "224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 ff02::1 4000::1",
    "IPv4 in IPv6": "::ffff:127.0.0.1 ::ffff:8.8.8.8 ::127.0.0.1 ::8.8.8.8 ::ffff:0:127.0.0.1",
    "behind a gateway": "64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::a00:1 64:ff9b:1::808:808",
    "of tunnels": "2002:7f00:1::1 2002:808:808::1 2001:0:808:808::1 192.88.99.1 2001:20::1",
    "no addresses": "2130706433 0177.0.0.1 0x7f.1 127.1 localhost 8.8.8.8:443 [::1] 08.8.8.8",
}


@pytest.mark.parametrize("address", PUBLIC_ONES)
def test_an_address_of_the_internet_is_public(address):
    assert public_network.is_public(address)


@pytest.mark.parametrize("addresses", OTHERS.values(), ids=OTHERS.keys())
def test_every_other_address_is_not(addresses):
    assert [each for each in addresses.split(" ") if public_network.is_public(each)] == []


SPELLINGS = [
    *("127.0.0.1", "localhost", "localhost.", "127.1", "2130706433", "0177.0.0.1", "0x7f000001"),
    *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[::127.0.0.1]"),
    *("0", "0.0.0.0", "[::]", "127.0.0.1.", "①27.0.0.1", "127。0。0。1"),
]


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_this_machine_is_asked(listeners, monkeypatch, host):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name)
    dialed = []
    monkeypatch.setattr(public_network, "_dial", lambda *to: dialed.append(to))
    before = listeners.evil_tls.accepted
    with pytest.raises(IcevirtError) as caught:
        read(container(f"https://{host}:{listeners.evil_tls.port}/data/"))
    assert (dialed, listeners.evil_tls.accepted) == ([], before)
    assert (
        isinstance(caught.value, UnauthorizedError | InvalidInputError)
        or "resolve" in str(caught.value.facts)
        or "known" in str(caught.value.facts)
    )


# -- what is asked -------------------------------------------------------------------------------


def test_a_public_server_is_read_without_credentials(listeners, internet):
    internet.names["data.example"] = [OUTSIDE]
    internet.servers[OUTSIDE] = listeners.good_tls.port
    assert read(container("https://data.example/data/")) == BODY[4:10]
    assert internet.asked == ["data.example"]
    assert internet.dialed == [OUTSIDE]
    assert b"GET /data/a.bin" in listeners.good_tls.received
    assert not CANARIES.search(listeners.good_tls.received)


def test_arrays_are_read_so_by_columns_and_by_zarr(listeners, internet, tmp_path):
    internet.names["data.example"] = [OUTSIDE]
    internet.servers[OUTSIDE] = listeners.good_tls.port
    made = refer(
        tmp_path / "repo",
        "https://data.example/",
        store=ObjectStoreConfig("http", {}),
        checksum={"etag": '"e"'},
        authorize="public",
        chunks=1,
        lengths=[6],
        document=document(1, shape=[1, 6], chunk_grid=GRID),
    )
    session = made.session()
    for array in (made.array(), open_array(session, "/v")):
        assert bytes(array[0, :]) == BODY[:6]
    assert set(internet.dialed) == {OUTSIDE}


GRID = {"name": "regular", "configuration": {"chunk_shape": [1, 6]}}
BUCKETS = {
    "Amazon's": ("s3://bucket/data/", "s3", {"region": "eu-west-1"}, "s3.eu-west-1.amazonaws.com"),
    "Google's": ("gs://bucket/data/", "gcs", {}, "storage.googleapis.com"),
    "Azure's": (
        "az://bucket/data/",
        "azure",
        {"account": "trusted"},
        "trusted.blob.core.windows.net",
    ),
    "another": (
        "s3://bucket/data/",
        "s3_compatible",
        {"region": "x", "endpoint_url": "https://store.example"},
        "store.example",
    ),
}


@pytest.mark.parametrize(
    ("prefix", "kind", "options", "host"), BUCKETS.values(), ids=BUCKETS.keys()
)
def test_a_public_bucket_is_read_without_credentials(
    listeners, internet, prefix, kind, options, host
):
    internet.names[host] = [OUTSIDE]
    internet.servers[OUTSIDE] = listeners.good_tls.port
    assert read(container(prefix, kind, **options), "a+b c.bin") == BODY[4:10]
    assert internet.asked == [host]
    assert b"GET /bucket/data/a%2Bb%20c.bin " in listeners.good_tls.received
    assert not CANARIES.search(listeners.good_tls.received)


def test_the_address_that_was_compared_is_the_one_that_is_asked(listeners, internet):
    """A name that leads elsewhere the next time is not looked up a next time."""
    internet.names["data.example"] = [[OUTSIDE], ["127.0.0.1"]]
    internet.servers |= {OUTSIDE: listeners.good_tls.port, "127.0.0.1": listeners.evil_tls.port}
    assert read(container("https://data.example/data/")) == BODY[4:10]
    assert internet.dialed == [OUTSIDE]
    with pytest.raises(UnauthorizedError, match="public internet"):
        read(container("https://data.example/data/"))  # another connection
    assert internet.dialed == [OUTSIDE]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"])
def test_a_name_that_leads_elsewhere_too_is_refused(listeners, internet, address):
    internet.names["data.example"] = [OUTSIDE, address]
    with pytest.raises(UnauthorizedError, match="public internet") as caught:
        read(container("https://data.example/data/"))
    assert internet.dialed == []
    assert "name its prefix" in caught.value.do


def test_an_address_of_this_machine_itself_is_refused(listeners, internet):
    """Where a machine has a public address, what listens there may be for itself only."""
    internet.names["data.example"] = ["127.0.0.1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public_network, "is_public", lambda _: True)
        internet.servers["127.0.0.1"] = listeners.good_tls.port
        with pytest.raises(UnauthorizedError, match="public internet"):
            read(container("https://data.example/data/"))
    assert b"GET" not in listeners.good_tls.received


REDIRECTS = {
    "to loopback": ("https://here.example/data/a.bin", ["127.0.0.1"]),
    "to another that is none of the internet": ("https://here.example/data/a.bin", ["10.1.2.3"]),
    "within the prefix, after the name was changed": ("b.bin", ["192.168.1.1"]),
}


@pytest.mark.parametrize(("to", "addresses"), REDIRECTS.values(), ids=REDIRECTS.keys())
def test_a_redirect_is_looked_at_like_the_first_request(listeners, internet, to, addresses):
    listeners.good_tls.redirect = to
    internet.names |= {"data.example": [[OUTSIDE], addresses], "here.example": addresses}
    internet.servers |= {OUTSIDE: listeners.good_tls.port}
    internet.servers |= dict.fromkeys(addresses, listeners.evil_tls.port)
    of = container("https://data.example/data/", redirect_hosts="here.example")
    with pytest.raises(UnauthorizedError, match="public internet"):
        read(of)
    assert internet.dialed == [OUTSIDE]
    assert listeners.evil_tls.received == b""


def test_a_connection_that_a_named_prefix_opened_is_not_lent_to_it():
    """Idle connections are kept by server: one here stays out of reach for what is public."""
    named = connections.Origin.of("https://data.example/")
    public = connections.Origin.of("https://data.example/", is_public=True)
    assert named != public
    assert str(named) == str(public)


def test_a_proxy_that_looks_names_up_is_not_asked(listeners):
    before = listeners.wall.accepted
    with pytest.raises(UnauthorizedError, match="proxy") as caught:
        read(container("https://data.example/data/"))
    assert listeners.wall.accepted == before
    assert "NO_PROXY" in caught.value.do


NEVER = {
    "a file": container("file:///etc/", "local_file_system"),
    "a server without encryption": container("http://data.example/data/"),
    "a bucket of such a server": container(
        "s3://bucket/data/", "s3", endpoint_url="http://store.example", allow_http=True
    ),
    "a file system of a library": VirtualChunkContainer(
        "ftp://data.example/data/", icevirt.fsspec_store()
    ),
    "what could be read in two ways": container("https://data.example/data/../../x/"),
}


@pytest.mark.parametrize("of", NEVER.values(), ids=NEVER.keys())
def test_what_is_never_public_is_refused_before_any_request(of):
    assert find_covering(of, PUBLIC_ACCESS)[1] is None
    with pytest.raises(UnauthorizedError):
        Authorizer({of.url_prefix: of}, PUBLIC_ACCESS).grant(of.url_prefix + "a.bin")


def test_a_server_of_the_environment_that_does_not_encrypt_is_refused(monkeypatch, internet):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with pytest.raises(UnauthorizedError, match="https only"):
        read(container("s3://bucket/data/", "s3"))
    assert internet.asked == []


def test_a_named_prefix_keeps_its_own_credentials_beside_it():
    both = authorize(
        {"public": None, "s3://mine/": icevirt.s3_credentials(from_env=True)}, reads_chunks=True
    )
    covering, access = find_covering(container("s3://mine/data/", "s3"), both)
    assert covering == "s3://mine/"
    assert access.credentials == icevirt.s3_credentials(from_env=True)


def test_a_cache_keeps_what_is_public_apart(listeners):
    of = container("https://data.example/data/")
    public = Authorizer({of.url_prefix: of}, PUBLIC_ACCESS).grant(of.url_prefix + "a.bin")
    named = Authorizer({of.url_prefix: of}, [of.url_prefix]).grant(of.url_prefix + "a.bin")
    assert server_of(reach_for_grant(public)) != server_of(reach_for_grant(named))


# -- who may say it ------------------------------------------------------------------------------


def test_a_repository_without_anything_public_says_so_when_it_is_opened(tmp_path):
    made = refer(
        tmp_path / "repo", f"file://{tmp_path}/", store=ObjectStoreConfig("local_file_system", {})
    )
    with pytest.raises(UnauthorizedError, match="'public' authorizes") as caught:
        made.session("public")
    assert f"file://{tmp_path}/" in caught.value.fixes[0].python


def test_a_directory_of_that_name_is_named_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "a.bin").write_bytes(VALUES.tobytes())
    monkeypatch.chdir(tmp_path)
    made = refer(
        tmp_path / "repo",
        f"file://{tmp_path}/public/",
        store=ObjectStoreConfig("local_file_system", {}),
        authorize=["./public"],
        chunks=4,
    )
    np.testing.assert_array_equal(made.array()[:], VALUES)
    grant = Authorizer(made.session().config.virtual_chunk_containers, authorize(["./public"]))
    assert isinstance(grant.grant(f"file://{tmp_path}/public/a.bin"), LocalGrant)


@pytest.mark.parametrize("given", ["public", ["public"], {"public": None}, {PUBLIC: None}])
def test_calls_that_open_source_files_refuse_the_word(tmp_path, given):
    made = refer(tmp_path / "repo", "https://data.example/", store=ObjectStoreConfig("http", {}))
    with pytest.raises(InvalidInputError, match="opens source files"):
        icevirt.verify(made.root, authorize_virtual_chunk_access=given)
    with pytest.raises(InvalidInputError, match="opens source files"):
        icevirt.materialize(made.root, "v", authorize_virtual_chunk_access=given)


def test_it_goes_without_credentials():
    with pytest.raises(InvalidInputError, match="without credentials"):
        authorize({"public": icevirt.HttpAccess}, reads_chunks=True)
