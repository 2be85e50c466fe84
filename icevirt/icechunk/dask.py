"""Write dask arrays with one fork of a session for each task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from icevirt.access.dask_arrays import computing_meta, merge_by_tree
from icevirt.errors import refuse_missing
from icevirt.icechunk.distributed import extract_session, merge_sessions
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
    sources: list[Any],
    targets: list[Any],
    regions: list[tuple[slice, ...]] | None = None,
    split_every: int | None = None,
    **store_kwargs: Any,
) -> ForkSession:
    """Write dask arrays into zarr arrays, and return the merged fork of the session.

    Args:
        sources: dask arrays.
        targets: A zarr array for each, of a fork's store.
        regions: Where to write in each target.
        split_every: How many forks are merged at once.
        **store_kwargs: As for `dask.array.store`, less ``compute``, ``return_stored``,
            ``load_stored`` and ``lock``.
    """
    stored = dask.array.store(
        sources=sources,
        targets=targets,
        regions=regions,
        compute=False,
        return_stored=True,
        load_stored=False,
        lock=False,
        **store_kwargs,
    )
    return session_merge_reduction(stored, split_every=split_every, **store_kwargs)


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
