"""Implement `icevirt.append`: new files for a dataset that an earlier build made.

The dataset becomes what one build of all its files would make. Only new files are scanned; the
catalog beside the dataset describes the others. A file that the dataset holds is not added again,
so that the same call can be repeated, after a kill too. An append is not flat yet: it plans all
files, and writes all manifests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
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
    checked_group,
    outside,
    shared,
)
from icevirt.api.commit_options import BY_KEYWORD, CommitOptions
from icevirt.api.dataset.events import Clock, long_running, tell, tell_committed
from icevirt.api.dataset.files_held import (
    CATALOG,
    Compared,
    GrowingSources,
    OnChanged,
    files_of_build,
    known_of,
)
from icevirt.api.dataset.finish import prepare, promoted, refuse_differences
from icevirt.api.dataset.flat import FEW, NotFlat, flat_append
from icevirt.api.dataset.left_out import excluded_from
from icevirt.api.dataset.recipes import continued_recipe, note_of, recipe_of
from icevirt.api.dataset.records import KeptRecipe, identities_in, provenance_of
from icevirt.api.dataset.scanning import Scan, scan_missing
from icevirt.api.dataset.tail import TailState, tail_of
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import ExecutorStarter, Request, until_unchanged
from icevirt.api.recorded import Continued, continued
from icevirt.api.sources.inputs import Inputs, Sources
from icevirt.api.sources.reader_urls import Prefixes, prefixes_of
from icevirt.api.trust.made_here import is_remembered, remember, remember_places
from icevirt.api.trust.readable_places import ReadablePlaces, opening_of, places_named
from icevirt.archive.reports.build import AppendReport, BuildReport, Progress
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.listings import FileListing
from icevirt.errors import (
    AlreadyExistsError,
    BuildError,
    CombineError,
    ConflictError,
    Fix,
    InvalidInputError,
    ObjectNotFoundError,
)
from icevirt.execution.selection import ExecutorChoice
from icevirt.objects.authorize import entry_of
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.planning.remedies import build_fix, together
from icevirt.repo.repo_info_file import pause
from icevirt.storage.constructors import StorageLike
from icevirt.storage.protocol import Below, Storage

_ON_CHANGED = ("refuse", "replace", "keep")
_ATTEMPTS = 10  # while others append to the same group
_SHOWN = 5  # files in a message


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
            ``scanner`` and ``allow_references_to``, which have to be given again.
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
    storage = shared(repo)
    call = _Call(
        files=files,
        storage=storage,
        catalog=Below(storage, CATALOG) if catalog is None else apart(storage, catalog),
        concat_dim=concat_dim,
        group=checked_group(group),
        options=(scan_options, combine_options, commit_options),
        commit=CommitOptions.of(commit_options),
        on_changed=on_changed,
        authorize=prefixes_of(authorize),
        access=access,
    )
    clock = Clock(progress)
    reach = SourceAccess.of(access)
    if call.commit.promote is not None:
        prepare(storage, call.commit.branch, call.commit.promote)
    with ExitStack() as stack:
        stack.enter_context(long_running("append", clock))
        stack.enter_context(granted(reach))
        starter = ExecutorStarter(stack, clock, executor)
        with clock.phase("list"):
            asset = call.continued(None).choices.scan.asset
            inputs = None if _is_empty(call.files) else Inputs(call.files, asset=asset)
        report = _until_alone(call, inputs, starter, clock)
        places = () if inputs is None else places_named(call.files, inputs)
        remember_places(storage.url, places)
        below = (*places, *call.authorize, *call.commit.places)
        report = replace(report, opening=opening_of(report, storage, reach, below))
        if call.commit.verify is not None and not report.already_built:
            with clock.phase("verify"):
                report = refuse_differences(
                    storage, report, values=call.commit.verify, executor=starter.choice
                )
    if call.commit.promote is not None and report.snapshot_id:
        promoted(storage, report, call.commit.promote)
    return replace(report, seconds=clock.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What the caller asked for."""

    files: Sources
    storage: Storage
    catalog: Storage
    concat_dim: ConcatDim
    group: str
    options: tuple[ScanOptionsLike, CombineOptionsLike, CommitOptionsLike]
    commit: CommitOptions
    on_changed: OnChanged
    authorize: tuple[str, ...]
    access: Mapping[str, Any] | None = field(default=None, repr=False)

    def continued(self, record: Mapping[str, Any] | None) -> Continued:
        """Return the options of this call, completed by those of the last build."""
        scan, combine, commit = self.options
        if record is None:
            choices = Choices.of(self.concat_dim, scan, combine)
            return Continued(choices=choices, commit=self.commit)
        return continued(
            record,
            concat_dim=self.concat_dim,
            scan_options=scan,
            combine_options=combine,
            commit_options=commit,
        )

    def recipe(self, how: Continued, record: Mapping[str, Any] | None) -> KeptRecipe | None:
        """Return the recipe of the dataset, with the options of this call."""
        asked = Asked(
            sources=self.files,
            choices=how.choices,
            commit=how.commit,
            group=self.group,
            access=self.access,
        )
        if record is None:
            return recipe_of(asked)
        given = dict(zip(BY_KEYWORD, self.options, strict=True)) | {"concat_dim": self.concat_dim}
        return continued_recipe(self.storage, record, asked, given)

    @property
    def is_as_before(self) -> bool:
        """Whether the call leaves all options to the recipe of the last build."""
        return self.concat_dim is None and not any(self.options)

    def remember(self, recipe: KeptRecipe | None, record: Mapping[str, Any] | None) -> None:
        """Remember that this user made the recipe, if they made that of the last build."""
        is_mine = record is None or is_remembered(self.storage.url, str(record.get("recipe")))
        if recipe is not None and is_mine:
            remember(self.storage.url, recipe.digest)


