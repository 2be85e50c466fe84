"""Refuse a persisted setting that makes other writers overwrite acknowledged commits.

Where the official client cannot write conditionally, on a local disk, it persists the settings for
that together with the first container. In a copy of such a repository on an object store it obeys
them: it replaces `repo` unconditionally, and the commits of others are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.errors import StorageError

_SETTING = "unsafe_use_conditional_update"
_ONE_MACHINE = ("file:", "memory:")  # no place for the official client to write at the same time


def refuse_unconditional(config: Mapping[str, Any] | None, url: str) -> None:
    """Check a configuration with which the repository at ``url`` would be published.

    Raises:
        StorageError: Other writers to this object store would not write conditionally.
    """
    settings = (config or {}).get("storage")
    if url.startswith(_ONE_MACHINE) or not isinstance(settings, Mapping):
        return
    if settings.get(_SETTING) is False:
        raise StorageError(
            "the configuration of this repository allows unconditional writes, as on a local "
            "disk: commits would be lost",
            do="Stop other writers, then run `repo.config.storage = None; repo.save_config()`.",
            repo=url,
            setting=f"storage.{_SETTING}",
        )
