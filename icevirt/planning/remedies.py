"""Write lists of names in messages, and options in remedies so that they paste."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns
from icevirt.archive.kinds import joint
from icevirt.archive.schema import ArraySchema
from icevirt.errors import Fix
from icevirt.model import paths
from icevirt.remedy_notation import Remedy, flag_of, write_code

_NAMED = 5  # variables in a price

EVERY = "*"
"""In the place of a name: all coordinates of dimensions."""

GROUPED = "a group for each encoding"
"""What is said of eras that nobody counted."""

_OF_VARIABLES = frozenset({"attrs", "data_vars", "float_variables", "tolerance"})
"""Options that name variables, or map them to what is said of them."""


def count_groups(count: int, *, as_one: bool) -> str:
    """Return what is said of eras; ``as_one``: the engine opens them as one dataset."""
    how = ', which eras="concat" opens as one dataset' if as_one else ", opened one by one"
    return f"{count} groups{how}"


def fix(price: str, *, first: str = "", concat_dim: Sequence[str] = (), **options: Any) -> Fix:
    """Return a fix: options of combining, and the dimensions to concatenate along.

    Args:
        price: What it costs or means, as a clause.
        first: A command to run before.
        concat_dim: Names of dimensions.
        options: Options of `CombineOptions`.
    """
    named: dict[str, Any] = {"concat_dim": list(concat_dim)} if concat_dim else {}
    return build_fix(price, first=first, **named, combine_options=options)


def scan_fix(price: str, *, first: str = "", **options: Any) -> Fix:
    """Return a fix by options of `ScanOptions`."""
    return build_fix(price, first=first, scan_options=options)


_MAIN = "main"  # the branch that is usual


def build_fix(
    price: str, *, first: str = "", without: Mapping[str, str] | None = None, **arguments: Any
) -> Fix:
    """Return a fix by arguments of `icevirt.build`.

    Args:
        price: What it costs or means, as a clause.
        first: A command to run before.
        without: Options that the call has and that go, with the name of which they say something;
            an empty text for all that they say.
        arguments: Of `icevirt.build`, options as mappings; empty ones are left out.
    """
    pairs = ((flag_of(name), held) for name, held in (without or {}).items())
    gone = tuple("=".join(filter(None, pair)) for pair in pairs)
    return of_arguments(arguments, price, first=first, without=gone)


def update_fix(repo: str, price: str, **arguments: str) -> Fix:
    """Return a fix that updates a dataset in the place of the call that failed.

    Args:
        repo: Path or URL of the repository.
        price: What it does, as a clause.
        arguments: Of `icevirt.update`.
    """
    given = "".join(f", {name}={_python(value)}" for name, value in arguments.items())
    flags = chain.from_iterable(_flags(name, value) for name, value in arguments.items())
    return Fix(
        python=f"icevirt.update({_python(repo)}{given})",
        flags=(),
        price=price,
        command=" ".join(map(quote, ("icevirt", "update", repo, *flags))),
    )


def anew_fix(
    sources: Sequence[str], repo: str, price: str, branch: str = _MAIN, group: str = "/"
) -> Fix:
    """Return a fix that builds a group anew in the place of the call that failed.

    Args:
        sources: All files.
        repo: Path or URL of the repository.
        price: What it does, as a clause.
        branch: Of the group, unless it is the usual one.
        group: The group, unless it is the root.
    """
    place = {"group": group} if group.strip("/") else {}
    options = {"allow_changes": True} | ({"branch": branch} if branch != _MAIN else {})
    given: dict[str, Any] = {"mode": "w", **place, "commit_options": options}
    flags = chain.from_iterable(
        _flags(name, value) for name, value in ({"mode": "w"} | place | options).items()
    )
    arguments = "".join(f", {name}={_python(value)}" for name, value in given.items())
    return Fix(
        python=f"icevirt.build({_python(list(sources))}, {_python(repo)}{arguments})",
        flags=(),
        price=price,
        command=" ".join(map(quote, ("icevirt", "build", *sources, repo, *flags))),
    )


def of_arguments(
    arguments: Mapping[str, Any], price: str, *, first: str = "", without: Sequence[str] = ()
) -> Fix:
    """Return a fix by arguments of `icevirt.build`: options are mappings, empty ones left out."""
    given = {name: value for name, value in arguments.items() if value != {}}
    flags = (
        tuple(chain.from_iterable(_flags(name, value) for name, value in value.items()))
        if name.endswith("_options")
        else tuple(_flags(name, value))
        for name, value in given.items()
    )
    return Fix(
        python=", ".join(f"{name}={_python(value)}" for name, value in given.items()),
        flags=tuple(chain.from_iterable(flags)),
        price=price,
        first=first,
        without=tuple(without),
        arguments=given,
    )


def together(one: Fix, other: Fix) -> Fix:
    """Return a fix that is both; what each says of lists and mappings is joined.

    Variables that one of them leaves out are in no option of the other.
    """
    return of_arguments(
        _less_dropped(_join(one.arguments, other.arguments)),
        "; ".join(filter(None, (one.price, other.price))),
        first=" && ".join(filter(None, (one.first, other.first))),
        without=tuple(dict.fromkeys((*one.without, *other.without))),
    )


def _join(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found = {**one, **other}
    for name in one.keys() & other.keys():
        first, second = one[name], other[name]
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            found[name] = _join(first, second)
        elif isinstance(first, list | tuple) and isinstance(second, list | tuple):
            found[name] = [*dict.fromkeys((*first, *second))]
    return found


def _less_dropped(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments whose options of combining do not name variables that are left out."""
    dropped = arguments.get("scan_options", {}).get("drop_variables", ())
    combining = {
        option: _less(held, dropped) if option in _OF_VARIABLES else held
        for option, held in arguments.get("combine_options", {}).items()
    }
    kept = {name: held for name, held in combining.items() if held or name not in _OF_VARIABLES}
    return {**arguments, "combine_options": kept}


