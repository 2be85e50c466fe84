"""Show groups of a session as the datasets and variables that the netCDF engine would show.

The nodes come from the snapshot, which is in memory, so opening needs no listing and no event loop.
Only reading values uses the zarr store.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray
from xarray import Dataset, Variable
from xarray.backends import AbstractDataStore, BackendArray
from xarray.backends.store import StoreBackendEntrypoint
from xarray.coding import strings
from xarray.core import indexing
from zarr.abc.store import Store

from icevirt.access.columns.stored_array import StoredArray
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import (
    COARSENED_FROM,
    ENUMERATION,
    EXTENSION,
    FILL,
    TWIN_OF,
    Attributes,
    dtype_metadata,
    read_order,
    restore,
)
from icevirt.model.snapshot import ArrayNode, GroupNode, Snapshot, document_of, using
from icevirt.threads import Threads, run_in_thread

if TYPE_CHECKING:
    from icevirt.access.columns.twin_array import ArrayChoices, Layout, Readable
    from icevirt.repo.session import Session

_ALL = indexing.IndexingSupport.VECTORIZED
_AHEAD = 1 << 20  # bytes of a coordinate that is read before it is asked for
_AT_ONCE = 8  # coordinates


def dataset_of(
    store: Store,
    snapshot: Snapshot,
    group: str,
    decoders: dict[str, Any],
    layout: Layout = "all",
    *,
    is_below: bool = False,
) -> Dataset:
    """Return a group of a snapshot as a dataset, read from a store over it.

    Below another group that is shown, a coarser copy keeps the names of its dimensions.
    """
    found = IcevirtDataStore(store, snapshot, group, layout, is_below=is_below)
    opener = StoreBackendEntrypoint().open_dataset
    signature(opener).bind(found, **decoders)  # raises TypeError for an unknown option
    try:
        return opener(found, **decoders)
    except (IcevirtError, Warning):
        raise
    except Exception as error:
        raise InvalidInputError(
            f"xarray cannot build a dataset from the variables of this group: {error}",
            do="Pass decode_cf=False to read them as they are stored, or leave out the variables"
            " that the error names: drop_variables=[...].",
            group=group,
        ) from error


def groups_below(session: Session, group: str, layout: Layout = "all") -> Iterable[tuple[str, str]]:
    """Yield a group and those below it, as (relative path, path).

    Coarser copies are left out unless all is shown.
    """
    snapshot = session.snapshot
    top = snapshot.node(paths.canonical(group)).path
    yield paths.ROOT, top
    nodes = [*snapshot.below(top)]
    copies = {paths.parent(each.path) for each in _find_coarser(session, top)}
    hidden = {above for each in copies for above in (each, paths.parent(each)) if layout != "all"}
    for node in nodes:
        if isinstance(node, GroupNode) and node.path not in hidden:
            yield node.path.removeprefix(top.rstrip("/")), node.path


def _find_coarser(session: Session, top: str) -> list[ArrayNode]:
    """Return the arrays below a group that say to be coarser copies, and are.

    The attribute travels: where a copy was exported, files have it, and what is built of them.
    """
    from icevirt.model.twins import find_finer, was_marked

    snapshot = session.snapshot
    arrays = (node for node in snapshot.below(top) if isinstance(node, ArrayNode))
    found = [node for node in arrays if COARSENED_FROM.encode() in node.user_data]
    known = {node.path for node in snapshot.arrays()} if found else set[str]()
    return [
        node for node in found if find_finer(node) in known or was_marked(node, session.history())
    ]


def group_of_level(session: Session, group: str, level: int | str) -> str:
    """Return the group of a coarser copy.

    Args:
        session: Of the repository.
        group: Path of the group of the variables.
        level: Its name, or 1 for the finest of them, 2 for the next; 0 for the variables.

    Raises:
        InvalidInputError: There is none such.
    """
    top = session.snapshot.node(paths.canonical(group)).path
    sizes: dict[str, int] = {}
    for node in _find_coarser(session, top):
        if paths.parent(paths.parent(paths.parent(node.path))) == top:
            above = paths.parent(node.path)
            sizes[above] = max(sizes.get(above, 0), math.prod(node.shape))
    found = sorted(sizes, key=lambda path: (-sizes[path], path))
    if isinstance(level, str):
        found = [path for path in found if paths.name(path) == level]
    elif level == 0:
        return top
    at = 0 if isinstance(level, str) else level - 1
    if not 0 <= at < len(found):
        raise InvalidInputError(
            "this dataset has no such coarser copy",
            do="Pass one that there is, or make it: icevirt materialize REPO VARIABLE --beside"
            " --coarsen lat=2,lon=2.",
            level=level,
            levels=sorted(map(paths.name, sizes)),
        )
    return found[at]


class IcevirtDataStore(AbstractDataStore):
    """The arrays directly below one group.

    Args:
        store: The zarr store that values are read from.
        snapshot: The version of the repository that the store shows.
        group: Path of the group.
        layout: As for `IcevirtBackendEntrypoint.open_dataset`.
        is_below: Whether a group above it is shown in the same tree.

    Raises:
        NodeNotFoundError: There is no such group.
        InvalidInputError: The path is that of an array.
    """

    __slots__ = (
        *("_finer", "_group", "_indexes", "_layout", "_phony", "_shows_own_names"),
        *("_snapshot", "_store"),
    )

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        group: str,
        layout: Layout = "all",
        *,
        is_below: bool = False,
    ) -> None:
        self._layout = layout
        self._shows_own_names = layout == "all" or is_below
        self._store = store
        self._snapshot = snapshot
        self._group = snapshot.node(paths.canonical(group))
        self._phony: dict[int, list[str]] = {}
        self._finer: dict[str, str] = {}  # what coarser copies call otherwise than the dataset
        self._indexes: list[LazyArray] = []  # of the variables that were made last
        if not isinstance(self._group, GroupNode):
            raise InvalidInputError(
                "this is an array, not a group",
                do=f"Open its group: group={paths.parent(self._group.path)!r}.",
                path=self._group.path,
            )

    def load(self) -> tuple[Any, Any]:
        """Return variables and attributes; where answers take long, indexes are read by now.

        xarray reads what it makes indexes of one after the other, from up to three objects each.
        """
        variables, attributes = super().load()  # type: ignore[no-untyped-call]
        found = [each for each in self._indexes if each.is_worth_reading_ahead]
        if len(found) > 1:
            with Threads(_AT_ONCE, "icevirt-indexes") as pool:
                for each in found:
                    pool.submit(copy_context().run, each.read_ahead)
        return variables, attributes

    def get_attrs(self) -> Mapping[str, Any]:
        """Return the attributes of the group."""
        with using(self._group):
            attributes = file_attributes(document_of(self._group))
        if "multiscales" not in attributes or self._layout == "all":
            return attributes
        from icevirt.planning.levels import FOLDER, say_levels

        has_levels = self._snapshot.find(paths.join(self._group.path, FOLDER)) is not None
        return say_levels(attributes, self._group.path, ()) if has_levels else attributes

    def get_dimensions(self) -> Mapping[str, int]:
        """Return the lengths of all dimensions."""
        return {
            str(name): size
            for variable in self.get_variables().values()
            for name, size in variable.sizes.items()
        }

    def get_variables(self) -> Mapping[str, Variable]:
        """Return the arrays of the group as lazy, undecoded variables, in the files' order."""
        nodes = self._nodes()
        return {self._name(node): self._variable(node, twin) for node, twin in nodes}

    def explain(self, places: Mapping[str, NDArray[np.int64]]) -> ArrayChoices:
        """Say of each variable from which array a selection is read.

        Args:
            places: What is selected along each dimension; all where one is left out.
        """
        from icevirt.access.columns.twin_array import (
            ArrayChoices,
            ReadChoice,
            TwinnedArray,
            cost_of,
        )

        found = ArrayChoices()
        for node, twin in self._nodes():
            array, name = self._array(node, twin), self._name(node)
            sizes = zip(self._dims(node), node.shape, strict=True)
            key = [places.get(dim, slice(0, size, 1)) for dim, size in sizes]
            if isinstance(array, TwinnedArray):
                found[name] = array.choose(key)
            else:
                note = "" if twin is None else "its twin is not in step, or not asked for"
                found[name] = ReadChoice(node.path, "own", cost_of(array, key), note=note)
        return found

    def _nodes(self) -> list[tuple[ArrayNode, ArrayNode | None]]:
        """Return the arrays that are shown, in the files' order, with their twins."""
        found = [
            node
            for node in self._snapshot.below(self._group.path)
            if isinstance(node, ArrayNode) and paths.parent(node.path) == self._group.path
        ]
        with using(self._group):
            place = read_order(document_of(self._group))
        self._indexes = []
        found.sort(key=lambda node: place.get(paths.name(node.path), math.inf))
        self._finer = {} if self._shows_own_names else self._find_finer_names(found)
        twins = {} if self._layout == "all" else self._find_twins(found)
        hidden = {node.path for node in twins.values()}
        return [(node, twins.get(node.path)) for node in found if node.path not in hidden]

    def _find_finer_names(self, arrays: list[ArrayNode]) -> dict[str, str]:
        """Return what the variables of coarser copies call their dimensions, by the copies' names.

        A level is read with what was written for the dataset.
        """
        found: dict[str, str] = {}
        for copy, fine in self._find_finer(arrays):
            names, finer = copy.dimension_names or (), fine.dimension_names or ()
            if len(names) == len(finer):
                pairs = zip(names, finer, strict=True)
                found |= {own: name for own, name in pairs if own != name and own and name}
        taken = {paths.name(node.path) for node in arrays}
        taken |= {str(name) for node in arrays for name in node.dimension_names or ()}
        return found if taken.isdisjoint(found.values()) else {}

    def _find_finer(self, arrays: list[ArrayNode]) -> Iterator[tuple[ArrayNode, ArrayNode]]:
        """Yield coarser copies with their variables: they say so, or a group above them does."""
        known = {node.path: node for node in arrays}
        pairs: list[tuple[str, str | None]] = []
        if any(COARSENED_FROM.encode() in node.user_data for node in arrays):
            from icevirt.model.twins import find_finer

            pairs = [(path, find_finer(node)) for path, node in known.items()]
        for path in paths.ancestors(self._group.path):
            above = self._snapshot.find(path)
            if above is not None and b'"multiscales"' in above.user_data:
                from icevirt.model.multiscales import find_finest

                top = path.rstrip("/")
                with using(above):
                    said = find_finest(document_of(above).get("attributes") or {})
                    pairs += [(f"{top}/{own}", f"{top}/{of}") for own, of in said]
        for path, finer in pairs:
            own, fine = known.get(path), self._snapshot.find(finer or "")
            if own is not None and isinstance(fine, ArrayNode):
                yield own, fine

    def _find_twins(self, arrays: list[ArrayNode]) -> dict[str, ArrayNode]:
        """Return the twins among arrays, by the path of the variable; few datasets have one."""
        session: Session | None = getattr(self._store, "session", None)
        says_so = any(TWIN_OF.encode() in node.user_data for node in arrays)
        if session is None or not says_so:
            return {}
        from icevirt.model.twins import find_twins

        return find_twins(arrays, session.history)

    def _array(self, node: ArrayNode, twin: ArrayNode | None) -> Readable:
        array = StoredArray(self._store, node)
        if self._layout != "all" and COARSENED_FROM.encode() in node.user_data:
            self._refuse_left_behind(node)
        if twin is None or self._layout == "own":
            return array
        from icevirt.model.twins import is_in_step

        session: Session | None = getattr(self._store, "session", None)
        if session is not None and is_in_step(twin, node, session.history()):
            from icevirt.access.columns.twin_array import TwinnedArray

            return TwinnedArray(array, StoredArray(self._store, twin), self._layout)
        if self._layout == "twin":
            raise InvalidInputError(
                "the twin of this variable was left behind by a commit of others",
                do="Leave out layout, or make the twin anew with icevirt.materialize.",
                variable=node.path,
                twin=twin.path,
            )
        return array

    def _refuse_left_behind(self, node: ArrayNode) -> None:
        """Refuse to show a coarser copy whose variable others changed, or may have changed.

        Raises:
            InvalidInputError: The level is older than its variable, or the history that would
                show its age has expired.
        """
        from icevirt.model.twins import find_finer, is_in_step, was_marked

        session: Session | None = getattr(self._store, "session", None)
        path = find_finer(node)
        if session is None or path is None:
            return
        fine, is_marked = self._snapshot.find(path), was_marked(node, session.history())
        if isinstance(fine, ArrayNode):
            if is_in_step(node, fine, session.history()):
                return
            why = "was left behind by a commit of others"
        elif is_marked:
            why = "is left of a variable that is gone"
        else:
            return
        raise InvalidInputError(
            f"this coarser copy {why}"
            if is_marked
            else "no commit that is left says that this coarser copy fits its variable",
            do='Make it anew with icevirt.materialize; layout="all" shows it as it is.',
            variable=path,
            copy=node.path,
        )

    def _variable(self, node: ArrayNode, twin: ArrayNode | None) -> Variable:
        array = self._array(node, twin)
        with using(node):
            lazy = LazyArray(array)
            dims = self._dims(node)
            if dims == (self._name(node),):
                self._indexes.append(lazy)
            data = indexing.LazilyIndexedArray(lazy)
            document, encoding = document_of(node), _encoding(array.zarr, dims)
            if (metadata := dtype_metadata(document)) is not None:
                encoding["dtype"] = np.dtype(array.dtype, metadata=metadata)
            attributes = file_attributes(document, lazy.dtype)
            if self._finer and isinstance(said := attributes.get("cell_methods"), str):
                words = (self._finer.get(word[:-1], word[:-1]) + word[-1] for word in said.split())
                attributes["cell_methods"] = " ".join(words)
            return Variable(dims, data, attributes, encoding)

    def _name(self, node: ArrayNode) -> str:
        name = paths.name(node.path)
        return self._finer.get(name, name)

    def _dims(self, node: ArrayNode) -> tuple[str, ...]:
        """Return the dimension names; unnamed ones are shared by length, as netCDF does it."""
        names = node.dimension_names or (None,) * len(node.shape)
        used: dict[int, int] = {}
        dims = []
        for name, size in zip(names, node.shape, strict=True):
            if name is None:
                known = self._phony.setdefault(size, [])
                if (nth := used.setdefault(size, 0)) == len(known):
                    known.append(f"phony_dim_{sum(map(len, self._phony.values()))}")
                used[size] += 1
                dims.append(known[nth])
            else:
                dims.append(self._finer.get(name, name))
        return tuple(dims)


