"""Write an error: what differs, between which files, and the commands that solve it, to paste.

A command is the one that failed, with the options of the fix in the place of those that it had.
Secrets of URLs are left out; where that happens, the command says that it is not complete.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from glob import escape, glob
from itertools import chain, groupby
from os.path import basename, commonprefix, dirname
from typing import Any

from icevirt.connect.urls import natural
from icevirt.display.blocks import place, some
from icevirt.errors import Fix, IcevirtError
from icevirt.escaping import escape_line
from icevirt.redaction import without_secrets
from icevirt.remedy_notation import REPOSITORY, show_remedy

_MANY = 3  # files that a command line repeats by name, and folders with a pattern each
_FILES = "FILES..."  # in the place of more, which no pattern matches
_ALL_FILES = "SOURCES..."  # of a dataset, which only the user knows
_WHICH = "; SOURCES are all files of the dataset, old and new"
_OF_DATASET = ("--group", "--branch", "--catalog")
_STDIN = "-"  # a list of sources
_RECIPE = ("-f", "--file")
_REPO = "REPO"  # in the place of one that is not known
_OF_PLAN = {
    "--repo": True,
    "--write-recipe": True,
    "--report": True,
    "--output": True,
    "-o": True,
    "--quiet": False,
    "-q": False,
}
"""Options of a plan that its build does not take, and whether a value follows."""

_LITERAL = "--"  # what follows is no option
_NO_SECRETS = "put the secrets of the URLs back"

_LISTS = (
    "--authorize",
    "--drop-variable",
    "--variable",
    "--float-variable",
    "--pad",
    "--allow-references-to",
)
"""Options to which a fix adds names."""

_MAPPINGS = (
    "--attr",
    "--labels",
    "--publish-as",
    "--rename",
    "--spacing",
    "--tolerance",
    "--variable-policy",
)
"""Options of which a fix says something for some names."""

_FROM_FILE = ("regex:", "attribute:", "variable:")  # labels without the name of their dimension

type _Option = tuple[str, str | None]
"""A flag and its value, None where it takes none."""


def commands(fixes: Sequence[Fix], words: Sequence[str]) -> list[str]:
    """Return a command for each fix, with its price as a comment.

    Args:
        fixes: The fixes.
        words: The command that failed, without the name of the program.
    """
    shown = [without_secrets(word) for word in words]
    more = "" if shown == [*words] else f"; {_NO_SECRETS}"
    at = shown.index(_LITERAL) if _LITERAL in shown else len(shown)
    base, literal = with_patterns(shown[:at]), with_patterns(shown[at:])
    found = []
    for each in fixes:
        if each.command:
            found.append(escape_line(each.command))
        elif "--mode" in each.flags and base[:1] != ["build"]:
            found.append(_build_again(base, each))
        else:
            again = ["icevirt", *_keep(base, each), *each.flags, *literal]
            first = f"{escape_line(each.first)} && " if each.first else ""
            found.append(first + _pipe(" ".join(map(quote_word, again)), shown))
    width = max(map(len, found), default=0)
    return [
        f"{command:<{width}}  # {escape_line(each.cost)}"
        f"{_WHICH * (_ALL_FILES in command)}{more}{_of_recipe(each, base)}"
        for command, each in zip(found, fixes, strict=True)
    ]


def build_of(words: Sequence[str], *, replaces: bool, changes: bool) -> str:
    """Return the command that builds what ``icevirt plan`` showed.

    Args:
        words: The command, without the name of the program.
        replaces: Whether the repository that was named holds a dataset.
        changes: Whether the build has to be allowed to take away what it holds.
    """
    shown = [without_secrets(word) for word in words]
    repo, kept, at = _REPO, [], 1
    while at < len(shown) and shown[at] != _LITERAL:
        flag, sign, value = shown[at].partition("=")
        takes_value = _OF_PLAN.get(flag)
        end = at + (2 if takes_value and not sign else 1)
        if flag == "--repo":
            repo = quote_word(value if sign else shown[min(at + 1, len(shown) - 1)])
        kept += shown[at:end] if takes_value is None else []
        at = end
    mode = ["--mode", "w"] * replaces + ["--allow-changes"] * changes
    again = [*with_patterns(kept), *mode, *with_patterns(shown[at:])]
    command = _pipe(" ".join(["icevirt build", *map(quote_word, again), repo]), shown)
    remarks = ["what is listed is removed or changed; older snapshots keep it"] * changes
    remarks += [_NO_SECRETS] * (shown != [*words])
    return f"{command}  # {'; '.join(remarks)}" if remarks else command


def _pipe(command: str, words: Sequence[str]) -> str:
    return f"... | {command}" if _STDIN in words else command


def _build_again(words: Sequence[str], fix: Fix) -> str:
    """Return the build that makes a dataset anew, for a command that only adds to it."""
    options = dict(itertools.pairwise(words))
    where = [word for flag in _OF_DATASET if flag in options for word in (flag, options[flag])]
    again = [REPOSITORY.get() or words[-1], *where, *fix.flags]
    return " ".join(["icevirt build", _ALL_FILES, *map(quote_word, again)])


def _of_recipe(fix: Fix, words: Sequence[str]) -> str:
    """Return what a recipe would have to say else: a command cannot take or add to what it says."""
    if not any(word.partition("=")[0] in _RECIPE for word in words):
        return ""
    here = {word.partition("=")[0] for word in words}
    gone = {each.partition("=")[0] for each in fix.without} - here
    joined = {flag for flag, _ in _options(fix.flags) if flag in (*_LISTS, *_MAPPINGS)} - here
    return "".join((
        *(f"; take {flag[2:]} out of the recipe" for flag in sorted(gone)),
        *(f"; it replaces what the recipe says of {flag[2:]}" for flag in sorted(joined - gone)),
    ))  # fmt: skip


def quote_word(word: str) -> str:
    """Return a word as a shell reads it; one that a terminal would obey is spelled out."""
    if escape_line(word) == word:
        return shlex.quote(word)
    letters = (
        f"\\{letter}"
        if letter in "\\'"
        else "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="surrogateescape"))
        if escape_line(letter) != letter
        else letter
        for letter in word
    )
    return f"$'{''.join(letters)}'"


# -- options that the command had ----------------------------------------------------------------


def _options(words: Sequence[str]) -> list[_Option]:
    """Return the options of a fix; a value that begins with a dash stands behind a sign."""
    found: list[_Option] = []
    for word in words:
        flag, sign, value = word.partition("=")
        if word.startswith("--"):
            found.append((flag, value if sign else None))
        else:
            found[-1] = found[-1][0], word
    return found


def _keep(words: Sequence[str], fix: Fix) -> Iterator[str]:
    """Yield the words of a command, less the options that go or in whose place others come."""
    others = _options(fix.flags)
    gone = [each.partition("=") for each in fix.without]
    takes_value = {_same(flag): True for flag, _, _ in gone}
    takes_value |= {_same(flag): value is not None for flag, value in others}
    at = 0
    while at < len(words):
        flag, sign, value = words[at].partition("=")
        known = takes_value.get(_same(flag)) if flag.startswith("--") else None
        end = at + (2 if known and not sign else 1)
        held = value if sign else "".join(words[at + 1 : end])
        goes = any(_replaces(each, (flag, held)) for each in others) or any(
            each == flag and name in ("", held, _key(flag, held)) for each, _, name in gone
        )
        if known is None or not goes:
            yield from words[at:end]
        at = end


def _replaces(other: _Option, option: _Option) -> bool:
    flag, value = option
    if _same(other[0]) != _same(flag):
        return False
    if flag in _LISTS:
        return other[1] == value
    if flag in _MAPPINGS:
        names = _key(flag, str(other[1])), _key(flag, str(value))
        return names[0] == names[1] or (flag == "--labels" and "" in names)
    return True


def _same(flag: str) -> str:
    """Return the flag of an option, also where it says no."""
    return f"--{flag[2:].removeprefix('no-')}"


def _key(flag: str, value: str) -> str:
    """Return the name of which an option says something."""
    if flag == "--labels" and value.startswith(_FROM_FILE):
        return ""
    return value.partition("=")[0] if "=" in value else ""


# -- files ---------------------------------------------------------------------------------------


def with_patterns(words: Sequence[str]) -> list[str]:
    """Put a pattern in the place of many files in a row, as the shell had it before."""
    found: list[str] = []
    for suffix, run in groupby(
        words,
        lambda word: "" if word[:1] == "-" else basename(word).partition(".")[2].rpartition(".")[2],
    ):
        some = list(run)
        found += some if len(some) <= _MANY or not suffix else _shorten(some, suffix)
    return found


def _shorten(files: Sequence[str], suffix: str) -> list[str]:
    """Return a pattern for each folder; what comes last may be a repository of the same suffix."""
    for end in (len(files), len(files) - 1):
        folders = [list(some) for _, some in groupby(files[:end], dirname)]
        if len(folders) > _MANY:
            continue
        parts = [some if len(some) <= _MANY else _patterns(some, suffix) for some in folders]
        if all(parts):
            return [*chain.from_iterable(parts), *files[end:]]
    return [_FILES] if dirname(files[-1]) == dirname(files[-2]) else [_FILES, files[-1]]


def _patterns(files: Sequence[str], suffix: str) -> list[str]:
    """Return a pattern that matches these files and no others, in their order, if there is one."""
    folder = dirname(files[0])
    start = commonprefix([basename(each) for each in files])  # noqa: RUF071 - of names
    for name in (f"*.{suffix}", f"{start}*.{suffix}"):
        pattern = f"{folder}/{name}" if folder else name
        is_plain = escape(f"{folder}{start}") == f"{folder}{start}"
        if is_plain and sorted(glob(pattern), key=natural) == [*files]:
            return [pattern]
    return []


_OF_FILES = ("first", "second", "other", "file")  # facts that name one, or a place in it
_SHOWN = 5  # of several values


def lines(error: IcevirtError, words: Sequence[str]) -> list[str]:
    """Return the lines of an error about files, for a terminal.

    Args:
        error: The error.
        words: The command that failed, without the name of the program.
    """
    facts = dict(_facts(error))
    width = max(map(len, facts), default=0)
    ways = commands(error.fixes, words)
    return [
        escape_line(show_remedy(error.what)),
        *(f"  {escape_line(name):<{width}}  {escape_line(text)}" for name, text in facts.items()),
        *(["fix:" if len(ways) == 1 else "fix (one of):"] if ways else []),
        *(f"  {each}" for each in ways),
        *([escape_line(show_remedy(error.do))] if error.do else []),
    ]


def _facts(error: IcevirtError) -> Iterator[tuple[str, str]]:
    """Yield what the lines say below the first: files with what each of them says, then the rest.

    Values that the first line has are not repeated.
    """
    facts = error.facts
    said = show_remedy(error.what).replace(",", " ").replace(":", " ").replace("'", " ").split()
    shown: set[str] = set()
    for file in _OF_FILES:
        of_file = [name for name in facts if name.startswith(f"{file}_")]
        shown.update(of_file if file in facts else ())
        if isinstance(facts.get(file), str):
            shown.add(file)
            own = (_text(facts[name]) for name in of_file)
            yield file, "   ".join([place(facts[file]), *filter(None, own)])
    for name, value in facts.items():
        text = "" if name in shown else _text(value)
        if text and text not in said:
            yield name.replace("_", " "), text


def _text(value: Any) -> str:
    """Return a fact; nothing of what has a table of its own."""
    if isinstance(value, str):
        return place(value)
    if isinstance(value, Mapping):
        said = [f"{place(str(name))}: {_text(each)}" for name, each in value.items()]
        return some(said, _SHOWN)
    if isinstance(value, list | tuple):
        return some([_text(each) for each in value], _SHOWN)
    return str(value) if isinstance(value, int | float) else ""
