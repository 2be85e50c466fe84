"""A driver that is killed while references are written leaves the old version or the new one.

``just reference-deaths`` kills at every moment, into a repository that is there and into a new one.
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import icevirt
import icevirt.spark
from icevirt import VirtualChunkContainer, local_filesystem_store

MOMENTS = ("mapping", "first manifest", "all manifests", "before the commit", "behind the commit")
IS_LONG = bool(os.environ.get("ICEVIRT_REFERENCE_DEATHS"))
CASES = [(moment, is_new) for moment in MOMENTS for is_new in (False, True)]
ARRAYS = 4
CHUNKS = 50

PROGRAM = """
    import os
    import signal
    import sys
    import threading
    import time
    from pathlib import Path

    import icevirt.spark
    from icevirt.execution.spark_session import local_session
    from icevirt.repo.repo_info_file import RepoInfoFile
    from icevirt.spark import writing
    from execution.test_reference_deaths import write

    repo, folder, moment = sys.argv[1:]

    def die(*_):
        os.killpg(0, signal.SIGKILL)

    def watch():
        there = Path(repo, "manifests")
        before = len(list(there.glob("*")))
        while len(list(there.glob("*"))) <= before:
            time.sleep(0.001)
        die()

    def behind(name):
        real = getattr(RepoInfoFile, name)
        def run(*given):
            real(*given)
            die()
        setattr(RepoInfoFile, name, run)

    spark = local_session(app_name="references", cores=2)
    match moment:
        case "mapping":
            threading.Timer(0.5, die).start()
        case "first manifest":
            threading.Thread(target=watch, daemon=True).start()
        case "all manifests":
            writing._finished = die
        case "before the commit":
            RepoInfoFile.create = RepoInfoFile.swap = die
        case "behind the commit":
            behind("create")
            behind("swap")
    write(spark, repo, folder, "new")
"""


def wanted(name):
    """Return the metadata of the arrays, and the name of the file that all chunks lie in."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [CHUNKS],
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    }
    return {f"/v{number}": document for number in range(ARRAYS)}, f"{name}.bin"


def write(spark, repo, folder, name):
    """Let all chunks of all arrays lie in one file."""
    arrays, file = wanted(name)
    frame = spark.range(0, ARRAYS * CHUNKS, 1, 2).selectExpr(
        f"concat('/v', cast(id % {ARRAYS} as int)) as path",
        f"array(int(id / {ARRAYS})) as index",
        f"'file://{folder}/{file}' as location",
        f"8 * int(id / {ARRAYS}) as offset",
        "8 as length",
    )
    store = local_filesystem_store(folder)
    container = VirtualChunkContainer(f"file://{folder}/", store)
    return icevirt.spark.write_references(frame, repo, arrays=arrays, containers=[container])


def files_in(repo):
    """Return what the chunks lie in, and how many there are."""
    session = icevirt.Repository.open(repo).readonly_session("main")
    tables = [session.refs_table(f"/v{number}") for number in range(ARRAYS)]
    names = [url.rpartition("/")[2] for each in tables for url in each["location"].to_pylist()]
    return {*names}, len(names)


@pytest.mark.ci
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("moment", "is_new"), CASES if IS_LONG else [("first manifest", False)])
def test_a_kill_leaves_the_old_version_or_the_new(spark, tmp_path, moment, is_new):
    repo, folder = str(tmp_path / "repo"), str(tmp_path)
    if not is_new:
        write(spark, repo, folder, "old")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    with open(tmp_path / "told.txt", "w") as output:
        ran = subprocess.run(
            [sys.executable, program, repo, folder, moment],
            start_new_session=True,
            stdout=output,
            stderr=output,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert ran.returncode == -signal.SIGKILL, (tmp_path / "told.txt").read_text()[-3000:]
    new, old = ({"new.bin"}, ARRAYS * CHUNKS), ({"old.bin"}, ARRAYS * CHUNKS)
    if icevirt.Repository.exists(repo):
        assert files_in(repo) in ([new] if is_new else [new, old])
    else:
        assert is_new
    write(spark, repo, folder, "new")
    assert files_in(repo) == new
