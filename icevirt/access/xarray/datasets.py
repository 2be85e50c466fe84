"""Make Datasets of the groups of a snapshot, read from a store over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xarray import Dataset
from xarray.backends.store import StoreBackendEntrypoint
from zarr.abc.store import Store

from icevirt.access.xarray.datastore import IcevirtDataStore
from icevirt.access.xarray.decoding_options import DECODERS
from icevirt.access.xarray.era_groups import eras_around, groups_with_eras, refuse_lacking
from icevirt.access.xarray.eras import concatenated
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.model import paths
from icevirt.model.snapshot import GroupNode, Snapshot


def dataset_of(store: Store, snapshot: Snapshot, group: str, decoders: dict[str, Any]) -> Dataset:
    """Return a group of a snapshot as a dataset, read from a store over it."""
    found = IcevirtDataStore(store, snapshot, group)
    if not decoders.keys() <= set(DECODERS):
        return StoreBackendEntrypoint().open_dataset(found, **decoders)  # which says what is wrong
    try:
        return StoreBackendEntrypoint().open_dataset(found, **decoders)
    except (IcevirtError, Warning):
        raise
    except Exception as error:
        raise InvalidInputError(
            f"xarray cannot build a dataset from the variables of this group: {error}",
            do="Pass decode_cf=False to read them as they are stored, or leave out the variables"
            " that the error names: drop_variables=[...].",
            group=group,
        ) from error


def of_all_eras(store: Store, snapshot: Snapshot, group: str, decoders: dict[str, Any]) -> Dataset:
    """Return a group of all eras as one dataset; one that has no eras as it is."""
    around = eras_around(snapshot, group)
    if around is None:
        return dataset_of(store, snapshot, group, decoders)
    eras, inner = around
    refuse_lacking(snapshot, eras, inner)
    datasets = [dataset_of(store, snapshot, path, decoders) for path in eras.below(inner)]
    return concatenated(datasets, eras, group=group)


def groups_of_all_eras(
    store: Store, snapshot: Snapshot, group: str, decoders: dict[str, Any]
) -> dict[str, Dataset]:
    """Return a group and those below it, as if eras were one."""
    top = paths.canonical(group)
    return {
        path.removeprefix(top.rstrip("/")) if path != top else paths.ROOT: of_all_eras(
            store, snapshot, path, decoders
        )
        for path in groups_with_eras(snapshot, top)
    }


def groups_below(snapshot: Snapshot, group: str) -> Iterable[tuple[str, str]]:
    """Yield a group and those below it, as (relative path, path)."""
    top = snapshot.node(paths.canonical(group)).path
    yield paths.ROOT, top
    for node in snapshot.below(top):
        if isinstance(node, GroupNode):
            yield node.path.removeprefix(top.rstrip("/")), node.path
