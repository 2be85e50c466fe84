"""Write dask arrays to a session: each task writes one block with a fork, and forks are merged.

A fork pickles, so this works with threads, processes and clusters. Two processes that write into
one chunk of an array side by side would lose values, so such blocks are refused, or aligned.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr

from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import InvalidInputError, ReadOnlyError
from icevirt.repo.session import ForkSession, Session

if TYPE_CHECKING:
    from dask.array import Array as DaskArray

type Region = tuple[slice, ...]


class Write(NamedTuple):
    """A dask array, the path of the array that takes it, and where in it."""

    source: Any
    path: str
    region: Region


def store_dask(
    sources: DaskArray | Sequence[DaskArray],
    targets: zarr.Array[Any] | Sequence[zarr.Array[Any]],
    *,
    regions: Region | Sequence[Region | None] | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    split_every: int | None = None,
    **options: Any,
) -> None:
    """Write dask arrays into arrays of a writable session. Nothing is committed.

    Every block is written by the worker that computed it, whatever the scheduler: threads,
    processes or a distributed cluster. The session takes over all changes, or none. Blocks that
    several sources need are computed once.

    Numbers are converted to the dtype of their target if all have their value there; floats may
    lose digits, but not become infinite. An integer that does not fit, and an object that is no
    text where texts are stored, is refused when its block is written.

    Args:
        sources: dask arrays.
        targets: A zarr array for each, opened from ``session.store``.
        regions: Where to write in each target, as slices; the whole by default.
        safe_chunks: Refuse blocks that share a chunk of the target before anything is written.
            Otherwise tasks of this process take turns, and those of other processes are refused at
            the end.
        align_chunks: Rechunk sources so that they do not.
        split_every: How many forks are merged at once.
        **options: For `dask.compute`: a scheduler, say.

    Raises:
        ReadOnlyError: The session is read-only.
        InvalidInputError: A target is of another store, a shape, dtype or value does not fit, or
            blocks share a chunk.
        ConflictError: Two tasks of other processes wrote into one chunk.
    """
    whole = match(sources, targets, regions)
    session = _session_of([target.store for _, target, _ in whole])
    writes = []
    for source, target, region in whole:
        box = _box(source, target, region)
        grid = [_edges(0, sizes) for sizes in target.write_chunk_sizes]
        aligned = _align(source, grid, box) if align_chunks else source
        if safe_chunks:
            _refuse_shared(aligned, grid, box, target.path)
        writes.append((Write(aligned, target.path, box), grid))
    if safe_chunks:
        _refuse_neighbors(writes)
    write_with_forks(
        session, [write for write, _grid in writes], split_every=split_every, options=options
    )


def write_with_forks(
    session: Session,
    writes: Sequence[Write],
    *,
    split_every: int | None,
    options: Mapping[str, Any],
) -> None:
    """Write arrays block by block with forks of a session, and merge them into it.

    Tasks of this process share one fork, and take turns where blocks meet within a chunk. Those of
    other processes have one each, and the merge refuses a chunk that two of them wrote.
    """
    from dask.base import compute
    from dask.delayed import delayed

    fork = delayed(_Fork(session.fork()), pure=False, traverse=False)
    forks = [
        merge_by_tree(_write_lazily(write, fork), _as_it_is, _merge, split_every=split_every)
        for write in writes
        if write.source.size
    ]
    # all at once, so that what two arrays need is computed once
    session.merge(*_distinct(compute(*forks, **options)))  # type: ignore[no-untyped-call]


class _Fork:
    """What tasks write with: one fork in this process, and elsewhere one for each task."""

    def __init__(self, fork: ForkSession) -> None:
        self._fork = fork

    def open(self) -> ForkSession:
        """Return the fork."""
        return self._fork

    def __reduce__(self) -> tuple[Any, ...]:
        return _PackedFork, (pickle.dumps(self._fork),)


class _PackedFork:
    """The same in another process."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def open(self) -> ForkSession:
        """Return a fork for this task."""
        session: ForkSession = pickle.loads(self._raw)  # noqa: S301 - made above
        return session


