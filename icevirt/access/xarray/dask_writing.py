"""Write dask arrays to zarr arrays from workers, each with a fork of the session.

A fork pickles, so this works with threads, processes and clusters. A worker returns what its fork
changed; values go straight to storage.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import zarr
from xarray.backends.common import ArrayWriter

from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.repo.session import ForkSession, Session

type Region = tuple[slice, ...]

_MERGED_AT_ONCE = 8


class ForkingWriter(ArrayWriter):
    """What xarray hands its arrays to: those in memory are written, dask's are kept for `run`."""

    def __init__(self, session: Session, split_every: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session
        self._split_every = split_every or _MERGED_AT_ONCE

    def run(self, options: Mapping[str, Any]) -> None:
        """Write what was kept, and take over the changes; ``options`` are those of dask."""
        from dask.base import compute
        from dask.delayed import delayed

        if not self.sources:
            return
        fork = pickle.dumps(self._session.fork())
        forks = [delayed(_write)(fork, *part) for part in self._parts()]
        while len(forks) > 1:
            groups = range(0, len(forks), self._split_every)
            forks = [delayed(_merge)(forks[at : at + self._split_every]) for at in groups]
        self._session.merge(*compute(*forks, **options))  # type: ignore[no-untyped-call]

    def _parts(self) -> Iterator[tuple[str, Region, Any]]:
        """Yield path, region and lazy values for every block of every array."""
        from dask.array.core import slices_from_chunks

        for source, target, region in zip(self.sources, self.targets, self.regions, strict=True):
            whole = region or (slice(None),) * source.ndim
            starts = [axis.start or 0 for axis in cast("Region", whole)]
            blocks = source.to_delayed().ravel()
            places = slices_from_chunks(source.chunks)  # type: ignore[no-untyped-call]
            for block, at in zip(blocks, places, strict=True):
                moved = zip(at, starts, strict=True)
                yield target.path, tuple(slice(s.start + n, s.stop + n) for s, n in moved), block


def _write(fork: bytes, path: str, region: Region, values: Any) -> ForkSession:
    """Write one block; whoever unpickles the fork has it for himself."""
    session: ForkSession = pickle.loads(fork)  # noqa: S301 - made above
    zarr.open_array(IcevirtStore(session), path=path, mode="r+")[region or ...] = values
    return session


def _merge(forks: Sequence[ForkSession]) -> ForkSession:
    first, *others = forks
    first.merge(*others)
    return first
