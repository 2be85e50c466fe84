"""Write dask arrays with one fork of a session for each task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from icevirt.access.dask_arrays import (
    Write,
    computing_meta,
    match,
    merge_by_tree,
    place,
    write_with_forks,
)
from icevirt.errors import refuse_missing
from icevirt.icechunk.distributed import check_forks, extract_session, merge_sessions
from icevirt.icechunk.session import ForkSession

with refuse_missing("icevirt.icechunk.dask"):
    import dask
    import dask.array

_compute: Callable[..., Any] = dask.compute  # type: ignore[attr-defined] # not in its __all__

__all__ = [
    "computing_meta",
    "merge_sessions_array_kwargs",
    "session_merge_reduction",
    "store_dask",
]


def store_dask(
    *,
    sources: Any,
    targets: Any,
    regions: Any = None,
    split_every: int | None = None,
    **store_kwargs: Any,
) -> ForkSession:
    """Write dask arrays into zarr arrays, and return the merged fork of the session.

    Values that the dtype of a target does not hold are refused, as by `icevirt.store_dask`.

    Args:
        sources: dask arrays, or one.
        targets: A zarr array for each, of a fork's store.
        regions: Where to write in each target, or one tuple for all.
        split_every: How many forks are merged at once.
        **store_kwargs: For `dask.compute`: a scheduler, say.

    Raises:
        TypeError: A target is not of a fork's store.
        InvalidInputError: A source is not a dask array, or does not fit into its target.
        ConflictError: Two tasks of other processes wrote into one chunk of a target.
    """
    by_session: dict[Any, list[Write]] = {}
    for source, target, region in match(sources, targets, regions):
        session = extract_session(target)
        check_forks(session)
        write = Write(source, target.path, place(source, target, region))
        by_session.setdefault(session, []).append(write)
    for session, writes in by_session.items():
        write_with_forks(session, writes, split_every=split_every, options=store_kwargs)
    return merge_sessions(*by_session)


def session_merge_reduction(
    arrays: Any, *, split_every: int | None, **store_kwargs: Any
) -> ForkSession:
    """Merge the forks behind the chunks of stored arrays, as a tree.

    Raises:
        TypeError: One is not a dask array.
    """
    many = arrays if isinstance(arrays, list | tuple) else [arrays]
    for array in many:
        if not isinstance(array, dask.array.Array):
            raise TypeError(f"Expected a dask array, received {type(array)!r}")
    return merge_sessions(
        *_compute(
            *(
                merge_by_tree(
                    array,
                    extract_session,
                    merge_sessions_array_kwargs,
                    split_every=split_every,
                    **store_kwargs,
                )
                for array in many
            )
        )
    )


def merge_sessions_array_kwargs(
    *sessions: Any, axis: Any = None, keepdims: Any = None
) -> ForkSession:
    """Merge forks; the other arguments are those of reductions."""
    del axis, keepdims
    return merge_sessions(*sessions)
