"""Implement the xarray engine ``icevirt``: open a version of a repository.

The Dataset or DataTree equals what ``engine="netcdf4"`` shows of the source files: values, dtypes,
attributes and the encodings that matter. xarray imports this module whenever it looks for engines,
so heavy imports happen inside functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xarray.backends import BackendEntrypoint

from icevirt.errors import IcevirtError, InvalidInputError, UnauthorizedError
from icevirt.model.paths import ROOT, canonical, join, name, parent

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

    from icevirt.access.columns.twin_array import Layout
    from icevirt.objects.answers import OnStale
    from icevirt.objects.chunk_cache import ChunkCache, Form
    from icevirt.repo.session import Session
    from icevirt.storage.constructors import StorageLike

type ShownEras = Literal["concat"]
type Authorization = Iterable[str] | Mapping[str, Any] | None


class IcevirtBackendEntrypoint(BackendEntrypoint):
    """Open Icechunk repositories, and the source files that they refer to."""

    description: ClassVar[str] = "Open Icechunk repositories, virtual or not, using icevirt"
    supports_groups: ClassVar[bool] = True
    open_dataset_parameters: ClassVar[tuple[str, ...] | None] = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
        "branch",
        "tag",
        "snapshot_id",
        "as_of",
        "authorize_virtual_chunk_access",
        "on_stale",
        "chunk_cache",
        "chunk_cache_size",
        "chunk_cache_form",
        "eras",
        "layout",
        "level",
        "storage_options",
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Say whether a path holds an Icechunk repository, by the first bytes of its ``repo``.

        URLs of object stores are left alone: xarray tries each engine, and none of these
        attempts should wait for a network.
        """
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        from icevirt.connect.urls import is_url, spell
        from icevirt.storage.constructors import storage_of
        from icevirt.wire.header import MAGIC

        try:
            name = spell(os.fspath(filename_or_obj))
            if is_url(name) and not name.startswith("file://"):
                return False
            head = storage_of(filename_or_obj).get_range("repo", offset=0, length=len(MAGIC))
        except IcevirtError:
            return False
        return head == MAGIC

    def open_dataset(self, filename_or_obj: StorageLike, **options: Any) -> Dataset:  # type: ignore[override]
        """Open one group of one version.

        Users pass these options to `xarray.open_dataset`, `open_mfdataset` and `open_datatree`.

        Args:
            filename_or_obj: Path or URL of a repository, or its storage.
            options: As follows.
            group: Path of the group; the root by default.
            branch: Open the tip of this branch; ``main`` where no version is named.
            tag: Open the version of this name.
            snapshot_id: Open the version of this id.
            as_of: Open what the branch showed at this time.
            authorize_virtual_chunk_access: The url prefixes of the virtual chunk containers that
                may be read, or a mapping from them to credentials; ``"public"`` for public buckets
                and https servers, without credentials. Where nothing is said, what builds of this
                user on this machine referred to may be read; another repository asks for the
                prefixes. With an empty list nothing is read.
            on_stale: If a source file changed after the scan: ``raise`` an error, ``warn``
                once for each file and show it as it is, or ``ignore`` that.
            chunk_cache: A directory of this machine that keeps chunks of servers, for all processes
                of this user. Not used where ``on_stale`` lets changed files be read.
            chunk_cache_size: Bytes that it may take, like ``"10GiB"``, which is the default.
            chunk_cache_form: ``encoded`` keeps chunks as servers have them; ``decoded`` keeps their
                values, which takes more of the disk and less of the processor.
            eras: ``concat`` shows the groups of an archive's eras as one lazy dataset, its steps in
                the order of their coordinate; ``group`` is that of the dataset, without the eras'
                names. By default groups are shown as they are.
            layout: Where a variable has a twin (`icevirt.materialize` with ``beside``): ``auto``
                reads each selection from the one that costs less; ``own`` and ``twin`` always from
                this one; ``all`` shows twins as variables. A twin that a commit of others left
                behind is not read.
            level: Open a coarser copy of the variables (`icevirt.materialize` with ``coarsen``): 1
                for the finest, 2 for the next, or its name, like ``"lat2_lon2"``.
            storage_options: Arguments of the storage's constructor beyond what the URL says, like
                ``{"anonymous": True, "region": "us-west-2"}``.
            decoders: The decoding options of `xarray.open_dataset`.
        """
        from icevirt.access.xarray.accessor import remember
        from icevirt.access.xarray.datastore import dataset_of

        try:
            opened = _open(filename_or_obj, is_tree=False, **options)
        except IcevirtError as error:  # what is called to open it tells nobody
            raise error.with_traceback(None) from error.__cause__
        layout = opened.pop("layout")
        if opened.pop("concat"):
            from icevirt.access.xarray.eras import of_all_eras

            ds = of_all_eras(**opened)
        else:
            ds = dataset_of(**opened, layout=layout)
        return remember(ds, opened["store"], opened["group"], options)

    def open_groups_as_dict(  # type: ignore[override]
        self, filename_or_obj: StorageLike, **options: Any
    ) -> dict[str, Dataset]:
        """Open a group and all groups below it. Arguments as in `open_dataset`.

        Returns:
            Datasets by their path relative to the group, ``/`` for the group itself.
        """
        from icevirt.access.xarray.accessor import remember
        from icevirt.access.xarray.datastore import dataset_of, groups_below

        try:
            opened = _open(filename_or_obj, is_tree=True, **options)
        except IcevirtError as error:  # what is called to open it tells nobody
            raise error.with_traceback(None) from error.__cause__
        store, top, layout = opened["store"], opened["group"], opened.pop("layout")
        if opened.pop("concat"):
            from icevirt.access.xarray.eras import groups_of_all_eras

            shown = groups_of_all_eras(**opened)
            return {
                name: remember(ds, store, join(top, name), options) for name, ds in shown.items()
            }
        return {
            name: remember(
                dataset_of(**{**opened, "group": path}, layout=layout, is_below=name != ROOT),
                *(store, path, options),
            )
            for name, path in groups_below(store.session, top, layout)
        }

    def open_datatree(self, filename_or_obj: StorageLike, **options: Any) -> DataTree:  # type: ignore[override]
        """Open a group and all groups below it as a tree. Arguments as in `open_dataset`."""
        from xarray import DataTree

        held = self.open_groups_as_dict(filename_or_obj, **options)
        try:
            return DataTree.from_dict(held)
        except ValueError as error:  # a group has a dimension as one above it, of another length
            raise InvalidInputError(
                f"xarray cannot show these groups as one tree: {str(error).splitlines()[0]}",
                do="Open one group after the other with xarray.open_dataset(..., group=...).",
                groups=[name for name, each in held.items() if each.variables],
            ) from error


