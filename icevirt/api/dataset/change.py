"""Look at a dataset, and say what is to become of its files.

Each call that commits a dataset makes a `DatasetChange` and hands it to the transaction: `build`
adds files to nothing, `append` adds and replaces, `update` and windows remove, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from icevirt.api.dataset.files_held import CATALOG, files_of_build, identities_in
from icevirt.api.dataset.left_out import excluded_from
from icevirt.api.dataset.planning import Request
from icevirt.api.dataset.records import absent_in, bad_in
from icevirt.api.dataset.target import Target
from icevirt.api.recorded import Continued
from icevirt.archive.scanned import SourceFile, SourceFiles
from icevirt.catalog.listings import FileListing
from icevirt.storage.protocol import Below, Storage

NOTHING = FileListing(files=SourceFiles(), pieces=())
"""The list of a group that no build made."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A group of a branch, and what its last build recorded of it."""

    target: Target
    record: Mapping[str, Any]  # empty where no build made the group
    catalog: Storage  # of its scans

    @classmethod
    def look(
        cls, storage: Storage, *, branch: str, group: str, catalog: Storage | None = None
    ) -> Dataset:
        """Look at a group.

        Raises:
            InvalidInputError: Its files moved since it was built.
        """
        target = Target.look(storage, branch=branch, group=group, mode="w")
        record = target.last_record()
        if record is not None:
            target.refuse_left_behind(record)
        catalog = Below(storage, CATALOG) if catalog is None else catalog
        return cls(target=target, record=record or {}, catalog=catalog)

    @cached_property
    def listing(self) -> FileListing:
        """The files that it is made of.

        Raises:
            InvalidInputError: The repository does not say.
            FormatError: It says something else than the snapshot.
        """
        return files_of_build(self.target.storage, self.record) if self.record else NOTHING

    @cached_property
    def bad(self) -> frozenset[str]:
        """URLs of its files that were left out, as they could not be scanned."""
        return bad_in(self.record)

    @cached_property
    def absent(self) -> frozenset[str]:
        """URLs of its files that are gone, and whose steps read as missing."""
        return absent_in(self.record)

    @cached_property
    def excluded(self) -> frozenset[str]:
        """URLs of files that must not be added."""
        target = self.target
        return excluded_from(target.storage, branch=target.branch, group=target.group)

    def request(self, how: Continued, **more: Any) -> Request:
        """Return the request of a commit that goes on with it; ``more`` are fields of a request."""
        usual: dict[str, Any] = {
            "storage": self.target.storage,
            "catalog": self.catalog,
            "absent": self.absent,
        }
        return Request.of(how.choices, how.commit, group=self.target.group, **(usual | more))

    def scans_alike(self, how: Continued) -> tuple[str, ...]:
        """Return the scans with the same options by any version of a scanner."""
        return identities_in(self.catalog, how.choices.scanner)


@dataclass(frozen=True, kw_only=True)
class DatasetChange:
    """What is to become of the files of a dataset."""

    listing: FileListing = NOTHING  # as it is
    bad: Collection[str] = ()  # URLs of its files that were left out
    added: Sequence[SourceFile] = ()
    replaced: Sequence[SourceFile] = ()  # that it holds otherwise; they keep their places
    removed: Collection[str] = frozenset()  # URLs

    @cached_property
    def kept(self) -> FileListing:
        """The files that stay as they are, and are not looked at again."""
        out = {*self.removed, *(file.url for file in self.replaced)}
        if not out:
            return self.listing
        stay = SourceFiles(file for file in self.listing.files if file.url not in out)
        if len(stay) == len(self.listing.files):
            return self.listing
        return FileListing(files=stay, pieces=())  # a list without pieces is a part of one

    @cached_property
    def _kept_urls(self) -> frozenset[str]:
        return frozenset(self.kept.files.urls)

    @property
    def bad_kept(self) -> int:
        """How many of the files that stay were left out."""
        return sum(url in self._kept_urls for url in self.bad)

    def files(self) -> SourceFiles:
        """Return all files that the dataset will have."""
        if not len(self.listing.files) and not self.removed:
            return self.added if isinstance(self.added, SourceFiles) else SourceFiles(self.added)
        now = {file.url: file for file in self.replaced}
        before = (now.get(file.url, file) for file in self.listing.files)
        return SourceFiles(
            file for file in chain(before, self.added) if file.url not in self.removed
        )

    def pick_others(self, files: SourceFiles) -> SourceFiles:
        """Return those of some files that do not stay as they are."""
        if not len(self.kept.files):
            return files
        return SourceFiles(file for file in files if file.url not in self._kept_urls)
