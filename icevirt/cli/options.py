"""Define options that several commands share, and parse values that are not plain words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, cast

import typer

from icevirt.cli.output import Output, writable_file
from icevirt.errors import refuse_missing

SOURCES = (
    "Files, directories, globs or URLs; @FILE for a list of them (text, CSV, JSON lines, Parquet,"
    " STAC items, the manifest of an S3 Inventory), - for a list on stdin."
)


def _access(given: object) -> tuple[str, str]:
    """Read PREFIX=HOW; secrets have no place on a command line."""
    from icevirt.objects.source_access import is_word

    prefix, _, how = str(given).rpartition("=")
    if not prefix or not is_word(how):
        raise typer.BadParameter(
            "write it as PREFIX=HOW, HOW being anonymous, environment, netrc, requester-pays or"
            " package.module:function"
        )
    return prefix, how


_ACCESS = (
    "How to access files below a URL prefix: anonymous, environment (the default), netrc,"
    " requester-pays, or package.module:function, which returns credentials and is called again"
    " before they expire."
)


def _parse_authorized(given: object) -> tuple[str | tuple[str, str], str | None]:
    """Read PREFIX, PREFIX=ENDPOINT, PREFIX=HOW or PREFIX=ENDPOINT=HOW."""
    from icevirt.connect.credentials.keywords import is_named

    rest, how = str(given), None
    if is_named(rest.rpartition("=")[2]):
        rest, _, how = rest.rpartition("=")
    found = re.fullmatch(r"(.+)=(https?://[^=]+)", rest)
    return (rest if found is None else (found[1], found[2])), how


_AUTHORIZE = (
    "A URL prefix below which files may be read, with the server if the repository names one, and"
    " with credentials as for the --access of build; recorded stands for what your own builds of"
    " the repository referred to, which is what may be read where the option is left out."
)


_CATALOG = "A directory to keep the scan in, for later builds."


Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print neither progress nor the report.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How an option is written, and what the texts together mean."""

    metavar: str | None = None
    parser: Callable[[object], Any] | None = None
    value: Callable[[Any], Any] = lambda given: given
    repeats: bool = True
    doc: str = ""  # instead of what the function says, where that is for Python
    kind: Any = None  # an enumeration of words


_CONTAINER = "NAME=PREFIX, PREFIX being a URL or a directory"


def _pair(form: str, given: object) -> tuple[str, str]:
    """Read NAME=VALUE, of which both are needed; ``form`` says how to write it."""
    name, sign, value = str(given).partition("=")
    if not (name and sign and value):
        raise typer.BadParameter(f"write it as {form}")
    return name, value


def _numbered(given: object) -> tuple[str, str]:
    """Read what an index numbers; behind VARIABLE= nothing may stand."""
    name, sign, value = str(given).partition("=")
    if not (name and sign):
        raise typer.BadParameter("write it as VARIABLE=DIMENSION, or VARIABLE= if it is no index")
    return name, value


def _rename(given: object) -> tuple[str, str]:
    """Read OLD=NEW."""
    old, sign, new = str(given).rpartition("=")
    if not (old and sign and new):
        raise typer.BadParameter("write it as OLD=NEW")
    return old, new


def _attribute(given: object) -> tuple[str, str, Any]:
    """Read VARIABLE:NAME=VALUE; numbers, lists and null are JSON, everything else is text."""
    found = re.fullmatch(r"([^=]+):([^=:]+)=(.*)", str(given), re.DOTALL)
    if found is None:
        raise typer.BadParameter("write it as VARIABLE:NAME=VALUE; VARIABLE / is the dataset")
    return found[1], found[2], _json(found[3])


def attrs_of(given: list[Any] | None) -> dict[str, dict[str, Any]]:
    """Return attributes by variable."""
    found: dict[str, dict[str, Any]] = {}
    for variable, name, value in given or ():
        found.setdefault(variable, {})[name] = value
    return found