def _encoding(array: zarr.Array[Any], dims: tuple[str, ...]) -> dict[str, Any]:
    """Return how the array is stored, in the words of xarray's zarr engine."""
    try:
        chunks: tuple[int | tuple[int, ...], ...] = tuple(array.chunks)
    except NotImplementedError:  # a rectilinear grid: one number, or all where they differ
        chunks = tuple(
            sizes[0] if {*sizes[:-1]} <= {sizes[0]} and sizes[-1] <= sizes[0] else sizes
            for sizes in array.read_chunk_sizes
        )
    return {
        "chunks": chunks,
        "preferred_chunks": dict(zip(dims, chunks, strict=True)),
        "compressors": array.compressors,
        "filters": array.filters,
        "serializer": array.serializer,
        "fill_value": array.fill_value,
        "dtype": str if array.dtype.kind == "T" else array.dtype,
        "original_shape": array.shape,
    }


def _without_empty_runs(
    key: indexing.ExplicitIndexer, shape: tuple[int, ...]
) -> indexing.ExplicitIndexer:
    """Return a key whose backward slices select something; xarray cannot turn empty ones around."""
    if not any(isinstance(each, slice) and (each.step or 1) < 0 for each in key.tuple):
        return key
    return type(key)(
        tuple(
            slice(0) if isinstance(each, slice) and not range(*each.indices(length)) else each
            for each, length in zip(key.tuple, shape, strict=True)
        )
    )


