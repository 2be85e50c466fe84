"""Check files to which nothing refers: all that a dataset has of them was copied.

No read asks such a file, so only a look at it shows that it changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from icevirt.archive.reports.verification import MOST_SHOWN, Checked, Difference, DifferenceKind
from icevirt.archive.sources import SourceFiles
from icevirt.objects.answers import GONE
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.objects.source_lists.listing import changed_since


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTask:
    """Some files, as they were when they were scanned."""

    files: SourceFiles
    access: SourceAccess


def check_copied(task: CopiedTask) -> Checked:
    """Look at each file."""
    with granted(task.access):
        changed = changed_since(task.files)
    differences = tuple(
        Difference(
            kind=DifferenceKind.missing if how == GONE else DifferenceKind.changed,
            file=url,
            what=f"{how}, and what was copied of it is what it was. Run `icevirt update`.",
        )
        for url, how in islice(changed.items(), MOST_SHOWN)
    )
    more = len(changed) - len(differences)
    return Checked(files=len(task.files), differences=differences, more=more)
