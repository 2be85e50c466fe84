"""Which tests run, and in which process.

`uv run pytest` without arguments runs the fast tier and says what it left out. A test belongs to
the other tier where it is marked ``ci``, or where it needs a server that is a process of its own.
Naming tests (a path, ``-k``, ``-m``, ``--lf``) selects from both tiers.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Generator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter
from xdist.scheduler import LoadScopeScheduling

from collecting import Collecting
from servers.fixtures import needs_a_process

MEMORY = Path("/dev/shm")
ENOUGH = 6 << 30  # bytes that are free there; the fast tier takes 1 GiB, the second 3 GiB
TOO_SLOW = 5.0  # seconds; in CI the summary of the fast tier names tests that take longer
_SOURCES = (pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.INVOCATION_DIR)
_CHOICES = ("keyword", "markexpr", "lf", "failedfirst", "stepwise")
_REST = "uv run pytest --tier=rest"
_IN_CI = bool(os.environ.get("CI"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("fast", "rest", "all"),
        help="fast: what a run without arguments means; rest: the tests that it leaves out;"
        " all: what naming tests means.",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Choose tier and number of processes, before pytest-xdist starts them."""
    if (chosen := getattr(config, "workerinput", None)) is not None:
        config.option.tier = chosen["tier"]
        return (yield)
    _choose(config)
    folder = _keep_files_in_memory(config)
    status = yield
    if folder is not None and status != pytest.ExitCode.TESTS_FAILED:
        shutil.rmtree(folder, ignore_errors=True)
    return status


def _keep_files_in_memory(config: pytest.Config) -> Path | None:
    """Put temporary files where they cost no disk time; return the folder of this run.

    A run with failed tests leaves their files; the next run removes them.
    """
    if os.environ.get("PYTEST_DEBUG_TEMPROOT") or config.option.basetemp or "TMPDIR" in os.environ:
        return None
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH:
        return None
    for left in MEMORY.glob("icevirt-tests-*"):
        if not Path("/proc", left.name.split("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"icevirt-tests-{os.getpid()}-", dir=MEMORY))
    os.environ |= {"PYTEST_DEBUG_TEMPROOT": str(folder), "TMPDIR": str(folder)}
    tempfile.tempdir = None
    return folder


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass on the tier, and the file in which processes record which tests belong together."""
    node.workerinput |= {"tier": node.config.option.tier, "groups": _groups_of(node.config)}


def _groups_of(config: pytest.Config) -> str:
    return str(config._tmp_path_factory.getbasetemp() / "groups.json")


def _choose(config: pytest.Config) -> None:
    option = config.option
    chosen = any(getattr(option, name, None) for name in _CHOICES)
    named = chosen or config.args_source not in _SOURCES
    if option.tier is None:
        option.tier = "all" if named else "fast"
    if option.numprocesses is None and not (named or option.usepdb or option.collectonly):
        # more than there are cores: tests wait for the disk, those of the second tier for processes
        # and servers, too
        more = 3 if option.tier == "rest" else 1
        option.numprocesses = min(4, max(2, len(os.sched_getaffinity(0)))) + more
    if option.numprocesses and option.dist == "no":
        option.dist = "loadgroup"
        option.loadscopereorder = False


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return _Scheduling(config, log) if config.option.dist == "loadgroup" else None


class _Scheduling(LoadScopeScheduling):
    """A file's tests run in one process, which makes the file's fixtures once.

    So do those of an ``xdist_group``, such as all that need the Spark session. (pytest-xdist 3.8
    knows groups by node ids, which pytest 9.2 does not let it change.)
    """

    @cached_property
    def _groups(self) -> dict[str, str]:
        return json.loads(Path(_groups_of(self.config)).read_text())

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid) or nodeid.partition("::")[0]


class Tiers:
    """What this process left out, and which tests took long."""

    def __init__(self, config: pytest.Config, collecting: Collecting) -> None:
        self._tier, self._collecting = config.option.tier, collecting
        self.left_out = 0
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, Any, None]:
        """Leave out the tests of the other tier, and begin with what takes longest."""
        for item in items:
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker("spark")
                item.add_marker(pytest.mark.xdist_group("spark"))
            if needs_a_process(item):
                item.add_marker("ci")
        if self._tier != "all":
            later = self._tier == "rest"
            left = [item for item in items if bool(item.get_closest_marker("ci")) != later]
            items[:] = [item for item in items if bool(item.get_closest_marker("ci")) == later]
            fast, rest = (left, items) if later else (items, left)
            if not session.testsfailed:
                self._collecting.remember({"fast": fast, "rest": rest})
            self.left_out = len(left) + self._collecting.left_out
            config.hook.pytest_deselected(items=left)
        yield
        if chosen := getattr(config, "workerinput", None):
            items.sort(key=_turn)
            groups = {item.nodeid: mark.args[0] for item in items if (mark := _group_of(item))}
            unfinished = Path(f"{chosen['groups']}.{chosen['workerid']}")
            unfinished.write_text(json.dumps(groups))
            unfinished.replace(chosen["groups"])  # every process writes the same

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out = getattr(node, "workeroutput", {}).get("left_out", self.left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":  # what a session takes to start is no test's fault
            self._seconds[report.nodeid] = report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say what was left out, and in CI what is too slow for this tier.

        Elsewhere the machine may be slow, or busy: hundreds of lines would say no more than that.
        """
        if self._tier != "fast":
            return
        slow = {name: s for name, s in self._seconds.items() if s > TOO_SLOW}
        for name, seconds in sorted(slow.items(), key=lambda each: -each[1]) if _IN_CI else ():
            terminalreporter.write_line(f"SLOW {seconds:.0f} s: {name} (mark it ci?)")
        terminalreporter.write_line(
            f"{self.left_out} tests of the second tier were left out (kills, races, servers, both"
            f" clients, fuzz); they run by: {_REST}"
        )


def _group_of(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("xdist_group")


def _turn(item: pytest.Item) -> int:
    """Return how early a test begins: the Spark session first, then what is slow."""
    if _group_of(item):
        return 0
    return 1 if item.get_closest_marker("slow") else 2


def pytest_configure(config: pytest.Config) -> None:
    collecting = Collecting(config, complete=config.args_source in _SOURCES)
    if config.option.tier != "all" and collecting.complete:
        config.pluginmanager.register(collecting, "icevirt-collecting")
    config.pluginmanager.register(Tiers(config, collecting), "icevirt-tiers")