class LazyArray(BackendArray):
    """Reads what is indexed when it is indexed; strings come as Python objects, as from netCDF."""

    __slots__ = ("_array", "_read", "dtype", "shape")

    def __init__(self, array: Readable) -> None:
        text = array.dtype.kind == "T"
        self._array = array
        self._read: np.ndarray[Any, Any] | None = None  # all of it
        self.shape = array.shape
        self.dtype: np.dtype[Any] = (
            strings.create_vlen_dtype(str) if text else array.dtype  # type: ignore[no-untyped-call]
        )

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        is_vectorized = isinstance(key, indexing.VectorizedIndexer)
        read = self._array.vindex if is_vectorized else self._array.oindex
        if self._read is not None:
            read = partial(_copy, self._read)
        key = _without_empty_runs(key, self.shape)
        try:
            value = indexing.explicit_indexing_adapter(key, self.shape, _ALL, read)
        except IcevirtError as error:  # 30 frames of zarr's own say nothing about the cause
            raise error.with_traceback(None) from error.__cause__
        return self._as_declared(value)

    @property
    def is_worth_reading_ahead(self) -> bool:
        """Whether it is few numbers that a server has, as long as it is open."""
        size = math.prod(self.shape) * self.dtype.itemsize
        is_far = isinstance(self._array, StoredArray) and self._array.is_far
        return is_far and self.dtype.kind in "biuf" and 0 < size <= _AHEAD

    def read_ahead(self) -> None:
        """Read all values. An error is raised later, when somebody asks for the values."""
        with suppress(Exception):
            self._read = self._array.oindex((slice(None),))

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Do the same for xarray's ``load_async``."""
        return await run_in_thread(self.__getitem__, key)

    def _as_declared(self, value: Any) -> Any:
        if self.dtype.kind in "SU":  # a scalar forgets the length of its dtype
            return np.asarray(value, self.dtype)
        return np.asarray(value).astype(self.dtype) if self.dtype.kind == "O" else value


