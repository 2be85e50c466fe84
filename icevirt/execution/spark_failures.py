"""Turn what Spark says of a failed job into one error that names the executor and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from icevirt.errors import ExecutorError, SparkJobError
from icevirt.execution.causes import RESOURCES, STOPPED
from icevirt.execution.installation import NEEDED, RAISED_ON, REFUSED, of_driver
from icevirt.execution.remedies import installing, remedy_of

_HOST = re.compile(rf"\(TID \d+\) \((\S+) executor (?!driver)\S+?\)|{RAISED_ON} (\S+)")
_TASKS = 1000  # of a stage that are looked at
_BRINGS = {**NEEDED, "distutils": "setuptools"}  # which Spark 3.5 needs since Python 3.12
_AGAIN = "run the build again to continue where it stopped."


def explained(text: str, host: str | None = None, *, is_stopped: bool = False) -> SparkJobError:
    """Return the error for what Spark said.

    Args:
        text: A traceback through two languages.
        host: The machine where a task failed, if the text may not say it.
        is_stopped: Whether the context was stopped meanwhile, which fails jobs in many words.
    """
    if (at := _HOST.search(text)) is not None:
        host = at.group(2) or at.group(1)
    facts: dict[str, Any] = {} if host is None else {"executor": host}
    for pattern, make in _KNOWN:
        if (match := re.search(pattern, text)) is not None:
            what, do = make(match)
            return ExecutorError(what, do=do, cause=_short(text), **facts)
    if is_stopped:
        return ExecutorError(STOPPED[0], do=STOPPED[1], cause=_short(text))
    return SparkJobError(
        "a Spark task failed",
        do=f"The text above gives the cause; {_AGAIN}",
        cause=_short(text),
        **facts,
    )


def host_of_failure(session: Any) -> str | None:
    """Return the machine where a task of the last failed stage failed, where Spark knows it.

    Errors of Python do not say it. Spark Connect and local mode have nothing to tell.
    """
    try:
        context = session.sparkContext
        store = context._jsc.sc().statusStore()  # noqa: SLF001  # no public way tells the task
        bridge, jvm = context._gateway, context._jvm  # noqa: SLF001
        none = bridge.new_array(jvm.double, 0), jvm.java.util.ArrayList()
        stages = _listed(store.stageList(None, False, False, *none))
        failed = [each for each in stages if str(each.status()) == "FAILED"]
        last = max(failed, key=lambda each: each.stageId())
        tasks = _listed(store.taskList(last.stageId(), last.attemptId(), _TASKS))
        hosts = [
            str(each.host())
            for each in tasks
            if each.status() == "FAILED" and each.executorId() != "driver"
        ]
    except Exception:  # noqa: BLE001  # whatever: it is an improvement
        return None
    return hosts[-1] if hosts else None


def is_stopped(session: Any) -> bool:
    """Say whether the context of a session is known to be stopped, by the cluster perhaps."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001  # no public way
    except Exception:  # noqa: BLE001  # it is gone, or of Spark Connect
        return False


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]


def _short(text: str) -> str:
    """Return the last lines of a traceback through two languages, where the cause is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if not line.startswith(("at ", "File ", "...", RAISED_ON)) and line.strip("~^)( ")
    ]
    return " | ".join(python[-6:])[:2000]


type _Words = tuple[str, str]


def _refused(match: re.Match[str]) -> _Words:
    clause = match.group(1)
    kinds = {"Python": "python", "not installed": "missing", "scanners": "scanners"}
    kind = next((kind for word, kind in kinds.items() if word in clause), "version")
    return f"an executor does not suit: {clause}", remedy_of(kind, of_driver())


def _mismatch(_: re.Match[str]) -> _Words:
    what = "executors run another version of Python than the driver"
    return what, remedy_of("python", of_driver())


def _missing(match: re.Match[str]) -> _Words:
    name = match.group(1).partition(".")[0]
    what = f"the Python of an executor has no module {name}"
    if name in ("icevirt", "icevirt_scanners"):
        return what, remedy_of("missing", of_driver())
    if name in _BRINGS:
        return what, installing([_BRINGS[name]])
    return what, (
        "Install what brings it in the Python of every executor, or send it:"
        " spark.addArtifacts('package.zip', pyfile=True)."
    )


def _no_python(match: re.Match[str]) -> _Words:
    what = f"an executor has no program {match.group(1)}"
    return what, (
        "Set spark.pyspark.python (or PYSPARK_PYTHON) to the path of a Python that is on every"
        f" executor, of version {of_driver()['python']}."
    )


def _killed(_: re.Match[str]) -> _Words:
    return "an executor ended while it worked", (
        "If its memory did not suffice, set spark.executor.memoryOverhead higher, or"
        f" spark.executor.cores lower; {_AGAIN}"
    )


def _crashed(_: re.Match[str]) -> _Words:
    return "a Python worker of an executor ended while it worked", (
        "If its memory did not suffice, set spark.executor.memoryOverhead higher, or"
        f" spark.executor.cores lower; {_AGAIN}"
    )


def _words(what: str, do: str) -> Callable[[re.Match[str]], _Words]:
    return lambda _: (what, do)


_KNOWN: tuple[tuple[str, Callable[[re.Match[str]], _Words]], ...] = (
    (rf"{REFUSED}, [^:]*: (.*?)\.(?:\n|$)", _refused),
    (r"PYTHON_VERSION_MISMATCH|different version .*than that in driver", _mismatch),
    (r"Cannot run program \\?\"([^\"\\]+)\\?\"", _no_python),
    (r"ModuleNotFoundError: No module named '([^']+)'", _missing),
    (r"\[PACKAGE_NOT_INSTALLED\] (\w+)", _missing),
    *((pattern, _words(what, do)) for pattern, what, do in RESOURCES),
    (r"Container killed by|ExecutorLostFailure|Remote RPC client disassociated", _killed),
    (r"Python worker exited unexpectedly|Python worker process terminated", _crashed),
)
