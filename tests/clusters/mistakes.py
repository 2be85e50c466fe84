"""Ten mistakes that clusters are set up with, and what icevirt says of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.gate import EXPIRED
from clusters.hosts import DISK, ENV, OBJECTS, SOURCE
from clusters.standalone import BUCKET, CREDENTIALS

_SITE = f"$(echo {ENV}/lib/python3*/site-packages)"
_VERSION = f"{SOURCE}/icevirt/version.py"


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One mistake, and the error of a build on such a cluster."""

    title: str
    says: str
    """A pattern of what happened."""

    remedy: str
    """A pattern of what to do."""

    executors: tuple[str, ...] = ("worker-b",)
    """Of which the error names one; none, where there is no executor to be named."""

    made: str = "true"
    """A script that makes the mistake on ``worker-b``."""

    undone: str = "true"
    variables: Mapping[str, str | None] = field(default_factory=dict)
    """Of executors, beside those that they need; None: not this one."""

    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Of the deed of the tests."""

    def executor_variables(self) -> dict[str, str]:
        """Return the variables that executors get."""
        found = {**CREDENTIALS, **self.variables}
        return {name: value for name, value in found.items() if value is not None}


BOTH = ("worker-a", "worker-b")
MISTAKES = {
    "missing package": Mistake(
        title="a package is missing on one executor",
        made=f"mount -t tmpfs none {_SITE}/h5py",
        undone=f"umount {_SITE}/h5py",
        says="it lacks h5py",
        remedy=r"pip install .?h5py",
    ),
    "other version": Mistake(
        title="another icevirt on one executor",
        made=f"sed 's/= \"/= \"9./' {_VERSION} > {DISK}/version.py;"
        f"mount --bind {DISK}/version.py {_VERSION}",
        undone=f"umount {_VERSION}",
        says=r"it has icevirt 9\.",
        remedy=r"icevirt\.spark\.ship\(spark\)",
    ),
    "no credentials": Mistake(
        title="the driver has credentials, executors have none",
        variables={"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
        executors=BOTH,
        says="no credentials were found",
        remedy="Executors have no credentials: give the executors a role",
    ),
    "unshared disk": Mistake(
        title="the repository is on a disk that only the driver has",
        arguments={"repo": f"{DISK}/repo"},
        executors=BOTH,
        says="does not share a storage with the driver",
        remedy="or an object store, like s3://bucket/repo",
    ),
    "wrong region": Mistake(
        title="executors ask in another region",
        variables={"AWS_REGION": "eu-central-1"},
        executors=BOTH,
        says="AuthorizationHeaderMalformed",
        remedy=r"set spark\.executorEnv\.AWS_REGION",
    ),
    "no Java": Mistake(
        title="JAVA_HOME of executors is not there",
        variables={"JAVA_HOME": "/nowhere"},
        executors=(),
        says="the cluster could not start executors|the Spark session has been stopped",
        remedy="JAVA_HOME that is not there",
    ),
    "tiny memory": Mistake(
        title="`spark.executor.pyspark.memory` is 100m",
        settings={"spark.executor.pyspark.memory": "100m"},
        executors=BOTH,
        says="the Python of an executor has too little memory",
        remedy=r"Leave spark\.executor\.pyspark\.memory unset",
    ),
    "blocked host": Mistake(
        title="one executor has no way to the object store",
        made=f"ip route add unreachable {OBJECTS}",
        undone=f"ip route del unreachable {OBJECTS}",
        says="does not reach what the driver reaches",
        remedy="Open one: routes, security groups",
    ),
    "full disk": Mistake(
        title="the disk of executors is full while references are shuffled",
        arguments={"filled": f"{DISK}/full", "shuffle": True},
        undone=f"rm -f {DISK}/full",
        executors=BOTH,
        says="the disk of an executor is full",
        remedy="Free space where Spark keeps its files",
    ),
    "expired token": Mistake(
        title="the session token of executors has expired",
        variables={"AWS_ACCESS_KEY_ID": EXPIRED, "AWS_SESSION_TOKEN": "some"},
        executors=BOTH,
        says="ExpiredToken",
        remedy="have expired. Start a session with new ones",
    ),
}

DEED = """
import icevirt
from clusters import deeds
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.planning.schedule import write_tasks as routes

def deed(spark, sources, repo, shuffle, filled):
    few = routes._FEW_READS, routes._FACTOR
    if shuffle:
        routes._FEW_READS = routes._FACTOR = -1
    def progress(step):
        if filled and step.phase == "write" and not step.done:
            SparkExecutor(spark).run(deeds.fill, [filled] * 8)
    try:
        icevirt.build(sources, repo, concat_dim="time", executor=spark, progress=progress)
    finally:
        routes._FEW_READS, routes._FACTOR = few
"""
"""A build; ``filled`` names a file that fills the disks of executors before manifests are written."""

PLAIN = {"sources": f"{BUCKET}/data/", "repo": f"{BUCKET}/repo", "shuffle": False, "filled": ""}
