"""Describe eras: where each begins and ends, how it differs, and what each remedy would cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.eras import REFUSED, Absence, Change, Choice, Era, Eras, Run
from icevirt.archive.plan import BuildPlan, Hybrid, PlannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix, IcevirtError
from icevirt.model import paths
from icevirt.planning.axes.axis import NOWHERE
from icevirt.planning.axes.axis_ends import labels_of_files
from icevirt.planning.combine.combine import combine_prepared
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.prepare import PreparedFacts
from icevirt.planning.eras import signatures
from icevirt.planning.eras.partition import (
    EVERYWHERE,
    EraPartition,
    EraVariable,
    is_by_label,
)
from icevirt.planning.meaning.local_indices import indices_along, variables_with_indices
from icevirt.planning.normal_form import differences
from icevirt.planning.partial.mismatch import holds, other_missing
from icevirt.planning.partial.storage_cost import (
    is_packing,
    is_storage,
    max_error,
    stored_bytes,
)
from icevirt.planning.remedies import count_groups, fix, list_names
from icevirt.planning.times.calendars import REFORM, SINCE_REFORM
from icevirt.planning.times.units import units_to_count
from icevirt.remedy_notation import join, write_code, write_option, write_remedy

MAX_REPORTED = 100
"""Eras, and runs of files within another one, that a report describes; further ones are counted."""
_EXAMPLES = 5  # files in a line
_OPTION = write_code('on_mismatch="native"', "--on-mismatch native")
FOLLOWED = 'chunk_grid="rectilinear"'
_UNLIMITED = 1 << 62
_ATTRIBUTE = "attribute "
_SAYING = ("units", "calendar", "dtype", "scale_factor", "add_offset", "_Unsigned")
_COUNTING = frozenset(f"{_ATTRIBUTE}{name}" for name in ("units", "calendar", "dtype"))
_NAMED = 3  # variables in a line
READERS = 'readers must set zarr.config.set({"array.rectilinear_chunks": True})'
"""What chunks of different lengths ask of readers."""


def describe_eras(
    prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec, *, limit: int = MAX_REPORTED
) -> Eras:
    """Return the eras of an archive as a report, at most ``limit`` of them in full."""
    dimension = parted.dimension or next(iter(spec.concat_dim), "")
    found = _Report(prepared, parted, dimension, limit)
    declared = spec.options.index_of or {}
    variables = variables_with_indices(prepared.facts, prepared.given, declared)
    is_numbered = bool(indices_along(variables, dimension, declared))
    as_one = (
        not is_numbered
        and _opens_as_one(prepared, parted, spec)
        and _have_statics_alike(prepared, parted, spec)
    )
    return Eras(
        dimension=dimension,
        count=parted.count,
        eras=tuple(found.eras()),
        apart=tuple(found.apart()),
        more_apart=max(0, len(found.inner) - limit),
        absences=tuple(found.absences()),
        choices=choices(parted.count, as_one=as_one),
        ordered=parted.ordered,
        as_one=as_one,
    )


def _opens_as_one(prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec) -> bool:
    """Say whether the eras have an order, and differ only in how values are stored."""
    if parted.count > 1 and (parted.dimension is None or not parted.alone):
        return False
    labels = {*map(paths.name, prepared.facts.arrays.path.values), *(n.name for n in prepared.new)}
    is_labelled = parted.dimension in labels and is_by_label(parted, spec)
    if not (parted.contiguous or is_labelled) or not _have_groups_alike(prepared, parted):
        return False
    for variable in parted.variables:
        numbers = np.unique(variable.number[variable.number >= 0]).tolist()
        first, *others = (parted.signatures.facts[number] for number in numbers)
        if not all(_are_shown_alike(first, other) for other in others):
            return False
    return True


def _are_shown_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether values of two signatures are one variable to readers, who see them decoded."""
    unlike = differences(one, other)
    if _are_times_alike(one, other):
        unlike = {name: pair for name, pair in unlike.items() if name not in _COUNTING}
    return is_storage(unlike) or is_packing(unlike)