def _copy(values: np.ndarray[Any, Any], key: Any) -> Any:
    return values[key].copy()


def file_attributes(
    metadata: Mapping[str, Any], dtype: np.dtype[Any] | None = None
) -> dict[str, Any]:
    """Return the attributes of a zarr.json document as the source file had them.

    Repositories written by other tools carry no dtypes. Their attributes stay as JSON gave them,
    and ``_FillValue`` is read in the spellings that xarray and others use; ``dtype`` is an array's,
    None for groups.
    """
    extension = metadata.get(EXTENSION)
    extension = extension if isinstance(extension, Mapping) else {}
    dtypes = extension.get("attribute_dtypes") or {}
    values = {
        name: _with_dtype(name, value, dtypes[name]) if name in dtypes else value
        for name, value in _as_in_file(metadata.get("attributes") or {}, extension).items()
    }
    if FILL in values and FILL not in dtypes and dtype is not None:
        values[FILL] = fill_value(values[FILL], dtype)
    return values


def _with_dtype(name: str, value: Any, dtype: str) -> Any:
    """Give a value the dtype recorded for it, unless it was changed since to one that it has not.

    Edits of attributes through zarr leave the record as it is.
    """
    try:
        restored = restore({name: value}, {name: dtype})[name]
    except (ValueError, TypeError, OverflowError, LookupError):
        return value
    return restored if Attributes.of({name: restored}).values[name] == value else value


