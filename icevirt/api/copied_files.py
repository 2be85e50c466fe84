"""Find the files of datasets to which no reference leads, for `icevirt.verify`.

A repository says which files these are, and anybody may have written it: only those below places
that the caller authorized are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from icevirt.api.dataset.files_held import files_of_build
from icevirt.api.dataset.records import newest_records, records_in
from icevirt.archive.reports.verification import Checked, total
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.file_hashes import hashes_of
from icevirt.errors import FormatError, InvalidInputError
from icevirt.execution.executor import Executor
from icevirt.objects.authorize import GrantedAccess
from icevirt.objects.source_access import SourceAccess
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.tasks.verify.references import CopiedTask, check_copied

_PER_TASK = 4096  # files


def check_files_copied(
    opened: Repository,
    session: Session,
    access: Mapping[str, GrantedAccess],
    met: NDArray[np.uint64],
    running: Executor,
) -> Checked:
    """Look at the files of a version's datasets that references do not lead to.

    Args:
        opened: The repository.
        session: Its version.
        access: What was authorized, by prefix.
        met: The hashes of the URLs of files that were looked at.
        running: Runs tasks.
    """
    info, here = opened.head.read().info, session.snapshot
    is_known = here.id in info.snapshots
    records = [*newest_records(info, here.id)] if is_known else [*records_in(here)]
    reach = SourceAccess.of_containers(session.config.virtual_chunk_containers, access)
    places = tuple(prefix for prefix in access if prefix.startswith("file://"))
    places += tuple(grant.prefix for grant in reach.grants)
    tasks, unread = [], []
    for record in records:
        try:
            files = files_of_build(opened.storage, record).files
        except (FormatError, InvalidInputError) as error:
            unread.append((str(record.get("group")), error.what))
            continue
        out = {str(url) for url, *_ in record.get("bad_files") or ()}
        out |= {*(record.get("combine", {}).get("absent") or ())}
        left = np.flatnonzero(~np.isin(hashes_of(files)["url"], met))
        named = (file for file in files.at(left) if file.url.startswith(places))
        rest = [file for file in named if file.url not in out]
        tasks += [
            CopiedTask(files=SourceFiles(rest[at : at + _PER_TASK]), access=reach)
            for at in range(0, len(rest), _PER_TASK)
        ]
    found = total(running.run(check_copied, tasks)) if tasks else Checked()
    return found + Checked(not_compared=tuple(unread))
