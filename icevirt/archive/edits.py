"""Define what a user may change about files before combining: names and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFacts:
    """A variable of a file, as a ``preprocess`` function sees it."""

    dims: tuple[str | None, ...]
    shape: tuple[int, ...]
    dtype: str  # as Zarr names it
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file, as a ``preprocess`` function sees it: names and attributes, without values."""

    url: str
    attrs: Mapping[str, Any]  # of the root group
    variables: Mapping[str, VariableFacts]  # by absolute path


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """The return value of a ``preprocess`` function; returning None changes nothing.

    Args:
        rename: Old names of variables and dimensions (of variables, absolute paths too) and new
            ones, as in xarray's ``Dataset.rename``.
        drop_variables: Names or absolute paths.
        attrs: Attributes to set, by variable (new name or absolute path; ``"/"`` is the file), each
            a mapping of names to values; None removes one.
        labels: The file's labels along new dimensions, for which the build's ``labels`` is
            ``"preprocess"``.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop_variables: Iterable[str] = ()
    attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labels: Mapping[str, str | int | float] = field(default_factory=dict)
