"""Formats that icevirt reads and no client writes any more: what they offer, how it is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from icevirt.errors import FormatError
from icevirt.installation import install_command

if TYPE_CHECKING:  # each new repository is looked for in these formats
    from collections.abc import Callable, Collection, Iterable, Mapping

    from icevirt.archive.reports.build import Progress
    from icevirt.archive.reports.relocation import Chunks, UpgradeCopyReport
    from icevirt.ids import ObjectId12
    from icevirt.model.config.containers import VirtualChunkContainer
    from icevirt.model.repo_info import RepoInfo
    from icevirt.repo.assets import Assets
    from icevirt.storage.protocol import Storage
    from icevirt.versioning.invariants import Problem
    from icevirt.versioning.repo_updates import Edit


class OldRepository(ABC):
    """An old repository as it was read; snapshots are read later."""

    __slots__ = ()

    info: RepoInfo
    assets: Assets

    @abstractmethod
    def swap(self, edits: tuple[Edit, ...]) -> NoReturn:
        """Refuse to make edits. Raises ``ReadOnlyError``."""

    @abstractmethod
    def check(self, now: int) -> tuple[int, dict[ObjectId12, int], list[Problem]]:
        """Return the number of snapshots, of references by manifest, and what is wrong."""

    @abstractmethod
    def containers_in_use(self, urls: Iterable[str]) -> list[VirtualChunkContainer]:
        """Return the narrowest containers that cover locations of virtual chunks."""

    @abstractmethod
    def authorize_containers(
        self, document: Mapping[str, Any], prefixes: Iterable[str]
    ) -> dict[str, dict[str, Any]]:
        """Return the containers of a configuration, and one for each prefix that a caller names."""


class OldFormats(Protocol):
    """Reads and upgrades what lies below one root."""

    def find(self, listed: Collection[str]) -> OldRepository | None:
        """Read the repository, whose paths below ``refs/`` are listed; None where there is none.

        Raises:
            FormatError: It is damaged, or of a layout that was never released.

        Warns:
            OldFormatWarning: There is one.
        """

    def upgrade(
        self,
        target: Storage,
        *,
        chunks: Chunks,
        dry_run: bool,
        progress: Callable[[Progress], None] | None,
    ) -> UpgradeCopyReport:
        """Copy the repository, which may be V1 too, into a new one; see `icevirt.upgrade`."""


@cache
def before_v1() -> Callable[[Storage], OldFormats]:
    """Return what reads the formats before V1: the class that takes the root of a repository."""
    from importlib.metadata import entry_points  # which takes long to import

    for entry in entry_points(group="icevirt.formats", name="before-v1"):
        found: Callable[[Storage], OldFormats] = entry.load()
        return found
    return _NotInstalled


class _NotInstalled:
    """Stands in where icevirt runs without its metadata, which names its entry points."""

    def __init__(self, storage: Storage) -> None:
        self._url = storage.url

    def find(self, listed: Collection[str]) -> None:
        """Raise ``FormatError`` where there are files of another format."""
        if listed:
            self.upgrade()

    def upgrade(self, *_: object, **_options: object) -> NoReturn:
        """Raise ``FormatError``."""
        raise FormatError(
            "what reads the formats before V1 is not installed",
            do=f"Install icevirt anew: {install_command()} --force-reinstall",
            repo=self._url,
        )
