"""Say which facts of files a way of combining needs: scanners take them, plans look for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, Self

from icevirt.archive.joining import (
    Fact,
    cut_along,
    dimensions_of_texts,
    has_few,
    is_character,
    itemsize_of,
    joins_badly,
)
from icevirt.archive.roles import coordinates_of, resolve
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.combine.data_vars import gets

_COMPARED = 64 * 1024  # bytes of an array that is compared though it is stacked
_TOLERATED = 1 << 20  # values of a variable that are compared with a tolerance
_CHARACTERS_READ = 1 << 24  # of a coordinate


class Recorded(NamedTuple):
    """An array as a scan records it, whatever will be made of it."""

    path: str  # absolute, in the file
    dimension_names: tuple[str | None, ...]
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    itemsize: int  # bytes of a value in memory
    is_character: bool
    whole: bool  # its values are stored as one chunk
    contiguous: bool  # its chunks are runs of values

    @classmethod
    def of(
        cls,
        path: str,
        shape: tuple[int, ...],
        chunk_shape: tuple[int, ...],
        schema: ScannedArray | ArraySchema,
    ) -> Self:
        """Return what the facts that are needed of an array depend on."""
        return cls(
            path=path,
            dimension_names=schema.dimension_names,
            shape=shape,
            chunk_shape=chunk_shape,
            itemsize=itemsize_of(schema.data_type),
            is_character=is_character(schema.data_type),
            whole=schema.whole,
            contiguous=schema.contiguous,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineHints:
    """How files will be combined, as far as facts of single files depend on it.

    Args:
        concat_dim: The dimension, or the dimensions, along which files are placed. Labels of them
            are needed; arrays that lack one need a digest, because they must be equal in all files
            that differ along it only.
        stack: Files are stacked along a dimension that they do not have. Large arrays that get it
            need no digest then.
        data_vars: Words and names of variables by dimension, which say what gets a dimension where
            files are stacked; see `icevirt.planning.combine.data_vars`.
        pad: Dimensions whose lengths may differ between files, and are padded.
        label_variables: Names or absolute paths of variables with one value, which says where the
            file lies along a dimension that it does not have.
        rename: Names in the file, and the names of dimensions in ``concat_dim`` and ``pad`` that
            they get.
        tolerant: Names or absolute paths of variables without a dimension in ``concat_dim`` whose
            values are compared between files; ``"*"`` for the coordinates of
            dimensions.
        equal: Paths of arrays that need a digest though files are stacked.
        most_together: Bytes up to which steps of contiguous values stay in one chunk; 0: each step
            that is worth one gets its own. No fact depends on it.
        strict: Whether values that are needed and cannot be stored are an error.
    """

    concat_dim: str | tuple[str, ...] | None = None
    stack: bool = False
    pad: tuple[str, ...] = ()
    label_variables: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    tolerant: tuple[str, ...] = ()
    data_vars: tuple[tuple[str, tuple[str, ...]], ...] = ()
    equal: tuple[str, ...] = ()
    most_together: int = 0
    strict: bool = False

    @property
    def concat_dims(self) -> tuple[str, ...]:
        """``concat_dim`` as names; none where nothing is concatenated."""
        if self.concat_dim is None:
            return ()
        return (self.concat_dim,) if isinstance(self.concat_dim, str) else self.concat_dim

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - hints are few, and most files hold the same arrays
    def choose_facts(
        self, array: Recorded, *, is_equal: bool, is_referenced: bool, affordable: int
    ) -> Fact:
        """Return the facts that are needed of an array.

        Args:
            array: As a scan records it.
            is_equal: Whether the array must be equal in all files although these are stacked.
            is_referenced: Whether a policy wants its chunks to be references.
            affordable: Bytes of values that may be stored of a file.
        """
        path, names = array.path, array.dimension_names
        found = Fact.none
        if not array.whole and self.wants_values(
            array, is_referenced=is_referenced, affordable=affordable
        ):
            found |= Fact.values
        if array.whole or Fact.values in found:
            if self.orders(path, names):
                found |= Fact.labels
            elif self.compares(names):
                found |= Fact.digest
        elif self.compares(names):
            is_coordinate = is_equal or names == (paths.name(path),)
            if not self.stack or is_coordinate or prod(array.shape) * array.itemsize <= _COMPARED:
                found |= Fact.digest
        return found | Fact.labels if self._wants_labels(array) else found

    def _wants_labels(self, array: Recorded) -> bool:
        path, names, count = array.path, array.dimension_names, prod(array.shape)
        return (
            (count == 1 and self.is_label(path))
            # a single step may lack its dimension, and then says where the file lies
            or (not names and paths.name(path) in self.concat_dims)
            or (count <= _TOLERATED and self.keeps_values(path, names))
            or self.spells(array)
        )

    def spells(self, array: Recorded) -> bool:
        """Say whether an array is the coordinate of a dimension, a row of characters per label."""
        return (
            len(array.dimension_names) == 2
            and self.orders(array.path, array.dimension_names[:1])
            and array.shape[1] > 0
            and prod(array.shape) <= _CHARACTERS_READ
            and array.is_character
        )

    def wants_values(self, array: Recorded, *, is_referenced: bool, affordable: int) -> bool:
        """Say whether an array that is referenced can only be joined by its values."""
        path, names = array.path, array.dimension_names
        if is_referenced:
            return self.orders(path, names)
        axes, itemsize = self.find_joined_axes(names), array.itemsize
        if not names or names == (paths.name(path),):
            is_small = prod(array.shape) * itemsize <= affordable
            return bool(axes) or (bool(self.concat_dims) and is_small)
        called = self._rename(names)
        if prod(array.shape) * itemsize <= affordable and any(
            array.shape[axis] == 1 and has_few(array.shape, axis) for axis in axes
        ):
            return True  # as those of files with more steps are: bounds, of which some are recoded
        return any(
            joins_badly(
                array.shape,
                array.chunk_shape,
                axis,
                itemsize,
                contiguous=array.contiguous,
                padded=called[axis] in self.pad,
            )
            for axis in axes
        )

    def with_uneven_texts(self, arrays: Iterable[Recorded]) -> CombineHints:
        """Return the hints for arrays of which some are texts with room for fewer characters."""
        known = [*arrays]
        texts = dimensions_of_texts((each.dimension_names, each.is_character) for each in known)
        held: dict[str, set[tuple[str, int]]] = {}
        for each in known:
            if each.is_character and each.shape and (name := each.dimension_names[-1]) in texts:
                held.setdefault(each.path, set()).add((str(name), each.shape[-1]))
        uneven = {name for found in held.values() if len(found) > 1 for name, _ in found}
        called = self._rename(sorted(uneven))
        return replace(self, pad=(*self.pad, *map(str, called))) if uneven else self

    def _rename(self, names: Sequence[str | None]) -> tuple[str | None, ...]:
        if not self.rename:
            return tuple(names)
        renamed = dict(self.rename)
        return tuple(None if name is None else renamed.get(name, name) for name in names)

    def find_joined_axes(self, names: Sequence[str | None]) -> tuple[int, ...]:
        """Return the axes of an array, given its dimensions, whose length is not the dataset's."""
        joined = {*self.concat_dims, *self.pad}
        return tuple(axis for axis, name in enumerate(self._rename(names)) if name in joined)

    def cut(self, array: Recorded) -> tuple[int, ...]:
        """Return the chunks of contiguous values of an array."""
        axes = self.find_joined_axes(array.dimension_names)
        return cut_along(array.chunk_shape, axes, array.itemsize, self.most_together)

    def orders(self, path: str, names: Sequence[str | None]) -> bool:
        """Say whether a variable is the coordinate of a dimension along which files are placed."""
        called = self._rename(names)
        return called == self._rename((paths.name(path),)) and called[0] in self.concat_dims

    def compares(self, names: Sequence[str | None]) -> bool:
        """Say whether files hold an array of these dimensions again that must be equal."""
        return any(name not in self._rename(names) for name in self.concat_dims)

    def equal_in_files(
        self,
        variables: Iterable[tuple[str, Sequence[str | None], Mapping[str, Any]]],
        groups: Iterable[tuple[str, Mapping[str, Any]]] = (),
    ) -> frozenset[str]:
        """Return the paths of arrays that lack a dimension, and will not get it: they are compared.

        Args:
            variables: Path, dimensions and attributes of all variables of the file.
            groups: Path and attributes of its groups.
        """
        if not self.stack:
            return frozenset(self.equal)
        known = [(path, self._rename(names), attributes) for path, names, attributes in variables]
        there = {name for _, names, _ in known for name in names}
        coordinates = coordinates_of(known, groups)
        rules = dict(self.data_vars)
        return frozenset(
            path
            for path, names, _ in known
            for dimension in self.concat_dims
            if dimension not in names
            and not gets(
                rules,
                dimension,
                path,
                is_new=dimension not in there,
                is_coordinate=path in coordinates,
            )
        ) | frozenset(self.equal)

    def is_label(self, path: str) -> bool:
        """Say whether a variable was named in ``label_variables``."""
        return any(name in (path, paths.name(path)) for name in self.label_variables)

    def keeps_values(self, path: str, names: Sequence[str | None]) -> bool:
        """Say whether the values of a variable are compared with a tolerance."""
        if not self.tolerant or not self.compares(names) or self.find_joined_axes(names):
            return False
        is_coordinate = tuple(names) == (paths.name(path),)
        return is_named(path, self.tolerant) or ("*" in self.tolerant and is_coordinate)


