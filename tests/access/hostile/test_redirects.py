"""A redirect leads nowhere that was not authorised, and takes no credentials along."""

import numpy as np
import pytest

import icevirt
from access.remote.hosts import TOKEN, VALUES, array, with_token
from access.remote.objects import refer
from icevirt.errors import StorageError, UnauthorizedError
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.objects import web_connections as connections
from servers.faults import redirected


def redirecting(trusted, to, *, status=302, times=1e9):
    trusted.rules.add(redirected(to, status), target="/data/a.bin", times=times)


def refused(found):
    with pytest.raises(UnauthorizedError, match="redirects to") as caught:
        found[:]
    assert TOKEN not in str(caught.value)
    return caught.value


@pytest.mark.servers
def test_a_redirect_to_a_host_that_is_not_listed_is_refused(trusted, other, tmp_path):
    redirecting(trusted, other.url + "/data/a.bin")
    output = refused(array(tmp_path, trusted.url + "/data/"))
    assert "redirect_hosts" in output.do
    assert other.rules.requests == []


@pytest.mark.servers
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_signed_redirect_to_a_listed_host_works_and_tells_it_no_credentials(
    trusted, other, tmp_path, status
):
    redirecting(trusted, other.url + "/data/a.bin?X-Signature=abc&Expires=1", status=status)
    trusted.files.tokens = {TOKEN}
    options = {"redirect_hosts": f"another.example, {other.host}", "headers": {"x-api-key": "k"}}
    found = array(tmp_path, trusted.url + "/data/", options=options, authorize=with_token(trusted))
    np.testing.assert_array_equal(found[:], VALUES)
    assert trusted.rules.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert trusted.rules.requests[0].headers["x-api-key"] == "k"
    asked = other.rules.requests[0]
    assert asked.target == "/data/a.bin?X-Signature=abc&Expires=1"
    assert set(asked.headers) == {"host", "range", "accept-encoding"}


@pytest.mark.servers
def test_the_checksum_is_enforced_after_a_redirect_too(trusted, other, tmp_path):
    other.files.put("data/a.bin", bytes(len(VALUES.tobytes())))
    redirecting(trusted, other.url + "/data/a.bin")
    made = refer(
        tmp_path / "repo",
        trusted.url + "/data/",
        store=ObjectStoreConfig("http", {"redirect_hosts": other.host}),
        checksum={"etag": trusted.files.etags["data/a.bin"]},
        chunks=4,
    )
    with pytest.raises(icevirt.errors.StaleReferenceError):
        made.array()[:]


@pytest.mark.servers
def test_a_listed_host_may_not_send_further_to_one_that_is_not(trusted, other, servers, tmp_path):
    third = servers()
    redirecting(trusted, other.url + "/data/a.bin")
    other.rules.add(redirected(third.url + "/data/a.bin"), times=1e9)
    refused(array(tmp_path, trusted.url + "/data/", options={"redirect_hosts": other.host}))
    assert third.rules.requests == []


@pytest.mark.servers
def test_credentials_are_not_sent_beside_the_prefix_of_the_same_host(trusted, tmp_path):
    trusted.put("elsewhere/a.bin")
    redirecting(trusted, "/elsewhere/a.bin")
    options = {"redirect_hosts": trusted.host}
    found = array(tmp_path, trusted.url + "/data/", options=options, authorize=with_token(trusted))
    np.testing.assert_array_equal(found[:], VALUES)
    assert [("authorization" in r.headers, r.target) for r in trusted.rules.requests] == [
        (True, "/data/a.bin"),
        (False, "/elsewhere/a.bin"),
    ]


@pytest.mark.servers
def test_a_redirect_below_the_prefix_needs_no_list(trusted, tmp_path):
    trusted.put("data/new/a.bin")
    redirecting(trusted, "new/a.bin")
    found = array(tmp_path, trusted.url + "/data/", authorize=with_token(trusted))
    np.testing.assert_array_equal(found[:], VALUES)
    assert trusted.rules.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"


