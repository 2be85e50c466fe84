"""Name the option objects that functions take, and say in which of them an option belongs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps

from icevirt.api.commit_options import CommitOptions
from icevirt.archive.options import Options, declared
from icevirt.errors import ArgumentError
from icevirt.planning.combine.options import CombineOptions
from icevirt.scan.options import ScanOptions

OBJECTS: tuple[type[Options], ...] = (ScanOptions, CombineOptions, CommitOptions)
"""The option objects, in the order in which functions take them."""

BY_KEYWORD = {each.KEYWORD: each for each in OBJECTS}


def refuse_misplaced_options[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse unknown parameters with an error that says where options belong."""
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if unknown := [name for name in kwargs if name not in known]:
            raise _refusal(function.__name__, unknown, known)
        return function(*args, **kwargs)

    return call


def _refusal(function: str, unknown: Iterable[str], known: Iterable[str]) -> ArgumentError:
    names = {each: each for each in known}
    for options in OBJECTS:
        if options.KEYWORD in names:
            for option in declared(options):
                names.setdefault(option.name, f'{options.KEYWORD}={{"{option.name}": ...}}')
    near = [get_close_matches(word, names, n=1, cutoff=0.75) for word in unknown]
    meant = ", ".join(names[match] for matches in near for match in matches)
    takes = f"{function} takes {', '.join(known)}."
    return ArgumentError(
        f"{function}() takes no parameter {', '.join(map(repr, unknown))}",
        do=f"Did you mean {meant}? {takes}" if meant else takes,
    )
