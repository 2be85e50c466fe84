"""What Spark puts on disk of tasks, which carry credentials, is for its owner alone."""

import os
import stat
import subprocess
import sys

import pytest

from icevirt.execution import spark_session

pytestmark = pytest.mark.ci

# a session of its own: another test may have started the JVM of this process
# Spark keeps tasks of a few bytes in memory
JOB = """
import os, stat
from pathlib import Path
import icevirt
from icevirt.objects.source_access import SourceAccess
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.execution.spark_session import local_session

keys = icevirt.s3_credentials(access_key_id="a", secret_access_key="b" * (1 << 21))
session = local_session(cores=1)
access = SourceAccess.of({"s3://bucket/": keys})
assert SparkExecutor(session).run(len, [[access], [access]]) == [1, 1]
(private,) = Path("TOP").iterdir()
files = [path for path in private.rglob("*") if path.is_file()]
print(oct(stat.S_IMODE(private.stat().st_mode)), len(files) > 0)
session.stop()
"""


def test_the_files_of_a_job_lie_where_only_their_owner_may_look(tmp_path):
    top = tmp_path / "scratch"
    done = subprocess.run(
        [sys.executable, "-c", JOB.replace("TOP", str(top))],
        env={**os.environ, "SPARK_LOCAL_DIRS": str(top)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["0o700", "True"], done.stderr
    assert list(top.iterdir()) == []


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An environment that says nothing of Spark's places, and a folder for temporary files."""
    for name in ("SPARK_LOCAL_DIRS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(spark_session.tempfile, "tempdir", str(tmp_path))
    spark_session._private.cache_clear()
    yield tmp_path
    spark_session._private.cache_clear()


def test_each_place_that_spark_uses_gets_a_private_folder(fresh, monkeypatch):
    places = [fresh / "one", fresh / "two"]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, places)))
    made = spark_session.private_places()["SPARK_LOCAL_DIRS"].split(",")
    assert [os.path.dirname(each) for each in made] == [str(each) for each in places]
    assert [stat.S_IMODE(os.stat(each).st_mode) for each in made] == [0o700, 0o700]


def test_without_such_places_it_is_the_folder_for_temporary_files(fresh):
    (made,) = spark_session.private_places().values()
    assert os.path.dirname(made) == str(fresh)
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    assert spark_session.private_places() == {"SPARK_LOCAL_DIRS": made}


def test_a_configuration_of_spark_itself_stays_in_force(fresh, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(fresh))
    assert spark_session.private_places() == {}
