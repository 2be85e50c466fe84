"""Say what to do about causes that lie outside icevirt: networks, credentials, memory, disks, Java.

Each is known by words of the library, store or system that failed. What is not known gets advice
that covers all of them.
"""

from __future__ import annotations

import re

_AGAIN = "Then run the build again to continue where it stopped."
_ROLE = (
    "give the executors a role, or pass credentials with access (--access) and"
    " icevirt.s3_storage(...) or its like, which travel with tasks, or set spark.executorEnv.NAME"
    " for what the driver takes from its environment."
)
_NETWORK = (
    "If executors have no network, as on serverless compute, use compute that has, or a storage"
    " that they reach, like a mounted volume."
)
_EXPIRED = (
    "The credentials of the executors have expired. Start a session with new ones, or use some that"
    " are renewed: a role, or icevirt.s3_refreshable_credentials(...)."
)
_REGION = (
    "The store is in another region than the one that executors ask for: set"
    " spark.executorEnv.AWS_REGION to that of the bucket, or name it in access (--access) and"
    " icevirt.s3_storage(region=...)."
)
_CLOCK = "The clock of the executor is wrong; have the cluster synchronize it (chrony, NTP)."
_WAY = (
    "The executor has no way to this host. Open one: routes, security groups, network policies, an"
    " endpoint of the store in the cluster's network, or a proxy in spark.executorEnv.HTTPS_PROXY."
    " If the driver has another endpoint, set spark.executorEnv.AWS_ENDPOINT_URL to that one."
)

_REACHING = (
    (r"NoCredentials", f"Executors have no credentials: {_ROLE}"),
    (r"ExpiredToken|TokenRefreshRequired|RequestExpired", _EXPIRED),
    (r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint", _REGION),
    (r"RequestTimeTooSkewed", _CLOCK),
    (
        r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|status=40[13]",
        f"The store refuses the executors' credentials: {_ROLE}",
    ),
    (r"no answer in|sent=False|tried_for|[Nn]etwork is unreachable", f"{_WAY} {_NETWORK}"),
)


def reaching(cause: str) -> str:
    """Return what to do where an executor does not reach what the driver reaches.

    Args:
        cause: What the storage or the library said.
    """
    found = (do for pattern, do in _REACHING if re.search(pattern, cause))
    return next(found, f"If credentials are lacking there, {_ROLE} {_NETWORK}")


_DISK = (
    "Free space where Spark keeps its files there, or name a larger disk: spark.local.dir, or the"
    " variable SPARK_LOCAL_DIRS of the machine; on Kubernetes a volume spark-local-dir-1, on YARN"
    f" the directories of the NodeManager. {_AGAIN}"
)
_MEMORY = (
    "Leave spark.executor.pyspark.memory unset, or set it to 2g for each core, and"
    f" spark.executor.memoryOverhead to as much (docs/clusters.md has sizes). {_AGAIN}"
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