def _tolerance(given: object) -> tuple[str, float]:
    """Read a number, or NAME=NUMBER."""
    name, _, text = str(given).rpartition("=")
    try:
        return name, float(text)
    except ValueError as error:
        raise typer.BadParameter("give a number, or NAME=NUMBER") from error


def tolerances_of(given: list[Any] | None) -> dict[str, float]:
    """Return tolerances by name; one without a name is for all coordinates."""
    return {name or "*": value for name, value in given or ()}


def _policy(given: object) -> tuple[str, str]:
    """Read PATTERN=POLICY, or a policy for all variables."""
    pattern, _, what = str(given).rpartition("=")
    return pattern or "*", what


def _parse_moved(given: object) -> tuple[str, str]:
    """Read FROM=TO; what follows the sign is a URL or an absolute path, as names may have one."""
    found = re.fullmatch(r"(.+?)=((?:[A-Za-z][A-Za-z0-9+.-]*://|/).*)", str(given))
    if found is None:
        raise typer.BadParameter("write it as FROM=TO, TO being a URL or an absolute path")
    return found[1], found[2]


_FROM_FILE = ("regex:", "attribute:", "variable:")


def _labels(given: object) -> tuple[str | None, str | list[str]]:
    """Read labels from the files or a list with commas, after the dimension if it is named.

    A pattern of names says itself which parts are labels of which dimensions.
    """
    from icevirt.planning.axes.file_labels import is_pattern

    text, name = str(given), None
    if is_pattern(text):
        return None, text
    if not text.startswith(_FROM_FILE) and "=" in text:
        name, _, text = text.partition("=")
    is_from_file = text.startswith(_FROM_FILE) or text == "preprocess"
    return name, text if is_from_file else text.split(",")


def labels_of(given: list[Any] | None) -> Any:
    """Return labels by dimension, or without its name for a single dimension."""
    pairs = given or []
    if len(pairs) > 1:
        pairs = [pair for each in pairs for pair in _by_dimension(*each)]
    named = [name for name, _ in pairs if name is not None]
    if len(set(named)) != len(pairs) and len(pairs) > 1:
        raise typer.BadParameter("each of several --labels needs its own dimension: DIM=LABELS")
    if named:
        return dict(pairs)
    return pairs[0][1] if pairs else None


def _by_dimension(name: str | None, labels: Any) -> list[tuple[str | None, Any]]:
    """Return labels once for each dimension that a pattern of names has."""
    from icevirt.planning.axes.file_labels import NamePattern, is_pattern

    is_one = name is not None or not is_pattern(labels)
    return [(each, labels) for each in ((name,) if is_one else NamePattern.of(labels).names)]


def _data_vars(given: object) -> tuple[str | None, str]:
    """Read a word or a name, behind the dimension that it is for; a path is no such pair."""
    text = str(given)
    dimension, sign, name = text.partition(":")
    if text.startswith("/") or not sign:
        return None, text
    if not (dimension and name):
        raise typer.BadParameter("write it as NAME or DIM:NAME")
    return dimension, name


def data_vars_of(given: list[Any] | None) -> Any:
    """Return words and names, by dimension where they are for one."""
    pairs = given or []
    if len({dimension is None for dimension, _ in pairs}) > 1:
        raise typer.BadParameter("write all --data-vars as NAME, or all as DIM:NAME")
    found: dict[Any, list[str]] = {}
    for dimension, name in pairs:
        found.setdefault(dimension, []).append(name)
    return found.get(None, found or None)


def _bad_files(given: object) -> int | str:
    """Read a number of files or a share of them."""
    text = str(given)
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?%", text):
        return text
    raise typer.BadParameter("give a number of files, or a share like 1%")


