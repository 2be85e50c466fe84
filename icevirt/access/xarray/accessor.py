"""Give datasets of the engine ``icevirt`` the accessor `ds.icevirt`; importing this registers it.

The engine imports it when it opens the first dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xarray as xr

from icevirt.access.value_source import value_source
from icevirt.archive.reports.value_source import ValueSource
from icevirt.errors import InvalidInputError
from icevirt.model import paths

if TYPE_CHECKING:
    from icevirt.repo.session import Session

_KEY = "icevirt"  # of the encoding of a dataset


class OpenedGroup:
    """The version and group that a dataset shows; it is in ``ds.encoding["icevirt"]``."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.group = group

    def __deepcopy__(self, _memo: object) -> OpenedGroup:
        return self  # it never changes

    def __repr__(self) -> str:
        return (
            f"<icevirt {self.session.assets.storage.url}@{self.session.snapshot_id} {self.group}>"
        )


def remember(ds: xr.Dataset, session: Session, group: str) -> xr.Dataset:
    """Note in a dataset what it shows, for the accessor."""
    ds.encoding[_KEY] = OpenedGroup(session, group)
    return ds


@xr.register_dataset_accessor("icevirt")  # type: ignore[no-untyped-call]
class IcevirtAccessor:
    """What icevirt knows of a dataset that it opened: ``ds.icevirt``."""

    def __init__(self, ds: xr.Dataset) -> None:
        self._ds = ds

    def source(
        self,
        variable: str,
        at: dict[str, Any] | None = None,
        /,
        *,
        nearest: bool = False,
        **labels: Any,
    ) -> ValueSource:
        """Return the file and bytes that values are decoded from; see `icevirt.source`.

        Args:
            variable: The variable, by the name that it has in the repository.
            at: Labels by dimension, where a name is no Python name.
            nearest: Take the nearest label where none is equal.
            labels: Labels by dimension: ``time="2020-01-05"``.

        Raises:
            InvalidInputError: The dataset was computed, or opened by another engine; otherwise as
                `icevirt.source`.
        """
        opened = self._ds.encoding.get(_KEY)
        if not isinstance(opened, OpenedGroup):
            raise InvalidInputError(
                "this dataset does not say which repository it shows",
                do="Open it with engine='icevirt', and ask that dataset: one that was computed has"
                " no source. Or call icevirt.source(repo, variable, at={...}).",
            )
        path = paths.join(opened.group, variable)
        return value_source(opened.session, path, {**(at or {}), **labels}, nearest=nearest)
