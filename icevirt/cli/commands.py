"""Say what the commands of functions have of their own: arguments, notations, exit statuses."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

import icevirt
from icevirt.cli.functions import FunctionCommand, choice, with_recipe
from icevirt.cli.options import NOTATIONS, SOURCES, Notation, RecipeFile, WriteRecipe
from icevirt.cli.output import (
    BEHIND,
    HELD,
    CommandResult,
    Output,
    in_own_notation,
    progress,
    show_error,
)
from icevirt.display.fixes import build_of, quote_word, with_patterns
from icevirt.errors import IcevirtError

# -- notations ------------------------------------------------------------------------------------


def _places(given: object) -> tuple[tuple[str, str], ...]:
    """Read DIM=LABEL, or several with commas between them."""
    found = [part.partition("=") for part in str(given).split(",")]
    if not all(name.strip() and sign and label for name, sign, label in found):
        raise typer.BadParameter("write it as DIM=LABEL, or DIM=LABEL,DIM=LABEL")
    return tuple((name.strip(), label.strip()) for name, _, label in found)


def _lengths(given: object) -> dict[str, int]:
    """Read DIM=LENGTH, or several with commas."""
    try:
        pairs = (each.partition("=") for each in str(given).split(","))
        return {name: int(text) for name, _, text in pairs}
    except ValueError as error:
        form = "write it as DIM=LENGTH, like time=365 or time=365,lat=30"
        raise typer.BadParameter(form) from error


def _region(given: object) -> tuple[str, Any]:
    """Read DIM=LABEL or DIM=FIRST:LAST; numbers are numbers, unless they may be years."""
    name, sign, text = str(given).partition("=")
    if not (name and sign and text):
        raise typer.BadParameter("write it as DIM=LABEL or DIM=FIRST:LAST")
    parts = text.split(":") if text.count(":") == 1 else [text]
    return name, slice(*parts) if len(parts) == 2 else text


def _parse_compare(given: object) -> int | str:
    text = str(given)
    if text == "all":
        return text
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    raise typer.BadParameter("give a number of references, or all")


def _replacement(given: object) -> tuple[str, str]:
    final, mark, provisional = str(given).partition("=")
    if not mark:
        raise typer.BadParameter(f"{str(given)!r}: write --replaces 'FINAL=PROVISIONAL'")
    return final, provisional


def _all_pairs(given: Iterable[Iterable[Any]]) -> dict[Any, Any]:
    return dict(pair for some in given for pair in some)


# -- statuses -------------------------------------------------------------------------------------


def _code_of_failure(report: Any) -> int:
    return 0 if report.ok else 1


def _code_of_held(report: Any, *, fail_on_held: bool) -> int:
    return HELD if fail_on_held and report.held else 0


def _behind(found: Any, *, max_lag: str | None, max_age: str | None) -> int:
    """Say on stderr in what a dataset is further behind than it may be."""
    limits = (("lag", _time(max_lag)), ("age", _time(max_age)))
    behind = [
        name
        for name, limit in limits
        if limit is not None and ((value := getattr(found, name)) is None or value > limit)
    ]
    for name in behind:
        sys.stderr.write(f"icevirt: {name} of the dataset: {getattr(found, name) or 'unknown'}\n")
    return BEHIND if behind else 0


def _time(given: str | None) -> timedelta | None:
    from icevirt.planning.axes.axis import duration_of

    if given is None:
        return None
    if not (found := duration_of(given)):
        raise typer.BadParameter("write a time like 6h or 2D")
    return timedelta(microseconds=found)


# -- what runs in the place of a function ---------------------------------------------------------


def _build(
    ctx: typer.Context,
    call: dict[str, Any],
    shown: dict[str, Any],
    *,
    file: str | None,
    report: str | None,
) -> CommandResult:
    given = with_recipe(ctx, file, call)
    if not (given.get("repo") or given.get("sources") or file):
        raise typer.BadParameter(
            "Missing arguments 'SOURCES' and 'REPO'. Name files and a repository, like "
            "`icevirt build 'archive/*.nc' repo`, or a recipe that does: `icevirt build -f FILE`"
        )
    _require(given, file, repo="REPO")
    _require_repo(given)
    _require_sources(given, file)
    with progress(quiet=shown["quiet"]) as listener:
        built = icevirt.build(**given, progress=listener)
    _write_page(built, report)
    return CommandResult(value=built, **shown)


def _plan(
    ctx: typer.Context,
    call: dict[str, Any],
    shown: dict[str, Any],
    *,
    file: str | None,
    write_recipe: str | None,
    update: str | None,
    report: str | None,
) -> CommandResult:
    given = with_recipe(ctx, file, call)
    if update is not None:
        more = {name: call[name] for name in ("group", "catalog", "access")}
        with progress(quiet=shown["quiet"]) as listener:
            value = icevirt.update(update, recipe=file, **more, dry_run=True, progress=listener)
        return CommandResult(value=value, **shown)
    _require_sources(given, file)
    try:
        with progress(quiet=shown["quiet"]) as listener:
            planned = icevirt.plan(**given, progress=listener)
    except IcevirtError as error:
        is_json = shown["output"] is Output.json
        if (found := error.facts.get("eras")) is None and not is_json:
            raise
        show_error(error)
        return CommandResult(value=error if is_json else found, **shown, status=1)
    _write_page(planned, report)
    if write_recipe is not None:
        recipe = {name: value for name, value in given.items() if name != "twin_chunks"}
        icevirt.dump_recipe(recipe, write_recipe)  # a build makes no twin
    there = planned.difference
    build = build_of(
        sys.argv[1:],
        replaces=there is not None and bool(there.snapshot_id),
        changes=there is not None and any(each.stops for each in there.changes),
    )
    return CommandResult(value=planned, **shown, next_step=build)


def _write_page(value: Any, path: str | None) -> None:
    if path is not None:
        with in_own_notation():
            icevirt.to_html(value, path)


def _scan(_ctx: typer.Context, call: dict[str, Any], shown: dict[str, Any]) -> CommandResult:
    if call["catalog"] is not None:
        with progress(quiet=shown["quiet"]) as listener:
            report = icevirt.scan_files(**call, progress=listener)
        return CommandResult(value=report, **shown, status=_code_of_failure(report))
    (source, *others) = call.pop("sources")
    if others or source == "-" or source.startswith("@"):
        raise typer.BadParameter("several files need a catalog: pass --catalog")
    more = {name: call[name] for name in ("concat_dim", "access")}
    from icevirt.archive.scanned import DEFAULT

    limited = {"file_timeout": DEFAULT.seconds, **call.get("scan_options", {})}
    scanned = icevirt.scan_file(source, scan_options=limited, **more)
    return CommandResult(value=scanned, **shown)


def _exclude(_ctx: typer.Context, call: dict[str, Any], shown: dict[str, Any]) -> CommandResult:
    listed = icevirt.exclude(**call) if call["files"] else icevirt.excluded(call["repo"])
    return CommandResult(value=listed, **shown)


def _upgrade(
    _ctx: typer.Context, call: dict[str, Any], shown: dict[str, Any], *, keep_v1_files: bool
) -> CommandResult:
    if call["target"] is None:
        if call["chunks"] != "copy":
            raise typer.BadParameter("--chunks needs NEW, the path of the copy")
        opened = icevirt.Repository.open(call["source"])
        done = opened.upgrade(dry_run=call["dry_run"], delete_unused_v1_files=not keep_v1_files)
        return CommandResult(value=done, output=shown["output"])
    if keep_v1_files:
        raise typer.BadParameter("--keep-v1-files is for an upgrade in place: the copy keeps all")
    with progress(quiet=shown["quiet"] or shown["output"] is Output.json) as tell:
        report = icevirt.upgrade(**call, progress=tell)
    return CommandResult(value=report, **shown, status=_code_of_failure(report))


_NAMES_FILES = re.compile(r"^@|^-$|[*?]")


def _require_repo(given: Mapping[str, Any]) -> None:
    """End the program with status 2 where a source stands in the place of the repository."""
    repo, sources = str(given["repo"]), [*map(str, given.get("sources") or ())]
    is_pattern, at = _NAMES_FILES.search(repo) is not None, Path(repo)
    first = sources[0] if sources else ""
    # a repository may be a source, of what is not there yet
    is_there = bool(first) and (Path(first) / "repo").is_file() and not (at / "repo").exists()
    is_there &= is_pattern or at.exists()
    is_plain = bool(first) and "://" not in first and not _NAMES_FILES.search(first)
    # a first word with the suffix of the last is a file whose name has a typing error
    is_new = is_plain and not Path(first).exists() and Path(first).suffix != at.suffix
    if is_there or (is_new and (is_pattern or at.is_file())):
        files = with_patterns([*sources[1:], repo])
        swapped = " ".join(map(quote_word, [*files, first]))
        what = "is a repository, which" if is_there else "is no file; the repository"
        raise typer.BadParameter(f"{first} {what} stands last: `icevirt build {swapped}`")
    is_alone = not sources
    if at.is_file():
        what = f"{repo} is a file"
    elif is_alone and is_pattern:
        what = f"{repo} names files"
    elif is_alone and given.get("catalog") is None and at.is_dir() and not (at / "repo").exists():
        what = f"{repo} is a directory of files"
    else:
        return
    words = with_patterns([*sources, repo])
    example = f"`icevirt build {' '.join(map(quote_word, words))} REPO`"
    raise typer.BadParameter(
        f"Missing argument 'REPO': {what}. Name the repository last, like {example}"
    )


def _require_sources(given: dict[str, Any], recipe: str | None) -> None:
    """Take no sources for all that was scanned into the catalog; without one, they are missing."""
    given["sources"] = given.get("sources") or None
    if given.get("catalog") is None:
        _require(given, recipe, sources="SOURCES")


def _require(given: dict[str, Any], recipe: str | None, **metavars: str) -> None:
    """End the program with status 2 where an argument is neither given nor in a recipe."""
    for name, metavar in metavars.items():
        if not given.get(name):
            here = (
                "the recipe does not name it" if recipe else "give it, or a recipe (-f) that has it"
            )
            raise typer.BadParameter(f"Missing argument '{metavar}': {here}.")


# -- commands -------------------------------------------------------------------------------------

_LIMIT = "End with status 5 if the newest step is further behind"
_NAMES = "icevirt.api.history.moves"

_ALL = " Default: all files that were scanned into --catalog."
_OF_BUILDS: dict[str, Notation] = {
    "sources": Notation(doc=SOURCES + _ALL),
    "concat_dim": Notation(
        doc="The dimension to concatenate along; may be repeated, outermost first. Default: every"
        " dimension whose coordinate differs between the first good file and the last."
    ),
    "group": Notation(repeats=False, doc="The group of the repository to build into."),
}

_OF_TWINS: dict[str, Notation] = {
    "twin_chunks": Notation(
        metavar="<DIM=LENGTH>",
        parser=_lengths,
        value=lambda given: dict(chain.from_iterable(each.items() for each in given)) or None,
        doc="Say what a map and a series take now, and in a twin of such chunks.",
    )
}

FUNCTIONS: dict[str, FunctionCommand] = {
    "build": FunctionCommand(
        function="build",
        text="Build a virtual dataset over files, without copying them.",
        arguments=("sources", "repo"),
        optional=("sources", "repo"),
        notations={
            **_OF_BUILDS,
            "repo": Notation(repeats=False, doc="The repository, a path or URL; made if absent."),
            "mode": Notation(
                repeats=False,
                kind=choice(("w-", "w")),
                doc="w- refuses a group that holds nodes; w replaces what the last build of it"
                " made.",
            ),
        },
        first={"file": (RecipeFile, None)},
        has_page=True,
        run=_build,
    ),
    "plan": FunctionCommand(
        function="plan",
        text="Show what a build of these files would do and store, without a repository.\n\nWhere"
        " files have different encodings, their eras are shown; the exit status is 1 where they are"
        " refused.",
        arguments=("sources",),
        optional=("sources",),
        notations={
            **_OF_BUILDS,
            **_OF_TWINS,
            "repo": Notation(
                repeats=False,
                doc="A repository, to show what differs from its last build.",
            ),
        },
        options={"commit_options": ("branch", "publish_as", "containers")},
        first={
            "file": (RecipeFile, None),
            "write_recipe": (WriteRecipe, None),
            "update": (
                Annotated[
                    str | None,
                    typer.Option(
                        metavar="<REPO>",
                        help="In place of sources, a repository: show what icevirt update would do;"
                        " the same as icevirt update --dry-run, which takes more options.",
                    ),
                ],
                None,
            ),
        },
        has_page=True,
        run=_plan,
    ),
    "scan": FunctionCommand(
        function="scan_files",
        text="Show what a build would find in a file, or with --catalog scan many files for"
        " builds.\n\nBuilds may combine the files of a catalog in any way. --concat-dim, --labels,"
        " --data-vars, --pad, --tolerance and --rename are hints: the scan takes what such a build"
        " needs while each file is open. A build that needs more opens each file once more, and the"
        " catalog keeps what it took.\n\nWith --catalog the status is 1 when more files are bad"
        " than --max-bad-files.",
        arguments=("sources",),
        optional=("catalog",),
        notations={
            "sources": Notation(doc=SOURCES),
            "catalog": Notation(
                repeats=False, doc="The catalog that many files are scanned into; made if absent."
            ),
            "concat_dim": Notation(
                doc="The dimension along which builds will concatenate the files; may be repeated."
                " With --catalog it is a hint, and the default is every dimension whose coordinate"
                " differs between the first good file and the last."
            ),
        },
        options={"combine_options": ("labels", "data_vars", "pad", "tolerance", "rename")},
        run=_scan,
    ),
    "exclude": FunctionCommand(
        function="exclude",
        text="Let appends and updates leave files out, or list those that they leave out.",
        arguments=("repo", "files"),
        optional=("files",),
        notations={
            "files": Notation(doc="Paths or URLs of files; none: only list them."),
            "readmit": Notation(repeats=False, doc="Let the files be added again, to any dataset."),
        },
        run=_exclude,
    ),
    "upgrade": FunctionCommand(
        function="upgrade",
        text="Upgrade a repository of an older format to V2; run again what was"
        " interrupted.\n\nWithout NEW, a repository of the V1 format is upgraded in place: data"
        " stays as it is, commits that V1 clients make meanwhile are carried over, later ones fail."
        " With NEW, a repository of any older format is copied; the status is 1 when something of"
        " it could not be carried over.",
        arguments=("source", "target"),
        optional=("target",),
        names={"source": "repo", "target": "new"},
        notations={
            "source": NOTATIONS["repo"],
            "target": Notation(
                repeats=False,
                doc="A new path or URL: the upgrade is a copy. Formats before V1 need it.",
            ),
            "chunks": Notation(
                repeats=False,
                kind=choice(("copy", "reference")),
                doc="With NEW: copy stored chunks, or reference them in the old repository, which"
                " then has to stay.",
            ),
            "dry_run": Notation(repeats=False, doc="Only report what would be done."),
        },
        more={
            "keep_v1_files": (
                Annotated[
                    bool,
                    typer.Option(
                        "--keep-v1-files",
                        help="Keep the V1 files, so that V1 clients can still read, and commit"
                        " beside V2.",
                    ),
                ],
                False,
            )
        },
        run=_upgrade,
    ),
    "append": FunctionCommand(
        function="append",
        arguments=("files", "repo"),
        notations={
            "files": Notation(doc=SOURCES),
            "concat_dim": Notation(
                doc="The dimension to concatenate along, outermost first; by default as the last"
                " build did."
            ),
        },
    ),
    "log": FunctionCommand(function="log", flags={"n": ("-n",)}),
    "ops-log": FunctionCommand(function="ops_log", flags={"n": ("-n",)}),
    "diff": FunctionCommand(function="diff", arguments=("repo", "before", "after")),
    "undo": FunctionCommand(function="undo"),
    "redo": FunctionCommand(function="redo"),
    "reset": FunctionCommand(function="reset", arguments=("repo", "version")),
    "source": FunctionCommand(
        function="source",
        arguments=("repo", "variable"),
        notations={
            "at": Notation(
                metavar="<DIM=LABEL>",
                parser=_places,
                value=_all_pairs,
                doc="A label of a dimension's coordinate, or the index where it has none; several"
                " with commas between them. Of other dimensions all chunks are shown.",
            )
        },
    ),
    "info": FunctionCommand(function="info", notations=_OF_TWINS, has_page=True),
    "check": FunctionCommand(function="check", status=_code_of_failure),
    "verify": FunctionCommand(function="verify", status=_code_of_failure),
    "status": FunctionCommand(
        function="status",
        more={
            "max_lag": (
                Annotated[
                    str | None,
                    typer.Option(metavar="<time>", help=f"{_LIMIT} the newest file, like 2D."),
                ],
                None,
            ),
            "max_age": (
                Annotated[str | None, typer.Option(metavar="<time>", help=f"{_LIMIT} the clock.")],
                None,
            ),
        },
        status=_behind,
    ),
    "maintain": FunctionCommand(function="maintain", is_confirmed=True),
    "withdraw": FunctionCommand(
        function="withdraw", arguments=("files", "repo"), is_confirmed=True
    ),
    "relocate": FunctionCommand(
        function="relocate",
        arguments=("repo", "old", "new"),
        notations={
            "compare": Notation(metavar="<number or all>", parser=_parse_compare, repeats=False)
        },
    ),
    "materialize": FunctionCommand(
        function="materialize",
        arguments=("repo", "variable"),
        notations={
            "chunks": Notation(
                metavar="<DIM=LENGTH>",
                parser=_lengths,
                value=lambda given: dict(chain.from_iterable(each.items() for each in given)),
                doc="Cut the variable into other chunks, of so many elements.",
            ),
            "coarsen": Notation(
                metavar="<DIM=NUMBER>",
                parser=_lengths,
                value=lambda given: dict(chain.from_iterable(each.items() for each in given)),
                doc="With --beside: store means of blocks of so many elements, as overviews.",
            ),
            "where": Notation(
                metavar="<DIM=LABEL[:LAST]>",
                parser=_region,
                value=dict,
                doc="Only a region, by labels of coordinates, like time=2024 or time=2020:2024; it"
                " is extended to whole chunks.",
            ),
        },
    ),
    "export": FunctionCommand(
        function="export",
        arguments=("repo", "path"),
        flags={"variables": ("--variable",), "drop_variables": ("--drop-variable",)},
    ),
    "update": FunctionCommand(
        function="update",
        flags={"recipe": ("--recipe", "-f")},
        notations={
            "replaces": Notation(
                metavar="<FINAL=PROVISIONAL>",
                parser=_replacement,
                value=dict,
                doc="Patterns of names of final files, and of the provisional files that they"
                " replace, like 'era5_*.nc=era5t_*.nc'.",
            )
        },
        more={
            "fail_on_held": (
                Annotated[
                    bool,
                    typer.Option(
                        "--fail-on-held",
                        help=f"End with the status {HELD} where files are held back.",
                    ),
                ],
                False,
            )
        },
        status=_code_of_held,
    ),
    "branch list": FunctionCommand(function=f"{_NAMES}:branches"),
    "branch create": FunctionCommand(
        function=f"{_NAMES}:create_branch", arguments=("repo", "name", "version")
    ),
    "branch delete": FunctionCommand(
        function=f"{_NAMES}:delete_branch", arguments=("repo", "name")
    ),
    "branch rename": FunctionCommand(
        function=f"{_NAMES}:rename_branch", arguments=("repo", "name", "new")
    ),
    "tag list": FunctionCommand(function=f"{_NAMES}:tags"),
    "tag create": FunctionCommand(
        function=f"{_NAMES}:create_tag", arguments=("repo", "name", "version")
    ),
    "tag delete": FunctionCommand(function=f"{_NAMES}:delete_tag", arguments=("repo", "name")),
}
"""The commands that are made from functions, by their words."""
