"""Compare values: chunks read through the repository with the file's own library.

The position of a chunk's bytes in its file determines the box of the variable that it should hold.
h5py or netCDF4 reads that box. The same match gives the file's position in the dataset, so its
coordinates and other stored values are compared too: a file in the wrong place is found although
its values are right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from icevirt.access.columns.decoding import codecs_of
from icevirt.access.columns.stored_array import StoredArray, open_array
from icevirt.access.xarray.datastore import file_attributes
from icevirt.archive.reports.verification import Checked, Difference, DifferenceKind, total
from icevirt.archive.scanned import ScannedArray
from icevirt.errors import (
    IcevirtError,
    ScanCrashError,
    ScanMemoryError,
    ScanTimeoutError,
    UnsupportedError,
)
from icevirt.model import paths
from icevirt.model.attributes import Attributes, members_of, read_replacements
from icevirt.model.chunks import ChunkType
from icevirt.model.snapshot import ArrayNode, document_of
from icevirt.objects.answers import Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.objects.stores import is_chunk_object
from icevirt.planning.combine.cf_packing import (
    NoMemberError,
    decode,
    packing_in,
    packing_of,
    renumber,
    same_packing,
)
from icevirt.planning.combine.hints import find_limits
from icevirt.planning.combine.tolerance import difference_of
from icevirt.planning.edits.file_edits import COUNTING
from icevirt.planning.edits.renames import with_attributes
from icevirt.planning.equality import same_values
from icevirt.planning.meaning.grid_mappings import are_no_codes, find_mappings
from icevirt.planning.meaning.index_shifts import is_shifted
from icevirt.planning.meaning.local_indices import LocalIndex, Variable, indices_among
from icevirt.planning.measures import are_equal, factor_between
from icevirt.planning.times.instants import InexactError, recode
from icevirt.planning.times.units import bounds_of, missing_of, units_to_count
from icevirt.repo.commits.validation import any_grid
from icevirt.repo.session import Session
from icevirt.scan.contract import ByteSource, Oracle
from icevirt.scan.registry import find_named, oracle_for
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks.compare_files import kind_of
from icevirt.tasks.forkserver import Apart
from icevirt.tasks.verify.references import (
    Box,
    ChunkToCompare,
    SourceVariables,
    VerifyTask,
    bounds,
    box_at,
    box_of,
    by_store,
    choose,
    covers,
    describe_box,
    dimensions_of,
    is_elsewhere,
    look,
    regions_of,
    row_of,
    shape_of,
)
from icevirt.versioning.lookup import users_of

_ULPS = {"gribberish": 8}
"""Units in the last place by which values of a codec may differ from those that verify them.

