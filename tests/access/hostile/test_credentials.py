"""No byte of a credential reaches a server that was not authorized; those that were still read.

Containers are written by an attacker: options in every spelling, whose values lead to listeners of
his. The listeners are real, plain and over TLS, and keep every byte. What would go to the internet
goes to a wall, which lets nobody through and keeps the names that were asked for. Redirects:
``test_redirected_credentials.py``.

``ICEVIRT_FUZZ_SECONDS`` makes the property test longer, ``HYPOTHESIS_PROFILE=nightly`` as well.
"""

import base64
import os
import re
import time
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icevirt
from access.hostile.canaries import (
    BODY,
    CREDENTIALS,
    EVERY,
    OWN,
    PREFIXES,
    SPELLINGS,
    attached,
    container_of,
    reaching,
    read,
)
from icevirt.connect.container import canonical
from icevirt.connect.stores import bucket_of
from icevirt.errors import IcevirtError, InvalidInputError, UnauthorizedError
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.objects.source_access import SourceAccess

SECONDS = float(os.environ.get("ICEVIRT_FUZZ_SECONDS", "0"))

# -- what an attacker writes -------------------------------------------------------------------

REGIONS = [
    "x@{host}/", "x@{host}", "{host}/", "{host}#", "{host}?", "{host}\\", "a.{host}/", "@{host}/x",
    "us-east-1/../../@{host}/", "us-east-1@{host}#.", "x%40{host}%2f", "x:y@{host}/", "x@{host}\t/",
    "x\uff20{host}\uff0f", "x\n@{host}/", "-", "a.b", "", "us-east-1", "auto", "garage", "eu",
]  # fmt: skip
URLS = [
    "{url}", "{url}/", "{url}/data", "{URL}", " {url}", "{url}#", "{url}?x", "{url}/../x",
    "http://127.0.0.1@{host}", "https://storage.googleapis.com@{host}", "//{host}", "{host}",
    "https://s3.amazonaws.com\\@{host}", "https://s3.us-east-1.amazonaws.com:443@{host}/",
    "https://user:password@{host}", "http:{host}", "http:/\\{host}", "http:///{host}", "{url}\n",
    "\uff48ttp://{host}", "http://\uff11\uff12\uff17.0.0.1:{port}", "http://localhost:{port}", "http://2130706433:{port}",
    "http://0x7f.1:{port}", "http://[::ffff:127.0.0.1]:{port}", "http://127.0.0.1.:{port}",
    "https://evil.blob.core.windows.net", "{url}/%2e%2e", "{tls}", "{TLS}",
]  # fmt: skip
ACCOUNTS = ["evil", "{host}/", "x@{host}/", "{host}#", "evil.example/", "Evil", "a", "x:y@{host}/"]
BUCKETS = ["other", "bucket", "{host}/", "@{host}/"]
NAMES = {
    "s3": ("region", "endpoint_url", "endpoint", "endpoint_url_s3", "default_region", "bucket",
           "virtual_hosted_style_request", "proxy_url", "metadata_endpoint", "endpoint_url_sts",
           "container_credentials_full_uri", "s3_express", "force_path_style", "anonymous"),
    "gcs": ("base_url", "gcs_base_url", "endpoint", "bucket", "bucket_name", "proxy_url",
            "service_account_key", "service_account", "application_credentials", "skip_signature"),
    "azure": ("account", "account_name", "storage_account_name", "endpoint", "storage_endpoint",
              "container_name", "use_emulator", "use_fabric_endpoint", "authority_host",
              "identity_endpoint", "msi_endpoint", "fabric_token_service_url", "proxy_url"),
}  # fmt: skip
NAMES |= {"s3_compatible": NAMES["s3"], "tigris": NAMES["s3"]}
FAMILIES = {"s3": ("", "aws_"), "gcs": ("", "google_"), "azure": ("", "azure_", "azure_storage_")}
FAMILIES |= {"s3_compatible": FAMILIES["s3"], "tigris": FAMILIES["s3"]}


LIKELY = {
    "s3": {"region": REGIONS, "endpoint_url": URLS, "force_path_style": [True, False]},
    "gcs": {"google_base_url": URLS, "BUCKET_NAME": BUCKETS},
    "azure": {"Account": ACCOUNTS, "AZURE_ENDPOINT": URLS, "container_name": BUCKETS},
}
LIKELY |= {"s3_compatible": LIKELY["s3"], "tigris": LIKELY["s3"]}


