"""A run without arguments runs the fast tests and says what it left out; naming tests runs all."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiers

TESTS = Path(__file__).parent
FILES = {
    "pytest.ini": "[pytest]\ntestpaths = tests\npythonpath = {tests}\nmarkers =\n  ci: second tier\n"
    "  spark: uses Spark\n  servers: uses servers\n  slow: begins first\n",
    "tests/conftest.py": """
        import pytest
        pytest_plugins = ["servers.fixtures", "tiers"]
        @pytest.fixture(scope="session")
        def spark():
            return "session"
        """,
    "tests/test_fast.py": """
        import os, pytest
        def test_quick(): pass
        def test_session(spark, worker_id, record_property): pass
        @pytest.mark.ci
        def test_kill(): pass
        """,
    "tests/test_only_fast.py": """
        with open("reads", "a") as file:
            file.write("x")
        def test_alone(): pass
        """,
    "tests/test_more.py": """
        import pytest
        def test_session_too(spark): pass
        @pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
        def test_place(place): pass
        """,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run pytest in a folder with tests of both tiers; return by test what became of it."""
    folder = tmp_path_factory.mktemp("tiers")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).format(tests=TESTS))

    def command(*words):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-v", *words],
            cwd=folder,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        passed = re.findall(r"\[(gw\d)\].*PASSED tests/\S+::(\S+)", done.stdout)
        workers = {test: worker for worker, test in passed}
        return workers, done.stdout

    command.folder = folder
    return command


def test_without_arguments_the_fast_tier_runs_in_several_processes(run):
    workers, out = run()
    assert set(workers) == {
        "test_quick",
        "test_session",
        "test_session_too",
        "test_place[local]",
        "test_alone",
    }, out
    assert workers["test_session"] == workers["test_session_too"]
    assert "2 tests of the second tier were left out" in out
    assert "uv run pytest --tier=rest" in out


@pytest.mark.parametrize(
    ("words", "ran"),
    [
        (["-k", "kill"], {"test_kill"}),
        (["tests/test_fast.py::test_kill"], {"test_kill"}),
        (["--tier=rest", "-k", "not s3"], {"test_kill"}),
    ],
    ids=["a keyword", "a node id", "the rest"],
)
def test_who_names_tests_gets_them_in_this_process(words, ran, run):
    workers, out = run(*words)
    assert not workers
    assert set(re.findall(r"tests/\S+::(\S+) PASSED", out)) == ran, out
    assert "left out" not in out


def test_files_without_tests_of_the_tier_are_not_read_until_they_change(run):
    reads, file = run.folder / "reads", run.folder / "tests" / "test_only_fast.py"
    run("--tier=fast", "-n", "0", "--collect-only")
    before = reads.stat().st_size
    _, out = run("--tier=rest", "-n", "0", "--collect-only")
    assert "test_kill" in out
    assert reads.stat().st_size == before
    text = file.read_text()
    file.write_text(f"{text}import pytest\n@pytest.mark.ci\ndef test_new(): pass\n")
    _, out = run("--tier=rest", "-n", "0", "--collect-only")
    file.write_text(text)
    assert "test_new" in out


@pytest.mark.parametrize("is_ci", [False, True], ids=["elsewhere", "CI"])
def test_tests_are_called_slow_in_ci_alone(is_ci, monkeypatch):
    """On a slow or busy machine hundreds of them take long."""
    monkeypatch.setattr(tiers, "_IN_CI", is_ci)
    config = SimpleNamespace(option=SimpleNamespace(tier="fast"))
    lines = []
    found = tiers.Tiers(config, None)
    found.pytest_runtest_logreport(SimpleNamespace(when="call", nodeid="tests/a.py::b", duration=9))
    found.pytest_terminal_summary(SimpleNamespace(write_line=lines.append))
    assert lines[:-1] == ["SLOW 9 s: tests/a.py::b (mark it ci?)"] * is_ci
    assert "left out" in lines[-1]


def test_no_file_says_twice_how_its_tests_are_marked():
    """The second would replace the first, and move the file to the other tier in silence."""
    twice = [
        path.name
        for path in TESTS.rglob("test_*.py")
        if len(re.findall(r"^pytestmark = ", path.read_text(), re.MULTILINE)) > 1
    ]
    assert not twice
