"""Say what a dataset is to become, and plan it; or refuse with commands that were tried.

A refusal knows what solves it, and not what is refused next. So each of its fixes is planned with,
and what the next refusal proposes is added, until a plan is made. What leads nowhere is not shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from icevirt.api.choices import Choices
from icevirt.api.dataset.change import Request
from icevirt.api.dataset.replacing import Replacing, rules_of
from icevirt.api.dataset.scanning import Scan, close_catalog
from icevirt.api.dataset.target import Target
from icevirt.archive.facts import CatalogFacts, ReadValues
from icevirt.archive.plan import BuildPlan
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.errors import CombineError, Fix, IcevirtError, InvalidInputError
from icevirt.execution.executor import Executor
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.planning.axes.axis_ends import new_gaps
from icevirt.planning.axes.candidates import last_resorts
from icevirt.planning.combine.combine import combine_prepared
from icevirt.planning.combine.data_vars import Kept
from icevirt.planning.combine.known_decisions import KnownDecisions
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.prepare import prepare, without_values
from icevirt.planning.edits.checked_names import refuse_void_options
from icevirt.planning.eras.group_plan import combine_eras, plan_once
from icevirt.planning.eras.report import refuse_unsure
from icevirt.planning.eras.working_fixes import hides_eras
from icevirt.planning.lengthened import OtherwiseError, steps_behind
from icevirt.planning.losses import (
    Measured,
    is_measured_whole,
    keeps_one_dataset,
    may_lose,
    sort_by_loss,
)
from icevirt.planning.remedies import together
from icevirt.planning.twins import add_twins, own_twins
from icevirt.remedy_notation import join, write_code, write_remedy
from icevirt.tasks.source_values import Differences, Reading

_FILES = 10_000  # with more of them, plans and facts for the sake of a message take too long
_ATTEMPTS = 24  # of all fixes of an error
_DEEP = 8  # refusals after one another
_OPTIONS = ("combine_options", "scan_options")
_ORDER = frozenset(("duplicates", "combine"))
_TRIED_SCAN_OPTIONS = frozenset(("drop_variables",))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planned:
    """The plan of all files of a dataset, and what it is made of."""

    request: Request  # with the dimensions that were inferred
    scan: Scan
    closed: ClosedCatalog
    facts: CatalogFacts
    spec: CombineSpec
    plan: BuildPlan
    steps: int | None = None  # behind which new files lie, where a person said how far apart
    gaps: tuple[str, ...] = ()  # remarks on steps that are missing before new files

    @property
    def is_referring(self) -> bool:
        """Whether the files refer to others, in which values lie."""
        return self.facts.places is not self.facts.files.url


def plan_files(
    request: Request,
    executor: Executor,
    scan: Scan,
    target: Target | None,
    *,
    build_id: str,
    closed: ClosedCatalog | None = None,
    explains: bool = True,
) -> Planned:
    """Plan files that were scanned.

    Args:
        request: What is asked for.
        executor: Takes facts that the catalog lacks.
        scan: With its dimensions.
        target: Whose last build says which variables have a dimension.
        build_id: Of which the ids of arrays are made.
        closed: The facts, where they were read already.
        explains: Whether a refusal is to hold only what was tried, which takes many plans.

    Raises:
        CombineError: The files do not combine.
        ScanError: More files are bad than may be.
        UnsupportedError: A variable cannot be as its policy wants it.
    """
    request = request.along(scan.options)
    closed = close_catalog(executor, scan, closed)
    nest = None if request.nest is None else request.nest.by_url(scan.files)
    kept = Kept() if target is None else rules_of(target)
    spec = replace(request.spec, build_id=build_id, nest=nest, kept=kept)
    dimensions = scan.options.concat_dims
    facts, spec = without_values(closed.facts, spec, request.absent, dimensions)
    edited, edited_spec = request.choices.edits.apply(facts, spec)
    try:
        plan = combine_eras(edited, edited_spec)
    except CombineError as error:
        if explains and len(scan.files) <= _FILES:
            planner = _Planner(
                executor=executor, scan=scan, choices=request.choices, spec=spec, facts=facts
            )
            had_fixes = bool(error.fixes)
            fixes, why_not = try_fixes(error, planner.attempt)
            error.fixes = tuple(fixes)
            if not keeps_one_dataset(error.fixes[:1]):
                _add_last_resorts(error, planner, last_resorts(edited, dimensions))
            told = () if fixes or not had_fixes else (why_not,)
            error.do = join(" ", filter(None, (error.do, *told))) if told else error.do
        raise
    record = None if target is None or target.mode != "w" else target.last_record()
    if target is not None and record is not None:
        plan = add_twins(plan, own_twins(record, target.snapshot()))
    return Planned(request=request, scan=scan, closed=closed, facts=edited, spec=spec, plan=plan)


def _add_last_resorts(error: CombineError, planner: _Planner, resorts: Sequence[Fix]) -> None:
    """Let an error begin with a fix that keeps more than those that it has, if there is one."""
    for each in resorts:
        blunt = CombineError(error.what, fixes=[each])
        for made in try_fixes(blunt, planner.attempt)[0]:
            fixes = sort_by_loss((*error.fixes, made))
            if is_measured_whole(made) and fixes[0] is made:
                error.fixes = tuple(fixes)
                return


def hold_against(target: Target, plan: BuildPlan, request: Request) -> Replacing:
    """Hold a plan against what its group holds.

    Raises:
        PlanChangedError: Something of the dataset, or of others, would be lost.
        AlreadyExistsError: Something of the build already exists.
        InvalidInputError: Something would lie below an array, or containers contradict each other.
    """
    replacing = Replacing.of(target, plan, request.choices.edits.choice)
    target.rehearse(plan, replacing.claim)
    replacing.refuse_losses(allowed=request.commit.allow_changes, expected=request.expected)
    return replacing


def plan_ends(
    request: Request,
    scan: Scan,
    closed: ClosedCatalog,
    *,
    record: Mapping[str, Any],
    kept: Kept,
    tip: Snapshot,
    known: KnownDecisions,
) -> Planned:
    """Plan new files with those at the ends of a dataset, which stand for all of its files.

    Args:
        request: What is asked for.
        scan: Of the ends, which are not opened, and then the new files.
        closed: Its facts.
        record: Of the last build.
        kept: What that says of dimensions.
        tip: What the branch holds.
        known: What was decided of the last ends and new files.

    Raises:
        OtherwiseError: By themselves they do not combine.
    """
    facts = replace(
        closed.facts, compare=_refuse_reading, values=_values_of_new_files(scan, closed.facts)
    )
    if facts.places is not facts.files.url:
        raise OtherwiseError("files refer to other files")
    spec = request.along(scan.options).spec
    spec = replace(spec, build_id=str(record["build_id"]), kept=kept)
    if len(spec.concat_dim) > 1:  # of a cube, a few files lack places
        spec = replace(spec, options=replace(spec.options, missing="reserve"))
    try:
        facts, spec = request.choices.edits.apply(facts, spec)
        prepared = prepare(facts, spec)
        refuse_void_options(prepared.facts, spec, [each.name for each in prepared.new])
        # a plan with a step for each that lies between the ends would be as long as the dataset
        apart = replace(spec, spacing={})
        plan = add_twins(combine_prepared(prepared, apart, known), own_twins(record, tip))
        steps = steps_behind(prepared, spec, scan.unopened) if len(spec.concat_dim) == 1 else None
    except IcevirtError as error:
        raise OtherwiseError(f"by themselves they do not combine: {error.what}") from error
    if prepared.left_out or prepared.cuts:
        raise OtherwiseError("files hold the same steps, and one of them counts")
    if len(spec.concat_dim) > 1 and (spec.spacing or prepared.cells(apart).of_groups):
        raise OtherwiseError("groups have steps of their own, or all steps have places")
    gaps: list[str] = []
    for axis in prepared.cells(apart).axes if steps is None else ():
        there = _length_along(tip, plan, axis.dimension)
        gaps += new_gaps(prepared.facts, axis, scan.unopened, there)
    plan = request.commit.named_containers.put_into_containers(facts, plan)
    return Planned(
        request=request,
        scan=scan,
        closed=closed,
        facts=prepared.facts,
        spec=spec,
        plan=plan,
        steps=steps,
        gaps=tuple(gaps),
    )


def _length_along(tip: Snapshot, plan: BuildPlan, dimension: str) -> int | None:
    """Return how long a dimension is in the dataset; None where no array says so."""
    nodes = (tip.find(array.path) for array in plan.arrays)
    lengths = (
        dict(zip(node.dimension_names or (), node.shape, strict=False)).get(dimension)
        for node in nodes
        if isinstance(node, ArrayNode)
    )
    return next((length for length in lengths if length is not None), None)


def _values_of_new_files(scan: Scan, facts: CatalogFacts) -> ReadValues:
    """Return what reads values of the new files, and of no other ones."""
    unopened = {facts.files.url[row] for row in range(scan.unopened)}
    read = Differences(facts, Reading.of(scan.options, scan.limits)).values
    return lambda url, path: _refuse_reading() if url in unopened else read(url, path)


def _refuse_reading(*_: Any, **__: Any) -> NoReturn:
    """Stand for the values of files that are not opened."""
    raise OtherwiseError("values of files have to be compared")


# -- which fixes lead to a plan ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Planner:
    """What plans with other arguments are made of."""

    executor: Executor
    scan: Scan  # with the dimensions that were inferred
    choices: Choices
    spec: CombineSpec
    facts: CatalogFacts  # of all files

    def attempt(self, arguments: Mapping[str, Any]) -> IcevirtError | Measured:
        """Return what a plan with other arguments costs, or what it is refused for.

        Raises:
            UntriedError: That cannot be known.
        """
        scan = arguments.get("scan_options", {})
        known = {*_OPTIONS, "concat_dim", "commit_options"}
        if not scan.keys() <= _TRIED_SCAN_OPTIONS or not arguments.keys() <= known:
            raise UntriedError
        try:
            facts, plan = self._plan(arguments)
            return Measured.of(facts, plan)
        except IcevirtError as error:
            return error
        except Exception as error:  # whatever it is, it must not hide the refusal
            raise UntriedError from error

    def _plan(self, arguments: Mapping[str, Any]) -> tuple[CatalogFacts, BuildPlan]:
        """Return a plan, and what files hold: more digests may be known than before."""
        before = self.choices.combine
        added = arguments.get("combine_options", {})
        combine = replace(
            before, **{name: _with(getattr(before, name), value) for name, value in added.items()}
        )
        inferred = self.scan.options.concat_dims
        named = tuple(arguments.get("concat_dim", self.choices.dimensions))
        choices = Choices.of(list(named or inferred) or None, self.choices.scan, combine)
        options = choices.scanner
        if hides_eras(combine, options.concat_dims):
            raise InvalidInputError("what other eras hold would read as missing")
        spec = choices.spec(
            options.concat_dims,
            group=self.spec.group,
            build_id=self.spec.build_id,
            nest=self.spec.nest,
        )
        closed = close_catalog(
            self.executor, replace(self.scan, options=options), before=self.facts
        )
        is_whole = len(closed.facts.arrays.file) == len(self.facts.arrays.file)
        facts = _without(closed.facts, arguments.get("scan_options", {}).get("drop_variables", ()))
        plan = plan_once(*choices.edits.apply(facts, replace(spec, kept=self.spec.kept)))
        refuse_unsure(plan, added)
        return closed.facts if is_whole else self.facts, plan


def _with(before: Any, added: Any) -> Any:
    """Return an option with what a fix adds: names to names, and what it says of names."""
    if isinstance(before, Mapping) and isinstance(added, Mapping):
        return {**before, **added}
    if isinstance(before, tuple) and isinstance(added, list | tuple):
        return tuple(dict.fromkeys((*before, *added)))
    return added


class UntriedError(Exception):
    """Whether something works cannot be known without doing it."""


def _without(facts: CatalogFacts, names: tuple[str, ...]) -> CatalogFacts:
    """Return facts without some variables, by name or path."""
    paths_there = facts.arrays.path.values
    kept = [path not in names and paths.name(path) not in names for path in paths_there]
    if all(kept):
        return facts
    rows = np.flatnonzero(np.array(kept, np.bool_)[facts.arrays.path.codes])
    return replace(facts, arrays=facts.arrays.take(rows))


type Attempt = Callable[[Mapping[str, Any]], IcevirtError | Measured]
"""Plans with some arguments, and says what that costs, or what is refused."""


def try_fixes(error: IcevirtError, attempt: Attempt) -> tuple[list[Fix], str]:
    """Return the fixes that lead to a plan, each with all that it takes; and why one does not.

    What loses least comes first.
    """
    left = _Attempts(attempt, _ATTEMPTS, error.do)
    found: list[Fix] = []
    for fix in error.fixes:
        is_known = fix.first or fix.without or not fix.arguments or fix.loss is not None
        goes_on = "concat_dim" in fix.arguments or "data_vars" in fix.arguments.get(_OPTIONS[0], ())
        before = "" if goes_on else error.what
        for made in [fix] if is_known else left.complete(fix, before, _DEEP):
            if not any(_holds(made.arguments, each.arguments) for each in found):
                found.append(made)
    if not found and left.is_over:
        found = [*error.fixes]  # all that is known of them
    return sort_by_loss(found), left.why_not


def _holds(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether arguments hold all that others do: these alone are enough, then."""
    for name, value in other.items():
        known = one.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            if not _holds(known, value):
                return False
        elif isinstance(known, list | tuple) and isinstance(value, list | tuple):
            if not all(each in known for each in value):
                return False
        elif known != value:
            return False
    return bool(other)