def _metadatum(given: object) -> tuple[str, Any]:
    """Read NAME=VALUE; values that are JSON are what they mean there, all others text."""
    name, sign, text = str(given).partition("=")
    if not (name and sign):
        raise typer.BadParameter("write it as NAME=VALUE")
    return name, _json(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


NOTATIONS: Mapping[str, Notation] = {
    "rename": Notation(metavar="<OLD=NEW>", parser=_rename, value=dict),
    "attrs": Notation(metavar="<VARIABLE:NAME=VALUE>", parser=_attribute, value=attrs_of),
    "index_of": Notation(metavar="<VARIABLE=[DIMENSION]>", parser=_numbered, value=dict),
    "tolerance": Notation(metavar="<[NAME=]number>", parser=_tolerance, value=tolerances_of),
    "variable_policy": Notation(metavar="<[VARIABLE=]POLICY>", parser=_policy, value=dict),
    "metadata": Notation(metavar="<NAME=VALUE>", parser=_metadatum, value=dict),
    "publish_as": Notation(metavar="<FROM=TO>", parser=_parse_moved, value=dict),
    "containers": Notation(metavar="<NAME=PREFIX>", parser=partial(_pair, _CONTAINER), value=dict),
    "labels": Notation(metavar="<[DIM=]labels>", parser=_labels, value=labels_of),
    "spacing": Notation(
        metavar="<DIM=SPACING>", parser=partial(_pair, "DIM=SPACING, like time=6h"), value=dict
    ),
    "data_vars": Notation(metavar="<[DIM:]NAME>", parser=_data_vars, value=data_vars_of),
    "max_bad_files": Notation(metavar="<number or share>", parser=_bad_files, repeats=False),
    "access": Notation(metavar="<PREFIX=HOW>", parser=_access, value=dict, doc=_ACCESS),
    "authorize_virtual_chunk_access": Notation(
        metavar="<PREFIX[=ENDPOINT][=HOW]>", parser=_parse_authorized, value=dict, doc=_AUTHORIZE
    ),
    "authorize": Notation(metavar="<PREFIX>"),
    "catalog": Notation(repeats=False, doc=_CATALOG),
    "repo": Notation(repeats=False, doc="The repository, a path or URL."),
    "n": Notation(repeats=False, doc="How many to show."),
    "trust_recipe": Notation(metavar="<DIGEST>", repeats=False),
    "expect": Notation(metavar="<SNAPSHOT>", repeats=False),
    "since": Notation(metavar="<PATH>", repeats=False),
    "settle": Notation(metavar="<TIME>", repeats=False),
    "max_vanished": Notation(metavar="<N|N%>", repeats=False),
    "rescan": Notation(metavar="<PATTERN>"),
    "variables": Notation(metavar="<NAME>"),
    "keep_snapshots": Notation(metavar="<TIME>", repeats=False),
    "window": Notation(metavar="<[DIM=]TIME>", repeats=False),
}
"""How options are written, by their names."""


ReportOption = Annotated[
    str | None,
    typer.Option(
        "--report",
        callback=writable_file,
        metavar="<FILE>",
        help="Also write a page about it, one HTML file that needs no network.",
    ),
]

OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Print text for people or JSON for programs.")
]


class ExecutorWord(StrEnum):
    """Where the tasks of a command run."""

    auto = "auto"
    in_process = "in-process"
    processes = "processes"
    spark = "spark"


ExecutorOption = Annotated[
    ExecutorWord,
    typer.Option(
        "--executor",
        help="Where tasks run. auto: on the Spark that the command was submitted to, else in"
        " processes of this machine, and in this process where the work is small. spark starts"
        " Spark on this machine where none was submitted to.",
    ),
]


@contextmanager
def running_on(word: ExecutorWord) -> Iterator[None]:
    """Run what is called in the block on what --executor names."""
    if word is ExecutorWord.auto:
        yield
        return
    with refuse_missing(f"--executor {word}"):
        from icevirt.execution.selection import ExecutorChoice, default_executor
    with default_executor(cast("ExecutorChoice", word.value)):
        yield


RecipeFile = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        help="A recipe (TOML) with the arguments; options on the command line override it.",
    ),
]

WriteRecipe = Annotated[
    str | None,
    typer.Option(
        callback=writable_file,
        help="Write the plan's recipe, for icevirt build -f, to this file.",
    ),
]
