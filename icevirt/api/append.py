"""Implement `icevirt.append`: new files for a dataset that an earlier build made.

The dataset becomes what one build of all its files would make. Only new files are scanned; the
catalog beside the dataset describes the others. A file that the dataset holds is not added again,
so that the same call can be repeated, after a kill too. Where the new files only make the dataset
longer, or fill empty places, nothing else is planned or written (`icevirt.api.dataset.flat`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from icevirt.amounts import plural
from icevirt.api.choices import (
    Asked,
    Choices,
    CombineOptionsLike,
    CommitOptionsLike,
    ConcatDim,
    ScanOptionsLike,
    apart,
    check_group,
    outside,
    share,
)
from icevirt.api.commit_options import BY_KEYWORD, CommitOptions
from icevirt.api.dataset.change import Dataset, DatasetChange, Request
from icevirt.api.dataset.files_held import (
    CATALOG,
    FileDifferences,
    OnChanged,
    compare,
    compare_by_index,
    difference,
    identities_in,
)
from icevirt.api.dataset.flat import FEW, NotFlat, flat_append
from icevirt.api.dataset.recipes import continue_recipe, note_of, recipe_of
from icevirt.api.dataset.records import KeptRecipe
from icevirt.api.dataset.reports import facts_of, report_unchanged
from icevirt.api.dataset.scanning import scan_missing
from icevirt.api.dataset.tail import TailState, tail_of
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import (
    ExecutorStarter,
    commit_change,
    is_overtaken,
    until_alone,
)
from icevirt.api.events import Clock, long_running, tell_committed
from icevirt.api.finish import SnapshotVerification, add_notes, prepare, promote_branch
from icevirt.api.recorded import Continued, continue_options
from icevirt.api.sources.inputs import Inputs, LateSources, Sources
from icevirt.api.sources.reader_urls import Prefixes, prefixes_of
from icevirt.api.trust.readable_places import (
    ReadablePlaces,
    opening_of,
    places_named,
    remember_named,
)
from icevirt.archive.reports.build import GROWN, AppendReport, BuildReport, Progress
from icevirt.archive.sources import SourceFile
from icevirt.errors import (
    AlreadyExistsError,
    CombineError,
    Fix,
    IcevirtError,
    InvalidInputError,
    SourcesChangedError,
)
from icevirt.execution.selection import ExecutorChoice
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.planning.remedies import build_fix, of_arguments, together
from icevirt.remedy_notation import join, write_code, write_remedy
from icevirt.repo.kept_objects import cache_of
from icevirt.repo.made_here import identify, is_remembered, remember
from icevirt.storage.constructors import StorageLike
from icevirt.storage.protocol import Below, Storage
from icevirt.tasks.scan_file import AHEAD, Prefetcher, opening_ahead
from icevirt.threads import Threads

_ON_CHANGED = ("refuse", "replace", "keep")
_SHOWN = 5  # files in a message
_LOOKS = 3  # at once: at the repository, at the sources, and at what is excluded


def append(
    files: Sources,
    repo: StorageLike,
    *,
    concat_dim: ConcatDim = None,
    group: str = "/",
    scan_options: ScanOptionsLike = None,
    combine_options: CombineOptionsLike = None,
    commit_options: CommitOptionsLike = None,
    on_changed: OnChanged = "refuse",
    authorize: Prefixes = (),
    catalog: StorageLike | None = None,
    access: Mapping[str, Any] | None = None,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> AppendReport:
    """Add new files to the dataset that the last build of a group made, in one commit.

    The dataset becomes what one build of all its files makes, wherever the new ones belong. What
    others committed since the last build stays, as with ``mode="w"`` of `icevirt.build`. Files that
    the dataset holds already are passed over; if there are no others, nothing is committed. An
    empty group is built.

    Args:
        files: As for `icevirt.build`; an empty list is allowed.
        repo: Path or URL of the repository; it is created if there is none.
        concat_dim: As for `icevirt.build`; by default as the last build did.
        group: The group of the dataset.
        scan_options: Options that the last build recorded hold where none is given here, except
            ``allow_references_to``, which has to be given again, and a ``scanner`` that you did not
            name on this machine.
        combine_options: The same, except ``preprocess``.
        commit_options: As for `icevirt.build`; ``publish_as`` has to be given again.
        on_changed: How to handle files that the dataset holds as they were before: "refuse" stops
            the append, "replace" scans them again, "keep" leaves the dataset's references to them,
            which readers refuse, and what was copied of them.
        authorize: Directories and URL prefixes below which further files of the dataset may lie,
            beside the directories of the files that are named here.
        catalog: Directory of a catalog of the dataset's files; by default it is kept in the
            repository.
        access: As for `icevirt.build`.
        executor: As for `icevirt.build`.
        progress: As for `icevirt.build`.

    Raises:
        InvalidInputError: The dataset's files lie elsewhere than was named, or its build had
            options that have to be given again.
        AlreadyExistsError: Something else than a build made what the group holds.
        SourcesChangedError: Files changed since the dataset was built, or meanwhile.
        CombineError: The files do not combine: other variables, or steps that are there already.
        ConflictError: Others committed to the same group, each time before this append could.
        IcevirtError: As for `icevirt.build`.

    Examples:
        >>> report = icevirt.append("archive/tas_2004.nc", "repo")
        >>> dict(icevirt.open("repo").sizes)
        {'time': 48, 'lat': 60, 'lon': 120}
    """
    if on_changed not in _ON_CHANGED:
        raise InvalidInputError(
            "on_changed has an unknown value",
            do=f"Use one of {', '.join(_ON_CHANGED)}.",
            on_changed=on_changed,
        )
    storage = share(repo)
    call = _Call(
        storage=storage,
        catalog=Below(storage, CATALOG) if catalog is None else apart(storage, catalog),
        concat_dim=concat_dim,
        group=check_group(group),
        options=(scan_options, combine_options, commit_options),
        commit=CommitOptions.of(commit_options),
        on_changed=on_changed,
        authorize=prefixes_of(authorize),
        access=access,
    )
    clock, reach, commit = Clock(progress), SourceAccess.of(access), call.commit
    if commit.promote is not None:
        prepare(storage, commit.branch, commit.promote)
    with ExitStack() as stack:
        stack.enter_context(long_running("append", clock))
        stack.enter_context(grant_access(reach))
        starter = ExecutorStarter(stack, clock, executor)
        looks = stack.enter_context(Threads(_LOOKS, "icevirt-look"))
        ahead = stack.enter_context(opening_ahead())
        with clock.phase("list"):
            looking = looks.submit(call.look, looks)
            call, inputs = _name(replace(call, files=files), looks, ahead)

        def places() -> tuple[str, ...]:
            return () if inputs is None else places_named(call.files, inputs)

        def below() -> tuple[str, ...]:
            return (*places(), *call.authorize)

        check = SnapshotVerification.of(commit, storage, places=below, starter=starter, clock=clock)

        def attempt(number: int) -> AppendReport:
            with clock.phase("list"):
                dataset = call.look(looks) if number else looking.result()
            job = _Attempt(
                call=call,
                inputs=inputs,
                dataset=dataset,
                starter=starter,
                clock=clock,
                ahead=ahead,
                is_again=number > 0,
            )
            return _append_once(job, check)

        report = add_notes(until_alone("append", attempt, call.is_lost), check)
        remember_named(identify(storage), report.containers, places())
        opening = opening_of(report, storage, reach, (*below(), *commit.places))
        report = replace(report, opening=opening)
    if commit.promote is not None and report.snapshot_id:
        promote_branch(storage, report, commit.promote, check)
    return replace(report, seconds=clock.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What the caller asked for."""

    files: Sources = ()
    storage: Storage
    catalog: Storage
    concat_dim: ConcatDim
    group: str
    options: tuple[ScanOptionsLike, CombineOptionsLike, CommitOptionsLike]
    commit: CommitOptions
    on_changed: OnChanged
    authorize: tuple[str, ...]
    access: Mapping[str, Any] | None = field(default=None, repr=False)

    def look(self, pool: Threads) -> Dataset:
        """Look at the dataset as it is now, and then at what it excludes."""
        return Dataset.look(
            self.storage,
            branch=self.commit.branch,
            group=self.group,
            catalog=self.catalog,
            pool=pool,
        )

    def is_lost(self, error: IcevirtError) -> bool:
        """Say whether an error is that another writer of the same group was first."""
        if isinstance(error, AlreadyExistsError):  # of a first build
            branch, group = self.commit.branch, self.group
            target = Target.look(self.storage, branch=branch, group=group, mode="w")
            return target.last_build() is not None
        return is_overtaken(error)

    def go_on(self, record: Mapping[str, Any]) -> Continued:
        """Return the options of this call, completed by those of the last build."""
        scan, combine, commit = self.options
        if not record:
            choices = Choices.of(self.concat_dim, scan, combine)
            return Continued(choices=choices, commit=self.commit)
        return continue_options(
            self.storage,
            record,
            concat_dim=self.concat_dim,
            scan_options=scan,
            combine_options=combine,
            commit_options=commit,
        )

    def recipe(self, how: Continued, record: Mapping[str, Any]) -> KeptRecipe | None:
        """Return the recipe of the dataset, with the options of this call."""
        asked = Asked(
            sources=self.files,
            choices=how.choices,
            commit=how.commit,
            group=self.group,
            access=self.access,
        )
        if not record:
            return recipe_of(asked)
        given = dict(zip(BY_KEYWORD, self.options, strict=True)) | {"concat_dim": self.concat_dim}
        return continue_recipe(self.storage, record, asked, given)

    def remember(self, recipe: KeptRecipe | None, record: Mapping[str, Any]) -> None:
        """Remember that this user made the recipe, if they made that of the last build."""
        is_mine = not record or is_remembered(identify(self.storage), str(record.get("recipe")))
        if recipe is not None and is_mine:
            remember(identify(self.storage), recipe.digest)

    def compare(self, inputs: Inputs | None, dataset: Dataset) -> tuple[FileDifferences, int]:
        """Compare the named files with the files of the dataset; count the changed ones.

        Raises:
            SourcesChangedError: Some changed, and the caller did not say what is to happen.
        """
        given = () if inputs is None else outside(self.storage, inputs.files())
        held = {file.url: file for file in dataset.listing.files}
        found = compare(given, held, excluded=dataset.excluded)
        changed = {
            file.url: difference(file, held[file.url])
            for file in found.corrected
            if file.url not in dataset.bad
        }
        if changed and self.on_changed == "refuse":
            raise _refusal_of(changed, len(held))
        if self.on_changed != "replace":
            again = tuple(file for file in found.corrected if file.url not in changed)
            found = replace(found, corrected=again)
        return found, len(changed)

    def report_nothing(
        self, dataset: Dataset, found: FileDifferences, changed: int, clock: Clock
    ) -> AppendReport:
        """Return the report where there is nothing to append; ``changed`` files stay."""
        count = found.known + changed
        why = "no files were named"
        if count:
            these = "this file" if count == 1 else f"these {count:,} files"
            why = f"the dataset holds {these} already"
        kept = (f"{plural(changed, 'file')} changed, and stay as they were",) if changed else ()
        report = report_unchanged(
            AppendReport,
            dataset.target,
            dataset.record,
            findings=(f"nothing was committed: {why}", *kept),
            seconds=clock.seconds,
            **_count(found),
        )
        tell_committed(report)
        return report


