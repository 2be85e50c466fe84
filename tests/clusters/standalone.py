"""A standalone cluster of Spark on hosts of their own, with an object store that all reach."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Self

from clusters.hosts import (
    DISK,
    DRIVER,
    ENV,
    OBJECTS,
    SOURCE,
    SPARK,
    Host,
    Network,
    plain_environment,
)
from icevirt.execution.java import find_java, java_home

MASTER = f"spark://{DRIVER}:7077"
ENDPOINT = f"http://{OBJECTS}:9000"
BUCKET = "s3://icevirt"
MANY = 300
"""Files at ``many/``, which take two workers of one core long enough to be killed meanwhile."""

MORE = 5
"""Files at ``more/``, which follow these."""

CREDENTIALS = {
    "AWS_ENDPOINT_URL": ENDPOINT,
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}
PATH = f"{SOURCE}:{SOURCE}/scanners:{SOURCE}/tests"
"""What executors import from, where no packed environment brings it."""

_SESSION = """
import json, os, sys
from pyspark.sql import SparkSession

def session(**more):
    builder = SparkSession.builder.appName("icevirt-tests")
    for name, value in (json.loads(os.environ["SETTINGS"]) | more).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

"""


@dataclass(kw_only=True)
class Cluster:
    """A master and workers of one core each."""

    network: Network
    java: str
    workers: list[Host] = field(default_factory=list)

    def worker(self, name: str, *, cores: int = 1, disk: str = "512m") -> Host:
        """Add a worker on a host of its own."""
        host = self.network.add(name, disk=disk)
        host.start(
            *(f"{SPARK}/bin/spark-class", "org.apache.spark.deploy.worker.Worker", "-c", cores),
            *("-m", "4g", "-d", f"{DISK}/work", "--host", name, "--webui-port", "8081", MASTER),
            JAVA_HOME=self.java,
            SPARK_HOME=SPARK,
            SPARK_LOCAL_DIRS=f"{DISK}/local",
            SPARK_DAEMON_MEMORY="256m",
            # what executors of earlier sessions unpacked fills the disk else
            SPARK_WORKER_OPTS="-Dspark.worker.cleanup.enabled=true"
            " -Dspark.worker.cleanup.interval=15 -Dspark.worker.cleanup.appDataTtl=1",
            PYSPARK_PYTHON=f"{ENV}/bin/python",
        )
        self.workers.append(host)
        return host

    def ready(self) -> Self:
        """Wait until all workers are known to the master."""
        for worker in self.workers:
            worker.until_said("Successfully registered with master", 180)
        return self

    def settings(self, variables: Mapping[str, str] = CREDENTIALS, **more: str) -> dict[str, str]:
        """Return the settings of a session; executors get the variables."""
        wanted = {
            "spark.master": MASTER,
            "spark.driver.host": DRIVER,
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "4",
            "spark.executorEnv.PYTHONPATH": PATH,
        }
        wanted |= {f"spark.executorEnv.{name}": value for name, value in variables.items()}
        return wanted | {name.replace("_", "."): value for name, value in more.items()}

    def words(self, program: str, *arguments: object) -> list[object]:
        """Return the command of a driver: ``session()`` of the program makes the session."""
        return [f"{ENV}/bin/python", "-c", _SESSION + textwrap.dedent(program), *arguments]

    def environment(self, settings: Mapping[str, str], **variables: str) -> dict[str, str]:
        """Return the variables of a driver."""
        own = {
            "SETTINGS": json.dumps(dict(settings)),
            "JAVA_HOME": self.java,
            "SPARK_HOME": SPARK,
            "PYTHONPATH": PATH,
            "PYSPARK_PYTHON": f"{ENV}/bin/python",
            "SPARK_LOCAL_IP": DRIVER,
        }
        return {**own, **CREDENTIALS, **variables}

    def drive(
        self,
        program: str,
        *arguments: object,
        settings: Mapping[str, str] | None = None,
        **variables: str,
    ) -> CompletedProcess[str]:
        """Run a driver to its end."""
        found = self.environment(settings or self.settings(), **variables)
        return self.network.run(*self.words(program, *arguments), **found)

    @contextmanager
    def asking(self, program: str, *arguments: str, **variables: str) -> "Iterator[Driver]":
        """Run a driver that answers questions, each in a session of its own; see `Driver`."""
        answering = _ANSWERING.replace("PROGRAM", textwrap.dedent(program))
        words = self.words(answering, *arguments)
        environment = plain_environment(**self.environment({}, **variables))
        with (self.network.folder / "answers.log").open("ab") as log:
            process = subprocess.Popen(
                self.network.command(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd="/",
                env=environment,
            )
        try:
            yield Driver(process)
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.wait(60)
            process.stdout.close()

    def upload(self, folder: Path, place: str) -> None:
        """Put the files of a folder of this machine into the bucket."""
        ran = self.network.run(
            f"{ENV}/bin/python", "-c", _UPLOAD, folder, place, **CREDENTIALS, PYTHONPATH=PATH
        )
        assert ran.returncode == 0, ran.stderr


@dataclass
class Driver:
    """A driver whose program defines ``deed(spark, **arguments)``, which returns what JSON can say."""

    process: subprocess.Popen[str]
    route: str = ""
    """Of references, where the program has a choice."""

    def ask(self, settings: Mapping[str, str], **arguments: object) -> dict[str, Any]:
        """Do the deed in a new session; return its ``result``, or its ``error`` and ``text``."""
        self.send(settings, **arguments)
        return self.answer()

    def send(self, settings: Mapping[str, str], **arguments: object) -> None:
        """Begin the deed."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([dict(settings), arguments]) + "\n")
        self.process.stdin.flush()

    def until(self, sign: str) -> None:
        """Wait until the deed prints a line that begins with this sign.

        Raises:
            RuntimeError: It ended before.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(sign):
                return
            if line.startswith("ANSWER "):
                raise RuntimeError(f"the deed ended without {sign!r}: {line}")

    def answer(self) -> dict[str, Any]:
        """Wait for the end of the deed."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                found: dict[str, Any] = json.loads(line.removeprefix("ANSWER "))
                return found
        raise RuntimeError("the driver is gone")


