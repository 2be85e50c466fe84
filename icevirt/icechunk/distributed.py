"""Merge what many workers wrote."""

from __future__ import annotations

from typing import Any

from icevirt.access.dask_arrays import flat
from icevirt.icechunk.session import ForkSession, Session
from icevirt.repo import session as engine

__all__ = ["extract_session", "merge_sessions"]


def extract_session(zarray: Any, axis: Any = None, keepdims: Any = None) -> Session:
    """Return the session of a zarr array; the other arguments are those of reductions."""
    del axis, keepdims
    session: Session = zarray.store.session
    return session


def merge_sessions(*sessions: Any) -> ForkSession:
    """Merge forks of a session into the first of them.

    Args:
        sessions: Forks, or lists of them, nested as reductions of arrays leave them.

    Raises:
        TypeError: One is not a fork.
    """
    first, *others = flat(sessions)
    check_forks(first, *others)
    merged: ForkSession = first
    merged.merge(*others)
    return merged


def check_forks(*sessions: Any) -> None:
    """Check that sessions are forks, which can be merged. Raises ``TypeError``."""
    for session in sessions:
        if not isinstance(session, engine.ForkSession):
            raise TypeError(
                f"merge_sessions takes forks. Received {type(session).__name__!r}. Merge forks into"
                " their session by session.merge(*forks)."
            )
