"""Which tests run: without arguments the fast ones; `just ci` runs the others as well.

A test belongs to the second tier where it is marked ``ci``, or where it needs a server that is a
process of its own. Whatever names tests (a path, ``-k``, ``-m``, ``--lf``) selects from all of them.
"""

import os
from collections.abc import Iterator

import pytest

from servers.fixtures import needs_a_process

TIERS = ("fast", "rest", "all")
TOO_SLOW = 4.0  # seconds of a test, beyond which the fast tier names it
_NAMED = (pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.INVOCATION_DIR)
_LEFT_OUT = pytest.StashKey[int]()
_SLOW = pytest.StashKey[dict[str, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=TIERS,
        help="Tests to run: fast (what a run without arguments means), rest (all that it leaves"
        " out), or all (what naming tests means).",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Iterator[None]:
    """Resolve the tier, and share a whole tier among processes, before xdist starts them."""
    option = config.option
    names_tests = config.args_source not in _NAMED or any(
        (option.keyword, option.markexpr, option.lf, option.failedfirst, option.stepwise)
    )
    if option.tier is None and not hasattr(config, "workerinput"):
        option.tier = "all" if names_tests else "fast"
    if (
        not names_tests
        and option.numprocesses is None
        and not (option.usepdb or option.collectonly)
    ):
        option.numprocesses = max(2, min(4, os.cpu_count() or 2))
    if option.dist == "no":
        option.dist = "loadgroup"  # what it does alone: one process owns the Spark session
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = 0
    config.stash[_SLOW] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other tier."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group("spark"))
        if needs_a_process(item):
            item.add_marker("ci")
    tier = config.option.tier
    if tier == "all":
        return
    kept, left_out = [], []
    for item in items:
        later = item.get_closest_marker("ci") is not None
        (kept if later == (tier == "rest") else left_out).append(item)
    config.stash[_LEFT_OUT] = len(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that began the others how many tests they left out."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = config.stash[_LEFT_OUT]


class _Workers:
    """Hooks of pytest-xdist, which is there or not."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        output = getattr(node, "workeroutput", None)
        if output is not None:
            node.config.stash[_LEFT_OUT] = output["left_out"]  # type: ignore[attr-defined]
