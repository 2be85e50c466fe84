"""Builds in processes of their own that write down how far they are, so that they can be killed there."""

import json
import textwrap
import time

from execution.processes import Driver, is_java

MOMENTS = (
    *("start", "executor", "scan", "scanning", "plan", "write", "writing"),
    *("commit", "committing", "committed"),
)
"""What a build is doing, in this order; the conditional write lies between the last two.

Tasks are on their way to workers in "scan" and "write"; from the first file, or manifest, on it is
"scanning" or "writing".
"""

SITE = """
    import os
    import time

    from icevirt.storage.local import LocalStorage
    from icevirt_scanners.hdf5.scanner import Hdf5Scanner

    NAP = 0.2

    def note(*words):
        with open(os.environ["NOTED"], "a") as log:
            log.write(" ".join([repr(time.time()), *words]) + "\\n")

    class NotingStorage(LocalStorage):
        def put(self, path, body):
            if path.startswith("manifests/"):
                note("writes", path)
                time.sleep(NAP)
            return LocalStorage.put(self, path, body)

        def put_if(self, path, body, *, was, **more):
            if path != "repo":
                return LocalStorage.put_if(self, path, body, was=was, **more)
            note("phase", "committing")
            time.sleep(NAP)
            answer = LocalStorage.put_if(self, path, body, was=was, **more)
            note("phase", "committed")
            time.sleep(NAP)
            return answer

    class NotingScanner(Hdf5Scanner):
        name = "noting"

        def scan(self, source, options):
            note("scans", source.file.url)
            time.sleep(NAP)
            return super().scan(source, options)
"""

PROGRAM = """
    import json
    import os
    import sys

    import icevirt
    from icevirt.planning.schedule import write_tasks as routes
    from icevirt.planning.combine.options import CombineSpec
    from icevirt.execution import spark_session as session
    from icevirt.execution.selection import default_executor
    from noting_of_tests import NotingStorage, note

    repo, master, route, *files = sys.argv[1:]
    CombineSpec.__init__.__kwdefaults__["max_references"] = 3  # many windows over few files
    if route == "shuffle":
        routes._FEW_READS = routes._FACTOR = -1
    settings = session._settings
    session._settings = lambda *given: settings(*given) | {
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    } | json.loads(os.environ["SETTINGS"])
    with default_executor("processes" if master == "processes" else "spark"):
        icevirt.build(
            files,
            NotingStorage(repo),
            concat_dim="time",
            scan_options={"scanner": "noting_of_tests:NotingScanner"},
            progress=lambda step: note("phase", step.phase),
        )
    note("route", route)
"""


class Run(Driver):
    """A run of a build."""

    def __init__(self, site, files, repo, master, route, settings=None):
        (site / "noting_of_tests.py").write_text(textwrap.dedent(SITE))
        self._log = repo.with_suffix(".noted")
        self._log.touch()
        self._from = self._log.stat().st_size
        self.began = time.time()
        output = {"NOTED": str(self._log), "SETTINGS": json.dumps(settings or {})}
        super().__init__(PROGRAM, repo, master, route, *files, site=site, **output)

    def noted(self, kind):
        """Return when things of a kind were done in this run, and which: [(seconds, what)]."""
        with self._log.open() as log:
            log.seek(self._from)
            lines = [line.split(maxsplit=2) for line in log if line.endswith("\n")]
        return [(float(at) - self.began, what.rstrip()) for at, of, what in lines if of == kind]

    def moments(self):
        """Return when each moment began that the run came to, in order."""
        began = {"start": 0.0}
        for at, moment in self.noted("phase"):
            began.setdefault(moment, at)
        for moment, kind in (("scanning", "scans"), ("writing", "writes")):
            for at, _ in self.noted(kind)[:1]:
                began[moment] = at
        return {moment: began[moment] for moment in MOMENTS if moment in began}

    def victims(self):
        """Return the processes that may die, by what they are."""
        java, executors = [each.pid for each in self.processes() if is_java(each)], self.executors()
        return {
            "driver": [self.pid],
            "JVM": [pid for pid in java if pid not in executors],
            "executor": executors,
            "worker": self.workers(),
        }
