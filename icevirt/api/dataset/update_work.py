"""Hold what an update found, and what it makes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from icevirt.amounts import plural
from icevirt.api.dataset import left_out
from icevirt.api.dataset.differences import (
    Changes,
    Relisted,
    apply_rules,
    changes,
    count_rescanned,
    find_superseded,
    list_again,
    refuse_many,
    young,
)
from icevirt.api.dataset.events import Clock
from icevirt.api.dataset.files_held import FilesHeld, files_of_build, identities_in, merge
from icevirt.api.dataset.left_out import excluded_from
from icevirt.api.dataset.planning import Request
from icevirt.api.dataset.recipes import Followed
from icevirt.api.dataset.records import TRIED, absent_in, bad_in
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import report_unchanged
from icevirt.api.dataset.trial import (
    UNTRIED,
)
from icevirt.api.recorded import continue_options
from icevirt.api.trust.readable_places import left_elsewhere
from icevirt.archive.reports.build import OTHERS
from icevirt.archive.reports.upkeep import FileHeldBack, UpdateReport
from icevirt.archive.scanned import SourceFile, SourceFiles
from icevirt.catalog.listings import FileListing
from icevirt.errors import InvalidInputError
from icevirt.model.json import JSON
from icevirt.planning.remedies import of_arguments
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.protocol import Storage
from icevirt.version import __version__

type Vanished = Literal["refuse", "missing", "remove"]

_SHOWN = 5  # files in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCall:
    """What the caller asked for."""

    storage: Storage
    catalog: Storage
    recipe: str | os.PathLike[str] | None
    trusted: str | None
    authorize: tuple[str, ...]
    group: str
    branch: str
    since: str
    settle: float  # seconds
    vanished: Vanished
    max_vanished: int | str | None
    rules: Mapping[str, str]
    rescan: tuple[str, ...]
    variables: tuple[str, ...]
    drop_others: bool
    dry_run: bool
    message: str | None
    access: Mapping[str, Any]


def look(call: UpdateCall) -> tuple[Target, dict[str, Any]]:
    """Return the branch, and what the last build of the group recorded.

    Raises:
        InvalidInputError: There is none.
        RepositoryNotFoundError: Nor is there a repository.
    """
    target = Target.look(call.storage, branch=call.branch, group=call.group, mode="w")
    record = target.last_record()
    if record is None:
        RepoInfoFile(call.storage).read()
        raise InvalidInputError(
            "no build made this group, so there is nothing to update",
            do="Build it once: icevirt build SOURCES REPO.",
            repo=call.storage.url,
            group=call.group,
            branch=call.branch,
        )
    target.refuse_left_behind(record)
    return target, record


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWork:
    """What an update found, and what it makes of it."""

    call: UpdateCall
    target: Target
    record: Mapping[str, Any]
    how: Followed
    listing: FileListing
    relisted: Relisted
    found: Changes
    before: tuple[FileHeldBack, ...]  # what was held back until now
    absent: frozenset[str]  # URLs of files whose steps read as missing, from now on
    removed: frozenset[str]  # URLs of files that leave the dataset
    bad: frozenset[str]  # URLs of files of the dataset that could not be scanned
    request: Request
    alike: set[str] = field(default_factory=set)  # URLs of files that are described as before

    @classmethod
    def begun(  # noqa: PLR0917 - an update, and where it begins
        cls,
        call: UpdateCall,
        target: Target,
        record: dict[str, Any],
        how: Followed,
        unsettled: frozenset[str],
        clock: Clock,
    ) -> UpdateWork:
        """List and compare.

        Raises:
            InvalidInputError: Too many files are gone, or files lie elsewhere than was named.
        """
        options = continue_options(record, concat_dim=how.concat_dim, **how.options)
        # bad files are held back before; files that change begin a new attempt
        commit = replace(options.commit, branch=call.branch, promote=None, rescan_changed=False)
        with clock.phase("list"):
            listing = files_of_build(call.storage, record)
            held = {file.url: file for file in listing.files}
            if call.variables:  # which are made of the same files
                how.places.refuse_others(listing.files, repo=call.storage.url, what="update")
                relisted = Relisted(files=held, gone=frozenset(), unlisted=0)
            else:
                relisted = list_again(
                    call.storage,
                    how.sources,
                    held,
                    places=how.places,
                    is_trusted=how.is_trusted,
                    since=call.since,
                    asset=options.choices.scan.asset,
                )
        bad, absent = bad_in(record), absent_in(record)
        is_young = young(time.time_ns(), call.settle)
        found = changes(
            relisted.files.values(),
            held,
            gone=relisted.gone,
            bad=bad,
            absent=absent,
            excluded=excluded_from(call.storage, branch=target.branch, group=target.group),
            is_young=lambda file: file.url in unsettled or is_young(file),
        )
        found = apply_rules(found, held, bad | absent, call.rules)
        found = count_rescanned(found, relisted.files, held, call.rescan)
        found = Changes(known=len(held)) if call.variables else found
        gone = frozenset(file.url for file in found.vanished)
        if gone:
            refuse_many(len(gone), len(held), call.max_vanished)
            _refuse_vanished(found.vanished, call.vanished)
        removed = gone if call.vanished == "remove" else frozenset()
        absent = (absent | (gone - removed)) - frozenset(file.url for file in found.corrected)
        last = target.last_build()
        request = Request.of(
            options.choices,
            commit,
            group=call.group,
            storage=call.storage,
            catalog=call.catalog,
            progress=clock.step,
            recipe=how.recipe,
            absent=absent,
            also=identities_in(call.catalog, options.choices.scanner),
            follows=None if last is None else str(last.id),
            expected=frozenset(
                ({"steps"} if removed or call.rules else set())
                | ({OTHERS} if call.drop_others else set())
                | ({"fill value"} if absent or absent_in(record) else set())
            ),
        )
        return cls(
            call=call,
            target=target,
            record=record,
            how=how,
            listing=listing,
            relisted=relisted,
            found=found,
            before=left_out.read_held(call.storage, target.find_held_back()[0]),
            absent=absent,
            removed=removed,
            bad=bad,
            request=request,
        )

    def refused_before(self, held: Sequence[FileHeldBack]) -> tuple[FileHeldBack, ...]:
        """Return what did not fit before, of the files that could be scanned and are the same."""
        left = {(file.url, file.size, file.last_modified) for file in self.left(held)}
        return tuple(
            each
            for each in self.before
            if each.code != UNTRIED and (each.url, each.size, each.last_modified) in left
        )

    @property
    def is_as_tried(self) -> bool:
        """Whether the last commit of the dataset was by an update that tried what is held back."""
        is_same = not self.how.is_own and self.record.get("icevirt") == __version__
        return is_same and self.target.find_held_back()[1]

    def committing(
        self, report: UpdateReport, out: Sequence[FileHeldBack], *, held: FilesHeld | None = None
    ) -> Request:
        """Return the request of a commit that says what is held back."""
        about: dict[str, JSON] = {}
        if out:
            about = {"held": left_out.keep_held(self.call.storage, out), TRIED: True}
        message = self.call.message or f"Update: {report.summary}"
        commit = replace(self.request.commit, message=message)
        return replace(self.request, about=about, commit=commit, held=held)

    @property
    def is_more_than_new(self) -> bool:
        """Whether anything is to be done beside adding files."""
        return bool(self.removed or self.absent or self.bad or self.found.corrected)

    def left(self, held: Sequence[FileHeldBack]) -> list[SourceFile]:
        """Return the candidates that are not held back."""
        out = {each.url for each in held}
        return [file for file in self.found.candidates if file.url not in out]

    def differs(self, held: Sequence[FileHeldBack]) -> bool:
        """Say whether there is anything to commit beside what is held back."""
        if self.left(held) or self.removed or self.superseded(self.left(held)):
            return True
        return self.absent != absent_in(self.record)

    def superseded(self, accepted: Sequence[SourceFile]) -> dict[str, str]:
        """Return the files that leave the dataset for their final versions."""
        if not self.call.rules:
            return {}
        urls = [*self.listing.files.urls, *(file.url for file in accepted)]
        now = {file.url for file in accepted}
        out = self.removed | self.absent | (self.bad - now)
        return find_superseded(urls, (url for url in urls if url not in out), self.call.rules)

    def files(self, accepted: Sequence[SourceFile]) -> SourceFiles:
        """Return the files of the dataset with some of the candidates, for a plan of all.

        Raises:
            InvalidInputError: Some of those that stay may not be looked at.
        """
        now = {file.url: file for file in accepted}
        added = {file.url for file in self.found.added}
        gone = {*self.superseded(accepted), *self.removed, *(self.bad - now.keys())}
        stay = SourceFiles(
            file
            for file in merge(
                self.listing.files,
                (file for file in accepted if file.url not in added),
                (file for file in accepted if file.url in added),
            )
            if file.url not in gone
        )
        if others := [file for file in self._elsewhere if file.url not in gone]:
            raise self.how.places.refusal(others, repo=self.call.storage.url, what="update")
        return stay

    @property
    def _elsewhere(self) -> Sequence[SourceFile]:
        """The files of the dataset that may not be looked at."""
        urls = self.relisted.elsewhere
        return [file for file in self.listing.files if file.url in urls] if urls else []

    def held(self, accepted: Sequence[SourceFile], files: SourceFiles) -> FilesHeld:
        """Return which of the files the dataset holds, and are not looked at again."""
        now = {file.url for file in accepted}
        stay = [file for file in self.listing.files if file.url not in now]
        there = {*files.urls}
        same = len(stay) == len(self.listing.files) and all(file.url in there for file in stay)
        kept = SourceFiles(file for file in stay if file.url in there)
        listing = self.listing if same else FileListing(files=kept, pieces=())
        return FilesHeld(listing=listing, bad=0)

    def report(self, held: Sequence[FileHeldBack]) -> UpdateReport:
        """Return what is known before anything is committed."""
        accepted = {file.url for file in self.left(held)}
        added = [file for file in self.found.added if file.url in accepted]
        report = empty_report(self.call, self.target, self.record)
        gone = self.superseded(self.left(held)).keys()
        return replace(
            report,
            findings=tuple(self._notes(held)),
            files_added=len(added),
            files_corrected=len(accepted) - len(added),
            files_same_layout=len(accepted & self.alike),
            files_rescanned=sum(file.url in accepted for file in self.found.rescanned),
            files_vanished=len(self.found.vanished),
            files_superseded=len(gone & {*self.listing.files.urls}),
            files_waiting=len(self.found.waiting),
            files_known=self.found.known,
            files_excluded=self.found.excluded,
            files_elsewhere=len(self.relisted.elsewhere),
            held=tuple(held),
        )

    def _notes(self, held: Sequence[FileHeldBack]) -> Iterable[str]:
        if not self.differs(held):
            same = "nothing was committed: the dataset is as its archive"
            if self.relisted.elsewhere:
                same = "nothing was committed: the files that were looked at are as they were"
            yield "the dataset stays as it was; files are held back" if held else same
        if waiting := self.found.waiting:
            yield f"{plural(len(waiting), 'file')} may still be written: the next update takes them"
        if self.relisted.unlisted:
            yield (
                f"{plural(self.relisted.unlisted, 'file')} of the dataset that the sources do not"
                " name are there, and stay"
            )
        if elsewhere := [file.url for file in self._elsewhere]:
            yield left_elsewhere(elsewhere)

    def ends(self, now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Return the last labels before and now, by dimension."""
        before = self.record.get("ends") or {}
        return {
            name: (str(before[name][-1]), str(found[-1]))
            for name, found in now.items()
            if before.get(name) and found
        }