def _are_times_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether both are times of one calendar, or durations, whatever they count."""
    said = [
        {name: facts[key][0] for name in _SAYING if (key := f"{_ATTRIBUTE}{name}") in facts}
        for facts in (one, other)
    ]
    counts = [units_to_count(each) for each in said]
    known = [each for each in counts if each is not None]
    calendars = {each.calendar for each in known}
    late = all(each.calendar in SINCE_REFORM and each.origin >= REFORM for each in known)
    return len(known) == len(counts) and (len(calendars) == 1 or late)


def _have_groups_alike(prepared: PreparedFacts, parted: EraPartition) -> bool:
    """Say whether all eras have the same groups: the engine opens a group of all eras as one."""
    arrays = prepared.facts.arrays
    parents = [paths.parent(path) for path in arrays.path.values]
    number = {name: at for at, name in enumerate(dict.fromkeys(parents))}
    group = np.array([number[name] for name in parents], np.int64)[arrays.path.codes]
    era = parted.of_file[arrays.file]
    pairs = np.unique(group[era >= 0] * np.int64(parted.count) + era[era >= 0])
    _, eras = np.unique(pairs // parted.count, return_counts=True)
    return bool((eras == parted.count).all())


def _have_statics_alike(prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec) -> bool:
    """Say whether eras hold one value of what has no concatenated dimension, as far as known."""
    arrays = prepared.facts.arrays
    schemas = [ArraySchema.loads(text) for text in arrays.schema.values]
    is_static = np.array([not spec.concatenates(e.dimension_names) for e in schemas], np.bool_)
    is_known = np.array([bool(text) for text in arrays.digest.values], np.bool_)
    own = np.array([path not in prepared.facts.alike for path in arrays.path.values], np.bool_)
    columns = arrays.path.codes, arrays.schema.codes, arrays.digest.codes
    wanted = own[columns[0]] & is_static[columns[1]] & is_known[columns[2]]
    rows = np.flatnonzero(wanted & (parted.of_file[arrays.file] != EVERYWHERE))
    first: dict[int, tuple[int, int]] = {}
    for path, schema, digest in np.unique([each[rows] for each in columns], axis=1).T.tolist():
        code, held = first.setdefault(path, (schema, digest))
        said = (schemas[each].decode_signature(stored=False) for each in (code, schema))
        if held != digest or differences(*said):
            return False
    return True


def choices(count: int, *, as_one: bool = True) -> tuple[Choice, ...]:
    """Return what can be done about a number of eras; ``as_one``: the engine opens them as one."""
    if count < 2:
        return ()
    return (
        Choice(option=REFUSED, does="nothing is built (the default)"),
        Choice(
            option=write_code('on_mismatch="eras"', "--on-mismatch eras"),
            does=f"{count} groups, era_0 to era_{count - 1}"
            + (', which the engine shows as one dataset with eras="concat"' if as_one else "")
            + "; nothing more is stored",
            groups=count,
            fix=fix(count_groups(count, as_one=as_one), on_mismatch="eras"),
        ),
    )


class _Report:
    """Runs of places of one era, and the files at their ends."""

    def __init__(
        self, prepared: PreparedFacts, parted: EraPartition, dimension: str, limit: int
    ) -> None:
        self._facts, self._parted, self._dimension = prepared.facts, parted, dimension
        era = parted.of_place
        self._limit = limit
        self._numbers: dict[str, Mapping[int, list[int]]] = {}
        self._begins = np.flatnonzero(np.diff(era, prepend=-1))  # places where runs begin
        self._ends = np.append(self._begins[1:], len(era)) - 1
        self._era = era[self._begins]  # of each run
        there = np.flatnonzero(parted.place != NOWHERE)
        place = parted.place[there]
        self._files = np.bincount(place, minlength=len(era))  # at each place
        order = np.argsort(place, kind="stable")
        at = np.searchsorted(place[order], np.arange(len(era)))
        self._first = there[order[at]]  # file of each place
        # a file whose steps lie between those of others is in several places
        name = np.unique(self._facts.files.url.hashes()[there], return_inverse=True)[1]
        pairs = np.unique(era[place] * np.int64(len(there) + 1) + name.reshape(-1))
        self._files_of_era = np.bincount(pairs // (len(there) + 1), minlength=parted.count)
        # a run within another era; `inner` are their numbers
        inner = self._era[:-2] == self._era[2:] if len(self._era) > 2 else np.zeros(0, np.bool_)
        rarer = self._sizes[1:-1] <= np.minimum(self._sizes[:-2], self._sizes[2:])
        self.inner: NDArray[np.int64] = np.flatnonzero(inner & rarer) + 1
        new = next((each for each in prepared.new if each.name == dimension), None)
        self._labels: dict[int, tuple[str, str]] = {}
        if new is not None and new.values is not None:
            labels = ((file, str(new.values[new.cell[file]])) for file in self._find_shown())
            self._labels = {file: (label, label) for file, label in labels}
        elif parted.ordered:
            self._labels = labels_of_files(self._facts, dimension, self._find_shown())

    @property
    def _sizes(self) -> NDArray[np.int64]:
        return np.add.reduceat(self._files, self._begins)

    def _find_shown(self) -> set[int]:
        """Return the files at the ends of what the report names."""
        runs = {int(run) for run in self.inner[: self._limit]}
        for era in range(min(self._parted.count, self._limit)):
            mine = np.flatnonzero(self._era == era)
            runs |= {int(mine[0]), int(mine[-1])}
        places = [*self._begins[list(runs)].tolist(), *self._ends[list(runs)].tolist()]
        return set(self._first[places].tolist())

    def eras(self) -> Iterator[Era]:
        """Yield the first eras."""
        for number in range(min(self._parted.count, self._limit)):
            mine = np.flatnonzero(self._era == number)
            since = None if mine[0] == 0 else int(self._era[mine[0] - 1])
            yield Era(
                number=number,
                files=int(self._files_of_era[number]),
                **self._ends_of(int(mine[0]), int(mine[-1])),
                runs=len(mine),
                since=since,
                changes=() if since is None else tuple(self._list_changes(since, number)),
            )

    def apart(self) -> Iterator[Run]:
        """Yield the first runs that lie within another era."""
        sizes = self._sizes
        for run in self.inner[: self._limit].tolist():
            yield Run(
                era=int(self._era[run]),
                files=int(sizes[run]),
                **self._ends_of(run, run),
                inside=int(self._era[run - 1]),
            )

    def absences(self) -> Iterator[Absence]:
        """Yield where places lack a variable that their era has."""
        for variable in self._parted.variables:
            schema = self._facts.arrays.schema[int(variable.rows[0])]
            is_along = self._dimension in ArraySchema.loads(schema).dimension_names
            if not (variable.reserved and is_along):
                continue
            lacking = np.flatnonzero(variable.number < 0)
            for era in np.unique(self._parted.of_place[lacking])[: self._limit].tolist():
                places = lacking[self._parted.of_place[lacking] == era]
                yield Absence(
                    variable=variable.path,
                    era=era,
                    places=len(places),
                    examples=tuple(self._url(place) for place in places[:_EXAMPLES]),
                )

    def _list_changes(self, before: int, after: int) -> Iterator[Change]:
        for variable in self._parted.variables:
            held, facts = self._number_by_era(variable), self._parted.signatures.facts
            # referenced chunks' signature, which has most facts, counts before those of values read
            one, other = (
                max((facts[number] for number in held[era]), key=len, default=None)
                for era in (before, after)
            )
            what = ""
            if one is None or other is None:
                what = "" if one is other else "added" if one is None else "absent"
            else:
                what = signatures.describe_difference(*_reduce_to_common(one, other))
            if what:
                yield Change(variable=variable.path, what=what)

    def _number_by_era(self, variable: EraVariable) -> Mapping[int, list[int]]:
        """Return the numbers of a variable's signatures by era; all eras are looked at once."""
        if variable.path not in self._numbers:
            many = len(self._parted.signatures.facts)
            there = variable.number >= 0
            pairs = np.unique(self._parted.of_place[there] * many + variable.number[there])
            held: dict[int, list[int]] = defaultdict(list)
            for pair in pairs.tolist():
                held[pair // many].append(pair % many)
            self._numbers[variable.path] = held
        return self._numbers[variable.path]

    def _url(self, place: int) -> str:
        return self._facts.files.url[int(self._first[place])]

    def _ends_of(self, first_run: int, last_run: int) -> dict[str, str]:
        first, last = self._begins[first_run], self._ends[last_run]
        labels = [self._labels.get(int(self._first[at]), ("", "")) for at in (first, last)]
        return {
            "first": self._url(first),
            "last": self._url(last),
            "first_label": labels[0][0],
            "last_label": labels[1][1],
        }


def _reduce_to_common(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return two signatures without what says how chunks are stored, if one of them has none."""
    if all("chunk shape" in each for each in (one, other)):
        return one, other
    gone = {"fill value", "chunk shape", "codecs"}
    first, second = ({n: each[n] for n in each if n not in gone} for each in (one, other))
    return first, second


def offer_native(prepared: PreparedFacts, _: EraPartition, spec: CombineSpec) -> Iterator[Choice]:
    """Yield what storing deviating files would cost, and where values are packed unlike, floats."""
    plan = _try_plan(prepared, spec, on_mismatch="native")
    if isinstance(plan, IcevirtError):
        # an estimate must not hide why the files were refused
        yield Choice(option=_OPTION, does=impossible(plan), why=plan)
        return
    errors = {array.source_path: max_error(hybrid) for array, hybrid in _list_hybrids(plan)}
    packed = [path for path, error in errors.items() if error is not None]
    unsure = _list_unsure(plan)
    does = "chunks of deviating files are stored in the same arrays; every value survives exactly"
    if packed:
        does += f", or the build stops: {list_names(packed, _NAMED)} is packed differently"
    price = "one array for all files"
    if any(
        other_missing(hybrid.target, each)
        for _, hybrid in _list_hybrids(plan)
        for each in hybrid.schemas
    ):
        price += "; stops where a value equals the missing value of other files"
    yield Choice(
        option=_OPTION,
        does=does,
        bytes_stored=stored_bytes(plan.arrays),
        max_error=max((error for error in errors.values() if error is not None), default=None),
        fix=None
        if unsure
        else _fix_storing(price, stored_bytes(plan.arrays), spec, on_mismatch="native"),
    )
    if packed:
        yield from _offer_floats(prepared, spec, unsure or packed)


def _list_unsure(plan: BuildPlan) -> list[str]:
    """Return the variables of which a value may have no counterpart in the packing of others."""
    return [
        array.source_path
        for array, hybrid in _list_hybrids(plan)
        if max_error(hybrid) is not None
        and not all(holds(hybrid.target, each) for each in hybrid.schemas)
    ]


def refuse_unsure(plan: BuildPlan, proposed: Mapping[str, Any]) -> None:
    """Refuse a plan that would let values be packed anew, if a proposal asks for that.

    Raises:
        CombineError: A value may have no counterpart, so that a build with the proposal would stop.
    """
    if proposed.get("on_mismatch") == "native" and (unsure := _list_unsure(plan)):
        names = list_names(unsure, _NAMED)
        raise CombineError(
            f"values of {names} may have no counterpart in the packing of other files",
            fixes=[fix(f"all values of {names} as floats", float_variables=unsure)],
        )


def offer_rectilinear(
    prepared: PreparedFacts, spec: CombineSpec, stored: int | None
) -> Iterator[Choice]:
    """Yield what chunks of different lengths would cost, if they spare some of what is stored."""
    if spec.options.chunk_grid == "rectilinear":
        return
    plan = _try_plan(prepared, spec, chunk_grid="rectilinear")
    if isinstance(plan, IcevirtError) or (
        stored is not None and stored_bytes(plan.arrays) >= stored
    ):
        return
    count = stored_bytes(plan.arrays)
    yield Choice(
        option=FOLLOWED,
        does="chunks follow the files; readers set zarr's array.rectilinear_chunks",
        bytes_stored=count,
        fix=_fix_storing(READERS, count, spec, chunk_grid="rectilinear"),
    )


def fix_limit(stored: int, spec: CombineSpec) -> Fix:
    """Return the fix that allows to store what chunks of one length take."""
    return _fix_storing("", stored, spec)


def _fix_storing(price: str, stored: int, spec: CombineSpec, **options: Any) -> Fix:
    """Return the fix that also allows as many bytes to be stored as it takes."""
    if stored > spec.options.max_native_bytes:
        options["max_native_bytes"] = stored
    return replace(fix(price, **options), stored=stored)


def _try_plan(
    prepared: PreparedFacts, spec: CombineSpec, **options: Any
) -> BuildPlan | IcevirtError:
    """Return the plan with other options, whatever it stores; or why there is none."""
    try:
        changed = replace(spec.options, max_native_bytes=_UNLIMITED, **options)
        return combine_prepared(prepared, replace(spec, options=changed))
    except IcevirtError as error:
        return error


def impossible(error: IcevirtError) -> str:
    """Return why something cannot be done, and what would help."""
    return join(" ", filter(None, (f"is not possible: {error.what}.", error.do)))


def as_floats(prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec) -> Iterator[Choice]:
    """Yield what floats would take where files are packed in several ways, as many as there are."""
    packed = []
    for variable in parted.variables:
        numbers = np.unique(variable.number[variable.number >= 0]).tolist()
        first, *others = (parted.signatures.facts[number] for number in numbers)
        if any(is_packing(differences(first, other)) for other in others):
            packed.append(variable.path)
    if packed:
        yield from _offer_floats(prepared, spec, packed)


def _offer_floats(
    prepared: PreparedFacts, spec: CombineSpec, packed: Sequence[str]
) -> Iterator[Choice]:
    floats = [*spec.options.float_variables, *packed]
    for more in ({}, {"on_mismatch": "native"}):  # others may need it
        options: dict[str, Any] = {"float_variables": floats, **more}
        plan = _try_plan(prepared, spec, **options)
        if isinstance(plan, IcevirtError):
            continue  # they do not decode to floats
        count = stored_bytes(plan.arrays)
        price = f"all values of {list_names(packed, _NAMED)} as floats"
        yield Choice(
            option=write_remedy(
                _OPTION,
                ", ",
                write_option("float_variables", packed[:_NAMED]),
                f" and {len(packed) - _NAMED} more" if len(packed) > _NAMED else "",
            ),
            does="all values of these variables are stored as decoded floats, exactly",
            bytes_stored=count,
            fix=_fix_storing(price, count, spec, **options),
        )
        return


def _list_hybrids(plan: BuildPlan) -> Iterator[tuple[PlannedArray, Hybrid]]:
    for array in plan.arrays:
        if array.hybrid is not None and array.hybrid.chunks:
            yield array, array.hybrid