@st.composite
def spelled(draw, name):
    """Return a name in some case."""
    how = draw(st.sampled_from([str, str.upper, str.title, str.swapcase]))
    return draw(st.sampled_from([how(name), name.replace("k", "\u212a"), name]))


@st.composite
def hostile(draw):
    """Return kind and options that lead to {host} and {url}, if anything takes them so."""
    kind = draw(st.sampled_from(list(PREFIXES)))
    options = {"allow_http": "true" if kind in ("gcs", "azure") else True}
    for name, values in LIKELY[kind].items():
        if draw(st.booleans()):
            options[name] = draw(st.sampled_from(values))
    if draw(st.booleans()):
        values = st.sampled_from(REGIONS + URLS + ACCOUNTS + BUCKETS)
        values |= st.sampled_from([True, False, None, 1, ["{url}"], {"url": "{url}"}])
        name = draw(st.sampled_from(FAMILIES[kind])) + draw(st.sampled_from(NAMES[kind]))
        options[draw(spelled(name))] = draw(values)
    return kind, options


def filled(value, listener, tls):
    """Put the addresses of listeners into a value."""
    if isinstance(value, list):
        return [filled(each, listener, tls) for each in value]
    if isinstance(value, dict):
        return {name: filled(each, listener, tls) for name, each in value.items()}
    if not isinstance(value, str):
        return value
    for name, found in {
        "{url}": listener.url, "{URL}": listener.url.upper(), "{host}": listener.host,
        "{port}": str(listener.port), "{tls}": tls.url, "{TLS}": tls.url.upper(),
    }.items():  # fmt: skip
        value = value.replace(name, found)
    return value


def attack(place, kind, options, act, credentials):
    """Read, whatever comes of it."""
    place.forget()
    for listener in (place.evil, place.evil_tls):
        wanted = filled(options, listener, place.evil_tls)
        if kind == "azure":
            wanted.setdefault("account", "trusted")
        with suppress(IcevirtError):
            container = container_of(kind, wanted)
            assert act(container, credentials) == b"", "nothing of the attacker's is a value"
    assert place.leaked() == []
    assert place.evil.received == b""
    assert place.evil_tls.received == b""
    asked = set(re.findall(rb"^(?:CONNECT|GET) (\S+)", place.wall.received, re.MULTILINE))
    assert [each for each in asked if not OWN.fullmatch(each)] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(attempt=hostile(), who=st.sampled_from(["given", "environment"]), door=st.booleans())
def test_no_option_of_a_container_leads_a_credential_to_a_stranger(place, attempt, who, door):
    """Reads go through the authorizer, or past it, as if a check in it had been forgotten."""
    kind, options = attempt
    act = read if door else attached
    attack(place, kind, options, act, CREDENTIALS[kind] if who == "given" else None)


@pytest.mark.ci
@pytest.mark.skipif(not SECONDS, reason="the long form of the test above")
def test_no_option_leads_a_credential_to_a_stranger_for_long(place):
    until = time.monotonic() + SECONDS

    @settings(max_examples=50, database=None)
    @given(attempt=hostile(), door=st.booleans())
    def some(attempt, door):
        attack(place, *attempt, read if door else attached, CREDENTIALS[attempt[0]])

    while time.monotonic() < until:
        some()


ALONE = {
    f"{kind}: {name} {value!r}": (kind, {name: value})
    for kind, likely in LIKELY.items()
    for name, values in likely.items()
    for value in values
    if isinstance(value, str)
}


@pytest.mark.parametrize(("kind", "options"), ALONE.values(), ids=ALONE.keys())
def test_each_option_alone_leads_no_credential_to_a_stranger(listeners, kind, options):
    more = {"allow_http": "true" if kind in ("gcs", "azure") else True}
    attack(listeners, kind, options | more, read, CREDENTIALS[kind])
    attack(listeners, kind, options | more, attached, CREDENTIALS[kind])


# -- what was authorized -----------------------------------------------------------------------

