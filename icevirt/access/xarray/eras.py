"""Show the groups of an archive's eras as one lazy dataset, without copying.

The parent group says which groups are eras. The dataset equals what `xarray.concat` makes of the
decoded groups. `xarray.concat` itself decides the variables, their order, dtypes and attributes,
from one step of each era; values are read only when they are used. Steps are in the order of the
coordinate, across eras.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import Dataset, Variable
from xarray.core import indexing
from zarr.abc.store import Store

from icevirt.access.xarray.datastore import dataset_of
from icevirt.access.xarray.era_arrays import (
    EraArray,
    EraSteps,
    SameArray,
    equal,
    share_encoding,
    with_durations,
)
from icevirt.archive.eras import ERA, MARK
from icevirt.errors import CombineError, FormatError
from icevirt.model import paths
from icevirt.model.snapshot import GroupNode, Snapshot, document_of

DO = "Open the eras one by one with group=, without eras=."
"""What helps where eras cannot be shown as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EraGroups:
    """What the group that holds eras says of them."""

    path: str  # of that group
    dimension: str | None  # None: they lie beside one another along several
    names: tuple[str, ...]  # of the groups, in the order of the eras
    by_coordinate: bool  # steps are in the order of its values
    contiguous: bool  # each era is one run of steps
    is_one_place: bool  # files do not contradict one another about where their values are

    def below(self, inner: str) -> list[str]:
        """Return the path of a group of the files in each era."""
        return [paths.join(paths.join(self.path, f"/{name}"), inner) for name in self.names]


def eras_around(snapshot: Snapshot, group: str) -> tuple[EraGroups, str] | None:
    """Return the eras that a group holds or lies beside, and the path of the group in each era.

    Raises:
        FormatError: What the group says of its eras cannot be understood.
    """
    wanted = at = paths.canonical(group)
    while True:
        node = snapshot.find(at)
        if isinstance(node, GroupNode) and (found := _read_description(node)) is not None:
            inner = wanted.removeprefix(at).strip("/")
            # a path with the name of an era means that era
            return None if inner.split("/")[0] in found.names else (found, f"/{inner}")
        if at == paths.ROOT:
            return None
        at = paths.parent(at)


def _groups_with_eras(snapshot: Snapshot, top: str) -> Iterator[str]:
    """Yield the groups at and below ``top``, those of eras once and without the eras' names."""
    nodes = [node for node in snapshot.below(top) if isinstance(node, GroupNode)]
    held = [found for node in nodes if (found := _read_description(node)) is not None]
    if (around := eras_around(snapshot, top)) is not None:
        held.append(around[0])
    eras = {path: each for each in held for path in each.below(paths.ROOT)}
    seen = dict.fromkeys([top])
    for node in nodes:
        era = next((path for path in eras if f"{node.path}/".startswith(f"{path}/")), None)
        path = node.path
        if era is not None:  # as if the era were not between the group and what it holds
            path = paths.join(eras[era].path, "/" + node.path.removeprefix(era).strip("/"))
        seen[path] = None
    yield from seen


def of_all_eras(
    store: Store,
    snapshot: Snapshot,
    group: str,
    decoders: dict[str, Any],
    *,
    is_below: bool = False,
) -> Dataset:
    """Return a group of all eras as one dataset; one that has no eras as it is.

    The first era gives the attributes, as `xarray.concat` takes them by default. Encodings are kept
    as far as all eras share them.

    Raises:
        CombineError: They cannot be one dataset without changing values or what they mean; or only
            some eras have the group, so it is unknown how many steps the others lack.
    """
    around = eras_around(snapshot, group)
    if around is None:
        return dataset_of(store, snapshot, group, decoders, "own", is_below=is_below)
    eras, inner = around
    places = dict(zip(eras.names, eras.below(inner), strict=True))
    lacking = [name for name, path in places.items() if snapshot.find(path) is None]
    if lacking and len(lacking) < len(eras.names):
        raise CombineError(
            f"group {inner!r} is not in all eras", do=DO, eras=list(eras.names), lacking=lacking
        )
    datasets = [
        dataset_of(store, snapshot, path, decoders, "own", is_below=is_below)
        for path in places.values()
    ]
    if eras.dimension is None:
        raise CombineError(
            "the eras cannot be shown as one dataset: they differ along several dimensions",
            do=DO,
            group=group,
            eras=list(eras.names),
        )
    for dataset in datasets:  # what an era's group says of itself
        for name in [name for name in dataset.attrs if f"{name}_".startswith(f"{ERA}_")]:
            del dataset.attrs[name]
    return _Concatenation(with_durations(datasets, decoders), eras, group).dataset()


