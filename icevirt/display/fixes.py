"""Write the commands that solve an error, ready to paste into a shell."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob
from itertools import pairwise, zip_longest
from os.path import basename, commonprefix, dirname
from shlex import join

from icevirt.errors import Fix

_MANY = 3  # files that a command line repeats by name
_FILES = "FILES..."  # in the place of more, which no pattern matches


def commands(fixes: Sequence[Fix], words: Sequence[str]) -> list[str]:
    """Return a command for each fix, with its price as a comment.

    Args:
        fixes: The fixes.
        words: The command that failed, without the name of the program.
    """
    base = _with_patterns(words)
    made = []
    for each in fixes:
        again = join(["icevirt", *base, *_further(each.flags, base)]).replace(f"'{_FILES}'", _FILES)
        made.append(f"{each.first} && {again}" if each.first else again)
    width = max(map(len, made))
    return [
        f"{command:<{width}}  # {each.price}" for command, each in zip(made, fixes, strict=True)
    ]


def _further(flags: Sequence[str], base: Sequence[str]) -> list[str]:
    """Return flags with their values, without those that the command has already."""
    known = {*pairwise(base)}
    made: list[str] = []
    for flag, word in zip_longest(flags, flags[1:], fillvalue=""):
        if flag.startswith("--") and (flag, word) not in known:
            made += [flag] if not word or word.startswith("--") else [flag, word]
    return made


def _with_patterns(words: Sequence[str]) -> list[str]:
    """Put a pattern in the place of many files in a row, as the shell had it before."""
    made: list[str] = []
    at = 0
    while at < len(words):
        suffix = _suffix(words[at])
        end = at + 1
        while suffix and end < len(words) and _suffix(words[end]) == suffix:
            end += 1
        some = words[at:end]
        made += some if len(some) <= _MANY else [_pattern(some, suffix)]
        at = end
    return made


def _suffix(word: str) -> str:
    return "" if word.startswith("-") else basename(word).partition(".")[2].rpartition(".")[2]


def _pattern(files: Sequence[str], suffix: str) -> str:
    """Return a pattern that matches these files and no others, as the shell sorts them."""
    folder = dirname(files[0])
    start = commonprefix([basename(each) for each in files])  # noqa: RUF071 - of names
    for name in (f"*.{suffix}", f"{start}*.{suffix}"):
        pattern = f"{folder}/{name}" if folder else name
        if sorted(glob(pattern)) == sorted(files):
            return pattern
    return _FILES
