"""Compare values: chunks read through the repository with the file's own library.

The position of a chunk's bytes in its file determines the box of the variable that it should hold.
h5py or netCDF4 reads that box. The same match gives the file's position in the dataset, so its
coordinates and other stored values are compared too: a file in the wrong place is found although
its values are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from icevirt.archive.reports.verification import Checked, total
from icevirt.errors import (
    IcevirtError,
    ScanCrashError,
    ScanMemoryError,
    ScanTimeoutError,
    UnsupportedError,
)
from icevirt.objects.answers import Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.objects.source import open_source
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.repo.commits.validation import any_grid
from icevirt.repo.session import Session
from icevirt.scan.registry import oracle_for
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks.scan_subprocess import Apart
from icevirt.tasks.verify.comparison import Comparison, failed
from icevirt.tasks.verify.matching import ChunkToCompare, chosen_of, regions_of
from icevirt.tasks.verify.references import VerifyTask, look
from icevirt.versioning.lookup import users_of


def compare_values(task: VerifyTask) -> Checked:
    """Compare the chunks of the task, file by file, in a child process that a file may crash.

    Another process cannot see a repository in memory; its files are compared here.
    """
    session = task.session()
    users = users_of(session.snapshot.arrays(), task.manifests)
    chosen = [
        (url, wanted)
        for (key, own), rows in zip(users.items(), task.rows, strict=True)
        for url, wanted in chosen_of(session, key, rows, own).items()
    ]
    if isinstance(task.repo, MemoryStorage):
        with granted(_access_of(task, session)), any_grid():
            return total(_compare_file(session, task, url, wanted) for url, wanted in chosen)
    place = replace(task, manifests=(), rows=())
    with Apart() as apart:
        return total(_compare_apart(apart, session, place, url, wanted) for url, wanted in chosen)


def _compare_apart(
    apart: Apart, session: Session, place: VerifyTask, url: str, wanted: list[ChunkToCompare]
) -> Checked:
    try:
        return apart.call(url, compare_file, place, url, wanted)
    except (ScanCrashError, ScanTimeoutError, ScanMemoryError) as error:
        return failed(session, url, wanted, error)


_sessions: dict[tuple[str, str], Session] = {}  # of a child, which serves one task


def compare_file(place: VerifyTask, url: str, wanted: list[ChunkToCompare]) -> Checked:
    """Compare chunks of one file, in a child."""
    key = (place.repo.url, place.snapshot_id)
    if key not in _sessions:
        _sessions[key] = place.session()
    session = _sessions[key]
    try:
        with granted(_access_of(place, session)), any_grid():
            return _compare_file(session, place, url, wanted)
    except MemoryError:
        raise ScanMemoryError(
            "the file needs more memory than is available",
            do="Compare it on a machine with more memory.",
            file=url,
        ) from None


def _access_of(task: VerifyTask, session: Session) -> SourceAccess:
    """Read the files themselves as the containers say, with what was authorized."""
    return SourceAccess.of_containers(session.config.virtual_chunk_containers, task.access)


def _compare_file(
    session: Session, task: VerifyTask, url: str, wanted: Sequence[ChunkToCompare]
) -> Checked:
    """Compare chunks of one file; an error about the file concerns all of them."""
    ends: dict[tuple[str, Checksum], int] = {}
    for each in wanted:
        ends[each.file] = max(ends.get(each.file, 0), each.offset + each.length)
    authorizer = Authorizer(session.config.virtual_chunk_containers, task.access)
    # another file there has other values, and perhaps no such variable; neither is what is wrong
    wrong = {file: look(authorizer, *file, end=end) for file, end in ends.items()}
    checked = total(
        regions_of(session, difference, [each for each in wanted if each.file == file])
        for file, difference in wrong.items()
        if difference is not None
    )
    wanted = [each for each in wanted if wrong[each.file] is None]
    try:
        with open_source(url) as source:
            comparison = Comparison(session, source, oracle_for(source), task)
            return checked + total(comparison.chunk(each) for each in wanted)
    except UnsupportedError as error:
        reason = str(error)
        return checked + Checked(not_compared=tuple((each.array, reason) for each in wanted))
    except IcevirtError as error:
        return checked + failed(session, url, wanted, error)