def _write_lazily(write: Write, fork: Any) -> Any:
    """Return an array of forks, one for each block, which writes when it is computed."""
    from dask.array.core import ArraySliceDep  # type: ignore[attr-defined] # not in its __all__

    return write.source.map_blocks(
        _write,
        fork,
        ArraySliceDep(write.source.chunks),
        path=write.path,
        region=write.region,
        token="icevirt-write",  # noqa: S106 - of the task's name
        meta=np.empty((0,) * write.source.ndim, dtype=object),
    )


def _write(
    values: Any, fork: _Fork | _PackedFork, at: Region, *, path: str, region: Region
) -> ForkSession:
    """Write one block."""
    from dask.array.optimization import fuse_slice

    from icevirt.access.store.naming_pipeline import take_turns

    session = fork.open()
    place = fuse_slice(region, at)  # type: ignore[no-untyped-call]
    array = zarr.open_array(IcevirtStore(session), path=path, mode="r+")
    converted = _convert(values, array)
    take_turns(array)
    array[place or ...] = converted
    return session


def merge_by_tree(
    blocks: Any,
    chunk: Callable[..., Any],
    aggregate: Callable[..., Any],
    *,
    split_every: int | None,
    **options: Any,
) -> Any:
    """Return the lazy merge of forks: ``chunk`` makes one of a block, ``aggregate`` merges lists.

    Both take the arguments of reductions, ``axis`` and ``keepdims``, too.
    """
    from dask.array import reduction

    return reduction(  # type: ignore[no-untyped-call]
        blocks,
        name="icevirt-forks",
        chunk=computing_meta(chunk),
        aggregate=computing_meta(aggregate),
        split_every=split_every,
        concatenate=False,
        keepdims=False,
        dtype=object,
        meta=_nothing(),
        **options,
    )


