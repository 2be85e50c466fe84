"""What Spark puts on disk of tasks is for its owner alone; `test_session.py` looks at it."""

import os
import stat

import pytest

from icevirt.execution import spark_session

pytestmark = pytest.mark.ci


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
