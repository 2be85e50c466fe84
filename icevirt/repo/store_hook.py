"""Connect `Session.store` to the zarr store, which lives in a layer above.

The one upward reference of the package, resolved by name on first use: users expect
`session.store`, and nothing below `icevirt.access` depends on zarr's stores.
"""

from __future__ import annotations

import importlib
from typing import Any


def store_of(session: Any) -> Any:
    """Return a zarr store over a session."""
    access = importlib.import_module("icevirt.access.store.zarr_store")
    return access.IcevirtStore(session, on_stale=session.on_stale)
