"""Implement `icevirt.open`: a dataset of one's own, without naming the prefixes of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icevirt.archive.reports.build import open_group
from icevirt.errors import IcevirtError

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

    from icevirt.storage.constructors import StorageLike


def open(repo: StorageLike, **options: Any) -> Dataset | DataTree:  # noqa: A001 - as h5py and rasterio have it
    """Open a dataset in xarray; what this user's own builds referred to may be read.

    A build notes the prefixes of its files in the state directory of the user who runs it, outside
    the repository. They are authorized here, with the credentials of the environment; a repository
    that others made, or that was made on another machine, authorizes nothing.

    A group without variables of its own is opened as the tree of the groups below it: that of a
    repository of eras, or of files whose variables lie in groups.

    Args:
        repo: Path or URL of the repository, or a storage.
        options: Arguments of ``xarray.open_dataset`` with ``engine="icevirt"``, like ``group``,
            ``branch`` or ``chunks``; ``authorize_virtual_chunk_access`` takes the place of what is
            noted, as it does there.

    Raises:
        RepositoryNotFoundError: There is no repository.
        UnauthorizedError: Values lie in files, and nothing was noted.
        UnauthorizedError: A value is read, now or later, from a file below a prefix that is not
            authorized.

    Examples:
        >>> ds = icevirt.open("repo")
        >>> ds["tas"].sel(lat=43.5, lon=1.5, time="2002-07").values.round(2)
        array([25.82], dtype=float32)
    """
    try:
        return open_group(repo, options)
    except IcevirtError as error:  # how xarray finds the engine tells nobody
        raise error.with_traceback(None) from error.__cause__
