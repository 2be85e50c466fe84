"""Coroutine tests are run to their end; zarr's test suite has many."""

import asyncio
import inspect
from contextlib import ExitStack

import icechunk
import pytest

from access.remote.hosts import Server
from servers.faults import Rules
from servers.ranges import Files
from servers.serving import served

icechunk.set_logs_filter("error")


# of xarray's tests, which are run here as they are
MARKERS = ("flaky", "asyncio", "network", "slow", "skip_if_param", "skip_with_dask_array")


def pytest_configure(config):
    for marker in MARKERS:
        config.addinivalue_line("markers", f"{marker}: of xarray's tests")


def pytest_runtest_setup(item):
    """Skip a test for the parameters that it says it cannot have."""
    for marker in item.iter_markers("skip_if_param"):
        output = dict(marker.kwargs)
        reason, condition = output.pop("reason", ""), output.pop("condition", True)
        given = getattr(item, "callspec", None)
        if condition and given and all(given.params.get(k) == v for k, v in output.items()):
            pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def servers():
    """Return a function that starts servers."""
    with ExitStack() as stack:

        def start() -> Server:
            files, rules = Files(), Rules()
            return Server(stack.enter_context(served(files.answer, rules)), files, rules)

        yield start


@pytest.fixture
def trusted(servers) -> Server:
    made = servers()
    made.put()
    return made


@pytest.fixture
def other(servers) -> Server:
    made = servers()
    made.put()
    return made
