"""Look at a cluster before the first stage of a build: one small job, whose errors say what to set.

Each of its tasks compares what its executor has installed with what the driver has, by a function
that is sent by value. Only where they agree does it unpickle anything of ours: then it looks for
the driver's note in every storage of the build, leaves one of its own, and reads a byte of the
sources. The driver then looks for what one task of each executor left.

There are about twice as many tasks as run at a time, so that each executor gets one. Those that
come later are not looked at; every task compares what is installed by itself.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from icevirt.archive.sources import SourceFiles
from icevirt.errors import ExecutorError, IcevirtError, StorageError
from icevirt.execution import installed
from icevirt.execution.executor import Executor
from icevirt.execution.installation import Batches, by_value, expect, of_driver, requirements
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.execution.spark_failures import installing, reaching, remedy_of, requirements_of
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess, grant_access, in_force
from icevirt.storage.protocol import Storage
from icevirt.tasks.reachability import DRIVER, ReachTask, finds

MOST = 256
"""Tasks of the job."""

UNKNOWN = 16
"""Tasks of the job, where nobody says how many executors there are now."""

_SOURCES = 8  # places of sources that are tried, of
_SAMPLE = 64  # files
_SHOWN = 5  # executors in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNeeds:
    """What executors are to reach."""

    written: tuple[Storage, ...] = ()
    """Storages that tasks write to."""

    read: tuple[tuple[Storage, str], ...] = ()
    """Storages that tasks only read, each with an object that is there."""

    sources: tuple[str, ...] = ()
    """URLs of source files."""

    access: SourceAccess = field(default_factory=SourceAccess)

    @classmethod
    def of(cls, files: SourceFiles, *written: Storage) -> ClusterNeeds:
        """Return what it takes to scan files, and to write to storages.

        Args:
            files: Some from all over the list are tried.
            written: Where tasks write.
        """
        step = -(-len(files) // _SAMPLE) or 1
        sources = tuple(files[at].url for at in range(0, len(files), step))
        return cls(written=written, sources=sources, access=in_force())


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """What a task of the job found."""

    number: int
    installed: dict[str, Any]
    differs: tuple[str, str] | None
    unreached: Sequence[Mapping[str, str]] = ()
    broken: str = ""  # why icevirt cannot be imported

    @property
    def host(self) -> str:
        """The machine."""
        return str(self.installed["host"])

    @property
    def python(self) -> str:
        """The path of its Python."""
        return str(self.installed["executable"])

    @property
    def packages(self) -> dict[str, str | None]:
        """Versions of what tasks need, by import name."""
        return dict(self.installed["packages"])

    def differs_in(self, kind: str) -> bool:
        """Say whether it differs from the driver in this; see `installed.compare`."""
        return self.differs is not None and self.differs[0] == kind

    @property
    def executor(self) -> tuple[str, str]:
        """What tells executors apart: machine and working directory."""
        return self.host, str(self.installed["place"])


def check_before_first(executor: Executor, needs: ClusterNeeds) -> None:
    """Have the executor look at its cluster before it runs the first task, if it has one.

    Processes of this machine, and local mode, see what this process sees.
    """
    if not isinstance(executor, SparkExecutor) or executor.is_local:
        return
    seen = executor.reached
    if not needs.written and all(
        any(each.startswith(storage.url) for each in seen) for storage, _ in needs.read
    ):
        return  # a build has looked, which now reads what it wrote
    executor.first = partial(check, executor, needs)


def check(executor: SparkExecutor, needs: ClusterNeeds) -> list[LookedAt]:
    """Look at the executors that are there now; return one finding of each.

    Raises:
        ExecutorError: One does not suit, or does not reach what it must.
        SparkJobError: The job failed in another way.
        StorageError: The driver cannot write to a storage.
    """
    folder, note = f"preflight/{secrets.token_hex(8)}", secrets.token_bytes(16)
    written = _distinct(needs.written)
    try:
        for storage in written:
            storage.put(f"{folder}/{DRIVER}", note)
        task = ReachTask(
            folder=folder,
            note=note,
            written=written,
            read=needs.read,
            sources=_places(needs.sources),
            access=needs.access,
        )
        found = look_at(executor, task)
        refuse_unsuitable(found)
        readable = partial(_is_readable, needs.access)
        for each in found:
            _refuse_unreached(each, found, readable)
        for each in found:
            for storage in written:
                if not finds(storage, f"{folder}/{each.number}", note):
                    raise _sharing_error(each, storage.url, "the driver does not see what it wrote")
        executor.reached |= {storage.url for storage in written}
        return found
    finally:
        for storage in written:
            with suppress(StorageError):  # what remains does no harm
                storage.delete_below(folder)


def look_at(executor: SparkExecutor, task: ReachTask | None) -> list[LookedAt]:
    """Run the job; return what one task found on each executor.

    Args:
        executor: Of the cluster.
        task: What to reach; None: only what is installed is looked at.
    """
    try:
        count = min(2 * int(executor.session.sparkContext.defaultParallelism), MOST)
    except Exception:  # noqa: BLE001  # Spark Connect has no context to ask
        count = UNKNOWN
    rows = executor.collect(_probe(task), "found string", count)
    found = [LookedAt(**json.loads(row["found"])) for row in rows]
    # what a task of an executor failed at counts, whatever others found there
    found.sort(key=lambda each: not (each.differs or each.broken or each.unreached))
    first: dict[tuple[str, str], LookedAt] = {}
    for each in found:
        first.setdefault(each.executor, each)
    return [*first.values()]


def _probe(task: ReachTask | None) -> Batches:
    """Return what a task of the job does; it unpickles nothing of ours before it has compared."""
    look, compare = by_value(installed.look), by_value(installed.compare)
    names, expected = requirements(), expect(is_local=False)
    payload = None if task is None else pickle.dumps(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json
        import pickle

        import pyarrow as pa

        there = pickle.loads(look)(names, reads_code=True)  # noqa: S301  # made above
        differs = pickle.loads(compare)(expected, there)  # noqa: S301
        is_whole = None not in there["packages"].values()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = {"number": number, "installed": there, "differs": differs}
                if payload is not None and differs is None and is_whole:
                    try:
                        from icevirt.tasks.reachability import load, reach

                        load(has_hdf5="h5py" in names)
                        found["unreached"] = reach(pickle.loads(payload), str(number))  # noqa: S301
                    except Exception as error:  # noqa: BLE001  # whatever a library raises
                        found["broken"] = f"{type(error).__name__}: {error}"
                yield pa.RecordBatch.from_pydict({"found": [json.dumps(found)]})

    return run


def _distinct(storages: Sequence[Storage]) -> tuple[Storage, ...]:
    """Return the storages that do not lie in others of them."""
    found: list[Storage] = []
    for each in sorted(storages, key=lambda storage: len(storage.url)):
        if not any(f"{each.url}/".startswith(f"{other.url.rstrip('/')}/") for other in found):
            found.append(each)
    return tuple(found)


def _places(sources: Sequence[str]) -> tuple[str, ...]:
    """Return a source of each place: a bucket, a server, a directory below the root."""
    first: dict[str, str] = {}
    for url in sources:
        depth = 4 if url.startswith("file:///") else 3
        first.setdefault("/".join(url.split("/")[:depth]), url)
    return tuple([*first.values()][:_SOURCES])


def _is_readable(access: SourceAccess, url: str) -> bool:
    """Say whether the driver reads a source; the scan judges a file that cannot be read."""
    try:
        with grant_access(access), open_source(url) as source:
            source.read(0, 1)
    except IcevirtError:
        return False
    return True


def refuse_unsuitable(found: Sequence[LookedAt]) -> None:
    """Refuse executors that have not what the driver has.

    Raises:
        ExecutorError: There is one.
    """
    for each in found:
        wrong = requirements_of(each.packages)
        if each.differs:
            kind, clause = each.differs
            alike = [other for other in found if other.differs]
            do = remedy_of(kind, of_driver(), python=each.python, wrong=wrong)
        elif wrong or each.broken:
            lacking = f"it lacks {', '.join(wrong)}"
            clause = lacking if wrong else f"icevirt breaks there: {each.broken}"
            alike = [other for other in found if other.broken or other.differs]
            do = installing(wrong, python=each.python)
        else:
            continue
        raise ExecutorError(f"an executor does not suit: {clause}", do=do, **_facts(each, alike))


def _refuse_unreached(
    each: LookedAt, found: Sequence[LookedAt], is_readable: Callable[[str], bool]
) -> None:
    for it in each.unreached:
        kind, url, cause = it["kind"], it["url"], it["cause"]
        match kind, url.startswith("file:"):
            case "unshared", _:
                raise _sharing_error(each, url, "it does not see what the driver sees")
            case "unread", _ if not is_readable(url):
                continue
            case "unread", True:
                what = "an executor does not read a source file that the driver reads"
                do = (
                    "Mount the directory at the same path on every executor, readable for the"
                    " user that Spark runs as, or name files in an object store."
                )
            case "unwritable", is_local:
                what = "an executor cannot write where the build writes"
                do = (
                    "Let the user that Spark runs as on executors write there, or use an object"
                    " store, like s3://bucket/repo."
                    if is_local
                    else "Allow it for the role or the credentials of the executors; what you pass"
                    " to icevirt.s3_storage(...) and its like travels with tasks."
                )
            case _:
                what = "an executor does not reach what the driver reaches"
                do = reaching(cause)
        facts = _facts(each, [other for other in found if other.unreached])
        raise ExecutorError(what, do=do, **{it["role"]: url}, cause=cause, **facts)


def _sharing_error(each: LookedAt, url: str, clause: str) -> ExecutorError:
    where = (
        "The path is another directory there. Name one on a file system that is mounted at the"
        " same path on the driver and all executors, or an object store, like s3://bucket/repo"
        " (the path of a plan's catalog is catalog=)."
        if url.startswith("file:")
        else "Its endpoint leads elsewhere there: set the same one on the driver and executors."
    )
    return ExecutorError(
        f"an executor does not share a storage with the driver: {clause}",
        do=where,
        storage=url,
        executor=each.host,
    )


def _facts(each: LookedAt, alike: Sequence[LookedAt]) -> dict[str, Any]:
    others = sorted({other.host for other in alike} - {each.host})
    more: dict[str, Any] = {"others": others[:_SHOWN]} if others else {}
    return {"executor": each.host, "python": each.python, **more}
