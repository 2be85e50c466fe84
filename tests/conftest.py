"""What all tests share: one Spark session, servers, the real sample files, hypothesis profiles."""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import java_classes
from long_forms import IS_LONG

if sys.dont_write_bytecode and "PYTHONDONTWRITEBYTECODE" in os.environ:
    # hundreds of processes start during the tests; each would compile all that it imports, for
    # three seconds. What they compile goes with the checkout.
    sys.dont_write_bytecode = False
    del os.environ["PYTHONDONTWRITEBYTECODE"]
    sys.pycache_prefix = str(Path(__file__).resolve().parent.parent / "build" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# builds of the tests are no builds of this user
os.environ["XDG_STATE_HOME"] = _state = tempfile.mkdtemp(prefix="icevirt-tests-state-")
atexit.register(shutil.rmtree, _state, ignore_errors=True)

java_classes.use_archive(os.environ)

if TYPE_CHECKING:
    from icevirt.execution.executor import Executor

pytest_plugins = ["servers.fixtures", "builds.fixtures", "tiers"]

# the same examples in every run: only the nightly one looks for new ones
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
LONGER = 40  # times as many examples has the nightly profile where a test says itself how many


_AS_OTHERS_START_IT = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that say how many examples they have more of them, in the nightly profile."""
    if not IS_LONG:
        return
    for function in {getattr(item, "function", None) for item in items}:
        held = getattr(function, "_hypothesis_internal_use_settings", None)
        if held is not None and held.max_examples < settings.default.max_examples:
            more = settings(held, max_examples=LONGER * held.max_examples)
            function._hypothesis_internal_use_settings = more


gc.disable()  # collections would walk over what is imported and collected again and again


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections, which walked over all of them."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage while tests run."""
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    """Let tests share a fork server, which starts anew where a variable changed."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Do the same in tests without fixtures."""
    pytest_fixture_setup()


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One local Spark session for all tests that are marked so, which plans as the callers' do."""
    from icevirt.execution.spark_session import local_session

    session = local_session(app_name="icevirt-tests", cores=2, config=_AS_OTHERS_START_IT)
    yield session
    session.stop()


@pytest.fixture
def in_process() -> "Iterator[Executor]":
    """Tasks run in this process, one after the other; a test may act between the stages."""
    from executors import StagedExecutor
    from icevirt.execution.selection import default_executor

    executor = StagedExecutor()
    with default_executor(executor):
        yield executor


@pytest.fixture(scope="session")
def stub_site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Directory of an installed scanner of tests: children of all tests come from one fork server."""
    from tasks.stub_scanner import install

    return install(tmp_path_factory.mktemp("stub") / "site")


@pytest.fixture(scope="session")
def sample_data() -> Path:
    """Directory of the real files of iris-sample-data."""
    import iris_sample_data

    return Path(iris_sample_data.path)


@pytest.fixture(scope="session")
def nemo_files(sample_data: Path) -> list[str]:
    """Three months of a real ocean model, one file each, in the order of time."""
    files = sorted(map(str, (sample_data / "NEMO").glob("*.nc")))
    assert len(files) == 3
    return files


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Directory on disk, where that of `tmp_path` may be in memory."""
    with tempfile.TemporaryDirectory(prefix="icevirt-tests-", dir="/var/tmp") as folder:
        yield Path(folder).resolve()


@pytest.fixture
def repo_path(tmp_path: Path) -> str:
    """Path for a repository that does not exist yet."""
    return str(tmp_path / "repo")


@pytest.fixture
def clean_env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Environment without the variables that steer Java and Spark."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Leave nothing of a command; fail the test that leaves a signal handler, not a later one."""
    if (notation := sys.modules.get("icevirt.remedy_notation")) is not None:
        notation.REPOSITORY.set("")  # of a command that ran in this process
    left = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert left is signal.SIG_DFL, f"this test left {left} as the handler of SIGTERM"


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str, str]]:
    """Run the command in this process; return status, stdout and stderr."""

    from icevirt.cli import main

    def command(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["icevirt", *map(str, words)])
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as stop:
                main.run()
        finally:
            signal.signal(signal.SIGTERM, before)
        output = capsys.readouterr()
        return stop.value.code, output.out, output.err

    return command
