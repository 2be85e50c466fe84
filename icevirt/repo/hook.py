"""How `Session.store` reaches the zarr store, which lives in a layer above.

`icevirt.access.store` provides its store when it is imported, which happens when one is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_factory: Callable[[Any], Any] | None = None
PROVIDER = "icevirt.access.store"


def provide(factory: Callable[[Any], Any]) -> None:
    """Say how a zarr store is made of a session."""
    global _factory  # noqa: PLW0603 - one provider per process, set at import
    _factory = factory


def store_of(session: Any) -> Any:
    """Return a zarr store over a session."""
    if _factory is None:
        importlib.import_module(PROVIDER)
    assert _factory is not None, f"{PROVIDER} did not call icevirt.repo.hook.provide"
    return _factory(session)
