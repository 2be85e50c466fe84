"""Servers of the archive, of an attacker, and the wall before the internet."""

import os
from contextlib import ExitStack
from functools import partial

import pytest

from access.hostile.canaries import BODY, CLOUDS, Place
from icevirt.connect import retry, stores
from icevirt.objects import web_client as client
from icevirt.objects import web_connections as connections
from servers.listeners import listening, write_authority


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        start = lambda **how: stack.enter_context(listening(**how))  # noqa: E731
        made = Place(
            good=start(body=BODY),
            good_tls=start(body=BODY, tls=True),
            evil=start(body=b"EVIL" * 10),
            evil_tls=start(body=b"EVIL" * 10, tls=True),
            wall=start(body=None),
        )
        for name in [name for name in os.environ if name.startswith(CLOUDS)]:
            patch.delenv(name)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.setenv(name, made.wall.url)
            patch.setenv(name.lower(), made.wall.url)
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost")
        authority = tmp_path_factory.mktemp("tls") / "ca.pem"
        patch.setenv("SSL_CERT_FILE", write_authority(authority))
        patch.setenv("AWS_ACCESS_KEY_ID", "CANARYkeyid")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "CANARYsecret")
        patch.setenv("AWS_SESSION_TOKEN", "CANARYtoken")
        patch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2020&sp=r&sig=CANARYsignature")
        # walls and strangers are not asked twice
        patch.setattr(stores, "_RETRIES", stores._NO_RETRIES)
        patch.setattr(retry, "TOTAL", 0.0)
        patch.setattr(retry, "_UNKNOWN", 0.0)
        patch.setattr(client, "RetryPolicy", partial(client.RetryPolicy, tries=1))
        connections._trust.cache_clear()
        yield made
    connections._trust.cache_clear()


@pytest.fixture
def listeners(place):
    place.forget()
    return place
