"""Hold what opens a dataset in this process, for a report that must not carry it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Opening:
    """A storage and credentials, as the call was given them; they stay in this process.

    Pickles and deep copies keep only which prefixes are read. What opens them is then made anew of
    the environment, where the report came to. It is no dataclass, so that `dataclasses.asdict`
    copies it.

    Args:
        storage: The repository; None: its URL leads there.
        authorization: As ``authorize_virtual_chunk_access``; None: not known yet.
    """

    __slots__ = ("authorization", "storage")

    def __init__(self, storage: Any = None, authorization: Mapping[Any, Any] | None = None) -> None:
        self.storage = storage
        self.authorization = authorization

    @property
    def prefixes(self) -> tuple[str | tuple[str, str], ...]:
        """What is read, without credentials."""
        return tuple(self.authorization or ())

    def place(self, url: str) -> Any:
        """Return what opens a repository: the storage, or its URL where there is none here."""
        return url if self.storage is None else self.storage

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle may hold."""
        return Opening, (None, None if self.authorization is None else dict.fromkeys(self.prefixes))

    def __repr__(self) -> str:
        """Say what it is; credentials have no place in a log."""
        return "<Opening>"