def _refusal_of(changed: Mapping[str, str | None], held: int) -> SourcesChangedError:
    return SourcesChangedError(
        f"{len(changed)} of the dataset's {held:,} files changed since it was built",
        fixes=[
            of_arguments({"on_changed": "replace"}, "scans them again, and replaces their values"),
            of_arguments(
                {"on_changed": "keep"},
                "appends the others; readers refuse what refers to these",
            ),
        ],
        do=write_remedy(
            "Nothing was appended. You can also build again from all files: ",
            write_code(
                'icevirt.build(files, repo, mode="w")', "icevirt build SOURCES... REPO --mode w"
            ),
            ".",
        ),
        files=dict(list(changed.items())[:_SHOWN]),
    )


def _name(call: _Call, looks: Threads, ahead: Prefetcher) -> tuple[_Call, Inputs | None]:
    """Return the call with the files that it names, and begin to list them."""
    facts: Sequence[SourceFile] = ()
    if isinstance(call.files, LateSources):
        files, facts = call.files.name()
        call = replace(call, files=files)
    if _is_empty(call.files):
        return call, None
    inputs = Inputs(call.files, asset=call.go_on({}).choices.scan.asset)
    if not facts:
        inputs.begin(looks)
    else:
        inputs.expect(facts)
        if len(facts) <= AHEAD:  # hardly any is known: a stream names what is new
            ahead.begin(facts)
    return call, inputs


