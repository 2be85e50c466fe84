"""Let Java find the classes of Spark in an archive, as JVMs of the tests then start in half the time.

`just ci` makes the archive behind the tests of the fast tier, for the second tier, which starts
dozens of JVMs. Without it all tests run, too. It is for the Java that icevirt finds; a JAVA_HOME of
the user's wins.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent / "build" / "java"
_SINGLE_STEP = 25  # the first Java that writes all classes at once, its own included
_PATIENCE = 240  # seconds

TRAINING = """
import sys
from icevirt.execution import spark_session as sessions

settings = sessions._settings
def with_option(cores):
    known = settings(cores)
    name = "spark.driver.extraJavaOptions"
    return known | {name: f"{known[name]} {sys.argv[1]}"}
sessions._settings = with_option

def stage(batches):
    yield from batches

session = sessions.local_session(cores=2)
assert len(session.range(0, 10, 1, 2).mapInArrow(stage, "id long").collect()) == 10
assert session.createDataFrame([(1, "a")], "n long, s string").groupBy("s").count().count() == 1
assert session.sparkContext.parallelize([1, 2], 2).map(str).collect() == ["1", "2"]
"""

SCRIPT = """\
#!/bin/sh
# Made by tests/java_classes.py; an archive that does not suit is ignored in silence.
exec {java} {option} -Xlog:disable "$@"
"""


SOON = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""What sessions of icevirt's own have; those of programs that make theirs end as soon."""


def use_archive(environment: MutableMapping[str, str]) -> None:
    """Let what reads this environment start Java soon, and with the archive, if there is one."""
    environment.setdefault("SPARK_SUBMIT_OPTS", SOON)
    if "JAVA_HOME" not in environment and (HOME / "bin" / "java").is_file():
        environment["JAVA_HOME"] = str(HOME)


def make_archive() -> None:
    """Start a session that writes down at its end which classes it had."""
    shutil.rmtree(HOME, ignore_errors=True)
    sys.path.insert(0, str(HOME.parent.parent))
    from icevirt.execution.java import find_java

    java, archive = find_java(), HOME / "classes"
    one_step = java.version >= _SINGLE_STEP
    made = "-XX:AOTCacheOutput" if one_step else "-XX:ArchiveClassesAtExit"
    used = "-XX:AOTCache" if one_step else "-XX:SharedArchiveFile"
    HOME.mkdir(parents=True)
    # the session ends with its process, and its JVM, whose parent is gone, holds stdout until then
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, f"{made}={archive}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as training:
        try:
            said, _ = training.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(training.pid, signal.SIGKILL)
            raise
    assert training.returncode == 0, said
    if not archive.is_file():  # like a trimmed Java before 25, which has none of its own classes
        sys.stdout.write(f"{java.path} makes no archive of its classes\n")
        return
    script = HOME / "bin" / "java"
    script.parent.mkdir()
    text = SCRIPT.format(java=shlex.quote(str(java.path)), option=shlex.quote(f"{used}={archive}"))
    script.write_text(text)
    script.chmod(0o755)


if __name__ == "__main__":
    os.environ.pop("JAVA_HOME", None)
    make_archive()