def _as_in_file(values: Mapping[str, Any], extension: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what was changed for other readers: ``{"replaced_attributes": {name: [was, is]}}``.

    None stands for an attribute that is not there. What was changed again since stays.
    """
    replaced = extension.get("replaced_attributes") or {}
    if any(values.get(name) != shown for name, (_, shown) in replaced.items()):
        return dict(values)
    kept = {name: value for name, value in values.items() if name not in replaced}
    file = {name: was for name, (was, _) in replaced.items() if was is not None} | kept
    return {name: value for name, value in file.items() if name != ENUMERATION}


def fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Read a ``_FillValue`` that was written without its dtype.

    xarray writes floats as base64 of eight bytes, others as plain numbers; text is text, except
    that fixed-length bytes want bytes.
    """
    match dtype.kind:
        case "f" if isinstance(value, str):
            return _float(value)
        case "c" if isinstance(value, list) and len(value) == 2:
            real, imaginary = (_float(v) if isinstance(v, str) else float(v) for v in value)
            return complex(real, imaginary)
        case "S" if isinstance(value, str):
            return np.bytes_(value.encode())
        case _:
            return value


def _float(text: str) -> float:
    try:
        (number,) = struct.unpack("<d", base64.standard_b64decode(text))
    except (struct.error, binascii.Error):
        return float(text)  # "NaN", "Infinity", or a number in quotes
    return float(number)