def _until_alone(
    call: _Call, inputs: Inputs | None, starter: ExecutorStarter, clock: Clock
) -> AppendReport:
    """Append, and plan once more on the new tip each time when another writer was first."""
    for attempt in range(_ATTEMPTS):
        try:
            return _appended(call, inputs, starter, clock, is_again=attempt > 0)
        except (ConflictError, BuildError, AlreadyExistsError) as error:
            if not _lost_race(error, call) or attempt + 1 == _ATTEMPTS:
                raise
            tell("append-again", error=str(error), attempts_left=_ATTEMPTS - attempt - 1)
        pause(attempt)
    raise AssertionError("the last attempt returns or raises")


def _is_empty(files: Any) -> bool:
    """Say whether there is nothing to append: no text, and nothing in a list or table."""
    if isinstance(files, str | bytes | os.PathLike) or not hasattr(files, "__len__"):
        return False
    return len(files) == 0


def _lost_race(error: Exception, call: _Call) -> bool:
    """Say whether an error is that another writer of the same group was first."""
    if isinstance(error, BuildError) and not isinstance(error, ConflictError):
        return isinstance(error.__cause__, ObjectNotFoundError)  # the same append ran twice
    if isinstance(error, AlreadyExistsError):  # of a first build
        return _target(call).last_build() is not None
    return True


def _target(call: _Call) -> Target:
    return Target.look(call.storage, branch=call.commit.branch, group=call.group, mode="w")


def _appended(
    call: _Call,
    inputs: Inputs | None,
    starter: ExecutorStarter,
    clock: Clock,
    *,
    is_again: bool,
) -> AppendReport:
    with clock.phase("list"):
        target = _target(call)
        last = target.last_build()
        record = None if last is None else provenance_of(last, target.group)
        if record is None:
            replace(target, mode="w-").refuse_occupied()
        else:
            target.refuse_left_behind(record)
        how = call.continued(record)
        tail = None if record is None else tail_of(call.storage, record)
    dimensions = how.choices.scanner.concat_dims
    request = Request(
        storage=call.storage,
        catalog=call.catalog,
        mode="w-" if record is None else "w",
        commit=how.commit,
        choices=how.choices,
        options=how.choices.scanner,
        spec=how.choices.spec(
            dimensions if how.choices.inferring is None else dimensions or None, group=call.group
        ),
        nest=None,
        plan="",
        progress=clock.step,
        recipe=None if call.is_as_before and record is not None else call.recipe(how, record),
        about={} if (name := target.held_back()[0]) == "" else {"held": name},
        absent=frozenset(() if record is None else record.get("combine", {}).get("absent") or ()),
    )
    full = NotFlat("the last build recorded no end that files can follow")
    if tail is not None:
        made = _quick(call, inputs, request, target, tail, starter, clock, scanned_before=is_again)
        if isinstance(made, AppendReport):
            call.remember(request.recipe, record)
            return made
        full = made
    with clock.phase("list"):
        listing = _NOTHING if record is None else files_of_build(call.storage, record)
        bad = frozenset(
            () if record is None else (url for url, _, _ in record.get("bad_files", ()))
        )
        growing = GrowingSources(
            storage=call.storage,
            on_changed=call.on_changed,
            inputs=inputs,
            listing=listing,
            bad=bad,
            excluded=excluded_from(call.storage, branch=target.branch, group=target.group),
        )
        found = growing.look()
    if not (found.new or growing.again(found)):
        return _nothing(call, target, found, clock)
    places = ReadablePlaces.of(places_named(call.files, inputs), call.authorize)
    places.refuse_others(listing.files, repo=call.storage.url, what="append")
    request = replace(
        request,
        commit=_with_message(how.commit, found, growing),
        held=None if record is None else growing.held(found),
        recipe=request.recipe or call.recipe(how, record),
        also=() if record is None else identities_in(call.catalog, request.options),
        follows=None if last is None else str(last.id),
    )
    try:
        report = until_unchanged(request, growing, starter, clock)
    except CombineError as error:
        if record is not None:
            error.fixes = tuple(map(_changing_what_is_there, error.fixes))
            error.do = f"{error.do} Nothing was appended.".strip()
            error.facts |= {"new_files": [file.url for file in found.new[:_SHOWN]]}
        raise
    tell_committed(report)
    call.remember(request.recipe, record)
    if record is None and (note := note_of(call.files)):
        report = replace(report, findings=(*report.findings, note))
    held = {each.name: getattr(report, each.name) for each in fields(BuildReport)}
    if record is not None:
        held["findings"] = (*report.findings, f"all files were planned: {full.why}")
        held["files_scanned"] += full.scanned
        held["files_reused"] -= full.scanned
    return AppendReport(
        **held,
        files_appended=len(found.new),
        files_replaced=len(growing.again(found)),
        files_known=found.known,
        files_excluded=found.excluded,
    )