def _places(fix: Fix) -> bool:
    """Say whether a fix supposes along which dimension files follow one another."""
    return "concat_dim" in fix.arguments or "labels" in fix.arguments.get("combine_options", {})


def _contradicts(further: Fix, fix: Fix) -> bool:
    """Say whether a fix shows that files do not follow one another as another one supposes."""
    padded = fix.arguments.get("combine_options", {}).get("pad", ())
    names = {*fix.arguments.get("concat_dim", ()), *padded}  # their labels say what lies where
    dropped = further.arguments.get("scan_options", {}).get("drop_variables", ())
    is_order = not _ORDER.isdisjoint(further.arguments.get("combine_options", {}))
    return (_places(fix) and is_order) or any(paths.name(each) in names for each in dropped)


class _Attempts:
    """Looks for arguments with which a plan is made, a limited number of times."""

    def __init__(self, attempt: Attempt, most: int, do: str) -> None:
        self._attempt, self._left, self._do = attempt, most, do
        self.why_not = ""  # of the first that leads nowhere

    @property
    def is_over(self) -> bool:
        """Whether no more can be tried."""
        return not self._left

    def complete(self, fix: Fix, before: str, depth: int) -> list[Fix]:
        """Return a fix with what else it takes, in several ways; none where nothing helps.

        Args:
            fix: To be tried.
            before: What happens without it; it is no fix of that if it happens again.
            depth: How many fixes may be added.
        """
        if self.is_over:
            return []
        self._left -= 1
        try:
            error = self._attempt(fix.arguments)
        except UntriedError:
            return [fix]
        if isinstance(error, Measured):
            return [error.put_on(fix)]
        if error.what == before:
            return []
        if not depth:
            return [fix]
        found = self._join(fix, error, depth)
        if not found and not self.why_not and isinstance(error, CombineError):
            given = write_code(fix.python, shlex.join(fix.flags))
            do = error.do if error.do != self._do else ""
            told = filter(None, (write_remedy("With ", given, f": {error.what}."), do))
            self.why_not = join(" ", told)
        return found

    def _join(self, fix: Fix, error: IcevirtError, depth: int) -> list[Fix]:
        """Return a fix with one of those of the next refusal: the first that loses nothing.

        What asks something of readers stands beside what does not.
        """
        found: list[Fix] = []
        for further in sort_by_loss(error.fixes):
            both = together(fix, further)
            if further.first or further.without or both.arguments == fix.arguments:
                continue
            if _contradicts(further, fix) or (found and may_lose(both)):
                continue
            found += self.complete(both, error.what, depth - 1)
            asks = "chunk_grid" in further.arguments.get(_OPTIONS[0], {})
            if not (asks or all(map(may_lose, found))):
                break
        return [each for each in found if not may_lose(each)] or sort_by_loss(found)[:1]
