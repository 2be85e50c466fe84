"""Define the user's choices for combining files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from icevirt.archive.joining import LONGEST_RUN, STEP
from icevirt.archive.options import Names, Option, Options, count, mapping, names, one_of, size
from icevirt.archive.plan import MAX_REFERENCES
from icevirt.errors import InvalidInputError
from icevirt.model import paths
from icevirt.planning.axes.axis import spacing_of
from icevirt.planning.axes.dates import is_date, plain_date
from icevirt.planning.axes.file_labels import Labels, NamePattern, is_pattern
from icevirt.planning.combine.combine_attrs import CombineAttrs
from icevirt.planning.combine.data_vars import (
    EVERY,
    DataVarsLike,
    DimensionRules,
    Kept,
    data_vars_of,
)
from icevirt.planning.edits.file_edits import FileChanges, FileFacts, LabelEdits
from icevirt.remedy_notation import join, write_code, write_option, write_remedy

type Combine = Literal["by_coords", "nested"]
type ChunkGrid = Literal["regular", "rectilinear"]
type Duplicates = Literal["refuse", "first", "last", "newest", "version"]
type Missing = Literal["refuse", "reserve"]
type OnMismatch = Literal["refuse", "native", "eras"]
type LabelsLike = Labels | Mapping[str, Labels]
type SpacingLike = str | float | Mapping[str, str | float] | None
type ToleranceLike = float | Mapping[str, float] | None
type Preprocess = str | Callable[[FileFacts], FileChanges | None] | None

MAX_NATIVE_BYTES = 256 * 1024 * 1024
"""Of values that are stored because they cannot be referenced, by default."""

COORDINATES = "*"
"""In the place of a name: all coordinates of dimensions."""

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def _data_vars(given: Any) -> DataVarsLike:
    made = {name: list(each) for name, each in data_vars_of(given).items()}
    if isinstance(given, str) or given is None:
        return given
    return made if isinstance(given, Mapping) else made[EVERY]


def _labels(given: Any) -> LabelsLike | None:
    if isinstance(given, Mapping):
        return {str(name): _labels_of_one(each) for name, each in given.items()}
    return None if given is None else _labels_of_one(given)


def _labels_of_one(given: Any) -> Labels:
    if isinstance(given, str):
        if is_pattern(given):
            NamePattern.of(given)
        return given
    if not isinstance(given, Sequence) and not hasattr(given, "__array__"):
        raise InvalidInputError(
            "labels are texts, numbers or dates, one for each file, or say where files hold them",
            do='Pass a list, a pattern of names like "{member}_{time:%Y%m}.nc", "regex:PATTERN",'
            ' "attribute:NAME" or "variable:NAME".',
        )
    listed = list(np.asarray(given)) if hasattr(given, "__array__") else list(given)
    return [plain_date(each) if is_date(each) else each for each in listed]


def _tolerance(given: Any) -> ToleranceLike:
    tolerance_of(given)
    return dict(given) if isinstance(given, Mapping) else given


def tolerance_of(given: ToleranceLike) -> dict[str, float]:
    """Return tolerances by name.

    Raises:
        InvalidInputError: One is no number, or negative.
    """
    if given is None:
        return {}
    by_name = dict(given) if isinstance(given, Mapping) else {COORDINATES: given}
    for name, value in by_name.items():
        number: object = value
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not 0 <= value < math.inf:
            raise InvalidInputError(
                "a tolerance must be a number of 0 or more",
                do='Pass one for all coordinates, or by name like {"lat": 1e-6}.',
                variable=name,
                tolerance=value,
            )
    return {name: float(value) for name, value in by_name.items()}


def _spacing(given: Any) -> SpacingLike:
    if isinstance(given, Mapping):
        return {str(name): spacing_of(each) for name, each in given.items()}
    return None if given is None else spacing_of(given)


def _piece(given: Any) -> int | str | None:
    return size(given, STEP, LONGEST_RUN)


def _attrs(given: Any) -> dict[str, dict[str, Any]] | None:
    held = mapping(given)
    return None if held is None else {name: mapping(each) or {} for name, each in held.items()}


def _preprocess(given: Any) -> Preprocess:
    if isinstance(given, str) and not _FUNCTION.fullmatch(given):
        raise InvalidInputError(
            "not a valid function name", do="Write it as package.module:function."
        )
    if not (given is None or isinstance(given, str) or callable(given)):
        raise InvalidInputError(
            "preprocess must be a function",
            do='Pass one that takes icevirt.FileFacts, or its name as "package.module:function".',
        )
    made: Preprocess = given
    return made


def _chunk_grid(given: Any) -> ChunkGrid:
    made: ChunkGrid = one_of(("regular", "rectilinear"), given)
    if made == "rectilinear" and tuple(map(int, version("zarr").split(".")[:2])) < (3, 4):
        raise InvalidInputError(
            "chunks of different lengths need zarr 3.4 or newer",
            do='Install it, or leave chunk_grid at "regular".',
            installed=version("zarr"),
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CombineOptions(Options):
    """How files become one dataset."""

    KEYWORD: ClassVar[str] = "combine_options"

    combine: Annotated[
        Combine,
        Option(
            "by_coords places files by their coordinates and labels, and refuses equal steps;"
            " nested places them where they stand among the sources, whatever their coordinates"
            " say: in the order given, or for several dimensions in nested lists, the outermost"
            " along the first dimension."
        ),
    ] = "by_coords"
    data_vars: Annotated[
        DataVarsLike,
        Option(
            "Which variables get a concatenated dimension that they lack, as in xarray: all data"
            " variables, minimal (none), or names; for all dimensions or by dimension. By default"
            " all data variables get a new dimension, and no variable gets a dimension that the"
            " files have. Variables that do not get a dimension must hold equal values along it.",
            _data_vars,
        ),
    ] = None
    labels: Annotated[
        LabelsLike | None,
        Option(
            "Stack the files along the concatenated dimension as a new one with these labels: a"
            " list in the order of the files, dates too; a pattern of names with dimensions and"
            " date formats, like {member}_{time:%Y%m%d}.nc; regex:PATTERN with one group that is"
            " found in the file's URL; attribute:NAME of the file; variable:NAME with one value in"
            " each file; or preprocess, for what that function returns. Files of one label are"
            " merged. By dimension where there are several.",
            _labels,
        ),
    ] = None
    missing: Annotated[
        Missing,
        Option(
            "Steps for which some files lack a variable: refuse, or reserve them, so that they"
            " read as missing values."
        ),
    ] = "refuse"
    duplicates: Annotated[
        Duplicates,
        Option(
            "Which file to use for steps that several files hold: newest by the time of"
            " modification, version by the name (numbers in it count as numbers), first or last in"
            " the order given; or refuse such files."
        ),
    ] = "refuse"
    on_mismatch: Annotated[
        OnMismatch,
        Option(
            "Files that encode a variable in another way than most. refuse: stop; native: read"
            " them and store these chunks as the others are encoded, where every value survives"
            " exactly; eras: make a group for each encoding (era_0 and so on), in one commit."
        ),
    ] = "refuse"
    spacing: Annotated[
        SpacingLike,
        Option(
            "How far apart the steps of a dimension are, like 6h or 1D: steps that no file holds"
            " get their place, and read as missing values.",
            _spacing,
        ),
    ] = None
    pad: Annotated[
        Names,
        Option(
            "Dimensions along which files have different lengths: arrays are as long as the"
            " longest file's, and the ends of others read as missing values."
        ),
    ] = ()
    tolerance: Annotated[
        ToleranceLike,
        Option(
            "How far values may differ that must agree in all files, in the variable's units: of"
            " all coordinates of dimensions, or by name. Values of the first file are stored.",
            _tolerance,
        ),
    ] = None
    combine_attrs: Annotated[
        CombineAttrs, Option("How to combine attributes that differ between files, as in xarray.")
    ] = "override"
    rename: Annotated[
        Mapping[str, str] | None,
        Option(
            "New names of variables and dimensions by old ones, as in Dataset.rename; absolute"
            " paths of variables are names too.",
            mapping,
        ),
    ] = None
    attrs: Annotated[
        Mapping[str, Mapping[str, Any]] | None,
        Option(
            "Attributes to set, by variable (with its new name; / is the dataset) and name; null or"
            " None removes one. Attributes that decode values are corrected: the stored numbers"
            " stay, and files that differ in them are refused.",
            _attrs,
        ),
    ] = None
    preprocess: Annotated[
        Preprocess,
        Option(
            "A function that takes icevirt.FileFacts of each file and returns icevirt.FileChanges"
            " (names, variables to drop, attributes) or None; or its name as"
            " package.module:function. It runs in this process, before rename and attrs.",
            _preprocess,
        ),
    ] = None
    rebase_indices: Annotated[
        bool,
        Option(
            "Store variables that number elements of their own file (connectivities of meshes,"
            " instances of ragged arrays), so that they count elements of the dataset where files"
            " follow one another. Values that mean no element stay."
        ),
    ] = False
    index_of: Annotated[
        Mapping[str, str] | None,
        Option(
            "Variables, by name or absolute path, that number what lies along a dimension of their"
            " own file, where nothing in the files says so; with the name of that dimension, its"
            " path where it belongs to another group (/heights/delta_time), or nothing for"
            " variables that are no such index and are joined as they are.",
            mapping,
        ),
    ] = None
    max_native_bytes: Annotated[
        int,
        Option(
            "How many bytes of values may be stored of all chunks that several files share or that"
            " are encoded in another way than most.",
            count,
        ),
    ] = MAX_NATIVE_BYTES
    float_variables: Annotated[
        Names,
        Option(
            "Packed variables, by name or absolute path, to store as decoded floats.",
        ),
    ] = ()
    chunk_grid: Annotated[
        ChunkGrid,
        Option(
            "rectilinear lets chunks follow the files' chunks where a grid of chunks of one "
            "length would not (years of 365 and 366 days); readers need zarr 3.4 and its setting "
            "array.rectilinear_chunks.",
            _chunk_grid,
        ),
    ] = "regular"
    split_contiguous: Annotated[
        int | str | None,
        Option(
            "Bytes up to which steps of contiguous variables (uncompressed, not in chunks) stay"
            " together in one chunk, like 1MiB: fewer references, and more bytes for one step. By"
            " default each step along the concatenated dimension is a chunk. Chunks are as long as"
            " the lengths of all files allow, and at most 16MiB.",
            _piece,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse options of which one makes another void.

        Raises:
            InvalidInputError: Files are to lie where they stand, and to be placed by coordinates.
        """
        super(CombineOptions, self).__post_init__()
        void = {"duplicates": self.duplicates != "refuse", "spacing": self.spacing is not None}
        if self.combine == "nested" and any(void.values()):
            names = " and ".join(name for name, is_set in void.items() if is_set)
            raise InvalidInputError(
                f'{names} cannot be used with combine="nested", which ignores coordinates',
                do=write_remedy(
                    "Leave ",
                    join(" and ", (write_option(name) for name, is_set in void.items() if is_set)),
                    " out, or place files with ",
                    write_code('combine="by_coords"', "--combine by_coords"),
                    ".",
                ),
            )

    def as_floats(self, path: str) -> bool:
        """Say whether a variable is to be stored as decoded floats."""
        return not {path, paths.name(path)}.isdisjoint(self.float_variables)


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineSpec:
    """Options of one build with everything by dimension, and what the build says beside them."""

    build_id: str
    options: CombineOptions = field(default_factory=CombineOptions)
    concat_dim: tuple[str, ...] = ()  # the first is the outermost
    group: str = "/"
    labels: Mapping[str, Labels] = field(default_factory=dict)  # of new dimensions
    label_edits: LabelEdits | None = None  # attributes of these
    spacing: Mapping[str, str | float] = field(default_factory=dict)  # by dimension
    nest: Mapping[str, tuple[int, ...]] | None = None  # URL -> place along each of concat_dim
    kept: Kept = field(default_factory=Kept)
    max_references: int = MAX_REFERENCES  # of one manifest

    def find_attributes(self, dimension: str) -> dict[str, Any]:
        """Return attributes that the user sets for the coordinate of a dimension in all files."""
        attrs = self.options.attrs or {}
        return {**attrs.get(dimension, {}), **attrs.get(f"/{dimension}", {})}

    def concatenates(self, names: Iterable[str | None]) -> bool:
        """Say whether a variable of these dimensions has a concatenated one."""
        return not set(self.concat_dim).isdisjoint(names)

    @property
    def pad(self) -> tuple[str, ...]:
        """Dimensions whose lengths may differ."""
        return names(self.options.pad)

    @property
    def tolerance(self) -> dict[str, float]:
        """How far values may differ that must agree, by name of the variable."""
        return tolerance_of(self.options.tolerance)

    @property
    def dimension_rules(self) -> DimensionRules:
        """What decides which variables get a dimension that they do not have."""
        asked = data_vars_of(self.options.data_vars)
        return DimensionRules(dimensions=self.concat_dim, asked=asked, kept=self.kept)