def _refuse_vanished(vanished: Sequence[SourceFile], how: Vanished) -> None:
    if how != "refuse":
        return
    are, its = ("is", "its") if len(vanished) == 1 else ("are", "their")
    raise InvalidInputError(
        f"{plural(len(vanished), 'file')} of the dataset {are} gone",
        fixes=[
            of_arguments({"vanished": "missing"}, f"{its} steps read as missing values"),
            of_arguments({"vanished": "remove"}, f"{its} steps are removed"),
        ],
        do="Nothing was changed; readers refuse what refers to these files.",
        files=[file.url for file in vanished[:_SHOWN]],
    )


def same(now: Sequence[FileHeldBack], before: Sequence[FileHeldBack]) -> bool:
    """Say whether the same files are held back."""
    return {(each.url, each.last_modified, each.size) for each in now} == {
        (each.url, each.last_modified, each.size) for each in before
    }


def empty_report(call: UpdateCall, target: Target, record: Mapping[str, Any]) -> UpdateReport:
    """Return the report of an update that committed nothing."""
    none = ("added", "corrected", "vanished", "superseded", "waiting", "known")
    said: dict[str, Any] = dict.fromkeys([f"files_{each}" for each in none], 0)
    said |= {"vanished": call.vanished, "is_dry_run": call.dry_run}
    return report_unchanged(UpdateReport, target, record, **said)
