"""A server that redirects gets no credential to another: what is refused, and what is exempt."""

import re
from contextlib import suppress

import pytest

import icevirt
from access.hostile.canaries import (
    BODY,
    CANARIES,
    CREDENTIALS,
    EVERY,
    HEADERS,
    PREFIXES,
    SPELLINGS,
    container_of,
    reaching,
    read,
)
from icevirt.errors import IcevirtError, UnauthorizedError
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.objects.source_access import SourceAccess


@pytest.mark.parametrize("to", ["evil", "evil_tls"], ids=["to plain", "to TLS"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(("kind", "credentials"), EVERY.values(), ids=EVERY.keys())
def test_a_redirect_of_an_authorized_server_takes_no_credential_along(
    listeners, kind, credentials, secure, to
):
    good = listeners.good_tls if secure else listeners.good
    good.redirect = f"{getattr(listeners, to).url}/data/a.bin"
    container = container_of(kind, reaching(kind, SPELLINGS[kind][0], good.url))
    with suppress(IcevirtError):  # what obstore signs in a header is followed, and not signed there
        read(container, credentials, good.url)
    assert good.received
    assert listeners.leaked() == []
    if secure:
        assert listeners.evil.received == b"", "no redirect undoes encryption"


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_redirect_that_would_repeat_a_secret_is_refused(listeners, kind):
    good, evil = listeners.good, listeners.evil
    good.redirect = f"{evil.url}/data/a.bin"
    container = container_of(kind, reaching(kind, SPELLINGS[kind][0], good.url))
    with pytest.raises(UnauthorizedError, match="redirects to") as caught:
        read(container, CREDENTIALS[kind], good.url)
    assert evil.received == b""
    assert not CANARIES.search(str(caught.value).encode())


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_scan_of_a_file_takes_no_secret_along_a_redirect(listeners, kind):
    good, evil = listeners.good, listeners.evil
    good.redirect = f"{evil.url}/data/a.bin"
    store = ObjectStoreConfig(kind, reaching(kind, SPELLINGS[kind][0], good.url))
    access = SourceAccess.of({PREFIXES[kind]: (store, CREDENTIALS[kind])})
    from icevirt.objects.source import RemoteSource
    from icevirt.objects.source_access import grant_access

    with grant_access(access), pytest.raises(UnauthorizedError, match="redirects to"):
        RemoteSource(PREFIXES[kind] + "a.nc")
    assert b"CANARY" in good.received
    assert listeners.leaked() == []


@pytest.mark.parametrize("credentials", HEADERS.values(), ids=HEADERS.keys())
@pytest.mark.parametrize("listed", [False, True], ids=["not listed", "listed"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_a_web_server_sends_no_credential_elsewhere(listeners, credentials, listed, secure):
    good = listeners.good_tls if secure else listeners.good
    evil = listeners.evil_tls if secure else listeners.evil
    options = {"redirect_hosts": evil.host} if listed else {}
    container = container_of("http", options, f"{good.url}/data/")
    assert read(container, credentials) == BODY[4:10]
    assert CANARIES.search(good.received)
    good.redirect = f"{evil.url}/data/a.bin"
    with suppress(UnauthorizedError):
        assert read(container, credentials) == b"EVILEV"
    assert bool(evil.received) is listed
    assert listeners.leaked() == []


# -- what is exempt ----------------------------------------------------------------------------

EXEMPT = {
    "S3: the session token": ("CANARYtoken", "CANARY(keyid|secret)"),
    "Azure: the shared access signature": ("CANARYsignature", "CANARYkey"),
    "web: headers but authorization and cookie": ("CANARYheader", "CANARY(bearer|cookie)"),
}


def storages(url):
    """Return storages that their caller names, with what obstore repeats and what it does not."""
    s3 = {"bucket": "bucket", "prefix": "p", "endpoint_url": url, "allow_http": True}
    keys = {"access_key_id": "CANARYkeyid", "secret_access_key": "CANARYsecret"}
    azure = {"account": "trusted", "container": "bucket", "prefix": "p"}
    headers = {
        "x-secret": "CANARYheader",
        "authorization": "CANARYbearer",
        "cookie": "CANARYcookie",
    }
    return dict(
        zip(
            EXEMPT,
            [
                icevirt.s3_storage(**s3, **keys, session_token="CANARYtoken"),
                icevirt.azure_storage(
                    **azure,
                    sas_token="sv=2020&sig=CANARYsignature",
                    config={"endpoint": url, "allow_http": "true"},
                ),
                icevirt.http_storage(f"{url}/p", headers=headers),
            ],
            strict=True,
        )
    )


@pytest.mark.parametrize("exempt", EXEMPT)
def test_a_storage_that_its_caller_names_and_that_redirects_repeats_what_is_exempt(
    listeners, exempt
):
    """Repositories and listings of sources: obstore has no option about redirects."""
    good, evil = listeners.good, listeners.evil
    good.redirect = f"{evil.url}/p/repo"
    repeated, kept = EXEMPT[exempt]
    with suppress(IcevirtError):
        storages(good.url)[exempt].get("repo")
    assert good.received
    assert set(listeners.leaked()) <= {b"CANARY"}
    assert not re.search(kept.encode(), evil.received)
    names = set(re.findall(rb"CANARY[a-z]+", evil.received))
    assert names == {repeated.encode()}, "obstore repeats no more: take the exemption out"