_ANSWERING = """
from pyspark import SparkContext
SparkContext._ensure_initialized()  # a JVM without settings, which all sessions would inherit

PROGRAM

for line in sys.stdin:
    settings, arguments = json.loads(line)
    os.environ["SETTINGS"] = json.dumps(settings)
    said = {}
    spark = None
    try:
        spark = session()
        said = {"result": deed(spark, **arguments)}
    except Exception as error:
        said = {"error": type(error).__name__, "text": str(error)}
    finally:
        if spark is not None:
            spark.stop()
    print("ANSWER " + json.dumps(said), flush=True)
"""
_UPLOAD = """
import sys, pathlib, obstore
from obstore.store import S3Store
store = S3Store("icevirt", virtual_hosted_style_request=False, client_options={"allow_http": True})
for path in pathlib.Path(sys.argv[1]).iterdir():
    obstore.put(store, f"{sys.argv[2]}/{path.name}", path.read_bytes())
"""
_BUCKET = """
import sys
from servers import places
places.make_s3_bucket("http://127.0.0.1:9001")
"""


@contextmanager
def cluster(environment: Path = Path(sys.prefix)) -> Iterator[Cluster]:
    """Start the object store and the master on the driver's host; the caller adds workers."""
    with Network(environment) as network:
        java = str(java_home(find_java()))
        network.start(
            *(f"{ENV}/bin/python", "-m", "ministack"),
            BIND_HOST="127.0.0.1",
            GATEWAY_PORT="9001",
            LOG_LEVEL="ERROR",
        )
        behind = "http://127.0.0.1:9001"
        gate = f"{SOURCE}/tests/clusters/gate.py"
        network.start(f"{ENV}/bin/python", gate, OBJECTS, "9000", behind, PYTHONPATH=PATH)
        network.start(
            *(f"{SPARK}/bin/spark-class", "org.apache.spark.deploy.master.Master"),
            *("--host", DRIVER, "--port", "7077", "--webui-port", "8080"),
            JAVA_HOME=java,
            SPARK_HOME=SPARK,
            SPARK_DAEMON_MEMORY="256m",
        )
        listening(network, "127.0.0.1", 9001)
        listening(network, OBJECTS, 9000)
        made = network.run(f"{ENV}/bin/python", "-c", _BUCKET, PYTHONPATH=PATH)
        assert made.returncode == 0, made.stderr
        listening(network, DRIVER, 7077)
        yield Cluster(network=network, java=java)


def listening(host: Host, address: str, port: int) -> None:
    """Wait until somebody listens at an address that a host reaches."""
    tried = (
        "import socket, sys, time\n"
        "for _ in range(600):\n"
        "    try:\n"
        "        socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()\n"
        "        break\n"
        "    except OSError:\n"
        "        time.sleep(0.1)\n"
        "else:\n"
        "    sys.exit('nobody listens')\n"
    )
    ran = host.run(f"{ENV}/bin/python", "-S", "-c", tried, address, port)
    assert ran.returncode == 0, (ran.stderr, host.said[-2000:])