gribberish computes the decimal scale of GRIB in another order than ecCodes: 6 were measured.
"""


def _is_rounded(
    mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], held: StoredArray
) -> bool:
    """Say whether values differ by the rounding of the codec that decodes the array alone."""
    names = {codec.to_dict()["name"] for codec in codecs_of(held.zarr)}
    most = max((_ULPS.get(str(name), 0) for name in names), default=0)
    if not most or mine.shape != theirs.shape or not mine.dtype == theirs.dtype == np.float64:
        return False
    missing = np.isnan(mine)
    if not np.array_equal(missing, np.isnan(theirs)):
        return False
    one, other = mine[~missing], theirs[~missing]
    larger = np.maximum(np.abs(one), np.abs(other))
    return bool(np.all((one == other) | (np.abs(one - other) <= most * np.spacing(larger))))


class Meaning:
    """What the values of one file mean in the dataset."""

    def __init__(self, session: Session, variables: SourceVariables, task: VerifyTask) -> None:
        self._session = session
        self._variables = variables
        self._tolerance = task.tolerance
        self._edit = task.edit
        self._indices = {} if task.index_of is None else self._find_indices(task.index_of)

    def _find_indices(self, declared: Mapping[str, str]) -> Mapping[str, LocalIndex]:
        """Return what numbers elements, by path in the file."""
        arrays = self._variables.arrays
        names = {self._variables.rename(each.path): each.path for each in arrays}
        variables = [
            Variable(
                path=path,
                dimensions=tuple(map(str, each.dimension_names)),
                attributes=self._correct(each).values,
            )
            for path, each in zip(names, arrays, strict=True)
        ]
        return {names[path]: e for path, e in indices_among(variables, declared).items()}

    def is_shifted(
        self, mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], variable: str
    ) -> bool:
        """Say whether values count elements of the dataset, as the build was asked to let them."""
        index = self._indices.get(variable)
        own = next((each for each in self._variables.arrays if each.path == variable), None)
        if index is None or own is None or mine.shape != theirs.shape:
            return False
        return is_shifted(mine, theirs, replace(own.schema, attributes=self._correct(own)), index)

    def is_same(
        self, mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], path: str, variable: str
    ) -> bool | None:
        """Compare what values mean, where the dataset packs them in another way than the file."""
        node = self._session.find(path)
        own = next((each for each in self._variables.arrays if each.path == variable), None)
        if not isinstance(node, ArrayNode) or own is None:
            return None
        packing = self._packing(path, mine.dtype)
        other = packing_of(self._correct(own))
        if mine.dtype == theirs.dtype and same_packing(packing, other):
            one, two = mine, theirs
        else:
            one, two = decode(mine, packing), decode(theirs, other)
        said = open_array(self._session, path).zarr.attrs.get("units")
        factor = factor_between(self._correct(own).values.get("units"), said)
        if factor in (None, 1) or units_to_count({"units": said}) is not None:  # was recoded
            return same_values(one, two)
        return are_equal(two.astype(np.float64), one.astype(np.float64), factor)

    def is_nothing(
        self, mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], variable: str
    ) -> bool:
        """Say whether these are values of a grid mapping, of which attributes count alone."""
        held = {each.path: {0: self._correct(each).values} for each in self._variables.arrays}
        is_one = mine.size == theirs.size == 1
        return is_one and variable in find_mappings(held) and are_no_codes((mine, theirs))

    def is_near(
        self,
        mine: np.ndarray[Any, Any],
        theirs: np.ndarray[Any, Any],
        variable: str,
        held: StoredArray,
    ) -> bool:
        """Say whether no value of an array differs by more than the tolerance of the build."""
        limits = find_limits(
            self._tolerance,
            (
                (self._variables.rename(each.path), each.dimension_names, each.attributes.values)
                for each in self._variables.arrays
            ),
        )
        limit = limits.get(self._variables.rename(variable))
        if limit is None or not mine.shape == theirs.shape == held.shape:
            return False
        own = next(each for each in self._variables.arrays if each.path == variable)
        one = decode(mine, self._packing(paths.canonical(held.zarr.path), mine.dtype))
        other = decode(theirs, packing_of(self._correct(own)))
        numbers = one.dtype.kind in "iuf" and one.dtype == other.dtype
        return numbers and difference_of(one, other) <= limit

    def recode(
        self, theirs: np.ndarray[Any, Any], variable: str, own_path: str
    ) -> np.ndarray[Any, Any]:
        """Count times and name members as the dataset does, where the file does it otherwise."""
        arrays = self._variables.arrays
        own = next((each for each in arrays if each.path == variable), None)
        if own is not None and members_of(own.attributes) is not None:
            document = document_of(self._session.array(own_path))
            members = Attributes(replaced=read_replacements(document))
            with suppress(NoMemberError):  # one differs, and so they do
                theirs = renumber(theirs, own.attributes, members)
        root = own_path.removesuffix(self._variables.rename(variable))
        coordinate = counting_array(arrays, variable)
        path = "" if coordinate is None else root + self._variables.rename(coordinate.path)
        if coordinate is None or self._session.find(path) is None:
            return theirs
        held = open_array(self._session, path)
        meant = self._correct(coordinate).values
        calendar = {name: meant[name] for name in ("calendar",) if name in meant}
        source, target = (
            units_to_count(meant),
            units_to_count({**calendar, **dict(held.zarr.attrs)}),
        )
        if source is None or target is None or own is None:
            return theirs
        dtype = np.dtype(open_array(self._session, own_path).dtype)
        fill = self._packing(own_path, dtype).get("_FillValue")
        missing = missing_of(own.attributes)
        try:
            return recode(theirs, source, target, dtype=dtype, missing=missing, fill=fill)
        except InexactError:
            return theirs  # and so they differ

    def _correct(self, array: ScannedArray) -> Attributes:
        """Return what the file says of a variable, as the build corrected it."""
        given, wanted = (
            array.attributes,
            self._edit.choose_attributes(self._variables.rename(array.path)),
        )
        for other in self._variables.arrays:
            if array.path in bounds_of(other.path, other.attributes.values):  # which inherit
                inherited = self._edit.choose_attributes(self._variables.rename(other.path))
                own = (name for name in COUNTING if name in given.values)
                wanted = {name: inherited[name] for name in own if name in inherited} | wanted
                kept = with_attributes(other.path, other.attributes, inherited, other.data_type)
                if "calendar" in kept.values:
                    calendar = kept.values["calendar"]
                    given = replace(given, values={"calendar": calendar, **given.values})
        return with_attributes(array.path, given, wanted, array.data_type)

    def _packing(self, path: str, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return the attributes by which an array of the repository is packed."""
        return packing_in(file_attributes(document_of(self._session.array(path)), dtype))


