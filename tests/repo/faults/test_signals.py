"""SIGINT, SIGTERM and SIGKILL wherever they strike: the repository is as before or as after.

A signal is sent from within, at each line of the code that writes, so that every place between two
system calls is met, and none twice. SIGKILL ends a forked child, as SIGTERM does where nobody catches
it. SIGINT ends the act, and the same `Repository` goes on. The official client reads what is left, and commits to it. The tests
take every few lines; `just signals` takes all of them.
"""

import functools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import icechunk
import pytest
import zarr

import icevirt
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage
from repo.faults import test_crashes
from repo.support import array_json, group_json, sound
from repo.v1 import upgrading

pytestmark = [pytest.mark.ci, pytest.mark.slow]

SIGNALS = (signal.SIGKILL, signal.SIGINT)
STEP = 1 if os.environ.get("ICEVIRT_SIGNALS") == "all" else 75
PACKAGE = Path(icevirt.__file__).parent
WRITING = frozenset(
    str((PACKAGE / name).resolve(strict=True))
    for name in (
        *("storage/local.py", "storage/durable.py", "repo/assets.py", "repo/session.py"),
        *("repo/repo_info_file.py", "repo/creation.py", "repo/commits/commit.py"),
        *("repo/settings.py", "repo/maintenance/content_names.py"),
        *("repo/maintenance/garbage_collection.py", "repo/v1/files.py", "repo/v1/upgrade.py"),
    )
)


class Lines:
    """Calls a function when a line of the code that writes is about to run for the first time."""

    def __init__(self, at: int = 0, do: Callable[[], None] = lambda: None) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.at, self.do = at, do

    def __enter__(self):
        sys.settrace(self._called)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _called(self, frame, event, _):
        return self._ran if frame.f_code.co_filename in WRITING else None

    def _ran(self, frame, event, _):
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in self.seen:
            self.seen.add(place)
            if len(self.seen) == self.at:
                self.do()
        return self._ran


def count(act, storage) -> int:
    with Lines() as lines:
        act(Repository.open(storage))
    return len(lines.seen)


def ended(act, path, at, number) -> int:
    """Act in a child that sends itself a signal at a line; return what ended it, 0 for the end."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with Lines(at, lambda: os.kill(os.getpid(), number)):
                act(Repository.open(LocalStorage(path)))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def official(path):
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def goes_on(path, repo=None) -> None:
    """Both clients read and commit."""
    repo = repo or Repository.open(path)
    before = len(list(repo.ancestry(branch="main")))
    session = repo.writable_session("main")
    session.add_group("/ours", group_json())
    session.commit("ours")
    theirs = official(path)
    session = theirs.writable_session("main")
    zarr.create_group(session.store, path="theirs")
    session.commit("theirs")
    assert [output.message for output in theirs.ancestry(branch="main")][:2] == ["theirs", "ours"]
    assert len(list(repo.ancestry(branch="main"))) == before + 2
    assert sound(LocalStorage(path))


def act_content(repo):
    """Commit chunks that are named by their content, which are listed first."""
    again = Repository.open(repo.storage, content_addressed_chunks=True)
    session = again.writable_session("main")
    session.set_chunk("/n", [1], test_crashes.LARGE)
    session.commit("content")


ACTS = {
    "commit": test_crashes.act_commit,
    "content": act_content,
    "collect": test_crashes.act_collect,
    "expire": test_crashes.ACTS["expire"],
}


def made(tmp_path, name) -> str:
    return str(test_crashes.prepared("local", tmp_path)._root)


@functools.cache
def whole(name) -> tuple[set[str], int]:
    """Let an act end; return the states that it goes through, and how many lines it runs."""
    with tempfile.TemporaryDirectory() as folder:
        allowed = test_crashes.steps(ACTS[name], lambda: test_crashes.prepared("local", folder))
        return allowed, count(ACTS[name], LocalStorage(made(folder, name)))


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", ACTS)
def test_a_signal_during(name, number, tmp_path):
    act = ACTS[name]
    allowed, lines = whole(name)
    # so that the signals do not all take the same lines
    first = 1 + list(signal.Signals).index(number) % STEP
    struck = 0
    for at in range(first, lines + 1, STEP):
        path, repo = made(tmp_path, name), None
        if number == signal.SIGINT:
            repo = Repository.open(path)
            try:
                with Lines(at, lambda: signal.raise_signal(signal.SIGINT)):
                    act(repo)
            except KeyboardInterrupt:
                struck += 1
        else:
            code = ended(act, path, at, number)
            assert code == -number
            struck += 1
        assert test_crashes.state(LocalStorage(path)) in allowed
        goes_on(path, repo)
        shutil.rmtree(path)
    assert struck > lines // STEP // 2


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_an_upgrade(number, tmp_path):
    """It is V1 or V2 or, to the official client, closed; and the next upgrade goes on."""
    template = upgrading.written(tmp_path / "v1")
    expected = upgrading.history(LocalStorage(template))

    def act(repo):
        repo.upgrade(prefetch_concurrency=1)

    def copied():
        path = tmp_path / "copy"
        shutil.rmtree(path, ignore_errors=True)
        return str(shutil.copytree(template, path))

    lines = count(act, LocalStorage(copied()))
    for at in range(1 + number % STEP, lines + 1, STEP):
        path = copied()
        if number == signal.SIGINT:
            repo = Repository.open(path)
            try:
                with Lines(at, lambda: signal.raise_signal(signal.SIGINT)):
                    act(repo)
            except KeyboardInterrupt:
                pass
        else:
            assert ended(act, path, at, number) == -number
        assert upgrading.history(LocalStorage(path)) == expected
        sealed = os.path.exists(f"{path}/repo") and os.path.exists(f"{path}/refs")
        try:
            assert [output.id for output in official(path).ancestry(branch="main")] == expected
        except icechunk.FormatError:  # it takes a sealed branch of V1 for the repository
            assert sealed
        Repository.open(path).upgrade()
        assert [output.id for output in official(path).ancestry(branch="main")] == expected
        assert upgrading.history(LocalStorage(path)) == expected
        goes_on(path)


def test_a_session_that_was_interrupted_before_its_commit_commits_once_more(tmp_path):
    """Changes are kept, and no half of them is published."""
    path = made(tmp_path, "again")
    repo = Repository.open(path)
    session = repo.writable_session("main")
    session.set_chunks("/a", test_crashes.chunk(5, 5))
    session.set_metadata("/n", array_json((24,), attributes={"by": "us"}))
    with (
        pytest.raises(KeyboardInterrupt),
        Lines(12, lambda: signal.raise_signal(signal.SIGINT)),
    ):
        session.commit("once")
    assert session.has_uncommitted_changes
    session.commit("once")
    assert [output.message for output in official(path).ancestry(branch="main")].count("once") == 1
    assert sound(LocalStorage(path))