def computing_meta(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that dask may call without data, to learn what it returns."""

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _nothing() if kwargs.pop("computing_meta", False) else func(*args, **kwargs)

    return call


def _nothing() -> Any:
    return np.array([object()], dtype=object)


def _as_it_is(fork: ForkSession, axis: Any = None, keepdims: Any = None) -> ForkSession:
    del axis, keepdims
    return fork


def _merge(forks: Any, axis: Any = None, keepdims: Any = None) -> ForkSession:
    del axis, keepdims
    first: ForkSession
    first, *others = _distinct(flat(forks))
    first.merge(*others)
    return first


def _distinct(forks: Iterable[ForkSession]) -> list[ForkSession]:
    return [*{id(fork): fork for fork in forks}.values()]


def flat(nested: Any) -> list[Any]:
    """Return the items of lists in lists, as reductions of arrays leave them."""
    if not isinstance(nested, list | tuple):
        return [nested]
    return [item for each in nested for item in flat(each)]


# -- what is refused -------------------------------------------------------------------------


def match(
    sources: Any, targets: Any, regions: Any
) -> list[tuple[Any, zarr.Array[Any], Region | None]]:
    """Return each source with its target and region, of what dask's own ``store`` takes.

    Raises:
        InvalidInputError: There are not as many of each, or a source is not a dask array.
    """
    import dask.array

    many = [sources] if isinstance(sources, dask.array.Array) else list(sources)
    places = [targets] if isinstance(targets, zarr.Array) else list(targets)
    is_one = regions is None or isinstance(regions, tuple)  # for all
    boxes = [regions] * len(many) if is_one else list(regions)
    if not many or not len(many) == len(places) == len(boxes):
        raise InvalidInputError(
            "there is not one target and one region for each source",
            do="Pass lists of the same length.",
            sources=len(many),
            targets=len(places),
            regions=len(boxes),
        )
    for source in many:
        if not isinstance(source, dask.array.Array):
            raise InvalidInputError(
                "a source is not a dask array",
                do="Make one by dask.array.from_array, or write it yourself: target[...] = values.",
                type=type(source).__name__,
            )
    return list(zip(many, places, boxes, strict=True))


def _session_of(stores: Iterable[Any]) -> Session:
    """Return the one session behind the stores of all targets."""
    found: dict[int, Session] = {}
    for store in stores:
        if not isinstance(store, IcevirtStore):
            raise InvalidInputError(
                "a target is not an array of an icevirt session",
                do='Open it by zarr.open_array(session.store, path="...", mode="r+").',
                store=type(store).__name__,
            )
        found[id(store.session)] = store.session
    if len(found) != 1:
        raise InvalidInputError(
            "all targets belong to one session",
            do="Call store_dask for each session.",
            sessions=len(found),
        )
    (session,) = found.values()
    if session.read_only:
        raise ReadOnlyError(
            "this session is read-only",
            do="Open a writable one with `repo.writable_session(branch)`.",
            snapshot=session.snapshot_id,
        )
    return session


def _box(source: Any, target: zarr.Array[Any], region: tuple[Any, ...] | None) -> Region:
    """Return a region that a source fills, with its bounds. Raises as `place`."""
    given: tuple[Any, ...] = (slice(None),) * target.ndim if region is None else region
    facts = {"path": target.path, "region": given, "source": source.shape, "target": target.shape}
    if len(given) != target.ndim or any(
        not isinstance(each, slice) or (each.step or 1) != 1 for each in given
    ):
        raise InvalidInputError(
            "a region is one slice of step 1 for each dimension of its target",
            do="Write (slice(0, 10), slice(None)).",
            **facts,
        )
    box = place(source, target, given)
    if tuple(each.stop - each.start for each in box) != source.shape:
        raise InvalidInputError(
            "a dask array does not have the shape of the region that it is written to",
            do="Resize the target first, target.resize(shape), or pass another region.",
            **facts,
        )
    return box


def place(source: Any, target: zarr.Array[Any], region: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Return a region with its bounds, of which a source may leave some out at the end.

    It may have numbers for dimensions that the source does not have, as dask takes them.

    Raises:
        InvalidInputError: The source does not fit, so that values would be lost.
    """
    try:
        given = region or ()
        given = (*given, *[slice(None)] * (target.ndim - len(given)))
        box = tuple(
            slice(*each.indices(length)) if isinstance(each, slice) else range(length)[each]
            for each, length in zip(given, target.shape, strict=True)
        )
        slices = [each for each in box if isinstance(each, slice)]
        rooms = [len(range(each.start, each.stop, each.step)) for each in slices]
        fits = all(have <= room for have, room in zip(source.shape, rooms, strict=True))
    except (IndexError, TypeError, ValueError):  # outside, no number, too many or too few
        fits = False
    if not fits or any(each.step < 0 for each in slices):
        raise InvalidInputError(
            "a dask array does not fit into the region that it is written to",
            do="Resize the target first, target.resize(shape), or pass another region: a slice for"
            " each dimension of the array, with a step above zero.",
            path=target.path,
            region=region,
            source=source.shape,
            target=target.shape,
        )
    if not _keeps_values(source.dtype, target.dtype):
        raise InvalidInputError(
            "the values of a dask array do not fit into the dtype of its target",
            do=f"Convert them yourself: array.astype({str(target.dtype)!r}).",
            path=target.path,
            source_dtype=str(source.dtype),
            target_dtype=str(target.dtype),
        )
    return box


def _keeps_values(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Say whether a dtype may take the values of another; `_convert` looks at the values."""
    if source.kind == "O":
        return target.kind in "OT"  # texts of any length
    return np.can_cast(source, target, "safe" if target.kind in "USMm" else "same_kind")


def _convert(values: Any, target: zarr.Array[Any]) -> Any:
    """Return a block in the dtype of its target. Raises if a value would become another one."""
    dtype = target.dtype
    have = getattr(values, "dtype", dtype)
    if have.kind == "O" and dtype.kind == "T":
        try:  # others would become texts, and None "None"
            return np.asarray(values).astype(np.dtypes.StringDType(coerce=False)).astype(dtype)
        except ValueError as error:
            raise _value_error(have, target) from error
    if have == dtype or have.kind not in "iufcmM" or dtype.kind not in "iufcmM":
        return values
    if have.kind not in "mM" and np.can_cast(have, dtype, "safe"):
        return values
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        try:
            converted = values.astype(dtype)
        except OverflowError as error:  # of times, in recent versions of NumPy
            raise _value_error(have, target) from error
        if have.kind in "fc":
            kept = np.isfinite(converted) | ~np.isfinite(values)
        elif dtype.kind in "iu":
            kept = converted == values
        else:  # there and back
            kept = converted.astype(have) == values
            if have.kind in "mM":
                kept |= np.isnat(values)
    if not kept.all():
        raise _value_error(have, target, example=str(values[~kept].flat[0]))
    return converted


def _value_error(have: Any, target: zarr.Array[Any], **facts: Any) -> InvalidInputError:
    return InvalidInputError(
        "a value of a dask array does not fit into the dtype of its target",
        do="Write it to an array of a dtype that holds all values, or convert them yourself:"
        f" array.astype({str(target.dtype)!r}).",
        path=target.path,
        source_dtype=str(have),
        target_dtype=str(target.dtype),
        **facts,
    )


def _edges(start: int, sizes: Iterable[int]) -> list[int]:
    return list(accumulate(sizes, initial=start))


def _align(source: Any, grid: Sequence[Sequence[int]], box: Region) -> Any:
    """Return the source with blocks that end where chunks of the target end."""
    chunks = []
    for sizes, edges, place in zip(source.chunks, grid, box, strict=True):
        inner = _edges(place.start, sizes)[1:-1]
        ends = np.asarray(edges)[np.searchsorted(edges, inner, side="right") - 1].tolist()
        kept = sorted({place.start, place.stop, *(each for each in ends if each > place.start)})
        chunks.append(tuple(stop - start for start, stop in pairwise(kept)) or (0,))
    return source.rechunk(tuple(chunks))


def _refuse_shared(source: Any, grid: Sequence[Sequence[int]], box: Region, path: str) -> None:
    """Refuse blocks that meet within a chunk of the target."""
    for axis, (sizes, edges, place) in enumerate(zip(source.chunks, grid, box, strict=True)):
        inner = set(_edges(place.start, sizes)[1:-1])
        if wrong := sorted(inner.difference(edges)):
            raise InvalidInputError(
                "two blocks of a dask array would write into one chunk, and lose values",
                do="Pass align_chunks=True, rechunk the array, or write by one task.",
                path=path,
                axis=axis,
                at=wrong[:5],
                chunks=tuple(np.diff(edges)[:3].tolist()),
            )


def _refuse_neighbors(writes: Sequence[tuple[Write, Sequence[Sequence[int]]]]) -> None:
    """Refuse two sources that write into one chunk of a target."""
    by_path: dict[str, list[tuple[tuple[int, int], ...]]] = {}
    for write, grid in writes:
        spans = tuple(
            (
                int(np.searchsorted(edges, place.start, side="right")) - 1,
                int(np.searchsorted(edges, place.stop, side="left")),
            )
            for edges, place in zip(grid, write.region, strict=True)
        )
        for other in by_path.setdefault(write.path, []):
            if all(a < d and c < b for (a, b), (c, d) in zip(spans, other, strict=True)):
                raise InvalidInputError(
                    "two dask arrays would write into one chunk of a target, and lose values",
                    do="Write them one after the other, or into regions that end with chunks.",
                    path=write.path,
                    region=write.region,
                )
        by_path[write.path].append(spans)
