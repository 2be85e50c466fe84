"""Arrays as zarr writes them, read by the engine and by zarr's own pipeline."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from xarray.core.indexing import LazilyIndexedArray

import icevirt
from icevirt.access.columns.stored_array import open_array
from icevirt.access.xarray.datastore import LazyArray
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session


@dataclass(kw_only=True)
class Stored:
    """An array of a session, and its values as numpy has them."""

    session: Session
    values: np.ndarray
    path: str = "v"
    _piped: xr.Variable | None = None

    @property
    def why_zarr(self) -> str | None:
        return open_array(self.session, f"/{self.path}").why_zarr

    def variable(self) -> xr.Variable:
        """Return the lazy, undecoded variable of the engine."""
        lazy = LazyArray(open_array(self.session, f"/{self.path}"))
        return xr.Variable(names_of(self.values), LazilyIndexedArray(lazy))

    def by_zarr(self) -> xr.Variable:
        """Return what zarr's pipeline reads, whole."""
        found: Any = zarr.open_group(self.session.store, mode="r")[self.path]
        return xr.Variable(names_of(self.values), np.asarray(found[...]))

    def check(self, key: dict[str, Any]) -> None:
        """Compare a selection with numpy's and zarr's: values, dtype and shape.

        zarr reads the array at the first selection.
        """
        if self._piped is None:
            self._piped = self.by_zarr()
        expected = xr.Variable(names_of(self.values), self.values).isel(key)
        found, piped = self.variable().isel(key), self._piped.isel(key)
        for other in (expected, piped):
            assert found.dims == other.dims
            assert found.shape == other.shape
            np.testing.assert_array_equal(found.values, other.values)
        assert found.dtype == found.values.dtype == piped.dtype


def names_of(values: np.ndarray) -> list[str]:
    return [f"d{axis}" for axis in range(values.ndim)]


def store(
    root: Path,
    values: np.ndarray,
    *,
    missing: Collection[int] = (),
    inline: int = 0,
    split: int | None = None,
    commit: bool = True,
    **options: Any,
) -> Stored:
    """Write values.

    Args:
        root: Of the repository.
        values: The values.
        missing: Numbers of the chunks that are not written, and show the fill value.
        inline: Bytes up to which chunks lie in the manifest.
        split: Chunks of the first axis that a manifest has; all of them where None.
        commit: Whether what was written is committed; the session is the writing one otherwise.
        options: Of ``zarr.create_array``.
    """
    config = RepositoryConfig(inline_chunk_threshold_bytes=inline)
    if split is not None:
        rule = {icevirt.ManifestSplitDimCondition.Axis(0): split}
        config.manifest = icevirt.ManifestConfig(
            splitting=icevirt.ManifestSplittingConfig.from_dict(
                {icevirt.ManifestSplitCondition.AnyArray(): rule}
            )
        )
    repo = Repository.create(root, config)
    session = repo.writable_session("main")
    zarr.create_group(session.store)
    array = zarr.create_array(
        session.store, name="v", shape=values.shape, dtype=values.dtype, **options
    )
    values = values.copy()
    with zarr.config.set({"array.write_empty_chunks": True}):
        for number, box in enumerate(boxes_of(array)):
            if number in missing:
                values[box] = array.fill_value
            else:
                array[box] = values[box]
    if commit:
        session.commit("values")
        session = repo.readonly_session("main")
    return Stored(session=session, values=values)


def boxes_of(array: zarr.Array) -> list[tuple[slice, ...]]:
    """Return the chunks of an array, or its shards, which are written as a whole."""
    edges = ([0, *accumulate(sizes)] for sizes in array.write_chunk_sizes)
    return list(product(*([slice(*pair) for pair in pairwise(each)] for each in edges)))