class Comparison:
    """One source file held against the repository."""

    def __init__(
        self, session: Session, source: ByteSource, task: VerifyTask, scanner: str
    ) -> None:
        if scanner:
            find_named(scanner)  # whose module may register the codecs of its files
        self._session = session
        self._source = source
        self._preprocessed = task.preprocessed
        self._variables = SourceVariables(session, source, scanner)
        self._meaning = Meaning(session, self._variables, task)
        self._placed: set[tuple[str, str, tuple[tuple[str, int], ...]]] = set()

    @cached_property
    def _oracle(self) -> Oracle:
        """What reads values; the scanner is known when variables are."""
        return oracle_for(self._source, self._variables.scanner)

    def chunk(self, wanted: ChunkToCompare) -> Checked:
        """Compare one chunk, and once per place of the file what is stored beside it."""
        url = self._source.file.url
        try:
            held = open_array(self._session, wanted.array)
            found = self._variables.find(wanted, dimensions_of(held))
            if found is None:
                return self._of_another_name(wanted, held)
            array, index = found
            here = box_of(held, wanted.index, wanted.index)
            there = box_at(index, array.chunk_shape, array.shape)
            new = len(here) - len(there)  # axes along which files were stacked
            self._variables.call(array.dimension_names, dimensions_of(held)[new:])
            if shape_of(here) != (1,) * new + shape_of(there):
                return self._report_place(wanted, f"the file has {describe_box(there)}")
            checked = self._compare(wanted.array, here, array.path, there)
            named = zip(dimensions_of(held), here[:new], strict=False)
            stacks = {name: part for name, part in named if name}
            return _as_chunk(checked) + self._beside(wanted, array, here, there, stacks)
        except UnsupportedError as error:
            return Checked(not_compared=((wanted.array, str(error)),))
        except IcevirtError as error:
            return fail(self._session, url, [wanted], error)

    def _of_another_name(self, wanted: ChunkToCompare, held: StoredArray) -> Checked:
        """Compare a chunk that lies in a variable of another name, as in virtual datasets.

        Where the file has a variable of the array's own name, the chunk should be of that.
        """
        arrays = self._variables.scan().arrays
        if not any(wanted.array.endswith(array.path) for array in arrays):
            names = {name for array in arrays for name in array.dimension_names if name}
            cuts = map(self._variables.scan, sorted(names))
            for array in itertools.chain(arrays, (each for cut in cuts for each in cut.arrays)):
                row = row_of(wanted, array)
                if row is not None:
                    here = box_of(held, wanted.index, wanted.index)
                    index = array.references.index[row].tolist()
                    there = box_at(tuple(index), array.chunk_shape, array.shape)
                    return _as_chunk(self._compare_form(wanted.array, here, array.path, there))
            for array in arrays:
                if covers(wanted, array):
                    reason = f"it is a part of {array.path}, which scans now split differently"
                    return Checked(not_compared=((wanted.array, reason),))
        return self._report_place(wanted, "the file has no chunk there")

    def _compare_form(self, path: str, here: Box, variable: str, there: Box) -> Checked:
        """Compare boxes that may differ in axes of length 1, and in where the array ends."""
        held = open_array(self._session, path)
        mine = _read(held, here)
        theirs = self._oracle.read_values(self._source, self._variables.in_file(variable), there)
        mine, theirs = mine.squeeze(), np.squeeze(theirs)
        equal = None
        if mine.ndim == theirs.ndim:
            theirs = theirs[tuple(slice(length) for length in mine.shape)]
            equal = same_values(mine, theirs)
            if equal is False:
                equal = _is_rounded(mine, theirs, held)
        if equal is None:
            return Checked(not_compared=((path, f"its shape differs from {variable}"),))
        return self._judge(path, here, variable, there, is_equal=equal)

    def _compare(self, path: str, here: Box, variable: str, there: Box) -> Checked:
        """Compare a box of an array of the repository with a box of a variable of the file."""
        held = open_array(self._session, path)
        mine = _read(held, here)
        mine = mine.reshape(mine.shape[len(here) - len(there) :])
        in_file = self._variables.in_file(variable)
        raw = self._oracle.read_values(self._source, in_file, there)
        theirs = self._meaning.recode(raw, variable, path)
        equal = same_values(mine, theirs) or self._meaning.is_same(mine, theirs, path, variable)
        if equal is False and _is_rounded(mine, theirs, held):
            equal = True
        if equal is False and self._meaning.is_near(mine, theirs, variable, held):
            equal = True
        if equal is False and self._meaning.is_shifted(mine, theirs, variable):
            equal = True
        if not equal and self._meaning.is_nothing(mine, theirs, variable):
            equal = True
        if equal is False and self._preprocessed and same_values(mine, raw):
            reason = (
                "its stored numbers equal the file; preprocess may have changed their units"
                " or calendar"
            )
            return Checked(not_compared=((path, reason),))
        if equal is None:
            reason = f"{theirs.dtype} in the file, {mine.dtype} in the repository"
            return Checked(not_compared=((path, reason),))
        return self._judge(path, here, variable, there, is_equal=equal)

    def _judge(self, path: str, here: Box, variable: str, there: Box, *, is_equal: bool) -> Checked:
        difference = Difference(
            kind=DifferenceKind.value,
            file=self._source.file.url,
            array=path,
            region=describe_box(here),
            what=f"its values are not those of {variable} at {describe_box(there)}",
        )
        return Checked(
            arrays=1,
            values=math.prod(shape_of(here)),
            compared=frozenset((path,)),
            differences=() if is_equal else (difference,),
        )

    def _beside(
        self,
        wanted: ChunkToCompare,
        array: ScannedArray,
        here: Box,
        there: Box,
        stacks: Mapping[str, slice],
    ) -> Checked:
        """Compare coordinates and stored variables of the chunk's group, where the file was put.

        ``stacks`` says where it lies along dimensions that the file does not have.
        """
        root = wanted.array.removesuffix(array.path)
        group = paths.parent(array.path)
        lengths = dict(zip(array.dimension_names, array.shape, strict=False))
        shift = {
            name: mine.start - theirs.start
            for name, mine, theirs in zip(
                array.dimension_names, here[len(here) - len(there) :], there, strict=False
            )
            if name is not None
        }
        lies = tuple((name, part.start) for name, part in sorted(stacks.items()))
        key = (root, group, tuple(sorted(shift.items())) + lies)
        if key in self._placed:
            return Checked()
        self._placed.add(key)
        return total(
            self._compare_stored(root, other, shift, stacks)
            for other in self._variables.arrays
            if paths.parent(other.path) == group
            and all(
                lengths.get(name, length) == length
                for name, length in zip(other.dimension_names, other.shape, strict=False)
            )
        )

    def _compare_stored(
        self, root: str, other: ScannedArray, shift: dict[str, int], stacks: Mapping[str, slice]
    ) -> Checked:
        path = root + self._variables.rename(other.path)
        begins = [shift.get(name or "", 0) for name in other.dimension_names]
        begins += [0] * (len(other.shape) - len(begins))
        here = tuple(slice(at, at + length) for at, length in zip(begins, other.shape, strict=True))
        there = tuple(slice(0, length) for length in other.shape)
        node = self._session.find(path)
        if isinstance(node, ArrayNode) and len(node.num_chunks) > len(here):
            held = open_array(self._session, path)
            more = [
                stacks.get(name or "")
                for name in dimensions_of(held)[: len(held.shape) - len(here)]
            ]
            if None in more:
                return Checked()  # what is stored once has no place of the file
            here = (*(part for part in more if part is not None), *here)
        if 0 in other.shape or is_elsewhere(node, other, shift):
            return Checked()
        if not self._concerns(path, other, here):
            return Checked()
        try:
            return self._compare(path, here, other.path, there)
        except UnsupportedError as error:
            return Checked(not_compared=((path, str(error)),))

    def _concerns(self, path: str, other: ScannedArray, here: Box) -> bool:
        """Say whether it is a coordinate, or its values lie in the repository."""
        if self._session.find(path) is None:
            return False  # left out when the dataset was built
        if paths.name(other.path) in other.dimension_names:
            return True
        held = open_array(self._session, path)
        index = [
            int(np.searchsorted(bounds, part.start, side="right")) - 1
            for part, bounds in zip(here, bounds(held), strict=True)
        ]
        kind = self._session.chunk_type(path, index)
        return kind in (ChunkType.native, ChunkType.inline)

    def _report_place(self, wanted: ChunkToCompare, what: str) -> Checked:
        url = self._source.file.url
        difference = Difference(kind=DifferenceKind.place, file=url, what=what)
        return regions_of(self._session, difference, [wanted])