def _quick(  # noqa: PLR0917 - an append, and what it stands on
    call: _Call,
    inputs: Inputs | None,
    request: Request,
    target: Target,
    tail: TailState,
    starter: ExecutorStarter,
    clock: Clock,
    *,
    scanned_before: bool,
) -> AppendReport | NotFlat:
    """Append behind the last step without a look at the other files, if that can be."""
    with clock.phase("list"):
        given = () if inputs is None else tuple(outside(call.storage, inputs.files()))
        found = known_of(call.storage, tail.pieces, tail.files, given)
        if found is None:
            return NotFlat("files changed since they were appended, or are not in the index")
        excluded = (
            excluded_from(call.storage, branch=target.branch, group=target.group)
            if found.new
            else frozenset[str]()
        )
        new = tuple(file for file in found.new if file.url not in excluded)
        found = replace(found, new=new, excluded=len(found.new) - len(new))
    if not new:
        return _nothing(call, target, found, clock)
    is_many, count = len(new) > FEW, 0
    scanned_before |= is_many
    if scanned_before:
        request = replace(request, also=identities_in(call.catalog, request.options))
    if is_many:
        scan = Scan(
            files=SourceFiles(new),
            options=request.options,
            catalog=call.catalog,
            max_bad_files=0,
            progress=request.progress,
            limits=request.choices.scan.limits,
            also=request.also,
        )
        executor = starter.start(scan.files, call.storage)
        with clock.phase("scan"):
            count = scan_missing(executor, scan)
    made = flat_append(
        request, new, target=target, clock=clock, tail=tail, scanned_before=scanned_before
    )
    if is_many and isinstance(made, NotFlat):
        made = replace(made, scanned=count)
    return made if isinstance(made, NotFlat) else _appended_flat(made, found)


def _appended_flat(report: BuildReport, found: Compared) -> AppendReport:
    """Return the report of an append that planned nothing but the end of the dataset."""
    tell_committed(report)
    held = {each.name: getattr(report, each.name) for each in fields(BuildReport)}
    return AppendReport(
        **held,
        files_appended=len(found.new),
        files_replaced=0,
        files_known=found.known,
        files_excluded=found.excluded,
        flat=True,
    )


_NOTHING = FileListing(files=SourceFiles(), pieces=())


def _with_message(commit: CommitOptions, found: Compared, growing: GrowingSources) -> CommitOptions:
    """Return how to commit, with a message that says what is appended."""
    if commit.message is not None:
        return commit
    replaced = len(growing.again(found))
    what = [f"append {plural(len(found.new), 'file')}"] if found.new else []
    what += [f"replace {plural(replaced, 'file')}"] if replaced else []
    return replace(commit, message=", ".join(what).capitalize())


def _changing_what_is_there(fix: Fix) -> Fix:
    """Let a fix that changes variables of the dataset say so, and be permitted to."""
    combining = fix.arguments.get("combine_options", {})
    is_other = combining.get("on_mismatch") == "eras" or "float_variables" in combining
    if not is_other and "drop_variables" not in fix.arguments.get("scan_options", {}):
        return fix
    price = "what the dataset holds is replaced; older snapshots keep it"
    return together(fix, build_fix(price, commit_options={"allow_changes": True}))


def _nothing(call: _Call, target: Target, found: Compared, clock: Clock) -> AppendReport:
    """Return the report where there is nothing to append."""
    seen = found.known + len(found.changed)
    why = (
        f"the dataset holds {'this file' if seen == 1 else f'these {seen:,} files'} already"
        if seen
        else "no files were named"
    )
    containers = target.config.virtual_chunk_containers.values()
    kept = (f"{plural(len(found.changed), 'file')} changed, and stay as they were",)
    last = target.last_build()
    report = AppendReport(
        repo=call.storage.url,
        branch=target.branch,
        group=target.group,
        snapshot_id="" if target.info is None else str(target.tip),
        build_id=str((provenance_of(last) or {}).get("build_id")) if last else "",
        already_built=True,
        files_scanned=0,
        files_reused=0,
        bad_files=(),
        arrays=(),
        manifests=0,
        manifest_bytes=0,
        containers=tuple(map(entry_of, containers)),
        findings=(f"nothing was committed: {why}", *(kept if found.changed else ())),
        eras=int((provenance_of(last) or {}).get("eras", 1)) if last else 1,
        seconds=clock.seconds,
        files_appended=0,
        files_replaced=0,
        files_known=found.known,
        files_excluded=found.excluded,
    )
    tell_committed(report)
    return report
