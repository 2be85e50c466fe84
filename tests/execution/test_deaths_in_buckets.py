"""Builds whose sources, catalog and repository are in a bucket die, and resume to the same bytes.

What dies is killed by the server, at a request that the test names; and the server counts what is
asked for and written again. In CI two builds on Spark die, one of which loses its workers before; the
builds that finish them run in this process. `just nightly` kills drivers at every moment, on Spark
again and again, and an executor; `test_build_deaths` kills one in CI.
"""

import re
import signal
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import icechunk
import obstore
import pytest

import icevirt
from builds.support import write_days
from execution.processes import Driver, kill
from icevirt.archive import catalog as schema
from icevirt.execution.selection import default_executor
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.schedule import write_tasks
from long_forms import IS_LONG, cases
from servers.faults import Response, Rules
from servers.proxy import passing_on
from servers.serving import served

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.ci,
    pytest.mark.slow,
]
DAYS, SLOTS = 8, 2
MASTER = f"local[{SLOTS},3]"
SOURCE = r"/data/day\d\.nc"
PART = r"/catalog/files/[^/]+\.parquet"
REFS = r"/refs/[^/]+\.parquet"
MANIFEST = r"/repo/manifests/\w+"
COMMIT = r"/repo/repo"

PROGRAM = """
    import sys

    import icevirt
    from icevirt.archive import catalog as schema
    from icevirt.planning.schedule import write_tasks as routes
    from icevirt.planning.combine.options import CombineSpec
    from icevirt.execution.spark_session import local_session

    sources, repo, catalog, master, route = sys.argv[1:]
    CombineSpec.__init__.__kwdefaults__["max_references"] = 3  # many windows over few files
    schema._FEW = 1  # a part for each file
    if route == "shuffle":
        routes._FEW_READS = routes._FACTOR = -1
    with local_session(config={"spark.master": master, "spark.executor.memory": "512m"}) as spark:
        settings = dict(spark.sparkContext.getConf().getAll())
        assert not [name for name in settings if name.startswith(("spark.hadoop", "spark.jars"))]
        java = spark.sparkContext._jvm.java.lang.Class
        try:
            java.forName("org.apache.hadoop.fs.s3a.S3AFileSystem")
        except Exception as error:
            assert "ClassNotFoundException" in str(error)
        else:
            raise AssertionError("this Spark has Hadoop's file system for S3")
        icevirt.build(sources, repo, concat_dim="time", catalog=catalog or None, executor=spark)
"""


@dataclass
class Trap:
    """What is done when the n-th request comes that fits."""

    method: str
    pattern: str
    nth: int
    spring: object
    passes: bool = True  # the request is carried out all the same
    seen: int = 0
    sprung: bool = False


class Bucket:
    """A bucket behind a server that springs traps and knows what was asked for."""

    def __init__(self, place, url, rules):
        self.place, self.url, self.rules = place, url, rules
        self.traps = []

    def answer(self, passing):
        def answer(request):
            for trap in self.traps:
                if request.method != trap.method or not re.search(trap.pattern + "$", request.path):
                    continue
                trap.seen += 1
                if trap.seen == trap.nth:
                    trap.sprung = True
                    trap.spring()
                    if not trap.passes:
                        return Response(status=500)
            return passing(request)

        return answer

    def asked(self, method, pattern):
        """Return the paths of requests since the last look, and how often each was asked for."""
        found = [each.path for each in self.rules.requests if each.method == method]
        return Counter(path for path in found if re.search(pattern + "$", path))

    def manifests(self):
        """Return names and bytes."""
        store = self.place.store()
        pages = list(obstore.list(store, prefix="repo/manifests"))
        paths = sorted(one["path"] for page in pages for one in page)
        return {path: bytes(obstore.get(store, path).bytes()) for path in paths}


class Build(Driver):
    """A build of what is in the bucket."""

    def __init__(self, bucket, *, master=MASTER, route="direct", catalog=""):
        place = bucket.place
        super().__init__(
            PROGRAM, f"{place.url}/data/*.nc", f"{place.url}/repo", catalog, master, route
        )

    def kill(self):
        kill([self.pid])

    def kill_workers(self):
        kill(self.workers())

    def kill_executor(self):
        kill(self.executors()[:1])


@pytest.fixture
def bucket(s3, tmp_path, monkeypatch):
    """A bucket with files, and what reaches it in the environment."""
    for path in write_days(tmp_path / "archive", DAYS):
        obstore.put(s3.store(), f"data/{Path(path).name}", Path(path).read_bytes())
    rules = Rules()
    made = Bucket(s3, "", rules)
    with served(made.answer(passing_on(s3.endpoint)), rules) as url:
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        made.url = url
        yield made


@contextmanager
def building_here(monkeypatch):
    """Build in this process as the program does: many windows over few files, and many parts."""
    with monkeypatch.context() as patch, default_executor("in-process"):
        patch.setitem(CombineSpec.__init__.__kwdefaults__, "max_references", 3)
        patch.setattr(schema, "_FEW", 1)
        yield patch


