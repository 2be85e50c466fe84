"""Change the names and attributes of one file before any other decision.

Setting an attribute that decides decoding, like units or scale_factor, corrects it: the numbers
stay and mean something else. That is exact only if the numbers of all files meant the same before.
If files disagree, one new value would be wrong for some of them without any way to see which; so
it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import DECODING
from icevirt.errors import CombineError, Fix, InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import FILL, MISSING, Attributes, restore
from icevirt.model.json import JSON
from icevirt.model.paths import problem
from icevirt.planning.combine.cf_packing import PACKING
from icevirt.planning.remedies import of_arguments
from icevirt.planning.times.units import BOUNDS, DURATIONS, parse, says_since
from icevirt.remedy_notation import write_code, write_remedy


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """Changes of one file, as a value that can be compared."""

    rename: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    attrs: tuple[tuple[str, str, str], ...] = ()  # variable, name, JSON of the value

    @classmethod
    def of(cls, changes: FileChanges | None) -> FileEdit:
        """Take what a person or a function said.

        Raises:
            InvalidInputError: It is no change of names and attributes.
        """
        if changes is None:
            return cls()
        if not isinstance(changes, FileChanges):
            raise InvalidInputError(
                "preprocess must return FileChanges or None",
                do="Return icevirt.FileChanges(...).",
                returned=type(changes).__name__,
            )
        _check_names(changes.rename)
        drop = changes.drop_variables
        return cls(
            rename=tuple(changes.rename.items()),
            drop=(drop,) if isinstance(drop, str) else tuple(drop),
            attrs=tuple(
                (variable, name, _write_json(variable, name, value))
                for variable, attrs in changes.attrs.items()
                for name, value in attrs.items()
            ),
        )

    def __bool__(self) -> bool:
        return bool(self.rename or self.drop or self.attrs)

    def new_path(self, path: str) -> str:
        """Return what a variable is called then."""
        renamed = dict(self.rename)
        new = renamed.get(path, renamed.get(paths.name(path)))
        return path if new is None else paths.join(paths.parent(path), new)

    def drops(self, path: str) -> bool:
        """Say whether a variable is left out."""
        return path in self.drop or paths.name(path) in self.drop

    def choose_attributes(self, path: str) -> dict[str, str]:
        """Return the attributes that a variable of a new path gets; a path counts before a name."""
        name = paths.name(path)
        by_name = {key: text for variable, key, text in self.attrs if variable == name}
        return by_name | {key: text for variable, key, text in self.attrs if variable == path}


def read_recorded(stored: object) -> tuple[FileEdit, str]:
    """Return what a snapshot says was set in all files, and the function that set more."""
    found = stored if isinstance(stored, dict) else {}
    attrs = tuple((str(a), str(b), str(c)) for a, b, c in found.get("attrs") or ())
    return FileEdit(attrs=attrs), str(found.get("preprocess") or "")


def _check_names(rename: Mapping[str, str]) -> None:
    for old, new in rename.items():
        given: tuple[object, ...] = (old, new)
        is_text = all(isinstance(each, str) for each in given)
        if not is_text or (why := problem(new)):
            raise InvalidInputError(
                f"not a valid new name: {why}" if is_text else "names must be strings",
                do=write_remedy("Correct ", write_code("rename", "--rename OLD=NEW"), "."),
                old=old,
                new=new,
            )


def _write_json(variable: str, name: str, value: Any) -> str:
    # what means "missing" gets the type of its variable, unless numpy gave it one
    is_plain = name in (FILL, MISSING) and not isinstance(value, np.generic | np.ndarray)
    key = "" if is_plain else name
    plain = Attributes.of({key: value})
    dtype = None if is_plain else plain.dtypes.get(key)
    try:
        return json.dumps([plain.values[key], dtype], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "not a valid value for an attribute",
            do="Correct the value.",
            variable=variable,
            attribute=name,
        ) from error


def facts_of_file(facts: CatalogFacts, file: int, rows: NDArray[np.integer]) -> FileFacts:
    """Return what a function for ``preprocess`` gets of a file; ``rows`` are its arrays."""
    arrays = facts.arrays
    return FileFacts(
        url=facts.files.url[file],
        attrs=next(
            (dict(g.attributes.values) for g in facts.groups_of(file) if g.path == paths.ROOT), {}
        ),
        variables={
            arrays.path[row]: _describe_variable(arrays.schema[row], arrays.shape[row])
            for row in rows.tolist()
        },
    )


@lru_cache(4096)
def _describe_variable(schema: str, shape: str) -> VariableFacts:
    """Return what nearly all files say alike, so it cannot be written to."""
    raw = json.loads(schema)
    kind = raw["data_type"]
    return VariableFacts(
        dims=tuple(raw["dimension_names"]),
        shape=tuple(json.loads(shape)),
        dtype=kind if isinstance(kind, str) else kind["name"],
        attrs=MappingProxyType(raw["attributes"]),
    )


COUNTING = ("units", "calendar")
"""What bounds inherit from their coordinate (CF 7.1)."""

_TEXTS = (*COUNTING, "_Unsigned")
_MISSING = ("_FillValue", "missing_value")
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}

type Statement = object
"""What a file says of its values by an attribute, equal where it means the same; None: nothing."""


def statement(attributes: Attributes, name: str) -> Statement:
    """Return what an attribute says, however it is spelled."""
    attrs = attributes.values
    if name == "calendar":
        calendar = str(attrs.get(name) or "standard").lower()
        return "standard" if calendar == "gregorian" else calendar
    if name not in attrs:
        return None
    if name == "units":
        found = parse(attrs[name], attrs.get("calendar"))
        return attrs[name] if found is None else found.meaning
    if name == "_Unsigned":
        return str(attrs[name]).lower()
    if name in PACKING:
        value = np.asarray(restore({name: attrs[name]}, attributes.dtypes)[name])
        return repr(value.reshape(-1).tolist())
    return json.dumps(attrs[name])


_CORRECT_EACH = (
    "Let the function look at file.variables[...].attrs, and correct only the files whose attribute"
    " is wrong."
)
_CORRECT_SOME = (
    "If the attribute is wrong in some files, correct only these with preprocess, a function that"
    " gets the attributes of each file."
)


class Corrections:
    """What is said anew of variables, and what their files said before."""

    def __init__(self, option: str, *, of_each: bool) -> None:
        """Collect what an option says of all files, or a function of each (``of_each``)."""
        self._option, self._of_each = option, of_each
        self._said: dict[tuple[str, str, str], dict[Statement, str]] = {}

    def add(self, path: str, attributes: Attributes, wanted: Mapping[str, str], url: str) -> None:
        """Note one file's variable.

        Raises:
            CombineError: Another file says something else, and both would say the same now.
        """
        for name, text in wanted.items():
            # bounds that are not named count from the date that they count from in the file
            meant = "units" if name in BOUNDS else name
            if meant not in DECODING or (
                (self._of_each or name in BOUNDS) and not _decodes(attributes, meant)
            ):
                continue
            said = statement(attributes, meant)
            if said is None and name not in PACKING:
                continue  # what says nothing is not contradicted
            known = self._said.setdefault((path, name, text), {})
            known.setdefault(said, url)
            if len(known) > 1:
                raise self._refusal(path, name, text, known)

    def _refusal(
        self, path: str, name: str, text: str, known: Mapping[Statement, str]
    ) -> CombineError:
        one, other = known.values()
        return CombineError(
            f"{self._option} would set {name}={json.loads(text)[0]!r} of {path}, but the files have"
            " different values of this attribute, so their values would change in different ways",
            fixes=[] if self._of_each else _fix_without(path, name, known),
            do=_CORRECT_EACH if self._of_each else _CORRECT_SOME,
            variable=path,
            attribute=name,
            first=one,
            other=other,
        )


def _decodes(attributes: Attributes, name: str) -> bool:
    """Say whether readers compute values with an attribute."""
    if name != "units":
        return name in (*PACKING, "calendar")
    units = attributes.values.get(name)
    return isinstance(units, str) and (says_since(units) or units in DURATIONS)


def _fix_without(path: str, name: str, said: Iterable[Statement]) -> list[Fix]:
    """Return the fix that lets files say themselves from which date their times count."""
    calendars = {each[2] if isinstance(each, tuple) else None for each in said}
    if len(calendars) > 1 or None in calendars:
        return []
    gone = tuple(f"--attr={called}:{name}" for called in (path, paths.name(path)))
    price = "times with different reference dates are converted exactly"
    return [of_arguments({}, price, without=gone)]


def convert(
    variable: str, name: str, value: Any, known: str | None, data_type: JSON
) -> tuple[Any, str | None]:
    """Return a value in the type that the attribute has in the file, with that type.

    Raises:
        InvalidInputError: It is no value for an attribute that decodes, or does not fit the data
            type of the variable.
    """
    if name == "_Unsigned" and isinstance(value, bool):
        value = str(value).lower()  # a command line reads true as JSON
    if name == "units" and _is_number(value):
        value = str(value)  # and 1, a unit of CF
    if name in _TEXTS and not isinstance(value, str):
        raise _error_no_value(variable, name, value, "a string")
    own = data_type if isinstance(data_type, str) and _is_number_type(data_type) else None
    if name in _MISSING and own is not None:
        return _type_missing(variable, name, value, known or np.dtype(own).str[1:], own)
    if name in ("scale_factor", "add_offset") and not _is_number(value):
        raise _error_no_value(variable, name, value, "a number")
    numbers = value if isinstance(value, list) else [value]
    if known is None or not numbers or not all(map(_is_number, numbers)):
        return value, None
    made = _convert(value, known)
    if made is None:
        return value, None  # as wide as it has to be
    attributes = Attributes.of({name: made})
    return attributes.values[name], attributes.dtypes.get(name)


def _type_missing(
    variable: str, name: str, value: Any, known: str, data_type: str
) -> tuple[Any, str | None]:
    """Return what means "missing" in the type of the data."""
    listed = value if isinstance(value, list) else [value]
    numbers = [_WORDS.get(each, each) if isinstance(each, str) else each for each in listed]
    if not numbers or not all(map(_is_number, numbers)):
        raise _error_no_value(variable, name, value, "a number")
    for kind in dict.fromkeys((known, np.dtype(data_type).str[1:])):
        made = _convert(numbers if isinstance(value, list) else numbers[0], kind)
        if made is not None:
            attributes = Attributes.of({name: made})
            return attributes.values[name], attributes.dtypes.get(name)
    raise _error_no_value(variable, name, value, f"a value of its data type {data_type}")


def _convert(value: Any, kind: str) -> Any:
    """Return numbers in a type, if it holds them; a float may be rounded, as in the file."""
    dtype = np.dtype(kind)
    wide = np.asarray(value)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            made = wide.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return None
    if dtype.kind == "f":
        fits = bool((np.isfinite(made) == np.isfinite(wide.astype(np.float64))).all())
    else:
        fits = dtype.kind in "iu" and made.tolist() == wide.tolist()
    return None if not fits else made if wide.ndim else made[()]


def _error_no_value(variable: str, name: str, value: Any, wanted: str) -> InvalidInputError:
    return InvalidInputError(
        f"the attribute {name} of {variable} must be {wanted}",
        do="Correct it, or pass None (null) to remove the attribute.",
        variable=variable,
        attribute=name,
        given=value,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number_type(data_type: str) -> bool:
    try:
        return np.dtype(data_type).kind in "iuf"
    except TypeError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelEdits:
    """What was said of the attributes of labels: by a function of each file, then of all alike."""

    edits: tuple[FileEdit, ...]
    of_file: NDArray[np.int64]  # (files,) which of the edits each file has
    everywhere: FileEdit

    def take(self, rows: NDArray[np.integer]) -> LabelEdits:
        """Return the edits of some files, in the order given."""
        return replace(self, of_file=self.of_file[rows])
