"""Hold what opens a dataset in this process, for a report that must not carry it elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xarray import Dataset, DataTree


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


def opened(place: Any, options: Mapping[str, Any]) -> Dataset | DataTree:
    """Open a group in xarray; one that holds nothing but other groups as the tree of these.

    Args:
        place: Of the repository.
        options: Arguments of ``xarray.open_dataset``.
    """
    import xarray as xr

    dataset = xr.open_dataset(place, engine="icevirt", **options)
    if dataset.variables or options.get("eras") or options.get("drop_variables"):
        return dataset
    tree = xr.open_datatree(place, engine="icevirt", **options)
    return tree if any(node.variables for node in tree.subtree) else dataset


def holds_groups_only(group: str, arrays: Iterable[str]) -> bool:
    """Say whether a group has arrays in groups below it, and none of its own; given their paths."""
    above = group.rstrip("/") + "/"
    below = [path.removeprefix(above) for path in arrays if path.startswith(above)]
    return bool(below) and all("/" in path for path in below)