def _open(
    root: StorageLike,
    *,
    is_tree: bool,
    group: str | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime | None = None,
    authorize_virtual_chunk_access: Authorization = None,
    on_stale: OnStale = "raise",
    chunk_cache: str | os.PathLike[str] | None = None,
    chunk_cache_size: int | str | None = None,
    chunk_cache_form: Form = "encoded",
    eras: ShownEras | None = None,
    layout: Layout = "auto",
    level: int | str = 0,
    storage_options: Mapping[str, Any] | None = None,
    **decoders: Any,
) -> dict[str, Any]:
    """Open a version.

    Returns:
        The arguments of `dataset_of`, and whether eras are concatenated.

    Raises:
        UnauthorizedError: Nothing was authorized, and values lie in files.
    """
    from icevirt.access.store.zarr_store import IcevirtStore
    from icevirt.repo.made_here import identify, own_or
    from icevirt.repo.repository import Repository
    from icevirt.repo.session import session_as_opened
    from icevirt.storage.constructors import storage_of

    if eras not in (None, "concat"):
        raise InvalidInputError(
            "unknown value for eras",
            do='Pass eras="concat" to see them as one dataset, or leave it out.',
            eras=eras,
        )
    if layout not in ("auto", "own", "twin", "all") or (eras and layout != "auto"):
        raise InvalidInputError(
            "unknown value for layout, or eras, which are read from the variables' own chunks",
            do='Pass layout="auto", "own", "twin" or "all", without eras.',
            layout=layout,
        )
    if tag is None and snapshot_id is None and branch is None:
        branch = "main"
    storage = storage_of(root, storage_options)
    authorized = own_or(authorize_virtual_chunk_access, identify(storage))
    repository = Repository.open(storage, authorize_virtual_chunk_access=authorized)
    session = session_as_opened(
        repository, branch=branch, tag=tag, snapshot_id=snapshot_id, as_of=as_of
    )
    cache = _cache_of(chunk_cache, chunk_cache_size, chunk_cache_form)
    if level != 0:
        from icevirt.access.xarray.datastore import group_of_level

        group = group_of_level(session, group or "/", level)
    if authorized is None and repository.config.virtual_chunk_containers:
        dropped = decoders.get("drop_variables")
        _ask_first(session, group or "/", dropped, is_tree=is_tree or eras == "concat")
    return {
        "store": IcevirtStore(session, on_stale=on_stale, cache=cache),
        "snapshot": session.snapshot,
        "group": group or "/",
        "decoders": decoders,
        "layout": layout,
        "concat": eras == "concat",
    }


def _ask_first(
    session: Session, group: str, dropped: str | Iterable[str] | None, *, is_tree: bool
) -> None:
    """Ask for authorization where none was given, and not at the first value of somebody's work."""
    from icevirt.access.authorizing import refuse_unreadable
    from icevirt.model.snapshot import ArrayNode

    top = canonical(group)
    left_out = {dropped} if isinstance(dropped, str) else {*(dropped or ())}
    shown = (
        each
        for each in session.snapshot.below(top)
        if isinstance(each, ArrayNode)
        and (is_tree or parent(each.path) == top)
        and name(each.path) not in left_out
    )
    try:
        refuse_unreadable(session, shown, {})
    except UnauthorizedError as error:
        error.do = "Names and attributes alone are shown with authorize_virtual_chunk_access=[]."
        raise
    except IcevirtError:  # whoever reads a value is told
        return


def _cache_of(
    directory: str | os.PathLike[str] | None, size: int | str | None, form: Form
) -> ChunkCache | None:
    if directory is None and (size is not None or form != "encoded"):
        raise InvalidInputError(
            "a size or a form of a cache was given, and no directory for it",
            do='Pass chunk_cache="/scratch/me/chunks" too.',
            chunk_cache_size=size,
            chunk_cache_form=form,
        )
    if directory is None:
        return None
    from icevirt.objects.chunk_cache import SIZE, ChunkCache

    return ChunkCache(directory, SIZE if size is None else size, form)
