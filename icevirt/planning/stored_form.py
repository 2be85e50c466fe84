"""Say how a variable lies in the repository that a person had stored there.

A dataset records it, so that whatever makes the dataset longer or anew stores the variable again,
in its own chunks and codecs. Anybody who can write the repository can write the record: it is data,
and bounds what a task would hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from icevirt.archive.joining import find_fixed_dtype
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import TWIN_OF
from icevirt.model.json import JSON
from icevirt.planning.coarsening import Coarsening
from icevirt.remedy_notation import write_code, write_remedy

_LARGEST = 1 << 30  # bytes of a chunk, of which a task holds a few copies
_ZSTD = [
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
]

type StoredForms = Mapping[str, StoredForm]
"""By path of the variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """The chunks and codecs of a stored variable; None: as its files have them."""

    chunk_shape: tuple[int, ...] | None = None
    codec: Literal["zstd"] | None = None
    of: str | None = None  # path of the variable that it copies; None: it is that variable
    coarsen: Coarsening | None = None  # of a coarser copy, or a coordinate beside it

    @property
    def is_copy(self) -> bool:
        """Whether chunks are stored byte by byte."""
        return self.chunk_shape is None and self.codec is None

    def record(self) -> dict[str, JSON]:
        """Return it as a snapshot records it."""
        edges: JSON = None if self.chunk_shape is None else list(self.chunk_shape)
        of = {} if self.of is None else {"of": self.of}
        coarsen = {} if self.coarsen is None else {"coarsen": self.coarsen.record()}
        return {"chunk_shape": edges, "codec": self.codec, **of, **coarsen}

    @classmethod
    def of_record(cls, raw: Mapping[str, Any]) -> StoredForm:
        """Undo `record`. Raises ``ValueError``, ``TypeError``, ``AttributeError``."""
        edges, codec, of = raw.get("chunk_shape"), raw.get("codec"), raw.get("of")
        coarsen = Coarsening.of_record(raw["coarsen"]) if "coarsen" in raw else None
        if coarsen is not None and (of is None or edges is None):
            raise ValueError("a coarser copy of nothing, or without chunks")
        if of is not None and not isinstance(of, str):
            raise ValueError(f"variable {of!r}")
        if codec not in (None, "zstd"):
            raise ValueError(f"codec {codec!r}")
        if edges is not None and not all(type(each) is int and each > 0 for each in edges):
            raise ValueError(f"chunks {edges!r}")
        shape = None if edges is None else tuple(edges)
        return cls(chunk_shape=shape, codec=codec, of=of, coarsen=coarsen)

    def shape(self, fine: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in which a variable of a shape is stored."""
        return fine if self.coarsen is None else self.coarsen.shape(fine)

    def misfit(self, planned: Mapping[str, Any]) -> str | None:
        """Say why an array of this zarr.json cannot be stored so; None where it can."""
        if self.is_copy:
            return None
        if find_fixed_dtype(planned["data_type"]) is None:
            return "values of its type cannot be encoded anew"
        edges = self.chunk_shape
        if edges is None:
            return None if _edges(planned) else "its chunks differ in length"
        if len(edges) != len(planned["shape"]):
            return "it has another number of dimensions"
        why = None if self.coarsen is None else self.coarsen.misfit(planned)
        is_too_large = math.prod(edges) * self.width(planned) > _LARGEST
        large = "a chunk would be too large for the memory of a task"
        return why or (large if is_too_large else None)

    def width(self, planned: Mapping[str, Any]) -> int:
        """Return how many bytes a task holds for each value that it stores."""
        dtype = find_fixed_dtype(planned["data_type"])
        assert dtype is not None
        return dtype.itemsize if self.coarsen is None else 8 * self.coarsen.size

    def apply(self, planned: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Return the zarr.json of an array that is stored so, given that of its files."""
        document = dict(planned)
        if self.coarsen is not None and self.of is not None:
            document = self.coarsen.apply(planned, self.of, path)
        if self.chunk_shape is not None:
            edges = list(self.chunk_shape)
            document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": edges}}
        if self.codec is not None:
            document["codecs"] = _ZSTD
        if self.of is not None and self.coarsen is None:
            name = paths.name(self.of)
            document["attributes"] = {**(document.get("attributes") or {}), TWIN_OF: name}
        return document


def forms_of(record: Mapping[str, Any]) -> dict[str, StoredForm]:
    """Return how variables of a dataset are stored, as its record says."""
    return {path: StoredForm.of_record(each) for path, each in record.get("stored", {}).items()}


def record_forms(forms: StoredForms) -> dict[str, JSON]:
    """Return forms as `forms_of` reads them."""
    return {path: each.record() for path, each in forms.items()}


def json_of_form(form: StoredForm, zarr_json: bytes, path: str) -> bytes | None:
    """Return the zarr.json of an array that is stored in a form; None where it is the files'."""
    planned = json.loads(zarr_json)
    document = form.apply(planned, path)
    if document == planned:
        return None
    return json.dumps(document, ensure_ascii=False).encode()


def refuse_misfit(form: StoredForm, path: str, planned: Mapping[str, Any]) -> None:
    """Check that a variable can be stored in a form.

    Raises:
        UnsupportedError: Its values cannot be encoded anew.
        InvalidInputError: A chunk would be too large.
    """
    why = form.misfit(planned)
    if why is None:
        return
    if form.coarsen is not None and form.coarsen.misfit(planned) is not None:
        raise UnsupportedError(
            f"there can be no coarser copy of the variable: {form.coarsen.misfit(planned)}",
            do="Name a variable of numbers that have a mean.",
            variable=path,
            data_type=planned["data_type"],
        )
    if find_fixed_dtype(planned["data_type"]) is None or _edges(planned) is None:
        raise UnsupportedError(
            f"the variable cannot be stored so: {why}",
            do=write_remedy(
                "Leave out ",
                write_code("chunks and codec", "--chunks and --codec"),
                ": chunks are copied as they are.",
            ),
            variable=path,
            data_type=planned["data_type"],
        )
    raise InvalidInputError(
        f"the variable cannot be stored so: {why}",
        do="Pass smaller chunks.",
        variable=path,
        chunk_shape=form.chunk_shape,
    )


def _edges(planned: Mapping[str, Any]) -> list[int] | None:
    grid = planned["chunk_grid"]
    return grid["configuration"]["chunk_shape"] if grid.get("name") == "regular" else None
