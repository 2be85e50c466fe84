"""Map former names and places of options to their replacements.

An option that a function took by itself belongs to one of the option objects now, and some have
another name. Calls in the former words raise an error that holds the new ones, ready to paste;
recipes of version 1 are read in the new ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any

from icevirt.api.commit_options import CommitOptions
from icevirt.archive.options import Options, declared
from icevirt.errors import ArgumentError
from icevirt.planning.combine.options import CombineOptions
from icevirt.scan.options import ScanOptions

OBJECTS: tuple[type[Options], ...] = (ScanOptions, CombineOptions, CommitOptions)
"""The option objects, in the order in which functions take them."""

BY_KEYWORD = {each.KEYWORD: each for each in OBJECTS}

RENAMED = {
    "holes": "missing",
    "regular": "spacing",
    "policy": "variable_policy",
    "deviating": "on_mismatch",
    "eras": "on_mismatch",
    "stack": "labels",
    "label_variables": "labels",
}
"""Options that have another name now."""

_PLACE = {each.name: options for options in OBJECTS for each in declared(options)}


def placed(former: Mapping[str, Any], *, native_bytes_of_files: bool = True) -> dict[str, Any]:
    """Return arguments in today's words and places, given the arguments of a flat call.

    Args:
        former: Arguments by name; what is not an option is returned unchanged.
        native_bytes_of_files: ``max_native_bytes`` meant the values of each file, too.
    """
    made: dict[str, Any] = {}
    mismatch = [
        choice_now
        for name, choice, choice_now in (
            ("eras", "group", "eras"),
            ("deviating", "native", "native"),
        )
        if former.get(name) == choice
    ]
    for name, value in former.items():
        new = RENAMED.get(name, name)
        if new == "on_mismatch" and name != new:
            value = (*mismatch, "refuse")[0]  # noqa: PLW2901  # eras left nothing to store
        if new not in _PLACE:
            made[name] = value
            continue
        made.setdefault(_PLACE[new].KEYWORD, {})[new] = value
        if name == "max_native_bytes" and native_bytes_of_files:
            made.setdefault("scan_options", {})["max_native_bytes_per_file"] = value
    return made


def names_replacements[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse former parameters with an error that says what to write instead."""
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if former := {name: value for name, value in kwargs.items() if name not in known}:
            raise _refused(function.__name__, former, known)
        return function(*args, **kwargs)

    return call


def _near(word: str, known: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the parameters, and options of objects that are parameters, that a word is like."""
    names = {each: each for each in known}
    for each, options in _PLACE.items():
        if options.KEYWORD in names:
            names.setdefault(each, f'{options.KEYWORD}={{"{each}": ...}}')
    for match in get_close_matches(word, names, n=1, cutoff=0.75):
        yield match, names[match]


def _refused(name: str, former: Mapping[str, Any], known: Mapping[str, Any]) -> ArgumentError:
    scans = name in ("scan_file", "scan_files")
    words = {
        "source_group" if scans and each == "group" else each: value
        for each, value in former.items()
    }
    made = placed(words, native_bytes_of_files=True)
    if scans and "max_native_bytes" in former:
        del made["combine_options"]["max_native_bytes"]
    if "spark" in made:
        made["executor"] = made.pop("spark")
    if made.get("combine_options", {}).get("labels") is not None and (
        {"stack", "label_variables"} & former.keys()
    ):
        made["combine_options"]["labels"] = "variable:NAME"
    made = {each: value for each, value in made.items() if value != {}}
    unknown = [each for each in made if each not in known]
    quoted = ", ".join(map(repr, former))
    plain = (str, int, float, Mapping, list, tuple)
    shown = {
        each: repr(value) if isinstance(value, plain) else "..." for each, value in made.items()
    }
    do = f"Write {', '.join(f'{each}={value}' for each, value in shown.items())}."
    if unknown:
        near = {each: match for word in unknown for each, match in _near(word, known)}
        meant = f"Did you mean {', '.join(near.values())}? "
        first = meant if near else f"Remove {', '.join(unknown)}; "
        do = f"{first}{name} takes {', '.join(known)}."
    return ArgumentError(f"{name}() takes no parameter {quoted}", do=do)