def fail(
    session: Session, url: str, wanted: Sequence[ChunkToCompare], error: IcevirtError
) -> Checked:
    """Return an error about a file as what its chunks differ in."""
    difference = Difference(kind=kind_of(error), file=url, what=str(error))
    return regions_of(session, difference, wanted)


def _read(held: StoredArray, box: Box) -> np.ndarray[Any, Any]:
    return np.asarray(held[box])


def _as_chunk(checked: Checked) -> Checked:
    """Count what was compared as a chunk, not as an array beside one."""
    return replace(checked, chunks=checked.arrays, arrays=0)


def compare_values(task: VerifyTask) -> Checked:
    """Compare the chunks of the task, file by file, in a child process that a file may crash.

    Another process cannot see a repository in memory; its files are compared here.
    """
    session = task.session()
    users = users_of(session.snapshot.arrays(), task.manifests)
    authorizer = Authorizer(session.config.virtual_chunk_containers, task.access)
    with grant_access(_access_of(task, session)):
        chosen = [
            each
            for (key, own), rows in zip(users.items(), task.rows, strict=True)
            for each in by_store(choose(session, key, rows, own), authorizer).items()
        ]
    if isinstance(task.repo, MemoryStorage):
        with grant_access(_access_of(task, session)), any_grid():
            return total(_compare_file(session, task, url, wanted) for url, wanted in chosen)
    place = replace(task, manifests=(), rows=())
    checked = Checked()
    with Apart() as apart:
        for url, wanted in chosen:
            try:
                checked += apart.call(url, compare_file, place, url, wanted)
            except (ScanCrashError, ScanTimeoutError, ScanMemoryError) as error:
                checked += fail(session, url, wanted, error)
    return checked