def _is_empty(files: Any) -> bool:
    """Say whether there is nothing to append: no text, and nothing in a list or table."""
    if isinstance(files, str | bytes | os.PathLike) or not hasattr(files, "__len__"):
        return False
    return len(files) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One attempt at an append, and what it stands on."""

    call: _Call
    inputs: Inputs | None
    dataset: Dataset
    starter: ExecutorStarter
    clock: Clock
    ahead: Prefetcher
    is_again: bool

    @property
    def key(self) -> tuple[str, str, str]:
        """Of what this process knows of the exclusions."""
        return ("excluded", self.dataset.target.branch, self.dataset.target.group)

    def without_excluded(self, found: FileDifferences) -> FileDifferences:
        """Return what is left without the files that must not be added."""
        excluded = self.dataset.excluded
        cache_of(self.call.storage).put(self.key, excluded, sum(map(len, excluded)))
        new = tuple(file for file in found.added if file.url not in excluded)
        return replace(found, added=new, excluded=len(found.added) - len(new))

    def is_free(self, files: Sequence[SourceFile]) -> bool:
        """Say whether none of the files was excluded when this process looked last."""
        before: frozenset[str] | None = cache_of(self.call.storage).find(self.key)
        return before is not None and not any(file.url in before for file in files)


class _ExcludedError(Exception):
    """Files are excluded that were scanned while this was looked up."""


def _append_once(job: _Attempt, check: SnapshotVerification | None) -> AppendReport:
    call, clock, dataset = job.call, job.clock, job.dataset
    with clock.phase("list"):
        target, record = dataset.target, dataset.record
        if not record:
            _refuse_occupied(call, job.inputs, replace(target, mode="w-"))
        how = call.go_on(record)
        tail = tail_of(call.storage, record) if record else None
        held = target.find_held_back()[0]
    is_as_before = record and call.concat_dim is None and not any(call.options)
    request = dataset.request(
        how,
        mode="w" if record else "w-",
        progress=clock.step,
        check=check,
        recipe=None if is_as_before else call.recipe(how, record),
        about={"held": held} if held else {},
    )
    with clock.phase("list"):
        found = None if tail is None else _compare_behind(job, tail)
        is_known = found is not None  # without a look at the list of files
        found, changed = (found, 0) if found is not None else call.compare(job.inputs, dataset)
    full = NotFlat("the last build recorded no end that files can follow")
    if is_known and tail is not None:
        found, made = _append_unless_excluded(job, found, request, tail)
        if isinstance(made, BuildReport):
            call.remember(request.recipe, record)
            tell_committed(made)
            return AppendReport(**facts_of(made), **_count(found), flat=True)
        full = made
    elif tail is not None:
        full = NotFlat("files changed since they were appended, or are not in the index")
    if not found.candidates:
        return call.report_nothing(dataset, found, changed, clock)
    if record:
        request = replace(request, also=dataset.scans_alike(how))
    request = replace(request, recipe=request.recipe or call.recipe(how, record))
    report = _append_anywhere(job, request, found)
    tell_committed(report)
    call.remember(request.recipe, record)
    if record:
        notes: tuple[str, ...] = (f"all files were planned: {full.why}",)
    else:
        notes = (note,) if (note := note_of(call.files)) else ()
    said = facts_of(report) | {"findings": (*report.findings, *notes)}
    said["files_scanned"] += full.scanned
    said["files_reused"] -= full.scanned
    return AppendReport(**said, **_count(found) | {"files_replaced": len(found.corrected)})


def _refuse_occupied(call: _Call, inputs: Inputs | None, target: Target) -> None:
    """Refuse a group that another program made; see `propose_build`."""
    try:
        target.refuse_occupied()
    except AlreadyExistsError as error:
        from icevirt.api.trust.foreign_groups import propose_build

        places = (*places_named(call.files, inputs), *call.authorize)
        propose_build(error, target, call.files, places)
        raise


def _append_anywhere(job: _Attempt, request: Request, found: FileDifferences) -> BuildReport:
    """Append wherever files belong, by a plan of all files."""
    call, inputs, dataset = job.call, job.inputs, job.dataset
    places = ReadablePlaces.of(places_named(call.files, inputs), call.authorize)
    places.refuse_others(dataset.listing.files, repo=call.storage.url, what="append")
    what = [f"append {plural(len(found.added), 'file')}"] if found.added else []
    what += [f"replace {plural(len(found.corrected), 'file')}"] if found.corrected else []
    grown = frozenset({GROWN} if found.corrected else ())
    message = request.commit.message
    message = ", ".join(what).capitalize() if message is None else message
    commit = replace(request.commit, message=message)
    request = replace(request, commit=commit, expected=request.expected | grown)
    looks = chain([found], (call.compare(inputs, dataset)[0] for _ in count()))

    def change() -> DatasetChange:
        now = next(looks)
        return DatasetChange(dataset=dataset, added=now.added, replaced=now.corrected)

    try:
        return commit_change(request, change, job.starter, job.clock)
    except CombineError as error:
        if dataset.record:
            error.fixes = tuple(map(_changing_what_is_there, error.fixes))
            error.do = join(" ", filter(None, (error.do, "Nothing was appended.")))
            error.facts |= {"new_files": [file.url for file in found.added[:_SHOWN]]}
        raise


def _compare_behind(job: _Attempt, tail: TailState) -> FileDifferences | None:
    """Compare the named files with a dataset whose list of files is not read.

    Files that must not be added count as new, too. Servers are asked for the new ones already.

    Returns:
        None if the list has to be read.
    """
    storage = job.call.storage
    given = () if job.inputs is None else tuple(outside(storage, job.inputs.files()))
    found = compare_by_index(storage, tail.pieces, tail.files, given)
    if found is not None and len(found.added) <= FEW:
        job.ahead.begin(found.added)
    return found


def _append_unless_excluded(
    job: _Attempt, found: FileDifferences, request: Request, tail: TailState
) -> tuple[FileDifferences, BuildReport | NotFlat]:
    """Append behind the last step, if that can be; return which files are new, too.

    Where this process looked before and none was excluded, they are scanned while it looks again.
    """

    def refuse_excluded() -> None:
        if job.without_excluded(found).excluded:
            raise _ExcludedError

    if found.added and job.is_free(found.added):
        with suppress(_ExcludedError):
            made = _append_behind(job, found.added, request, tail, scanned=refuse_excluded)
            return (job.without_excluded(found) if isinstance(made, NotFlat) else found), made
    left = job.without_excluded(found) if found.added else found
    if not left.added:
        return left, NotFlat("nothing is new")
    return left, _append_behind(job, left.added, request, tail)


def _append_behind(
    job: _Attempt,
    new: tuple[SourceFile, ...],
    request: Request,
    tail: TailState,
    scanned: Callable[[], None] = lambda: None,
) -> BuildReport | NotFlat:
    """Append behind the last step without a look at the other files, if that can be."""
    call = job.call
    is_many, there = len(new) > FEW, 0
    if is_many or job.is_again:
        request = replace(request, also=identities_in(call.catalog, request.options))
    if is_many:
        scanned()  # what is excluded is not scanned into the catalog
        scan = request.scan(new)
        executor = job.starter.start(scan.files, call.storage)
        with job.clock.phase("scan"):
            there = scan_missing(executor, scan)
    made = flat_append(
        request,
        new,
        target=job.dataset.target,
        clock=job.clock,
        tail=tail,
        scanned_before=is_many or job.is_again,
        scanned=scanned,
    )
    return replace(made, scanned=there) if is_many and isinstance(made, NotFlat) else made


def _count(found: FileDifferences) -> dict[str, Any]:
    return {
        "files_appended": len(found.added),
        "files_replaced": 0,
        "files_known": found.known,
        "files_excluded": found.excluded,
    }


def _changing_what_is_there(fix: Fix) -> Fix:
    """Let a fix that changes variables of the dataset say so, and be permitted to."""
    combining = fix.arguments.get("combine_options", {})
    is_other = combining.get("on_mismatch") == "eras" or "float_variables" in combining
    if not is_other and "drop_variables" not in fix.arguments.get("scan_options", {}):
        return fix
    price = "what the dataset holds is replaced; older snapshots keep it"
    return together(fix, build_fix(price, commit_options={"allow_changes": True}))
