"""Choose the Spark session of a build: the caller's, the active one, or a local one.

An existing session is used as it is, neither configured nor stopped. A local session is configured
to start fast and silently, and stopped by the code that started it. Its files are in a folder that
only its owner can read: tasks carry credentials, and Spark writes tasks to disk.

PySpark keeps a dead JVM forever: nothing in that process could use Spark again, and stopping the
session raises another error that hides the cause. So a JVM that died is forgotten.

A frame is collected in a thread of its own, with copies of what the caller set for its own jobs
(pool, group, tags), so that nothing of the caller's changes. The caller's thread only waits, as a
signal must not come into the middle of a call to Java: PySpark would wait for the end of the job,
and mix up the answers of later calls. Here the signal's exception ends the waiting, and the job is
cancelled. Marks of jobs are for people: a platform that refuses them gets none.
"""

from __future__ import annotations

import atexit
import importlib.util
import inspect
import os
import secrets
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icevirt.archive.scanned import ATTEMPTS
from icevirt.errors import BuildError, InvalidInputError, SparkJobError
from icevirt.execution.executor import Done, JobLabel, Watch, current, usable_cores
from icevirt.execution.java import find_java, java_home
from icevirt.import_path import VARIABLE, import_path, python_path
from icevirt.installation import install_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
_PLACES = "SPARK_LOCAL_DIRS"  # which Spark prefers to the setting


def is_submitted() -> bool:
    """Say whether this process was started by spark-submit, or is to use Spark Connect."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ


def is_session(given: object) -> bool:
    """Say whether a value is a Spark session, by what it can do: Connect has another class."""
    return not isinstance(given, str) and hasattr(given, "createDataFrame")


def check_session(given: object) -> None:
    """Check that a caller passed a Spark session.

    Raises:
        InvalidInputError: It is something else, like the None of a session that is not there.
    """
    if is_session(given):
        return
    raise InvalidInputError(
        "this is not a Spark session",
        do="Pass SparkSession.builder.getOrCreate(). SparkSession.getActiveSession() is None where"
        " no session was made in this thread.",
        spark=None if given is None else type(given).__name__,
    )


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
        "SPARK_HOME": spark_home(),
        **_SAFE,
        **python_path(os.environ),
    }
    if "spark.local.dir" not in settings:
        variables |= private_places()
    with _environment(**variables):
        return _start(app_name, settings)


def spark_home() -> str:
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
            (*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={log4j}")
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
            "this build runs on Spark, which is not installed",
            do=f"Run `{install_command('spark,jdk')}`, which brings Java, too; or do without Spark:"
            " executor='processes'.",
            missing=missing,
        )


@contextmanager
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


def private_places() -> dict[str, str]:
    """Return the variable that makes Spark keep its files where only their owner may look.

    Makes a folder in each directory that the variable names already, else in the one for temporary
    files. The folders are removed when this process ends.
    """
    given = os.environ.get(_PLACES, "")
    # a configuration of Spark may name a disk that is large enough
    if not given and ("SPARK_CONF_DIR" in os.environ or "SPARK_HOME" in os.environ):
        return {}
    return {_PLACES: ",".join(map(_private, given.split(",")))}


def private_folder(place: str = "", prefix: str = "icevirt-spark-") -> str:
    """Make a folder for this user alone, which is removed when this process ends."""
    if place:
        os.makedirs(place, exist_ok=True)
    made = tempfile.mkdtemp(prefix=prefix, dir=place or None)  # with mode 0700
    atexit.register(_remove, made, os.getpid())
    return made


_private = cache(private_folder)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a child that was forked
        shutil.rmtree(folder, ignore_errors=True)


def errors_of_spark() -> tuple[type[Exception], ...]:
    """Return what is raised by Spark, and by the bridge where its JVM is gone."""
    from pyspark.errors import PySparkException

    found: list[type[Exception]] = [PySparkException, ConnectionError]
    with suppress(ImportError):  # Spark Connect needs no bridge to Java
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        found.append(Py4JError)
    return tuple(found)


def words_of(error: Exception) -> str:
    """Return the message of an error; Java errors ask the JVM for it, which may be gone."""
    try:
        return str(error)
    except errors_of_spark():
        return type(error).__name__


def stop(session: SparkSession) -> None:
    """Stop a session that was started here; if its JVM died already, forget it."""
    try:
        with warnings.catch_warnings():  # that the JVM may have died: its user got an error
            warnings.simplefilter("ignore", RuntimeWarning)
            session.stop()
    except errors_of_spark():
        forget_jvm()


def forget_jvm() -> None:
    """Make PySpark start another JVM for the next session, as there is no public way to."""
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


_PATIENCE = 10  # seconds for a cancelled job to end
_DESCRIPTION = "spark.job.description"


def collect(session: SparkSession, frame: DataFrame, progress: Done | None) -> list[Any]:
    """Return the rows of a frame, as its ``collect`` does; an exception meanwhile cancels the job.

    Args:
        session: Of the frame.
        frame: Its plan is made; its job begins now.
        progress: Called now and then with the number of finished tasks of the last stage. Spark
            Connect reports only to the thread that waits for the job; there it is 0 to the end.
    """
    context: Any = None  # for Spark Connect, and where the platform hides it
    with suppress(*errors_of_spark()):
        context = session.sparkContext
    own = f"icevirt-{secrets.token_hex(8)}"
    label = current()
    marks = _mark_on_connect if context is None else _mark
    over = threading.Event()
    rows: list[list[Any]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with marks(session, context, label, (own, *label.tags)):
                rows.append(frame.collect())
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            failed.append(error)
        finally:
            over.set()

    _thread(session, context, run).start()
    try:
        with Watch(progress, lambda: 0 if context is None else count_done(context, own)):
            over.wait()
    except BaseException:
        for _ in range(_PATIENCE):  # a job that has not begun yet is not there to be cancelled
            _cancel(session, context, own)
            if over.wait(1):
                break
        raise
    if failed:
        raise failed.pop()
    return rows[0]


def count_done(context: Any, tag: str) -> int:
    """Return how many tasks are done of the last stages of a tag's jobs; it never raises.

    The stages of mappers come before, and do not count.
    """
    done = 0
    try:
        # a way that Python has for groups of jobs alone, which would replace the caller's own
        jobs = list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))  # noqa: SLF001
        tracker = context.statusTracker()
        for job in filter(None, map(tracker.getJobInfo, jobs)):
            stages = sorted(job.stageIds)
            if stages and (stage := tracker.getStageInfo(stages[-1])) is not None:
                done += stage.numCompletedTasks
    except errors_of_spark():  # Spark is gone: the thread that waits for the job raises
        return 0
    return done


def _thread(session: SparkSession, context: Any, run: Callable[[], None]) -> threading.Thread:
    """Return a thread with what the caller's set for its jobs."""
    if context is None:
        tags: Iterable[str] = ()
        with _may_fail():
            tags = tuple(session.getTags())

        def run_tagged() -> None:
            with _may_fail():
                for tag in tags:
                    session.addTag(tag)
            run()

        return threading.Thread(target=run_tagged, name="icevirt-job", daemon=True)
    from pyspark import InheritableThread

    # which Spark 3.5 finds itself
    known = "session" in inspect.signature(InheritableThread).parameters
    given: dict[str, Any] = {"session": session} if known else {}
    return InheritableThread(target=run, name="icevirt-job", daemon=True, **given)