WAYS_OUT = {
    "beside the prefix": "/secret",
    "two dots": "/data/../secret",
    "encoded dots": "/data/%2e%2e/secret",
    "an encoded slash": "/data/..%2fsecret",
    "a backslash": "/data/..\\secret",
    "no scheme": "//{other}/data/a.bin",
    "a user name": "http://{host}@{other}/data/a.bin",
    "a user name, the host itself": "http://x@{host}/data/a.bin",
    "another port": "http://127.0.0.1:1/data/a.bin",
    "a port that is no number": "http://127.0.0.1:x/data/a.bin",
    "a file": "file:///etc/passwd",
    "a file transfer": "ftp://{other}/data/a.bin",
    "inline data": "data:text/plain,hello",
    "the metadata address of a cloud": "http://169.254.169.254/latest",
    "the same, as a number": "http://2852039166/latest",
    "the same, in IPv6": "http://[::ffff:169.254.169.254]/latest",
    "nowhere": "",
    "a line end": "/data/a.bin\x0bx",
}


@pytest.mark.servers
@pytest.mark.parametrize("to", WAYS_OUT.values(), ids=WAYS_OUT.keys())
def test_no_redirect_leads_out_of_the_prefix(trusted, other, tmp_path, to):
    for server in (trusted, other):
        server.put("secret")
    redirecting(trusted, to.format(host=trusted.host, other=other.host))
    with pytest.raises((UnauthorizedError, StorageError)) as caught:
        array(tmp_path, trusted.url + "/data/", authorize=with_token(trusted))[:]
    assert TOKEN not in str(caught.value)
    assert other.rules.requests == []
    assert {request.target for request in trusted.rules.requests} == {"/data/a.bin"}


@pytest.mark.servers
def test_a_circle_of_redirects_ends(trusted, tmp_path):
    redirecting(trusted, "/data/a.bin")
    with pytest.raises(StorageError, match="too often"):
        array(tmp_path, trusted.url + "/data/")[:]


@pytest.mark.servers
def test_a_listed_name_does_not_lead_into_the_network_here(trusted, other, tmp_path, monkeypatch):
    redirecting(trusted, other.url + "/data/a.bin")
    known = {trusted.url: "93.184.216.34", other.url: "169.254.169.254"}
    address = lambda self: known[str(self.origin)]  # noqa: E731
    monkeypatch.setattr(connections.Connection, "address", property(address))
    output = refused(
        array(tmp_path, trusted.url + "/data/", options={"redirect_hosts": other.host})
    )
    assert output.facts["address"] == "169.254.169.254"
    assert other.rules.requests == []


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("169.254.169.254", "link_local"),
        ("::ffff:169.254.169.254", "link_local"),
        ("fe80::1%eth0", "link_local"),
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("localhost", "loopback"),
        ("10.0.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("0.0.0.0", "private"),
        ("93.184.216.34", "global"),
        ("data.example", "global"),
    ],
)
def test_networks_are_distinguished(address, network):
    assert connections.kind_of(address) == network


NO_URLS = {
    "an unfinished address": "http://[bad/",
    "an address that is none": "http://[::1::2]/data/a.bin",
    "letters that URLs have not": "/data/\xe4.bin",
    "a port of twenty digits": "http://127.0.0.1:99999999999999999999/data/a.bin",
    "an unfinished address with secrets": "http://user:secret@[bad/?signature=secret",
}


@pytest.mark.servers
@pytest.mark.parametrize("to", NO_URLS.values(), ids=NO_URLS.keys())
def test_a_redirect_to_no_url_is_a_storage_error(trusted, tmp_path, to):
    redirecting(trusted, to)
    with pytest.raises(StorageError, match="not a URL") as caught:
        array(tmp_path, trusted.url + "/data/", authorize=with_token(trusted))[:]
    assert caught.value.do
    assert "secret" not in str(caught.value)