_sessions: dict[tuple[str, str], Session] = {}  # of a child, which serves one task


def compare_file(place: VerifyTask, url: str, wanted: list[ChunkToCompare]) -> Checked:
    """Compare chunks of one file, in a child."""
    key = (place.repo.url, place.snapshot_id)
    if key not in _sessions:
        _sessions[key] = place.session()
    session = _sessions[key]
    try:
        with grant_access(_access_of(place, session)), any_grid():
            return _compare_file(session, place, url, wanted)
    except MemoryError:
        raise ScanMemoryError(
            "the file needs more memory than is available",
            do="Compare it on a machine with more memory.",
            file=url,
        ) from None


def _access_of(task: VerifyTask, session: Session) -> SourceAccess:
    """Read the files themselves as the containers say, with what was authorized."""
    return SourceAccess.of_containers(session.config.virtual_chunk_containers, task.access)


def _compare_file(
    session: Session, task: VerifyTask, url: str, wanted: Sequence[ChunkToCompare]
) -> Checked:
    """Compare chunks of one file; an error about the file concerns all of them."""
    ends: dict[tuple[str, Checksum], int] = {}
    for each in wanted:
        ends[each.file] = max(ends.get(each.file, 0), each.offset + each.length)
    authorizer = Authorizer(session.config.virtual_chunk_containers, task.access)
    # another file there has other values, and perhaps no such variable; neither is what is wrong
    wrong = {file: look(authorizer, *file, end=end) for file, end in ends.items()}
    checked = total(
        regions_of(session, difference, [each for each in wanted if each.file == file])
        for file, difference in wrong.items()
        if difference is not None
    )
    wanted = [each for each in wanted if wrong[each.file] is None]
    if is_chunk_object(url):
        reason = "it is a chunk of another repository, which alone says what it holds"
        return checked + Checked(not_compared=tuple((each.array, reason) for each in wanted))
    try:
        with open_source(url) as source:
            by_scanner: dict[str, list[ChunkToCompare]] = {}
            for each in wanted:
                by_scanner.setdefault(task.scanner_of(each.array), []).append(each)
            for scanner, own in by_scanner.items():
                comparison = Comparison(session, source, task, scanner)
                checked += total(map(comparison.chunk, own))
            return checked
    except UnsupportedError as error:
        reason = str(error)
        return checked + Checked(not_compared=tuple((each.array, reason) for each in wanted))
    except IcevirtError as error:
        return checked + fail(session, url, wanted, error)


def counting_array(arrays: Iterable[ScannedArray], path: str) -> ScannedArray | None:
    """Return the array whose units a variable's numbers have: itself, or what it bounds."""
    known = {each.path: each for each in arrays}
    if path in known and "units" in known[path].attributes.values:
        return known[path]
    return next((e for e in known.values() if path in bounds_of(e.path, e.attributes.values)), None)