def _less(given: Any, dropped: Sequence[str]) -> Any:
    """Return names, or a mapping of names or to names, without some of them."""
    if isinstance(given, list | tuple):
        return [name for name in given if not _is_among(name, dropped)]
    if not isinstance(given, Mapping):
        return given
    kept = {name: each for name, each in given.items() if not _is_among(name, dropped)}
    lists = {name for name, each in kept.items() if isinstance(each, list | tuple)}
    less = {name: _less(each, dropped) if name in lists else each for name, each in kept.items()}
    return {name: each for name, each in less.items() if each or name not in lists}


def _is_among(name: str, dropped: Sequence[str]) -> bool:
    """Say whether a name or a path means one of some variables, which are names or paths too."""
    last = name.rpartition("/")[2]
    return any(
        name == each
        if name.startswith("/") and each.startswith("/")
        else last == each.rpartition("/")[2]
        for each in dropped
    )


def drop_fix(arrays: ArrayColumns, rows: Sequence[int] | NDArray[np.integer], price: str) -> Fix:
    """Return a fix that leaves out the variables of some rows, by their names in the files."""
    return scan_fix(price, drop_variables=own_names(arrays, rows))


def drop_fixes(arrays: ArrayColumns, rows: Sequence[int] | NDArray[np.integer]) -> list[Fix]:
    """Return the fix that leaves out the variables of some rows, if that leaves other data."""
    gone = {arrays.path.values[code] for code in arrays.path.codes[np.asarray(rows)].tolist()}
    columns = arrays.path, arrays.schema
    pairs, _ = joint([each.codes for each in columns], [len(each.values) for each in columns])
    for path, schema in (
        (arrays.path.values[p], arrays.schema.values[s]) for p, s in pairs.tolist()
    ):
        names = ArraySchema.loads(schema).dimension_names
        if path not in gone and names and names != (paths.name(path),):
            lost = list_names(own_names(arrays, rows), _NAMED)
            return [drop_fix(arrays, rows, f"the dataset lacks {lost}")]
    return []


def drop_window_fix(path: str, reads: Iterable[tuple[str, Any]]) -> Fix:
    """Return a fix that leaves out the variable of which a task writes a part.

    Args:
        path: Of the variable in the first file.
        reads: What the task reads: paths in the files first.
    """
    names = list(dict.fromkeys(each for each, _ in reads)) or [path]
    return scan_fix(f"the dataset lacks {path}", drop_variables=names)


def instead(
    option: str, name: str, there: Iterable[str], *, says: Any = None, of: str = "combine_options"
) -> list[Fix]:
    """Return fixes for a name in an option that means nothing: a name like it, or without it.

    Args:
        option: That has the name.
        name: Of nothing that is there.
        there: What it could mean.
        says: What the option says of the name; None where it is a list of names.
        of: The argument that holds the option.
    """
    made = [build_fix(f"nothing is called {name}", without={option: name})]
    for other in difflib.get_close_matches(name, sorted(there), n=1):
        arguments = {of: {option: [other] if says is None else {other: says}}}
        gone = (f"{flag_of(option)}={name}",)
        made.insert(0, of_arguments(arguments, f"{other} is there", without=gone))
    return made


def own_names(arrays: ArrayColumns, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
    """Return what the variables of some rows are called in the files, each once."""
    column = arrays.path if arrays.own_path is None else arrays.own_path
    return [
        column.values[code] for code in column.find_used(column.codes[np.asarray(rows)]).tolist()
    ]


def choose(**options: Any) -> Remedy:
    """Return options of combining, as a caller of `icevirt.build` and as a command passes them."""
    return _write(fix("", **options))


def leave_out(*variables: str) -> Remedy:
    """Return the option of a scan that leaves variables out."""
    return _write(scan_fix("", drop_variables=list(variables)))


def _write(made: Fix) -> Remedy:
    return write_code(made.python, " ".join(map(quote, made.flags)))


def _python(value: Any) -> str:
    """Return a value as Python writes it, texts in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        pairs = (f"{_python(name)}: {_python(held)}" for name, held in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_python, value))}]"
    return repr(value.item() if hasattr(value, "item") else value)


def _flags(name: str, value: Any) -> Iterator[str]:
    """Yield the words by which a command takes the value of an option."""
    flag = flag_of(name)
    if isinstance(value, bool):
        yield flag if value else f"--no-{flag[2:]}"
        return
    if name == "labels":
        if isinstance(value, Mapping):
            value = {dimension: _label_word(each) for dimension, each in value.items()}
        else:
            value = _label_word(value)
    if name == "attrs":
        value = [
            f"{variable}:{attribute}={_json(held)}"
            for variable, said in value.items()
            for attribute, held in said.items()
        ]
    for word in _words(value, sign=":" if name == "data_vars" else "="):
        yield from (f"{flag}={word}",) if word.startswith("-") else (flag, word)


def list_names(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _label_word(labels: str | Sequence[Any]) -> str:
    return labels if isinstance(labels, str) else ",".join(map(str, labels))


def _json(value: Any) -> str:
    """Return the value of an attribute; a text that JSON would read as something else is quoted."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False)


def _words(value: Any, *, sign: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, held in value.items():
            at = "" if name == EVERY else f"{name}{sign}"
            yield from (f"{at}{each}" for each in _words(held, sign=sign))
    else:
        yield from map(str, [value] if isinstance(value, str | int | float) else value)
