"""Find the file and bytes that a value is decoded from, by labels, and the commit that wrote it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, product
from typing import Any

import numpy as np
import xarray as xr
from zarr.abc.store import Store

from icevirt.access.references import chunk_of, source_of_chunk
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.xarray.datastore import dataset_of
from icevirt.access.xarray.eras import eras_around, of_all_eras
from icevirt.archive.reports.history import ChunkOrigin, ValueSource, WrittenBy
from icevirt.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
)
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.commits.build_commit import BUILD_ID
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.session import Session
from icevirt.versioning import lookup
from icevirt.versioning.history.timestamps import moment

_AROUND = 2  # labels on either side in a message
_SHOWN = 5
_DATE = re.compile(r"(\d{1,4})(?:-(\d\d?)(?:-(\d\d?)(?:[T ](\d\d?)(?::(\d\d?)(?::(\d\d?))?)?)?)?)?")
_FIRST = (1, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledPlace:
    """A place in an array, along the dimensions that were given a label."""

    path: str  # of the array; with the era that holds the labels
    dimensions: tuple[str, ...]  # all of the array's
    index: dict[str, int]
    labels: dict[str, JSON]  # as the coordinates have them


def places_of(
    store: Store, snapshot: Snapshot, path: str, at: Mapping[str, Any], *, nearest: bool
) -> LabeledPlace:
    """Return the place of labels.

    Args:
        store: Over the snapshot, to read its coordinates.
        snapshot: That holds the array.
        path: Of the array; in a group with eras without the era's name.
        at: Labels by dimension; text is read as xarray's ``sel`` reads it, and as a number where
            the coordinate holds numbers.
        nearest: Take the nearest label where none is equal.

    Raises:
        NodeNotFoundError: There is no such array.
        InvalidInputError: A label is not there, or not that of one place.
    """
    group, name = paths.parent(path), paths.name(path)
    around = eras_around(snapshot, group)
    if snapshot.find(path) is not None or around is None:
        snapshot.node(path)
        ds = dataset_of(store, snapshot, group, {})
        return _locate(ds, path, at, nearest=nearest)
    ds = of_all_eras(store, snapshot, group, {})
    if name not in ds.variables:
        snapshot.node(path)
    shown = _locate(ds, path, at, nearest=nearest)
    eras, inner = around
    for era in eras.below(inner):
        alone = dataset_of(store, snapshot, era, {})
        index: dict[str, int] = {}  # where the era has what lies at the place of all eras
        for dim, at_place in shown.index.items():
            if dim in alone.variables:
                same = np.flatnonzero(alone[dim].values == ds[dim].values[at_place])
                if len(same):
                    index[dim] = int(same[0])
            elif at_place < alone.sizes.get(dim, 0):
                index[dim] = at_place
        if name in alone.variables and index.keys() == shown.index.keys():
            return replace(shown, path=paths.join(era, name), index=index)
    raise InvalidInputError(
        "no era holds these labels", do="Name the era's array.", variable=path, at=dict(at)
    )


def _locate(ds: xr.Dataset, path: str, at: Mapping[str, Any], *, nearest: bool) -> LabeledPlace:
    dims = [str(dim) for dim in ds[paths.name(path)].dims]
    if unknown := [name for name in at if name not in dims]:
        raise InvalidInputError(
            f"{path} has no dimension {unknown[0]!r}",
            do=f"Its dimensions are {', '.join(dims) or 'none'}. Along one without a coordinate,"
            " pass the index.",
            variable=path,
        )
    index = {dim: _place(ds, dim, label, nearest=nearest) for dim, label in at.items()}
    labels = {dim: _label(ds, dim, place) for dim, place in index.items()}
    return LabeledPlace(path=path, dimensions=tuple(dims), index=index, labels=labels)


def _label(ds: xr.Dataset, dim: str, place: int) -> JSON:
    if dim not in ds.variables:
        return place
    value = ds[dim].values[place]
    if isinstance(value, np.datetime64) or _calendar_of(value):
        return _spell(value)
    if isinstance(value, np.floating):
        return float(str(value))  # 0.1 of single precision is 0.1
    found = value.item() if isinstance(value, np.generic) else value
    return found if isinstance(found, int | float | str) else str(found)


def _place(ds: xr.Dataset, dim: str, label: Any, *, nearest: bool) -> int:
    if dim not in ds.variables:
        return _parse_index(label, dim, ds.sizes[dim])
    values = ds[dim].values
    if isinstance(label, str) and values.dtype.kind in "iuf":
        label = _number(label, dim)
    places = xr.DataArray(np.arange(ds.sizes[dim]), coords={dim: values}, dims=dim)
    try:
        chosen = places.sel({dim: label}).values
    except (KeyError, TypeError, ValueError) as error:
        if nearest:
            return _nearest(places, dim, label, error)
        raise _absent(values, dim, label) from error
    found = np.atleast_1d(chosen).ravel()
    if not len(found) and nearest:
        return _nearest(places, dim, label, None)
    if not len(found):
        raise _absent(values, dim, label)
    if len(found) > 1:
        raise InvalidInputError(
            f"{len(found):,} places along {dim!r} have the label {str(label)!r}",
            do="Write more of the label.",
            first=[_spell(values[at]) for at in found[:_SHOWN].tolist()],
        )
    return int(found[0])


def _nearest(places: xr.DataArray, dim: str, label: Any, error: Exception | None) -> int:
    if places[dim].dtype.kind == "M":
        label = np.datetime64(label)
    values = places[dim].values
    if (date := _date_like(values, label)) is not label or _calendar_of(label):
        return int(np.argmin(np.abs(values - date)))
    try:
        return int(places.sel({dim: label}, method="nearest").values)
    except (KeyError, TypeError, ValueError):
        raise _absent(places[dim].values, dim, label) from error


def _parse_index(label: Any, dim: str, size: int) -> int:
    try:
        place = int(label)
    except (TypeError, ValueError):
        place = size
    if not -size <= place < size:
        raise InvalidInputError(
            f"the dimension {dim!r} has no coordinate, so its label is an index",
            do=f"Pass a number from 0 to {size - 1}.",
            label=str(label),
        )
    return place % size


def _number(label: str, dim: str) -> float:
    try:
        return float(label) if not label.lstrip("+-").isdecimal() else int(label)
    except ValueError as error:
        raise InvalidInputError(
            f"the coordinate {dim!r} holds numbers",
            do="Pass a number.",
            label=label,
        ) from error


def _absent(values: np.ndarray, dim: str, label: Any) -> InvalidInputError:
    near = _near(values, label)
    return InvalidInputError(
        f"no value of {dim!r} is {str(label)!r}",
        do=write_remedy(
            "Pass one of these, or ask for the nearest one with ",
            write_code("nearest=True", "--nearest"),
            ".",
        )
        if near
        else "Look at the coordinate.",
        neighbors=near,
        values=len(values),
    )


def _near(values: np.ndarray, label: Any) -> list[str]:
    """Return the labels around one that is not there; the first ones where there is no order."""
    try:
        wanted = np.asarray(_date_like(values, label)).astype(values.dtype)
        away = np.abs(values - wanted)
        order = np.sort(np.argsort(away, kind="stable")[: 2 * _AROUND])
    except (TypeError, ValueError):
        order = np.arange(min(len(values), _SHOWN))
    return [_spell(values[at]) for at in order.tolist()]


def _calendar_of(value: Any) -> str:
    """Return the calendar of a date of cftime, "" of anything else."""
    return str(getattr(value, "calendar", "")) if hasattr(value, "timetuple") else ""


def _date_like(values: np.ndarray, label: Any) -> Any:
    """Return a text as a date where a coordinate holds dates of cftime; else as it is."""
    calendar = _calendar_of(values[0]) if values.dtype.kind == "O" and len(values) else ""
    found = _DATE.fullmatch(label.strip()) if calendar and isinstance(label, str) else None
    if found is None:
        return label
    import cftime

    fields = (int(each or least) for each, least in zip(found.groups(), _FIRST, strict=True))
    try:
        return cftime.datetime(*fields, calendar=calendar)
    except ValueError:  # the calendar has no such date
        return label


def _spell(value: Any) -> str:
    if _calendar_of(value):
        return str(value.isoformat()).removesuffix("T00:00:00")
    is_time = isinstance(value, np.datetime64) and not np.isnat(value)
    return str(np.datetime_as_string(value, unit="auto") if is_time else value)


_MOST = 1000  # chunks that are listed
_SEARCHED = 500  # commits, newest first, whose logs are read for the one that wrote a chunk


def value_source(
    session: Session, variable: str, at: Mapping[str, Any], *, nearest: bool = False
) -> ValueSource:
    """Return the chunks that hold the values with these labels.

    Args:
        session: A version of a repository; its coordinates are read.
        variable: Path of an array; in a group with eras without the era's name.
        at: A label for each dimension that has one; of the others all chunks are listed.
        nearest: Take the nearest label where there is none that is equal.

    Raises:
        NodeNotFoundError: There is no such array.
        InvalidInputError: A label is not there, or is ambiguous, or the values lie in too many
            chunks.
    """
    store = IcevirtStore(session)
    path = paths.canonical(variable)
    found = places_of(store, session.snapshot, path, dict(at), nearest=nearest)
    writers = Writers(session)
    chunks = []
    for node, chunk in _chunks(session, found):
        source = source_of_chunk(session, node.path, chunk)
        modified = source.last_modified
        origin = ChunkOrigin(
            array=node.path,
            chunk=source.chunk,
            kind=source.kind.name,  # type: ignore[arg-type]
            location=source.url,
            offset=source.offset,
            length=source.length,
            etag=source.etag,
            last_modified=datetime.fromtimestamp(modified, UTC) if modified else None,
            written_by=writers.of(node.id, chunk),
        )
        chunks.append(origin)
    return ValueSource(
        repo=session.assets.storage.url,
        snapshot_id=str(session.snapshot_id),
        variable=path,
        at=found.labels,
        index=found.index,
        chunks=tuple(chunks),
    )


def _chunks(session: Session, found: LabeledPlace) -> Iterator[tuple[ArrayNode, tuple[int, ...]]]:
    """Yield the chunks of an array at a place, all of them along other dimensions."""
    node, index = session.array(found.path), found.index
    if 0 in node.shape:
        return
    first = chunk_of(node, [index.get(name, 0) for name in found.dimensions])
    choices = [
        [at] if name in index else range(number)
        for at, name, number in zip(first, found.dimensions, node.num_chunks, strict=True)
    ]
    if (number := math.prod(map(len, choices))) > _MOST:
        raise InvalidInputError(
            f"these values lie in {number:,} chunks",
            do="Give labels for more dimensions.",
            variable=found.path,
            dimensions=list(found.dimensions),
            given=list(index),
        )
    yield from ((node, chunk) for chunk in product(*choices))


class Writers:
    """Finds the newest commit that wrote a chunk, from transaction logs, newest first.

    A log is read once, for however many chunks.
    """

    def __init__(self, session: Session) -> None:
        self._assets = session.assets
        self._unread = islice(_summaries(session), _SEARCHED)
        self._read: list[tuple[TransactionLog, SnapshotSummary | None]] = []

    def of(self, node: ObjectId8, chunk: Sequence[int]) -> WrittenBy | None:
        """Return the commit; None if no log that is there lists the chunk or the array's birth."""
        for log, summary in self._logs():
            listed = log.updated_chunks.get(node)
            wrote = (
                listed is not None
                and listed.shape[1] == len(chunk)
                and bool((listed == np.array(chunk, listed.dtype)).all(axis=1).any())
            )
            if not wrote and node not in log.new_arrays:
                continue
            if summary is None:
                return WrittenBy(snapshot_id=str(log.id))
            build = summary.metadata.get(BUILD_ID)
            return WrittenBy(
                snapshot_id=str(log.id),
                written_at=moment(summary.flushed_at),
                message=summary.message,
                build_id=build if isinstance(build, str) else None,
            )
        return None

    def _logs(self) -> Iterator[tuple[TransactionLog, SnapshotSummary | None]]:
        yield from self._read
        for summary in self._unread:
            for key in (summary.id, *reversed(summary.pruned_ancestor_tx_logs or ())):
                try:
                    log = self._assets.transaction_log(key)
                except ObjectNotFoundError:  # what older commits wrote may be overwritten by it
                    self._unread = islice(self._unread, 0)
                    return
                self._read.append((log, summary if key == summary.id else None))
                yield self._read[-1]


def _summaries(session: Session) -> Iterator[SnapshotSummary]:
    info = RepoInfoFile(session.assets.storage).read().info
    with suppress(SnapshotNotFoundError):  # it has expired since the session began
        yield from lookup.ancestry(info, ObjectId12.parse(session.snapshot_id))
