"""Build a dataset once more without some of its files, from the scans that its catalog holds.

The dataset becomes what a build of the other files makes, in one commit; no file is looked at that
the catalog describes. What others committed stays, as with ``mode="w"``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from icevirt.api.dataset import left_out
from icevirt.api.dataset.events import Clock
from icevirt.api.dataset.files_held import CATALOG, FilesHeld, files_of_build
from icevirt.api.dataset.planning import Planner
from icevirt.api.dataset.records import identities_in, kept_or_none, provenance_of
from icevirt.api.dataset.replacing import kept_of
from icevirt.api.dataset.scanning import Scan, closed_catalog, scan_and_infer
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import ExecutorStarter, Request, until_unchanged
from icevirt.api.recorded import continued
from icevirt.api.trust.readable_places import ReadablePlaces
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import BuildReport
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.listings import FileListing
from icevirt.errors import InvalidInputError
from icevirt.storage.protocol import Below, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remaining:
    """The files that stay, as sources of a build."""

    held: SourceFiles

    def files(self) -> SourceFiles:
        """Return them; what the dataset holds is not looked at."""
        return self.held


@dataclass(slots=True, kw_only=True)
class DatasetFiles:
    """The files of a dataset, and what a build of some of them takes."""

    storage: Storage
    branch: str
    group: str
    target: Target
    record: Mapping[str, Any]  # of the last build
    listing: FileListing
    starter: ExecutorStarter
    clock: Clock

    @classmethod
    def of(
        cls,
        storage: Storage,
        *,
        branch: str,
        group: str,
        prefixes: Iterable[str],
        starter: ExecutorStarter,
        clock: Clock,
    ) -> DatasetFiles:
        """Look which files a dataset is made of.

        Raises:
            InvalidInputError: No build made it, the repository does not list its files, or these
                lie elsewhere than below the prefixes.
            FormatError: The list is damaged.
        """
        target = Target.look(storage, branch=branch, group=group, mode="w")
        group, last = target.group, target.last_build()
        record = None if last is None else provenance_of(last, group)
        if record is None:
            raise InvalidInputError(
                "no build made this group, so that it is unknown which files it is made of",
                do="Name the group of a dataset that icevirt built.",
                branch=branch,
                group=group,
            )
        target.refuse_left_behind(record)
        listing, places = files_of_build(storage, record), ReadablePlaces.of(prefixes)
        places.refuse_others(listing.files, repo=storage.url, what="call")
        return cls(
            storage=storage,
            branch=branch,
            group=group,
            target=target,
            record=record,
            listing=listing,
            starter=starter,
            clock=clock,
        )

    @property
    def bad(self) -> frozenset[str]:
        """Files that were left out."""
        return frozenset(url for url, _, _ in self.record.get("bad_files", ()))

    def plan(self) -> BuildPlan:
        """Plan the dataset of all its files.

        Raises:
            InvalidInputError: The build had options that only a caller may give.
        """
        request = self._request(self.listing.files, message="")
        choices = request.choices
        scan = Scan(
            files=self.listing.files,
            options=request.options,
            catalog=Below(self.storage, CATALOG),
            max_bad_files=len(self.bad),
            progress=self.clock.step,
            limits=choices.scan.limits,
            also=request.also,
        )
        executor = self.starter.start(self.listing.files, self.storage)
        with self.clock.phase("scan"):
            scan, _ = scan_and_infer(executor, scan, choices.inferring)
        with self.clock.phase("plan"):
            target = Target.look(self.storage, branch=self.branch, group=self.group, mode="w")
            spec = replace(request.along(scan.options).spec, build_id="", kept=kept_of(target))
            planner = Planner(executor=executor, scan=scan, choices=choices, spec=spec)
            return planner.plan(closed_catalog(executor, scan))[2]

    def without(
        self, gone: Collection[str], *, message: str, allow_changes: bool = False
    ) -> BuildReport:
        """Build the dataset of all other files, in one commit.

        Raises:
            PlanChangedError: Something other than steps would be lost.
            CombineError: The other files do not combine.
            InvalidInputError: No file would be left.
        """
        files = SourceFiles(file for file in self.listing.files if file.url not in gone)
        if not len(files):
            raise InvalidInputError(
                "no file of the dataset would be left",
                do="Delete its group instead.",
                group=self.group,
            )
        request = self._request(files, message=message)
        commit = replace(request.commit, allow_changes=allow_changes)
        held = left_out.held_files(self.storage, self.target.held_back()[0])
        if len(rest := left_out.without(held, gone)) < len(held):
            about = {"held": left_out.keep_held(self.storage, rest)} if rest else {}
            request = replace(request, about=about)
        request = replace(request, commit=commit)
        return until_unchanged(request, _Remaining(held=files), self.starter, self.clock)

    def _request(self, files: SourceFiles, *, message: str) -> Request:
        how = continued(
            self.record,
            concat_dim=None,
            scan_options=None,
            combine_options=None,
            commit_options={"branch": self.branch, **({"message": message} if message else {})},
        )
        named = how.choices.scanner.concat_dims
        dimensions = named if how.choices.inferring is None else named or None
        bad = sum(file.url in self.bad for file in files) if self.bad else 0
        return Request(
            storage=self.storage,
            catalog=Below(self.storage, CATALOG),
            mode="w",
            commit=how.commit,
            choices=how.choices,
            options=how.choices.scanner,
            spec=how.choices.spec(dimensions, group=self.group),
            nest=None,
            plan="",
            progress=self.clock.step,
            held=FilesHeld(listing=FileListing(files=files, pieces=()), bad=bad),
            recipe=kept_or_none(self.storage, self.record),
            about={} if (name := self.target.held_back()[0]) == "" else {"held": name},
            also=identities_in(Below(self.storage, CATALOG), how.choices.scanner),
            absent=frozenset(self.record.get("combine", {}).get("absent") or ()),
            expected=frozenset({"steps"}),
        )