@pytest.fixture
def wanted(bucket, tmp_path, monkeypatch):
    """The manifests of the same build on local disk, in one process."""
    with building_here(monkeypatch):
        icevirt.build(f"{bucket.place.url}/data/*.nc", tmp_path / "whole", concat_dim="time")
    bucket.rules.clear()
    folder = tmp_path / "whole" / "manifests"
    found = {f"repo/manifests/{path.name}": path.read_bytes() for path in folder.iterdir()}
    assert len(found) > 8
    return found


def assert_whole(bucket, wanted):
    """The repository is that of an undisturbed build, of one commit, and nothing else is left."""
    assert bucket.manifests() == wanted
    assert icevirt.check(f"{bucket.place.url}/repo").problems == ()
    storage = icechunk.s3_storage(
        **{**bucket.place.options, "prefix": f"{bucket.place.prefix}/repo"}
    )
    assert len(list(icechunk.Repository.open(storage).ancestry(branch="main"))) == 2
    assert not list(obstore.list(bucket.place.store(), prefix="repo/icevirt/builds"))


@pytest.fixture
def build_again(bucket, monkeypatch):
    """Build after a death: at night as before it, else in this process."""

    def again(route, catalog):
        if IS_LONG:
            status, words = Build(bucket, route=route, catalog=catalog).end()
            assert status == 0, words
            return
        place = bucket.place.url
        with building_here(monkeypatch) as patch:
            for name in ("_FEW_READS", "_FACTOR") if route == "shuffle" else ():
                patch.setattr(write_tasks, name, -1)
            icevirt.build(
                f"{place}/data/*.nc", f"{place}/repo", concat_dim="time", catalog=catalog or None
            )

    return again


DEATHS = {
    "while it scans": ("PUT", PART, 3, True, "direct", False),
    "while it writes": ("PUT", MANIFEST, 5, True, "direct", False),
    "while it writes what was shuffled": ("PUT", MANIFEST, 5, True, "shuffle", True),
    "before the commit": ("PUT", COMMIT, 1, False, "direct", True),
}


@pytest.mark.parametrize("death", cases(DEATHS, "while it scans"))
def test_a_driver_that_is_killed_in_a_bucket_is_resumed_to_the_same_bytes(
    bucket, wanted, build_again, death
):
    method, pattern, nth, passes, route, apart = DEATHS[death]
    catalog = f"{bucket.place.url}/catalog" if apart else ""
    driver = Build(bucket, route=route, catalog=catalog)
    trap = Trap(method, pattern, nth, driver.kill, passes)
    bucket.traps = [trap]
    assert driver.end()[0] == -signal.SIGKILL
    assert trap.sprung
    bucket.traps = []
    first = bucket.asked("PUT", MANIFEST)
    done = sum(bucket.asked("PUT", PART).values())
    bucket.rules.clear()

    build_again(route, catalog)
    assert_whole(bucket, wanted)
    scanned, written = bucket.asked("GET", SOURCE), bucket.asked("PUT", MANIFEST)
    if pattern == PART:
        assert 0 < len(scanned) <= DAYS - done + SLOTS
    else:
        assert not scanned  # the scan was finished: no source is opened again
    twice = sum((first & written).values())
    assert twice <= SLOTS, (first, written)
    assert len(first | written) == len(wanted)


@pytest.mark.parametrize("victim", cases(["workers", "executor"], "workers"))
def test_nothing_before_the_shuffle_is_scanned_again_and_nothing_behind_the_commit(
    bucket, wanted, build_again, victim
):
    """A lost worker fails tasks behind the shuffle alone; an executor takes what it sent with it.

    When that is over the driver dies, too, as soon as it committed.
    """
    master = MASTER if victim == "workers" else "local-cluster[2,1,512]"
    catalog = f"{bucket.place.url}/catalog"
    driver = Build(bucket, master=master, route="shuffle", catalog=catalog)
    strike = driver.kill_workers if victim == "workers" else driver.kill_executor
    bucket.traps = [Trap("PUT", MANIFEST, 4, strike), Trap("PUT", COMMIT, 1, driver.kill)]
    status, words = driver.end()
    assert status == -signal.SIGKILL, words
    assert all(trap.sprung for trap in bucket.traps)
    bucket.traps = []

    opened = bucket.asked("GET", SOURCE)
    # such files are one request; before a build on a cluster, executors read a byte of the first
    more = {path: count for path, count in opened.items() if count > 1}
    assert len(more) <= (0 if victim == "workers" else 1)
    assert len(opened) == DAYS
    read, parts = bucket.asked("GET", REFS), bucket.asked("PUT", REFS)
    assert read.keys() == parts.keys()
    assert max(read.values()) <= (1 if victim == "workers" else 2)
    last = max(n for n, each in enumerate(bucket.rules.requests) if re.search(SOURCE, each.path))
    first = min(
        n
        for n, each in enumerate(bucket.rules.requests)
        if re.search(REFS, each.path) and each.method == "GET"
    )
    assert last < first
    twice = bucket.asked("PUT", MANIFEST)
    assert sum(twice.values()) - len(wanted) <= SLOTS

    bucket.rules.clear()
    build_again("shuffle", catalog)
    assert_whole(bucket, wanted)
    assert not bucket.asked("GET", SOURCE)
    assert not bucket.asked("PUT", MANIFEST)
