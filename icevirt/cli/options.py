"""Options that several commands take."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

MANY = 256 * 1024 * 1024

_SOURCES: Any = typer.Argument(
    help="Files, directories, globs or URLs; @FILE for a list of them (text, CSV, JSON lines,"
    " Parquet, STAC items, the manifest of an S3 Inventory), - for a list on stdin."
)
Sources = Annotated[list[str], _SOURCES]
OptionalSources = Annotated[
    list[str] | None,
    typer.Argument(
        help=f"{_SOURCES.help} Without any, all files that were scanned into --catalog."
    ),
]
ConcatDim = Annotated[
    list[str] | None,
    typer.Option(
        help="The dimension along which files follow one another; may be repeated, the outermost"
        " first. By default those whose coordinate differs between the first file and the last."
    ),
]
Group = Annotated[str, typer.Option(help="The group of the repository to build into.")]
DropVariable = Annotated[
    list[str] | None, typer.Option(help="A variable to leave out; may be repeated.")
]


def _renamed(given: object) -> tuple[str, str]:
    """Read OLD=NEW."""
    old, sign, new = str(given).rpartition("=")
    if not (old and sign and new):
        raise typer.BadParameter("write it as OLD=NEW")
    return old, new


Rename = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_renamed,
        metavar="<OLD=NEW>",
        help="Another name for variables and dimensions of a name; may be repeated.",
    ),
]


def _attribute(given: object) -> tuple[str, str, Any]:
    """Read VARIABLE:NAME=VALUE; numbers, lists and null are JSON, everything else is text."""
    import json

    found = re.fullmatch(r"([^=]+):([^=:]+)=(.*)", str(given), re.DOTALL)
    if found is None:
        raise typer.BadParameter("write it as VARIABLE:NAME=VALUE; VARIABLE / is the dataset")
    try:
        value = json.loads(found[3])
    except ValueError:
        value = found[3]
    return found[1], found[2], value


def attrs_of(given: list[Any] | None) -> dict[str, dict[str, Any]]:
    """Return attributes by variable."""
    told: dict[str, dict[str, Any]] = {}
    for variable, name, value in given or ():
        told.setdefault(variable, {})[name] = value
    return told


Attrs = Annotated[
    list[Any] | None,
    typer.Option(
        "--attr",
        parser=_attribute,
        metavar="<VARIABLE:NAME=VALUE>",
        help="An attribute to set, null to remove it; VARIABLE / is the dataset. An attribute that"
        " decodes values is corrected, if all files agree on the old one; may be repeated.",
    ),
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        metavar="<package.module:function>",
        help="A function that is told of each file and returns new names and attributes.",
    ),
]


def _tolerance(given: object) -> tuple[str, float]:
    """Read a number, or NAME=NUMBER."""
    name, _, text = str(given).rpartition("=")
    try:
        return name, float(text)
    except ValueError as error:
        raise typer.BadParameter("give a number, or NAME=NUMBER") from error


def tolerances_of(given: list[Any] | None) -> dict[str, float] | None:
    """Return tolerances by name; one without a name is for all coordinates."""
    return {name or "*": value for name, value in given} if given else None


Tolerance = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_tolerance,
        metavar="<[NAME=]number>",
        help="How far values may differ that must be alike in all files, in their units: of all"
        " coordinates of dimensions, or of one variable; may be repeated.",
    ),
]
SourceGroup = Annotated[str, typer.Option(help="Take only what is below this group of the files.")]
Variable = Annotated[
    list[str] | None, typer.Option(help="Take only this variable; may be repeated.")
]
Scanner = Annotated[
    str, typer.Option(help="The scanner to use, like virtualizarr:FITSParser; by content if empty.")
]
ReferencesTo = Annotated[
    list[str] | None,
    typer.Option(
        help="A directory or URL prefix that references in the files may lead to; may be repeated."
    ),
]
Asset = Annotated[
    str | None, typer.Option(help="The asset of STAC items that is the file; by its role if unset.")
]


def _policy(given: object) -> tuple[str, str]:
    """Read PATTERN=POLICY, or a policy for all variables."""
    pattern, _, what = str(given).rpartition("=")
    return pattern or "*", what


Policies = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_policy,
        metavar="<[VARIABLE=]POLICY>",
        help="What becomes of variables: skip (leave out what cannot be represented), fail,"
        " reference, native or inline; of all, or of those that a name, path or pattern fits, the"
        " first counts; may be repeated.",
    ),
]


def _moved(given: object) -> tuple[str, str]:
    """Read FROM=TO; what follows the sign is a URL or an absolute path, as names may have one."""
    found = re.fullmatch(r"(.+?)=((?:[A-Za-z][A-Za-z0-9+.-]*://|/).*)", str(given))
    if found is None:
        raise typer.BadParameter("write it as FROM=TO, TO being a URL or an absolute path")
    return found[1], found[2]


PublishAs = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_moved,
        metavar="<FROM=TO>",
        help="Write references to files below FROM as if they lay below TO, where they will be"
        " read; may be repeated.",
    ),
]


def _container(given: object) -> tuple[str, str]:
    """Read NAME=PREFIX."""
    name, sign, prefix = str(given).partition("=")
    if not (name and sign and prefix):
        raise typer.BadParameter("write it as NAME=PREFIX, PREFIX being a URL or a directory")
    return name, prefix


Containers = Annotated[
    list[Any] | None,
    typer.Option(
        "--container",
        parser=_container,
        metavar="<NAME=PREFIX>",
        help="Write references to files below PREFIX relative to a container of this name, so that"
        " the files can be moved by changing it; may be repeated.",
    ),
]


def _access(given: object) -> tuple[str, str]:
    """Read PREFIX=HOW; secrets have no place on a command line."""
    from icevirt.connect.credentials.keywords import is_named
    from icevirt.objects.source_access import REQUESTER_PAYS

    prefix, _, how = str(given).rpartition("=")
    if not prefix or not (is_named(how) or how == REQUESTER_PAYS):
        raise typer.BadParameter(
            "write it as PREFIX=HOW, HOW being anonymous, environment, netrc, requester-pays or"
            " package.module:function"
        )
    return prefix, how


Access = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_access,
        metavar="<PREFIX=HOW>",
        help="How files below a URL prefix are reached: anonymous, environment (which holds where"
        " nothing is said), netrc, requester-pays, or package.module:function, which returns"
        " credentials and is asked again before they expire; may be repeated.",
    ),
]


def _authorized(given: object) -> tuple[str | tuple[str, str], str | None]:
    """Read PREFIX, PREFIX=ENDPOINT, PREFIX=HOW or PREFIX=ENDPOINT=HOW."""
    from icevirt.connect.credentials.keywords import is_named

    rest, how = str(given), None
    if is_named(rest.rpartition("=")[2]):
        rest, _, how = rest.rpartition("=")
    found = re.fullmatch(r"(.+)=(https?://[^=]+)", rest)
    return (rest if found is None else (found[1], found[2])), how


Authorize = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_authorized,
        metavar="<PREFIX[=ENDPOINT][=HOW]>",
        help="A url prefix below which files may be read, with the server where the repository"
        " names one, and with credentials as for the --access of build; may be repeated.",
    ),
]
Attributes = Annotated[
    str, typer.Option(help="What becomes of attributes that differ, in xarray's words.")
]
DuplicatesRule = Annotated[
    str,
    typer.Option(
        help="Which of several files with the same steps counts: refuse, newest, version, first"
        " or last."
    ),
]


_TOLD = ("regex:", "attribute:", "variable:")


def _labels(given: object) -> tuple[str | None, str | list[str]]:
    """Read labels that files tell, or a list with commas; before a sign, of which dimension."""
    text, name = str(given), None
    if not text.startswith(_TOLD) and "=" in text:
        name, _, text = text.partition("=")
    is_told = text.startswith(_TOLD) or text == "preprocess"
    return name, text if is_told else text.split(",")


def labels_of(given: list[Any] | None) -> Any:
    """Return labels by dimension, or those of the only one."""
    pairs = given or []
    named = [name for name, _ in pairs if name is not None]
    if len(set(named)) != len(pairs) and len(pairs) > 1:
        raise typer.BadParameter("of several --labels each is of another dimension: DIM=LABELS")
    if named:
        return dict(pairs)
    return pairs[0][1] if pairs else None


LabelsOption = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_labels,
        metavar="<[DIM=]labels>",
        help="Stack the files along --concat-dim as a new dimension with these labels: A,B,C in"
        " the order of the files, regex:PATTERN with one group found in the file's URL,"
        " attribute:NAME, variable:NAME, or preprocess: what that function says; may be repeated"
        " for several dimensions.",
    ),
]
Combine = Annotated[
    str,
    typer.Option(
        help="by_coords places files by coordinates and labels, and refuses equal steps; nested"
        " places them in the order given, whatever their coordinates say."
    ),
]


def _regular(given: object) -> tuple[str, str]:
    """Read DIM=SPACING."""
    name, sign, spacing = str(given).partition("=")
    if not (name and sign and spacing):
        raise typer.BadParameter("write it as DIM=SPACING, like time=6h")
    return name, spacing


Regular = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_regular,
        metavar="<DIM=SPACING>",
        help="How far apart the steps of a dimension are, like time=6h: those that no file holds"
        " read as missing; may be repeated.",
    ),
]
Pad = Annotated[
    list[str] | None,
    typer.Option(
        help="A dimension along which files have different lengths: short ones end in missing"
        " values; may be repeated."
    ),
]


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
    told: dict[Any, list[str]] = {}
    for dimension, name in pairs:
        told.setdefault(dimension, []).append(name)
    return told.get(None, told or None)


DataVars = Annotated[
    list[Any] | None,
    typer.Option(
        "--data-vars",
        parser=_data_vars,
        metavar="<[DIM:]NAME>",
        help="A variable that gets a concatenated dimension which it lacks; or all, or minimal,"
        " as in xarray. By default all data variables get a new dimension, and none gets a"
        " dimension that the files have. May be repeated. Write a name with a colon as a path.",
    ),
]
HolesRule = Annotated[
    str,
    typer.Option(
        help="What becomes of steps for which files lack a variable: refuse, or reserve them, so"
        " that they read as missing."
    ),
]
ErasRule = Annotated[
    str,
    typer.Option(
        help="What becomes of files that decode unlike: refuse, or a group for each era of files"
        " that decode alike."
    ),
]


def _bad_files(given: object) -> int | str:
    """Read a number of files or a share of them."""
    text = str(given)
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?%", text):
        return text
    raise typer.BadParameter("give a number of files, or a share like 1%")


BadFiles = Annotated[
    Any,
    typer.Option(
        parser=_bad_files,
        metavar="<number or share>",
        help="How many unreadable files may be left out: a number, or a share like 1%.",
    ),
]
NativeBytes = Annotated[
    int,
    typer.Option(
        min=0,
        help="How many bytes of values may be copied that cannot be referenced: of a file, and of"
        " all chunks that files meet in or that differ.",
    ),
]
DeviatingRule = Annotated[
    str,
    typer.Option(
        help="What becomes of files that cut, compress or pack a variable otherwise: refuse, or"
        " native, which stores their chunks where every value survives exactly."
    ),
]
FloatVariable = Annotated[
    list[str] | None,
    typer.Option(help="Store this packed variable as decoded floats; may be repeated."),
]
Grid = Annotated[
    str,
    typer.Option(
        help="regular, or rectilinear: chunks follow those of the files, for readers with zarr 3.4."
    ),
]
MINUTES = 600.0
FileTimeout = Annotated[
    float,
    typer.Option(
        metavar="<seconds>",
        help="How long the scan of one file may take; it is bad as timeout if it takes longer.",
    ),
]
FOUR = "4GiB"
FileMemory = Annotated[
    str,
    typer.Option(
        metavar="<size>",
        help="How much memory the scan of one file may take, in bytes or like 4GiB; it is bad as"
        " oom if it wants more.",
    ),
]
Catalog = Annotated[
    str | None, typer.Option(help="A directory to keep the scan in, for later builds.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print neither progress nor the report.")
]
