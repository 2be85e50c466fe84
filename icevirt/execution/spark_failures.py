"""Turn what Spark says of a failed job into one error that names the executor and what to do.

What executors lack is said ready to paste, for every kind of cluster. Causes outside icevirt
(networks, credentials, memory, disks, Java) are known by words of the library, store or system that
failed. What is not known gets advice that covers all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any

from icevirt.errors import ExecutorError, SparkJobError
from icevirt.execution.installation import NEEDED, RAISED_ON, REFUSED, of_driver
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.version import __version__

_HOST = re.compile(rf"\(TID \d+\) \((\S+) executor (?!driver)\S+?\)|{RAISED_ON} (\S+)")
_TASKS = 1000  # of a stage that are looked at
_BRINGS = {**NEEDED, "distutils": "setuptools"}  # which Spark 3.5 needs since Python 3.12
_AGAIN = "run the build again to continue where it stopped."


_PACKED = "or send a packed environment with spark.archives (docs/clusters.md)"
_SHIP = "call icevirt.spark.ship(spark) before the first build"


def installing(requirements: Sequence[str] = (), *, python: str = "") -> str:
    """Return how to install packages for executors.

    Args:
        requirements: What to install; by default all that executors need.
        python: The path of their Python, where it is known.
    """
    words = requirements or [f"icevirt[cluster,hdf5]=={__version__}"]
    pip = f"{quote(python)} -m pip" if python else "pip"
    where = "On every executor" if python else "In the Python of every executor"
    return f"{where} run `{pip} install {' '.join(map(quote, words))}`; {_PACKED}."


def remedy_of(
    kind: str, driver: Mapping[str, Any], *, python: str = "", wrong: Sequence[str] = ()
) -> str:
    """Return what to do about a difference that `installed.compare` found.

    Args:
        kind: Of the difference.
        driver: What the driver has installed.
        python: The path of the executor's Python, where it is known.
        wrong: Requirements that are not met there either; these cannot be sent.
    """
    install = installing(python=python)
    match kind:
        case "python":
            version = driver["python"]
            return (
                f"Set spark.pyspark.python (or PYSPARK_PYTHON) to a Python {version} that is on all"
                f" executors, or run the driver with their version; {_PACKED}."
            )
        case "scanners":
            return (
                "Install the same scanner packages on the driver and on all executors, and start a"
                " new session."
            )
        case _ if wrong:
            return f"It lacks {', '.join(wrong)} too. {install}"
        case "missing":
            return f"In your program {_SHIP}. Or: {install}"
        case _:
            return f"In a new session {_SHIP}, which sends the driver's icevirt. Or: {install}"


def requirements_of(packages: Mapping[str, str | None]) -> list[str]:
    """Return the requirements that installed packages do not meet.

    Args:
        packages: Versions by import name: None where one is missing, "" where it is unknown.
    """
    return [
        NEEDED[name]
        for name, has in packages.items()
        if has is None
        or any(
            bool(has) and (_parts(has) < _parts(bound)) is (operator == ">=")
            for operator, bound in re.findall(r"(>=|<)([0-9.]+)", NEEDED[name])
        )
    ]


def _parts(version: str) -> list[int]:
    release = re.match(r"[0-9.]+", version)
    found = [int(each) for each in (release.group() if release else "0").split(".") if each]
    while found and not found[-1]:
        found.pop()
    return found


_ROLE = write_remedy(
    "give the executors a role, or pass credentials with ",
    write_option("access"),
    " and icevirt.s3_storage(...) or its like, which travel with tasks, or"
    " set spark.executorEnv.NAME for what the driver takes from its"
    " environment.",
)
_NETWORK = (
    "If executors have no network, as on serverless compute, use compute that has, or a storage"
    " that they reach, like a mounted volume."
)
_EXPIRED = (
    "The credentials of the executors have expired. Start a session with new ones, or use some that"
    " are renewed: a role, or icevirt.s3_refreshable_credentials(...)."
)
_REGION = write_remedy(
    "The store is in another region than the one that executors ask for:"
    " set spark.executorEnv.AWS_REGION to that of the bucket, or name it in ",
    write_option("access"),
    " and icevirt.s3_storage(region=...).",
)
_CLOCK = "The clock of the executor is wrong; have the cluster synchronize it (chrony, NTP)."
_WAY = (
    "The executor has no way to this host. Open one: routes, security groups, network policies, an"
    " endpoint of the store in the cluster's network, or a proxy in spark.executorEnv.HTTPS_PROXY."
    " If the driver has another endpoint, set spark.executorEnv.AWS_ENDPOINT_URL to that one."
)

_REACHING = (
    (r"NoCredentials", write_remedy("Executors have no credentials: ", _ROLE)),
    (r"ExpiredToken|TokenRefreshRequired|RequestExpired", _EXPIRED),
    (r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint", _REGION),
    (r"RequestTimeTooSkewed", _CLOCK),
    (
        r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|status=40[13]",
        write_remedy("The store refuses the executors' credentials: ", _ROLE),
    ),
    (r"no answer in|sent=False|tried_for|[Nn]etwork is unreachable", f"{_WAY} {_NETWORK}"),
)


def reaching(cause: str) -> str:
    """Return what to do where an executor does not reach what the driver reaches.

    Args:
        cause: What the storage or the library said.
    """
    found = (do for pattern, do in _REACHING if re.search(pattern, cause))
    return next(found, write_remedy("If credentials are lacking there, ", _ROLE, f" {_NETWORK}"))


_DISK = (
    "Free space where Spark keeps its files there, or name a larger disk: spark.local.dir, or the"
    " variable SPARK_LOCAL_DIRS of the machine; on Kubernetes a volume spark-local-dir-1, on YARN"
    f" the directories of the NodeManager. Then {_AGAIN}"
)
_MEMORY = (
    "Leave spark.executor.pyspark.memory unset, or set it to 2g for each core, and"
    f" spark.executor.memoryOverhead to as much (docs/clusters.md has sizes). Then {_AGAIN}"
)
_NO_EXECUTORS = (
    "The log of a worker, or of a failed executor, says why. Usual are a JAVA_HOME that is not"
    " there, or a Java that this Spark does not run on, a spark.executor.memory larger than that of"
    " a worker, a full disk, and a spark.driver.host that executors cannot reach."
)

STOPPED = (
    "the Spark session has been stopped",
    f"If your program did not stop it, the cluster did. {_NO_EXECUTORS}",
)
"""What happened, and what to do, where the context of a session is stopped."""

RESOURCES = (
    (r"No space left on device|Disk quota exceeded", "the disk of an executor is full", _DISK),
    (
        r"failed to map segment|\bMemoryError|Cannot allocate memory|std::bad_alloc|malloc of size",
        "the Python of an executor has too little memory",
        _MEMORY,
    ),
    (
        r"Master removed our application|Max number of executor failures",
        "the cluster could not start executors",
        _NO_EXECUTORS,
    ),
    (
        r"LiveListenerBus is stopped|SparkContext was shut down|stopped SparkContext",
        *STOPPED,
    ),
)
"""What befalls executors of any job: a pattern, what happened, and what to do."""


def explain(text: str, host: str | None = None, *, is_stopped: bool = False) -> SparkJobError:
    """Return the error for what Spark said.

    Args:
        text: A traceback through two languages.
        host: The machine where a task failed, if the text may not say it.
        is_stopped: Whether the context was stopped meanwhile, which fails jobs in many words.
    """
    if (at := _HOST.search(text)) is not None:
        host = at.group(2) or at.group(1)
    facts: dict[str, Any] = {} if host is None else {"executor": host}
    for pattern, words in _KNOWN:
        if (match := re.search(pattern, text)) is not None:
            what, do = words(match) if callable(words) else words
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
        stages = _list_of(store.stageList(None, False, False, *none))
        failed = [each for each in stages if str(each.status()) == "FAILED"]
        last = max(failed, key=lambda each: each.stageId())
        tasks = _list_of(store.taskList(last.stageId(), last.attemptId(), _TASKS))
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


def _list_of(sequence: Any) -> list[Any]:
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


def _explain_refusal(match: re.Match[str]) -> _Words:
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


_SMALLER = (
    "If its memory did not suffice, set spark.executor.memoryOverhead higher, or"
    f" spark.executor.cores lower; {_AGAIN}"
)
_KNOWN: tuple[tuple[str, Callable[[re.Match[str]], _Words] | _Words], ...] = (
    (rf"{REFUSED}, [^:]*: (.*?)\.(?:\n|$)", _explain_refusal),
    (r"PYTHON_VERSION_MISMATCH|different version .*than that in driver", _mismatch),
    (r"Cannot run program \\?\"([^\"\\]+)\\?\"", _no_python),
    (r"ModuleNotFoundError: No module named '([^']+)'", _missing),
    (r"\[PACKAGE_NOT_INSTALLED\] (\w+)", _missing),
    *((pattern, (what, do)) for pattern, what, do in RESOURCES),
    (
        r"Container killed by|ExecutorLostFailure|Remote RPC client disassociated",
        ("an executor ended while it worked", _SMALLER),
    ),
    (
        r"Python worker exited unexpectedly|Python worker process terminated",
        ("a Python worker of an executor ended while it worked", _SMALLER),
    ),
)
