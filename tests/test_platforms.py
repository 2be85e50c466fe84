"""Names that not every system has stand in a few modules, and without Linux' own all works.

docs/installing.md says on which systems icevirt is known to work, and what it lacks elsewhere.
"""

import io
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from builds.support import write_days

ROOT = Path(__file__).parents[1]
LINUX = (
    "O_TMPFILE O_PATH RWF_NOWAIT RWF_HIPRI memfd_create sched_getaffinity sched_setaffinity preadv"
    " pidfd_open pidfd_send_signal posix_fadvise posix_fallocate fdatasync copy_file_range splice"
    " eventfd getrandom setns unshare prctl epoll O_DIRECT"
).split()
POSIX = (
    "fcntl resource pwd grp termios waitpid waitstatus_to_exitcode kill killpg setsid"
    " geteuid getuid chown O_DIRECTORY O_NOFOLLOW O_NONBLOCK pread dir_fd src_dir_fd dst_dir_fd"
    " SIGALRM SIGKILL SIGHUP SIGUSR1 setitimer strsignal getpagesize statvfs mkfifo AF_UNIX"
).split()
ON_LINUX = {  # each asks first whether the system has it, and goes on without
    "icevirt/api/update.py": "/proc",
    "icevirt/connect/library.py": "/proc memfd_create",
    "icevirt/execution/executor.py": "sched_getaffinity",
    "icevirt/objects/fetch.py": "O_PATH RWF_NOWAIT preadv",
    "icevirt/storage/durable.py": "/proc O_TMPFILE",
    "icevirt/storage/file_systems.py": "/proc",
    "icevirt/tasks/forkserver.py": "/proc",
    "scanners/icevirt_scanners/hdf5/files.py": "/proc",
}
ON_POSIX = {
    *("icevirt/api/events.py", "icevirt/api/update.py", "icevirt/repo/made_here.py"),
    *("icevirt/execution/java.py", "icevirt/execution/local_executors.py"),
    *("icevirt/objects/chunk_cache.py", "icevirt/objects/fetch.py", "icevirt/objects/source.py"),
    *("icevirt/storage/durable.py", "icevirt/storage/file_systems.py", "icevirt/storage/local.py"),
    *("icevirt/objects/store_listings.py", "icevirt/objects/stores.py"),
    "icevirt/tasks/forkserver.py",
}


def names_in(path: Path, wanted: frozenset[str]) -> set[str]:
    """Return which names the code of a module uses, paths below /proc among them."""
    text = path.read_text()
    if not re.search(rf"/proc/|\b({'|'.join(wanted)})\b", text):
        return set()
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_text = token.type in (tokenize.STRING, tokenize.FSTRING_MIDDLE)
        if is_text and re.match(r"""[rbfRBF]*["']?/proc/""", token.string):
            found.add("/proc")
        found |= {token.string} & wanted if token.type == tokenize.NAME else set()
        literal = token.string.strip("\"'")  # of `hasattr(os, ...)`
        found |= {literal} & wanted if token.type == tokenize.STRING else set()
    return found


def used(names: list[str]) -> dict[str, str]:
    wanted = frozenset(names)
    paths = [*ROOT.glob("icevirt/**/*.py"), *ROOT.glob("scanners/**/*.py")]
    uses = {path.relative_to(ROOT).as_posix(): names_in(path, wanted) for path in paths}
    return {path: " ".join(sorted(found)) for path, found in uses.items() if found}


def test_names_of_some_systems_stand_in_a_few_modules():
    found = used([*LINUX, *POSIX])
    of_linux = {path: {*names.split()} & {*LINUX, "/proc"} for path, names in found.items()}
    assert {path: names for path, names in of_linux.items() if names} == {
        path: {*names.split()} for path, names in ON_LINUX.items()
    }
    assert {path for path, names in found.items() if {*names.split()} & {*POSIX}} == ON_POSIX


def test_windows_is_refused_by_name():
    program = "import sys; sys.platform = 'win32'; import icevirt"
    ran = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("ImportError: icevirt does not run on Windows")


WITHOUT = """
import builtins, io, os, sys

sys.modules["psutil"] = None  # dask has it where it is there, and its Linux form reads /proc
for name in NAMES:
    vars(os).pop(name, None)
    vars(sys.modules["posix"]).pop(name, None)

def without_proc(function):
    def call(path, *arguments, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "there is no /proc", path)
        return function(path, *arguments, **options)
    return call

for module, names in {
    builtins: ["open"], io: ["open", "open_code"], os: ["open", "stat", "lstat", "readlink", "link"]
}.items():
    for name in names:
        setattr(module, name, without_proc(getattr(module, name)))
was = os.path.isdir
os.path.isdir = lambda path: not str(path).startswith("/proc") and was(path)
"""
PROGRAM = """
import os, sys
import icevirt

if __name__ == "__main__":
    archive, repo = sys.argv[1:]
    assert not hasattr(os, "O_TMPFILE") and not os.path.exists("/proc/self")
    kept = os.path.join(os.path.dirname(repo), "later.nc")
    os.rename(f"{archive}/day3.nc", kept)
    first = icevirt.build(archive, repo, concat_dim="time", executor="processes")
    os.rename(kept, f"{archive}/day3.nc")
    assert icevirt.update(repo, executor="in-process").files_added == 1
    assert icevirt.verify(repo, executor="in-process").ok
    print(first.open()["packed"].sizes["time"], icevirt.open(repo)["packed"].sizes["time"])
"""


@pytest.mark.ci
def test_builds_updates_and_reads_without_what_only_linux_has(tmp_path):
    write_days(tmp_path / "archive")
    names = [each for each in LINUX if each != "sched_getaffinity"]  # os itself has functions of it
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(f"NAMES = {names!r}{WITHOUT}")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT), str(ROOT / "scanners")])
    ran = subprocess.run(
        [sys.executable, program, tmp_path / "archive", tmp_path / "repo"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["8", "12"]