WRITTEN = {
    "as it is": (str, str),
    "a slash in the container": (lambda url: url + "/", str),
    "a slash in the authorization": (str, lambda url: url + "/"),
    "capitals in the container": (str.upper, str),
    "capitals in the authorization": (str, str.upper),
}
AUTHORIZED = {
    f"{who}, {name}, {how}": (kind, credentials, name, *written)
    for who, (kind, credentials) in EVERY.items()
    for name in SPELLINGS[kind]
    for how, written in WRITTEN.items()
    if how == "as it is" or (name == SPELLINGS[kind][0] and who in PREFIXES)
}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    ("kind", "credentials", "name", "write", "say"), AUTHORIZED.values(), ids=AUTHORIZED.keys()
)
def test_an_authorized_server_is_read_with_the_credentials(
    listeners, kind, credentials, name, write, say, secure
):
    good = listeners.good_tls if secure else listeners.good
    container = container_of(kind, reaching(kind, name, write(good.url)))
    assert read(container, credentials, say(good.url)) == BODY[4:10]
    authenticated = rb"CANARY|authorization: SharedKey trusted"
    assert re.search(authenticated, good.received, re.IGNORECASE)
    assert listeners.leaked() == []


@pytest.mark.parametrize("kind", PREFIXES)
def test_a_server_is_not_authorized_by_another_port_or_scheme(listeners, kind):
    evil = listeners.evil
    container = container_of(kind, reaching(kind, SPELLINGS[kind][0], evil.url))
    for other in (listeners.good.url, evil.url.replace("http:", "https:"), "http://127.0.0.1"):
        with pytest.raises(UnauthorizedError):
            read(container, CREDENTIALS[kind], other)
    assert evil.received == b""


@pytest.mark.parametrize("kind", [kind for kind in PREFIXES if kind != "tigris"])
def test_a_server_of_the_readers_environment_needs_no_authorization(listeners, kind, monkeypatch):
    good = listeners.good
    names = {"gcs": "GOOGLE_BASE_URL", "azure": "AZURE_STORAGE_ENDPOINT"}
    monkeypatch.setenv(names.get(kind, "AWS_ENDPOINT_URL"), good.url)
    for name in ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "trusted")
    options = {"allow_http": "true"} if kind == "gcs" else {}
    assert read(container_of(kind, options), CREDENTIALS[kind]) == BODY[4:10]
    assert b"CANARY" in good.received


def test_an_account_of_a_container_is_looked_for_at_the_server_of_the_environment(
    listeners, monkeypatch
):
    good = listeners.good
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", good.url)
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    container = container_of("azure", {"account": "trusted"})
    with pytest.raises(UnauthorizedError, match=r"trusted\.blob\.core\.windows\.net"):
        read(container, CREDENTIALS["azure"])
    account = "https://trusted.blob.core.windows.net"
    assert read(container, CREDENTIALS["azure"], account) == BODY[4:10]


@pytest.mark.parametrize("kind", [kind for kind in PREFIXES if kind != "tigris"])
def test_a_build_authorizes_a_server_of_the_repository_only_if_its_sources_lie_there(
    listeners, kind, monkeypatch
):
    """What a build reads back, to verify it, lies where a container of the repository says."""
    prefix, name = PREFIXES[kind], SPELLINGS[kind][0]
    good, evil = listeners.good.url, listeners.evil.url
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "trusted")
    keys = CREDENTIALS[kind]
    for access in (
        {prefix: keys},
        {prefix: (ObjectStoreConfig(kind, reaching(kind, name, good)), keys)},
    ):
        found = SourceAccess.of(access).authorization([(prefix, evil)])
        assert found == {prefix: keys}
    assert SourceAccess.of(access).authorization([(prefix, good)]) == {(prefix, good): keys}
    assert SourceAccess.of(access).authorization([prefix]) == {prefix: keys}


# -- headers -----------------------------------------------------------------------------------

FORBIDDEN = [
    "Host", "Authorization", "Range", "Cookie", "Cookie2", "Transfer-Encoding", "Content-Length",
    "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect", "Proxy-Authorization",
    "Proxy-Connection", "X-Amz-Security-Token", "X-Amz-Date", "X-Ms-Version", "X-Goog-User-Project",
    "X-Forwarded-Host", "X-Http-Method-Override", "X-Original-Url", "If-Match", "Accept-Encoding",
    "Origin", "", " accept", "accept ", "accept:", "a\r\nHost", "Ho\u017ft", "hosT", "range\x00",
]  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_header_that_is_not_in_the_list_is_refused(listeners, name):
    for case in {name, name.lower(), name.upper(), name.swapcase()}:
        container = container_of(
            "http", {"headers": {case: "127.0.0.1"}}, f"{listeners.good.url}/data/"
        )
        with pytest.raises(InvalidInputError, match="header"):
            read(container, None)
    assert listeners.good.received == b""