def holds_labels(path: str, names: Sequence[str | None], data_type: object) -> bool:
    """Say whether a variable is the coordinate of a dimension; texts may be rows of characters."""
    own = paths.name(path)
    if tuple(names) == (own,):
        return True
    return len(names) == 2 and names[0] == own and is_character(data_type)


def find_limits(
    tolerance: Mapping[str, float],
    variables: Iterable[tuple[str, Sequence[str | None], Mapping[str, Any]]],
) -> dict[str, float]:
    """Return the variables that tolerances cover, by path.

    A path counts before a name, that before the coordinate whose bounds a variable holds, and that
    before what holds for all coordinates: those of dimensions, those that the attribute
    ``coordinates`` names, and the bounds of all.
    """
    if not tolerance:
        return {}
    known = list(variables)
    there: dict[str, set[str]] = {}
    for path, _, _ in known:
        there.setdefault(paths.name(path), set()).add(path)
    found: dict[str, float] = {}
    every = tolerance.get("*")
    coordinates = coordinates_of(known) if every is not None else frozenset()
    owners: dict[str, str] = {}  # of bounds
    for path, _, attributes in known:
        for name in ("bounds", "climatology"):
            if isinstance(word := attributes.get(name), str):
                held = resolve(paths.parent(path), word, there)
                owners.setdefault(held or "", path)
    for path in {path for path, _, _ in known}:
        owner = owners.get(path, path)
        keys = (path, paths.name(path), owner, paths.name(owner))
        limit = next((tolerance[key] for key in keys if key in tolerance), None)
        limit = every if limit is None and path in coordinates else limit
        if limit is not None:
            found[path] = limit
    return found


def is_named(path: str, names: tuple[str, ...]) -> bool:
    """Say whether a node is, or lies below, one of some names or absolute paths."""
    return any(
        path == name or path.startswith(name.rstrip("/") + "/")
        if name.startswith("/")
        else paths.name(path) == name
        for name in names
    )
