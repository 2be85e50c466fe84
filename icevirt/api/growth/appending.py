"""Hold what one append behind the last step of a dataset stands on."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, NoReturn

from icevirt.api.growth.stored_tail import ManifestReads
from icevirt.api.growth.tail_state import TailState
from icevirt.api.pipeline.build_steps import Request
from icevirt.api.pipeline.events import Clock
from icevirt.api.pipeline.target import Target
from icevirt.archive.scanned import SourceFile
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import Snapshot
from icevirt.planning.lengthened import OtherwiseError
from icevirt.repo.assets import Assets
from icevirt.storage.memory import MemoryStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class Appending:
    """One append, and what it stands on."""

    request: Request
    new: tuple[SourceFile, ...]
    target: Target
    clock: Clock
    last: SnapshotSummary  # of the last build or append
    record: Mapping[str, Any]  # that it left
    state: TailState
    assets: Assets
    scratch: MemoryStorage  # a catalog of the ends and the new files
    borrowed: frozenset[str]  # objects in it that come from the catalog of the dataset
    pool: Executor  # makes requests beside each other
    tip_read: Future[Snapshot]
    reads: ManifestReads

    @property
    def tip(self) -> Snapshot:
        """What the branch holds."""
        return self.tip_read.result()


def not_flat(why: str) -> NoReturn:
    """Leave an append to a plan of all files.

    Raises:
        OtherwiseError: Always.
    """
    raise OtherwiseError(why)