@pytest.mark.parametrize(
    "value", ["a\r\nHost: x", "a\nb", "a\rb", "a\x00b", "", "\u00e9", "\u010a", 1, None, ["a"]],
    ids=repr,
)  # fmt: skip
def test_a_header_with_a_line_end_or_beyond_ascii_is_refused(listeners, value):
    container = container_of("http", {"headers": {"accept": value}}, f"{listeners.good.url}/data/")
    with pytest.raises(InvalidInputError, match="header"):
        read(container, None)
    assert listeners.good.received == b""


def test_a_header_of_the_list_is_sent_and_one_of_the_reader_replaces_it(listeners):
    headers = {"Accept-Language": "en", "X-API-Key": "of the repository"}
    container = container_of("http", {"headers": headers}, f"{listeners.good.url}/data/")
    assert read(container, icevirt.http_credentials(headers={"X-Api-Key": "CANARY"})) == BODY[4:10]
    assert b"accept-language: en" in listeners.good.received
    assert b"of the repository" not in listeners.good.received


# -- the oracle --------------------------------------------------------------------------------

FINISHED = {
    "Amazon": ("s3", {}, {}),
    "Amazon, a region": ("s3", {"region": "eu-north-1"}, {}),
    "Amazon, path style": ("s3", {"force_path_style": True}, {}),
    "an endpoint": ("s3", {"endpoint_url": "https://minio.example:9000"}, {}),
    "an endpoint with a path": ("s3", {"endpoint_url": "https://gateway.example/s3/"}, {}),
    "an endpoint with the bucket": ("s3", {"endpoint_url": "https://bucket.oss.example"}, {}),
    "of the environment": ("s3", {}, {"AWS_ENDPOINT_URL": "https://env.example"}),
    "of the environment, for S3": ("s3", {}, {"AWS_ENDPOINT_URL_S3": "https://env.example"}),
    "both": (
        "s3", {"endpoint_url": "https://a.example"}, {"AWS_ENDPOINT_URL_S3": "https://env.example"},
    ),
    "the region of the environment": ("s3", {}, {"AWS_REGION": "ap-east-1"}),
    "Tigris": ("tigris", {}, {}),
    "an account": ("azure", {"account": "trusted"}, {}),
    "an endpoint of Azure": ("azure", {"account": "trusted", "endpoint": "https://a.example"}, {}),
    "an account of the environment": ("azure", {}, {"AZURE_STORAGE_ACCOUNT_NAME": "theirs"}),
    "both accounts": (
        "azure", {"account": "trusted"}, {"AZURE_STORAGE_ACCOUNT_NAME": "theirs"},
    ),
    "an endpoint of the environment": (
        "azure", {"account": "trusted"}, {"AZURE_STORAGE_ENDPOINT": "https://env.example"},
    ),
    "the emulator": ("azure", {"account": "trusted"}, {"AZURE_STORAGE_USE_EMULATOR": "true"}),
    "fabric": ("azure", {"account": "trusted"}, {"AZURE_USE_FABRIC_ENDPOINT": "true"}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "said"), FINISHED.values(), ids=FINISHED.keys())
def test_the_computed_server_is_the_one_that_the_library_signs_for(
    listeners, kind, options, said, monkeypatch
):
    monkeypatch.delenv("AZURE_STORAGE_SAS_TOKEN")
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    key = icevirt.azure_credentials(access_key=base64.b64encode(b"CANARYkey").decode())
    credentials = key if kind == "azure" else CREDENTIALS[kind]
    container = container_of(kind, options)
    bucket = bucket_of(container.url_prefix, canonical(container), credentials)
    signed = obstore.sign(bucket.store(), "GET", "a", timedelta(minutes=1))
    host = urlsplit(signed).netloc.removeprefix("bucket.") if kind != "azure" else ""
    wanted = urlsplit(bucket.endpoint).netloc
    assert (host or urlsplit(signed).netloc) == wanted.removeprefix("bucket.")
    assert signed.startswith(bucket.endpoint.split("://")[0] + "://")