def _may_fail() -> suppress:
    """Go on without a mark where a platform or version refuses it."""
    return suppress(*errors_of_spark(), RuntimeError, AttributeError, TypeError)


@contextmanager
def _mark(
    session: SparkSession, context: Any, label: JobLabel, tags: Iterable[str]
) -> Iterator[None]:
    """Mark the jobs of this thread, which ends with the block.

    Tags are the context's: those of a classic session cancel nothing from another thread.
    """
    del session
    with ExitStack() as stack:
        with _may_fail():
            context.setJobDescription(label.text)
        for tag in tags:
            with _may_fail():
                context.addJobTag(tag)
        with _may_fail():
            from pyspark.traceback_utils import SCCallSiteSync

            sync: Any = SCCallSiteSync
            stack.enter_context(sync(context))
            context._jsc.setCallSite(label.name)  # noqa: SLF001 - in place of a line of ours
        yield


@contextmanager
def _mark_on_connect(
    session: SparkSession, context: Any, label: JobLabel, tags: Iterable[str]
) -> Iterator[None]:
    """Mark the jobs of this thread; the description is the whole session's, and is put back."""
    del context
    for tag in tags:
        with _may_fail():
            session.addTag(tag)
    before: str | None = None
    with _may_fail():
        before = session.conf.get(_DESCRIPTION, None)
        session.conf.set(_DESCRIPTION, label.text)
    try:
        yield
    finally:
        with _may_fail():
            if before is None:
                session.conf.unset(_DESCRIPTION)
            else:
                session.conf.set(_DESCRIPTION, before)


def _cancel(session: SparkSession, context: Any, tag: str) -> None:
    with _may_fail():
        if context is None:
            session.interruptTag(tag)
        else:
            context.cancelJobsWithTag(tag)
