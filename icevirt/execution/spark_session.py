"""Choose the Spark session of a build: the caller's, the active one, or a local one.

An existing session is used as it is, neither configured nor stopped. A local session is configured
to start fast and silently, and stopped by the code that started it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from icevirt.archive.shares import ATTEMPTS
from icevirt.errors import BuildError, InvalidInputError, SparkJobError
from icevirt.execution.java import find_java, java_home
from icevirt.execution.process_pool import usable_cores
from icevirt.execution.spark_jvm import errors_of_spark, forget_jvm, words_of
from icevirt.execution.spark_scratch import private_places
from icevirt.import_path import VARIABLE, import_path, python_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # four times less overhead for each task than TCP
    "spark.python.unix.domain.socket.enabled": "true",
    # a crash inside the HDF5 library names the line that called it
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.daemon.module": "icevirt.execution.spark_daemon",
    # plans of one shuffle and a few rows: compiling them and planning them again as they run takes
    # longer than that saves
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# no process of Python that Spark starts imports from its working directory
_SAFE = {"PYTHONSAFEPATH": "1"}
# half the start time, as builds are short and their heavy work is done in Python workers; and a
# heap that grows when it must and as far as it must, where the default begins with a 64th of the
# machine's memory and keeps two fifths free. A JVM that ran out of it may stay half dead, and a
# build would wait for it for ever
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xms48m",
    "-Xmn16m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
    "-XX:+ExitOnOutOfMemoryError",
)


def is_submitted() -> bool:
    """Say whether this process was started by spark-submit, or is to use Spark Connect."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ


def running_session() -> SparkSession | None:
    """Return the session of this process, None if there is none; under spark-submit, make it.

    Raises:
        SparkJobError: There is one, whose JVM died.
    """
    _require_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        if (active := SparkSession.getActiveSession()) is not None:
            return active
        if SparkContext._active_spark_context is not None or is_submitted():  # noqa: SLF001 - no public way
            return SparkSession.builder.getOrCreate()
    except errors_of_spark() as error:
        raise SparkJobError(
            "the Spark session of this process does not answer",
            do="Its JVM has probably died. Restart Python; finished work is kept.",
            cause=words_of(error).partition("\n")[0],
        ) from error
    return None


def local_session(
    *,
    app_name: str = "icevirt",
    cores: int | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session in this process, on ``cores`` cores (None: all that it may use).

    Args:
        app_name: The name Spark shows.
        cores: How many tasks run at a time.
        config: Further Spark settings; they win over ours.

    Raises:
        InvalidInputError: A session is running already.
        BuildError: Spark or Java is missing; `SparkJobError` if Spark does not start.
    """
    if running_session() is not None:
        raise InvalidInputError(
            "a Spark session is already running in this process",
            do="Pass it as executor=, or stop it first.",
        )
    settings = _settings(cores) | dict(config or {})
    if settings["spark.master"].startswith("local"):
        path = os.pathsep.join(import_path())
        settings.setdefault(f"spark.executorEnv.{VARIABLE}", path)
    # Spark reads these once, when its JVM starts
    variables = {
        "JAVA_HOME": str(java_home(find_java())),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": _spark_home(),
        **_SAFE,
        **python_path(os.environ),
    }
    if "spark.local.dir" not in settings:
        variables |= private_places()
    with _environment(**variables):
        return _start(app_name, settings)


def _spark_home() -> str:
    """Return where Spark is, without looking beside the working directory first as Spark does."""
    if home := os.environ.get("SPARK_HOME"):
        return home
    import pyspark

    package = Path(pyspark.__file__).parent
    places = package / "spark-distribution", package, package.parent.parent
    found = (place for place in places if (place / "bin" / "spark-submit").is_file())
    return str(next(found, package))


def _settings(cores: int | None) -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    return {
        **_SETTINGS,
        **{f"spark.executorEnv.{name}": value for name, value in _SAFE.items()},
        "spark.master": f"local[{cores or usable_cores()},{ATTEMPTS}]",
        "spark.driver.extraJavaOptions": " ".join(
            [*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={log4j}"]
        ),
    }


def _start(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    failures: tuple[type[Exception], ...] = (*errors_of_spark(), OSError)
    try:
        return builder.getOrCreate()
    except failures as error:
        cause = words_of(error).partition("\n")[0]
        forget_jvm()
        raise SparkJobError(
            "Spark did not start",
            do="Its output is above. Spark needs bash, ps and Java on this machine.",
            cause=cause,
        ) from error


def _require_spark() -> None:
    missing = [
        name for name in ("pyspark", "pandas", "pyarrow") if not importlib.util.find_spec(name)
    ]
    if missing:
        raise BuildError(
            "building needs Spark", do="Run `pip install 'icevirt[all]'`.", missing=missing
        )


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
