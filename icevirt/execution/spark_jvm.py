"""Bridge Python and Spark's JVM: the error when the JVM dies, and a fresh start.

PySpark keeps a dead JVM forever: nothing in that process could use Spark again, and stopping the
session raises another error that hides the cause.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def errors_of_spark() -> tuple[type[Exception], ...]:
    """Return what is raised by Spark, and by the bridge where its JVM is gone."""
    from pyspark.errors import PySparkException

    found: list[type[Exception]] = [PySparkException, ConnectionError]
    with suppress(ImportError):  # Spark Connect needs no bridge to Java
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        found.append(Py4JError)
    return tuple(found)


def words_of(error: Exception) -> str:
    """Return what an error says; those of Java ask the JVM for it, which may be gone by now."""
    try:
        return str(error)
    except errors_of_spark():
        return type(error).__name__


def stop(session: SparkSession) -> None:
    """Stop a session that was started here; where its JVM died already, forget it."""
    try:
        with warnings.catch_warnings():  # that the JVM may have died: what used it said so
            warnings.simplefilter("ignore", RuntimeWarning)
            session.stop()
    except errors_of_spark():
        forget_jvm()


def forget_jvm() -> None:
    """Make PySpark start a JVM of its own for the next session, as there is no public way to."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    context: Any = SparkContext
    if (dead := context._active_spark_context) is not None:  # noqa: SLF001
        dead._jsc = None  # noqa: SLF001 - which it would ask the JVM to stop
        dead.stop()
    if (gateway := context._gateway) is not None:  # noqa: SLF001
        gateway.close()
        if gateway.proc is not None:  # else Python was started by Java, as by spark-submit
            gateway.proc.stdin.close()
            gateway.proc.terminate()
            gateway.proc.wait()
    context._gateway = context._jvm = None  # noqa: SLF001
    session: Any = SparkSession
    session._instantiatedSession = session._activeSession = None  # noqa: SLF001
    sql: Any = SQLContext
    sql._instantiatedContext = None  # noqa: SLF001
