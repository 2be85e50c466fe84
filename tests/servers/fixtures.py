"""The fixtures of the object stores; see README.md."""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers import azurite, places
from servers import gcs as fake_of_gcs
from servers.faults import Rules
from servers.places import AzurePlace, GcsPlace, LocalPlace, Place, S3Place
from servers.processes import free_port, running
from servers.proxy import passing_on
from servers.ranges import Files
from servers.s3 import S3
from servers.serving import served

PROCESSES = {"s3_server", "azure_server", "gcs_server"}
SERVERS = PROCESSES | {"http_server", "strict_s3"}


def fresh(request: pytest.FixtureRequest) -> str:
    """Return a prefix that no other test has, and that tells which one it is."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"{name[:40]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of an S3 server with the bucket."""
    port = free_port()
    env = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "LOG_LEVEL": "ERROR"}
    with running([sys.executable, "-m", "ministack"], port=port, env=env):
        url = f"http://127.0.0.1:{port}"
        places.make_s3_bucket(url)
        yield url


@pytest.fixture(scope="session")
def azure_server() -> Iterator[str]:
    """The URL of an Azure server, account included, with the container."""
    if not azurite.installed():
        if os.environ.get("CI"):
            pytest.fail(f"Azurite is not installed: {azurite.REMEDY}")
        pytest.skip(f"Azurite is not installed: {azurite.REMEDY}")
    port = free_port()
    with running(azurite.command(port), port=port):
        url = f"http://127.0.0.1:{port}/{azurite.ACCOUNT}"
        places.make_azure_container(url)
        yield url


@contextmanager
def gcs_running(*, ahead: float = 0.0) -> Iterator[str]:
    """Run a GCS server whose clock is so many seconds ahead, and give its URL."""
    port = free_port()
    command = [sys.executable, str(Path(fake_of_gcs.__file__)), str(port), str(ahead)]
    with running(command, port=port):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[str]:
    """The URL of a GCS server."""
    with gcs_running() as url:
        yield url


@pytest.fixture
def s3(s3_server: str, request: pytest.FixtureRequest) -> S3Place:
    """A fresh place on S3."""
    return S3Place(endpoint=s3_server, prefix=fresh(request))


@pytest.fixture
def azure(azure_server: str, request: pytest.FixtureRequest) -> AzurePlace:
    """A fresh place on Azure."""
    return AzurePlace(endpoint=azure_server, prefix=fresh(request))


@pytest.fixture
def gcs(gcs_server: str, request: pytest.FixtureRequest) -> GcsPlace:
    """A fresh place on GCS."""
    return GcsPlace(endpoint=gcs_server, prefix=fresh(request))


@pytest.fixture
def local(tmp_path: Path) -> LocalPlace:
    """A fresh place on the local disk."""
    return LocalPlace(path=str(tmp_path / "place"))


KINDS = ("local", "s3", "azure", "gcs")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    """A fresh place on each kind of storage."""
    return request.getfixturevalue(request.param)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxied:
    """A place, also to be reached through a proxy that keeps to the rules."""

    direct: S3Place
    place: S3Place
    rules: Rules


@pytest.fixture
def s3_proxy(s3: S3Place) -> Iterator[Proxied]:
    """A fresh place on S3 behind a proxy whose rules the test sets."""
    rules = Rules()
    with served(passing_on(s3.endpoint), rules) as url:
        yield Proxied(direct=s3, place=S3Place(endpoint=url, prefix=s3.prefix), rules=rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictS3:
    """A place on a strict S3 of its own, whose rules and past the test sets."""

    place: S3Place
    cloud: S3
    rules: Rules


@pytest.fixture
def strict_s3() -> Iterator[StrictS3]:
    """A fresh place on a strict S3."""
    cloud, rules = S3(), Rules()
    with served(cloud.answer, rules) as url:
        yield StrictS3(place=S3Place(endpoint=url, prefix="repo"), cloud=cloud, rules=rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """A server of files for range reads."""

    url: str
    files: Files
    rules: Rules


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    """A server of files whose files and rules the test sets."""
    files, rules = Files(), Rules()
    with served(files.answer, rules) as url:
        yield HttpServer(url=url, files=files, rules=rules)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a server, so that ``-m 'not servers'`` leaves them out."""
    for item in items:
        if _uses_servers(item):
            item.add_marker("servers")


def needs_a_process(item: pytest.Item) -> bool:
    """Return whether a test needs a server that is a process of its own."""
    return _needs(item, PROCESSES)


def _uses_servers(item: pytest.Item) -> bool:
    return _needs(item, SERVERS)


def _needs(item: pytest.Item, servers: set[str]) -> bool:
    names = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    # a fixture or test that has a kind of storage as parameter asks for its place by that name
    kinds = callspec.params.values() if callspec and "request" in names else ()
    return bool(names & servers) or any(
        isinstance(kind, str) and kind in KINDS[1:] for kind in kinds
    )
