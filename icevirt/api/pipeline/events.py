"""Log what happens in a build to the logger ``icevirt``, for unattended runs.

A record's message is a line for people; its ``event`` is a stable word, and its ``fields`` are for
programs. Only the driver makes records, and none shows a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from icevirt.archive.reports.build import BadFile, BuildReport, Progress
from icevirt.errors import IcevirtError
from icevirt.redaction import redacted

LOG = logging.getLogger("icevirt")
LOG.addHandler(logging.NullHandler())  # no handler of the application: no word

_TOLD = 100  # bad files, a record each


def tell(event: str, level: int = logging.INFO, /, **fields: Any) -> None:
    """Log an event.

    Args:
        event: Its name, for programs.
        level: Of `logging`.
        fields: Values that JSON knows; secrets in texts are cut out.
    """
    if not LOG.isEnabledFor(level):
        return
    shown = redacted(fields)
    told = ", ".join(f"{name}={value}" for name, value in shown.items())
    extra = {"event": event, "fields": shown}
    LOG.log(level, "%s", f"{event}: {told}" if told else event, extra=extra)


def tell_bad_files(bad: Sequence[BadFile]) -> None:
    """Log files that were left out: the first hundred by name, then how many there are."""
    for file in bad[:_TOLD]:
        tell("file-left-out", logging.WARNING, url=file.url, code=file.code, error=file.error)
    if bad:
        tell("files-left-out", logging.WARNING, files=len(bad))


def tell_committed(report: BuildReport) -> None:
    """Log what a build committed, or that it was committed before."""
    tell(
        "already-built" if report.already_built else "committed",
        repo=report.repo,
        branch=report.branch,
        group=report.group,
        snapshot_id=report.snapshot_id,
        build_id=report.build_id,
        files_scanned=report.files_scanned,
        files_reused=report.files_reused,
        bad_files=len(report.bad_files),
        references=report.references.total,
        bytes_referenced=report.references.bytes_referenced,
        bytes_stored=report.references.bytes_stored,
        manifests=report.manifests,
        manifest_bytes=report.manifest_bytes,
    )


@contextmanager
def telling_failures(what: str) -> Iterator[None]:
    """Log the error that ends the block."""
    try:
        yield
    except IcevirtError as error:
        tell(f"{what}-failed", logging.ERROR, code=error.code, error=str(error))
        raise
    except BaseException as error:
        tell(f"{what}-failed", logging.ERROR, code=type(error).__name__, error=str(error))
        raise


def heard(progress: Callable[[Progress], None] | None) -> bool:
    """Say whether anybody wants to know how far a phase is."""
    return progress is not None or LOG.isEnabledFor(logging.INFO)