def groups_of_all_eras(
    store: Store, snapshot: Snapshot, group: str, decoders: dict[str, Any]
) -> dict[str, Dataset]:
    """Return a group and those below it, as if eras were one."""
    top = paths.canonical(group)
    return {
        path.removeprefix(top.rstrip("/")) if path != top else paths.ROOT: of_all_eras(
            store, snapshot, path, decoders, is_below=path != top
        )
        for path in _groups_with_eras(snapshot, top)
    }


def _read_description(node: GroupNode) -> EraGroups | None:
    mark = (document_of(node).get("attributes") or {}).get(MARK)
    match mark:
        case None:
            return None
        case {
            "version": 1,
            "dimension": str() | None as dimension,
            "groups": [_, *_] as names,
            "order": "coordinate" | "given" as order,
            "contiguous": bool() as contiguous,
        }:
            return EraGroups(
                path=node.path,
                dimension=dimension,
                names=tuple(map(str, names)),
                by_coordinate=order == "coordinate",
                contiguous=contiguous,
                is_one_place=mark.get("places") != "several",
            )
        case _:
            raise FormatError(
                "this group's description of its eras is not valid",
                do=f"A newer icevirt may have written it: upgrade icevirt. {DO}",
                group=node.path,
                found=mark,
            )


class _Concatenation:
    """Datasets of eras, and the order of their steps."""

    def __init__(self, datasets: Sequence[Dataset], eras: EraGroups, group: str) -> None:
        self._datasets, self._eras, self._group = datasets, eras, group
        self._dim = eras.dimension or ""
        self._has_dim = any(self._dim in each.dims for each in datasets)
        self._check()

    def dataset(self) -> Dataset:
        made = self._concatenate_steps()
        steps = self._steps() if self._has_dim else None
        variables = {
            name: self._variable(str(name), shown, steps) for name, shown in made.variables.items()
        }
        coordinates = {name: each for name, each in variables.items() if name in made.coords}
        data = {name: each for name, each in variables.items() if name not in made.coords}
        return Dataset(data, coordinates, made.attrs)

    # -- what does not fit -------------------------------------------------------------------------

    def _check(self) -> None:
        """Refuse what `xarray.concat` would do silently, or with all values in memory."""
        for variable, held in self._all().items():
            first_era, first = next(iter(held.items()))
            for era, other in held.items():
                if other.dims != first.dims:
                    self._refuse(
                        f"variable {variable!r} has other dimensions", first_era, era,
                        first.dims, other.dims,
                    )  # fmt: skip
                if {first.dtype.kind, other.dtype.kind} == {
                    "M",
                    "O",
                }:  # of numpy and cftime
                    calendars = [each.encoding.get("calendar") for each in (first, other)]
                    self._refuse(
                        f"dates of {variable!r} are of several calendars", first_era, era,
                        *calendars,
                    )  # fmt: skip
                mine, theirs = _decoding_of(first), _decoding_of(other)
                for key in (key for key in mine if not equal(mine[key], theirs[key])):
                    self._refuse(
                        f"{key} of variable {variable!r} differs", first_era, era,
                        mine[key], theirs[key],
                    )  # fmt: skip
        self._check_projections()
        self._check_indices()
        lengths: dict[object, tuple[int, int]] = {}
        for era, dataset in enumerate(self._datasets):
            for name, length in dataset.sizes.items():
                known = lengths.setdefault(name, (era, length))
                if name != self._dim and known[1] != length:
                    self._refuse(f"dimension {name!r} differs", known[0], era, known[1], length)
            if self._has_dim and self._dim not in dataset.dims:
                self._refuse(f"an era has no dimension {self._dim!r}", era, era, None, None)

    def _check_projections(self) -> None:
        """Refuse eras whose equal x and y are other places on earth."""
        from icevirt.planning.meaning.grid_mappings import contradictions

        held: dict[str, dict[int, dict[str, Any]]] = {}
        for name, eras in self._all().items():
            for era, variable in eras.items():  # xarray moves it to the encoding on request
                moved = {k: v for k, v in variable.encoding.items() if k == "grid_mapping"}
                held.setdefault(f"/{name}", {})[era] = {**variable.attrs, **moved}
        for each in contradictions(held):
            one, other = (int(each.row[each.kind == kind][0]) for kind in (0, 1))
            self._refuse(
                f"{each.path[1:]!r} projects the grid otherwise",
                one,
                other,
                dict(each.said[0]),
                dict(each.said[1]),
            )
        if not self._eras.is_one_place:
            what = "their files place values at several places on earth, or projections"
            self._refuse(what, 0, len(self._datasets) - 1, None, None)

    def _check_indices(self) -> None:
        """Refuse numbers of steps of an era, which name others in the dataset of all."""
        from icevirt.planning.meaning import local_indices

        for era, dataset in enumerate(self._datasets):
            described = (
                local_indices.Variable(
                    path=f"/{name}", dimensions=tuple(map(str, each.dims)), attributes=each.attrs
                )
                for name, each in dataset.variables.items()
            )
            for path in local_indices.indices_along(described, self._dim):
                what = f"{path[1:]!r} numbers the steps along {self._dim!r} of its own era"
                self._refuse(what, era, era, None, None)

    def _all(self) -> dict[str, dict[int, Variable]]:
        """Return every variable by name and era."""
        found: dict[str, dict[int, Variable]] = {}
        for era, dataset in enumerate(self._datasets):
            for key, variable in dataset.variables.items():
                found.setdefault(str(key), {})[era] = variable
        return found

    def _refuse(self, what: str, one: int, other: int, first: object, second: object) -> None:
        names = self._eras.names
        raise CombineError(
            f"the eras cannot be shown as one dataset: {what}",
            do=DO,
            group=self._group,
            eras=[names[one], names[other]],
            first=first,
            second=second,
        )

    # -- the order of steps ------------------------------------------------------------------------

    def _steps(self) -> EraSteps:
        """Return the order of all steps: by the coordinate, else era by era."""
        lengths = [each.sizes[self._dim] for each in self._datasets]
        era = np.repeat(np.arange(len(lengths)), lengths)
        inner = np.concatenate([np.arange(length) for length in lengths])
        is_labelled = all(self._dim in each.variables for each in self._datasets)
        if is_labelled and self._eras.by_coordinate:
            order = self._by_coordinate(era)
            if order is not None:
                return EraSteps.of(era[order], inner[order])
        if not self._eras.contiguous:
            raise CombineError(
                "the eras cannot be shown as one dataset: their steps interleave, and no "
                f"coordinate {self._dim!r} orders them",
                do=DO,
                group=self._group,
            )
        return EraSteps.of(era, inner)

    def _by_coordinate(self, era: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the steps in the order of their labels; None where these have no order."""
        held = [each[self._dim].to_numpy() for each in self._datasets]
        rising = [_direction(labels) for labels in held if len(labels) > 1]
        if None in rising or len(set(rising)) > 1:
            return None
        labels = np.concatenate(held)
        if bool(np.any(labels != labels)):  # noqa: PLR0124  # NaN, NaT
            return None
        try:
            order = np.argsort(labels, kind="stable")
        except TypeError:  # dates of several calendars
            return None
        again = np.flatnonzero(labels[order][1:] == labels[order][:-1])
        if len(again) == len(labels) - 1 and len(again):
            return None  # one and the same label everywhere
        if len(again):
            one, other = (int(era[order[int(again[0]) + n]]) for n in (0, 1))
            label = labels[order[int(again[0])]]
            self._refuse(f"two hold the same step of {self._dim!r}", one, other, label, label)
        return order[::-1] if rising and not rising[0] else order

    # -- variables ---------------------------------------------------------------------------------

    def _concatenate_steps(self) -> Dataset:
        """Let xarray concatenate one step of each era, none of it read."""
        small = [_step(each) for each in self._datasets]
        try:
            if not self._has_dim:
                return xr.merge(small, compat="override", join="override", combine_attrs="override")
            return xr.concat(
                small, self._dim, data_vars="minimal", coords="minimal", compat="override",
                join="override", combine_attrs="override",
            )  # fmt: skip
        except (ValueError, TypeError) as error:
            raise CombineError(
                f"the eras cannot be shown as one dataset: {error}", do=DO, group=self._group
            ) from error

    def _variable(self, name: str, shown: Variable, steps: EraSteps | None) -> Variable:
        parts = [each.variables.get(name) for each in self._datasets]
        if steps is None or self._dim not in shown.dims:
            return self._same(name, parts, shown)
        axis = shown.dims.index(self._dim)
        fill = None
        if missing := [era for era, part in enumerate(parts) if part is None]:
            there = shown.isel({self._dim: missing[0]})
            fill = there.to_numpy().reshape(-1)[0]
        array = EraArray(parts, steps, axis=axis, dtype=shown.dtype, fill=fill)
        encoding = share_encoding(parts, steps, axis=axis, dims=shown.dims)
        if name == self._dim:
            labels = array[indexing.BasicIndexer((slice(None),))]
            return Variable(shown.dims, labels, shown.attrs, encoding)
        return Variable(shown.dims, indexing.LazilyIndexedArray(array), shown.attrs, encoding)

    def _same(self, name: str, parts: Sequence[Variable | None], shown: Variable) -> Variable:
        """Return a variable without the dimension; coordinates of others are compared at once."""
        held = {era: part for era, part in enumerate(parts) if part is not None}
        names = [self._eras.names[era] for era in held]
        array = SameArray(list(held.values()), name=name, group=self._group, eras=names)
        data: Any = indexing.LazilyIndexedArray(array)
        if shown.dims == (name,):
            data = array[indexing.BasicIndexer((slice(None),))]
        return Variable(shown.dims, data, shown.attrs, share_encoding(parts))


def _decoding_of(variable: Variable) -> dict[str, Any]:
    """Return what decides the meaning of values that were decoded."""
    from icevirt.archive.schema import DECODING, MEMBERS
    from icevirt.planning.normal_form import unit_called

    said = {**variable.attrs, "units": unit_called(variable.attrs.get("units"))}
    metadata = getattr(variable.encoding.get("dtype"), "metadata", None) or {}
    return {MEMBERS: metadata.get("enum")} | {f"attribute {key}": said.get(key) for key in DECODING}


def _step(dataset: Dataset) -> Dataset:
    """Return the dataset with one element along each dimension, and nothing in it."""

    def empty(variable: Variable) -> Variable:
        return Variable(
            variable.dims, np.zeros((1,) * variable.ndim, variable.dtype), variable.attrs
        )

    coordinates = {name: empty(each) for name, each in dataset.coords.variables.items()}
    data = {name: empty(each.variable) for name, each in dataset.data_vars.items()}
    return Dataset(data, coordinates, dataset.attrs)


def _direction(labels: NDArray[Any]) -> bool | None:
    """Say whether labels rise (True) or fall, strictly; None where they do neither."""
    if bool(np.all(labels[1:] > labels[:-1])):
        return True
    return False if bool(np.all(labels[1:] < labels[:-1])) else None
