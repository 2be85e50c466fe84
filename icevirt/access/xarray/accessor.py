"""Give datasets of the engine ``icevirt`` the accessor `ds.icevirt`; importing this registers it.

The engine imports it when it opens the first dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import xarray as xr

from icevirt.errors import InvalidInputError
from icevirt.escaping import escape_line
from icevirt.model import paths
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning.lookup import branch_tip

if TYPE_CHECKING:
    from icevirt.access.columns.twin_array import ArrayChoices
    from icevirt.access.store.zarr_store import IcevirtStore
    from icevirt.archive.reports.history import ValueSource
    from icevirt.objects.chunk_cache import ChunkCacheCounts

_KEY = "icevirt"  # of the encoding of a dataset


class OpenedGroup:
    """The version and group that a dataset shows; it is in ``ds.encoding["icevirt"]``."""

    def __init__(self, store: IcevirtStore, group: str, options: Mapping[str, Any]) -> None:
        self.store = store
        self.session = store.session
        self.group = group
        self.options = options  # of the engine, by which it was opened

    def __deepcopy__(self, _memo: object) -> OpenedGroup:
        return self  # it never changes

    def __repr__(self) -> str:
        at = f"{self.session.assets.storage.url}@{self.session.snapshot_id}"
        return escape_line(f"<icevirt {at} {self.group}>")


def remember(
    ds: xr.Dataset, store: IcevirtStore, group: str, options: Mapping[str, Any]
) -> xr.Dataset:
    """Note in a dataset what it shows, and how it was opened, for the accessor."""
    ds.encoding[_KEY] = OpenedGroup(
        store, group, {**{k: v for k, v in options.items() if k != "level"}, "group": group}
    )
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
        from icevirt.access.value_source import value_source

        opened = self._require_opened(
            "one that was computed has no source. Or call icevirt.source(repo, variable, at={...})."
        )
        path = paths.join(opened.group, variable)
        return value_source(opened.session, path, {**(at or {}), **labels}, nearest=nearest)

    def pipelines(self) -> dict[str, str]:
        """Return how the values of each array are decoded.

        Returns:
            By path below the group: ``columns``, where a selection is read by one plan in the
            calling process; or ``zarr`` and why zarr's own pipeline reads the array, chunk by chunk
            and several times slower.

        Raises:
            InvalidInputError: The dataset was computed, or opened by another engine.
        """
        from icevirt.access.columns.stored_array import StoredArray
        from icevirt.model.snapshot import ArrayNode

        opened = self._require_opened("one that was computed is not read any more.")
        session = opened.session
        top = paths.canonical(opened.group).rstrip("/")
        found = {}
        for node in session.snapshot.below(top or paths.ROOT):
            if isinstance(node, ArrayNode):
                why = StoredArray(session.store, node).why_zarr
                name = node.path.removeprefix(f"{top}/")
                found[name] = "columns" if why is None else f"zarr: {why}"
        return found

    @property
    def chunk_cache(self) -> ChunkCacheCounts | None:
        """What this process took from the cache of chunks, and fetched; None where none is used.

        It was opened with ``chunk_cache``; datasets that were sent to other processes count there.
        """
        opened = self._require_opened("one that was computed is not read any more.")
        cache = opened.store.reader.locator.cache
        return None if cache is None else cache.counts

    def explain(self, selection: Mapping[str, Any] | None = None, /, **labels: Any) -> ArrayChoices:
        """Return from which chunks a selection of each variable is read, and what that takes.

        Where a variable has a twin (`icevirt.materialize` with ``beside``), both are weighed: by
        the chunks that the selection touches, and the bytes of the values in them. Nothing is read.

        Args:
            selection: Labels by dimension, as for `xarray.Dataset.sel`.
            labels: The same by keyword: ``lat=10, time=slice("2001", "2004")``.

        Raises:
            InvalidInputError: A label is not there; or the dataset was computed, or opened by
                another engine.
        """
        import numpy as np

        from icevirt.access.xarray.datastore import IcevirtDataStore

        opened = self._require_opened("one that was computed is not read any more.")
        sizes, asked = self._ds.sizes, {**(selection or {}), **labels}
        places = xr.Dataset(
            {f"/{dim}": (dim, np.arange(size)) for dim, size in sizes.items()},
            coords={name: self._ds[name] for name in self._ds.indexes},
        )
        try:
            chosen = places.sel(asked)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise InvalidInputError(
                f"the dataset has no such selection: {error}",
                do="Pass labels as for ds.sel().",
                selection=sorted(map(str, asked)),
            ) from error
        session, layout = opened.session, opened.options.get("layout", "auto")
        store = IcevirtDataStore(opened.store, session.snapshot, opened.group or "/", layout)
        return store.explain({str(d): np.atleast_1d(chosen[f"/{d}"].values) for d in sizes})

    def refresh(self, **options: Any) -> xr.Dataset:
        """Return the dataset as the tip of its branch shows it now.

        It is opened as this one was, with the same authorization and decoding; selections and
        computations are not repeated. If the branch did not move, this dataset is returned. A
        process that reads for days calls this before the version that it shows expires:
        `icevirt maintain` says when that is.

        Args:
            options: Further arguments of ``xarray.open_dataset``, like ``chunks={}``, which are not
                remembered.

        Raises:
            InvalidInputError: The dataset was computed, or opened by another engine; or it was
                opened by a tag, a snapshot or a time, which does not move.
            RefNotFoundError: The branch is gone.
        """
        opened = self._require_opened("one that was computed cannot be opened again.")
        pins = ("tag", "snapshot_id", "as_of")
        if pinned := [name for name in pins if opened.options.get(name) is not None]:
            raise InvalidInputError(
                "this dataset shows one version, which never changes",
                do="Open it by a branch, and refresh that one.",
                opened_by=pinned[0],
            )
        session = opened.session
        branch = opened.options.get("branch") or "main"
        info = RepoInfoFile(session.assets.storage).read().info
        if not options and str(branch_tip(info, branch)) == str(session.snapshot_id):
            return self._ds
        known = {**opened.options, "branch": branch}
        known.pop("storage_options", None)  # the storage is open
        return xr.open_dataset(session.assets.storage, engine="icevirt", **known, **options)  # type: ignore[arg-type]

    def _require_opened(self, why: str) -> OpenedGroup:
        opened = self._ds.encoding.get(_KEY)
        if not isinstance(opened, OpenedGroup):
            raise InvalidInputError(
                "this dataset does not say which repository it shows",
                do=f"Open it with engine='icevirt', and ask that dataset: {why}",
            )
        return opened
