"""Read the options of the last build from its snapshot, for a call that goes on with them.

Anybody who can write the repository can write them, so they are data and no authority: they say how
files combine. What is run or read is the caller's alone to say: functions, directories that
references may lead to, servers and credentials, and places where files are published; and scanners
that this user did not name before (`icevirt.api.trust.recorded_scanners`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from shlex import join
from typing import Any

from icevirt.api.choices import (
    Choices,
    CombineOptionsLike,
    CommitOptionsLike,
    ConcatDim,
    ScanOptionsLike,
)
from icevirt.api.commit_options import CommitOptions
from icevirt.api.trust.recorded_scanners import find_scanner, recorded_scanner
from icevirt.archive.options import Options
from icevirt.errors import FormatError, InvalidInputError
from icevirt.model.attributes import restore
from icevirt.model.json import loads
from icevirt.planning.combine.options import CombineOptions
from icevirt.planning.remedies import build_fix, of_arguments
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.scan.contract import MAIN, GridUse, SidecarUse
from icevirt.scan.options import ScanOptions
from icevirt.storage.protocol import Storage

_OF_COMBINING = frozenset(
    {
        "chunk_grid",
        "combine",
        "combine_attrs",
        "data_vars",
        "duplicates",
        "float_variables",
        "index_of",
        "missing",
        "on_mismatch",
        "pad",
        "rebase_indices",
        "spacing",
        "split_contiguous",
        "tolerance",
    }
)
"""Options of combining that are taken as they are recorded; the rest is looked at one by one."""

_REBUILD = build_fix("scans and combines all files that you name", mode="w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The options of a call that goes on with a build: the build's, less what the call changes."""

    choices: Choices
    commit: CommitOptions


def continue_options(
    storage: Storage,
    record: Mapping[str, Any],
    *,
    concat_dim: ConcatDim,
    scan_options: ScanOptionsLike,
    combine_options: CombineOptionsLike,
    commit_options: CommitOptionsLike,
    takes_options: bool = True,
) -> Continued:
    """Return the options that a build recorded; options of the call override them.

    Remedies name options of the call, unless ``takes_options`` says that users cannot name any.

    Raises:
        InvalidInputError: The build had options that the call has to give itself, or the options
            contradict one another.
        FormatError: What is recorded is nothing that a build writes.
    """
    scan, combine = record.get("scan", {}), record.get("combine", {})
    asked = _check(ScanOptions, scan_options), _check(CombineOptions, combine_options)
    commit = _check(CommitOptions, commit_options)
    lacking = _only_caller if takes_options else _only_rebuild
    _refuse_lacking(scan, combine, *asked, commit, lacking=lacking)
    if "scanner" not in asked[0]:
        scanner = find_scanner(storage, record)
        if scanner is None:
            raise lacking("scan_options", "scanner", recorded_scanner(record))
        asked[0]["scanner"] = scanner
    known = _usable(lambda: _scan_options(scan)), _usable(lambda: _combine_options(combine, asked))
    if "containers" not in commit and (named := combine.get("containers")):
        commit["containers"] = _usable(lambda: {str(name): str(at) for at, name in named})
    dimensions = _usable(lambda: _dimensions(scan)) if concat_dim is None else concat_dim
    # the recorded ones alone first: what is wrong with them is not the caller's mistake
    unlabelled = {name: value for name, value in known[1].items() if name != "labels"}
    _usable(lambda: Choices.of(dimensions, known[0], unlabelled))
    return Continued(
        choices=Choices.of(dimensions, {**known[0], **asked[0]}, {**known[1], **asked[1]}),
        commit=CommitOptions.of(commit),
    )


def _check(kind: type[Options], options: Any) -> dict[str, Any]:
    """Return the options that a call names, checked."""
    made = kind.of(options)
    return dict(options) if isinstance(options, Mapping) else made.list_chosen()


def _usable[T](read: Callable[[], T]) -> T:
    try:
        return read()
    except (InvalidInputError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(
            "the options that the last build recorded cannot be used",
            do="icevirt did not write them. Build again from all files with"
            f" {_REBUILD.python}, or into another group.",
            cause=str(error),
        ) from error


def _scan_options(scan: Mapping[str, Any]) -> dict[str, Any]:
    held = ScanOptions.of(
        {
            "source_group": scan.get("group", "/"),
            "variables": scan.get("variables", ()),
            "drop_variables": scan.get("drop_variables", ()),
            "max_native_bytes_per_file": scan.get("max_native_bytes", 0),
            "variable_policy": dict(scan["policy"]) if scan.get("policy") else "fail",
            "sidecar": scan.get("sidecar", SidecarUse.usual.value),
            "grids": scan.get("grids", GridUse.one.value),
            "source_version": scan.get("source_version", MAIN),
        }
    )
    return held.list_chosen()


def _dimensions(scan: Mapping[str, Any]) -> ConcatDim:
    found = scan.get("concat_dim")
    return None if not found else found if isinstance(found, str) else list(found)


def _combine_options(
    combine: Mapping[str, Any], asked: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> dict[str, Any]:
    found = {name: value for name, value in combine.items() if name in _OF_COMBINING and value}
    edits = combine.get("edits") or {}
    if renamed := edits.get("rename"):
        found["rename"] = dict(renamed)
    attrs: dict[str, dict[str, Any]] = {}
    for variable, name, text in edits.get("attrs") or ():
        value, dtype = loads(text)
        dtypes = {} if dtype is None else {name: dtype}
        attrs.setdefault(variable, {})[name] = restore({name: value}, dtypes)[name]
    if attrs:
        found["attrs"] = attrs
    if combine.get("labels") and "labels" not in asked[1]:
        found["labels"] = {str(name): str(each) for name, each in combine["labels"].items()}
    return CombineOptions.of(found).list_chosen()


# -- what the record does not decide -------------------------------------------------------------


def _refuse_lacking(
    scan: Mapping[str, Any],
    combine: Mapping[str, Any],
    asked_scan: Mapping[str, Any],
    asked_combine: Mapping[str, Any],
    commit: Mapping[str, Any],
    *,
    lacking: Callable[[str, str, Any], InvalidInputError],
) -> None:
    """Refuse a call without what the build had and only the caller may say.

    Raises:
        InvalidInputError: It lacks some.
    """
    if combine.get("nest") is not None:
        raise InvalidInputError(
            "the last build placed files by nested lists, to which no file can be appended",
            fixes=[replace(_REBUILD, price="places all files that you name in nested lists")],
        )
    if (held := scan.get("allow_references_to")) and "allow_references_to" not in asked_scan:
        value = list(held) if isinstance(held, list | tuple) else str(held)
        raise lacking("scan_options", "allow_references_to", value)
    if (held := (combine.get("edits") or {}).get("preprocess")) and (
        "preprocess" not in asked_combine
    ):
        raise lacking("combine_options", "preprocess", str(held))
    if (held := combine.get("publish_as")) and "publish_as" not in commit:
        raise lacking("commit_options", "publish_as", {str(a): str(b) for a, b in held})
    labels = combine.get("labels") or {}
    listed = [str(name) for name, each in labels.items() if not isinstance(each, str)]
    if listed and "labels" not in asked_combine:
        if lacking is _only_rebuild:
            raise lacking("combine_options", "labels", {each: ["..."] for each in listed})
        raise InvalidInputError(
            "the last build had a list of labels, which has none for further files",
            do=write_remedy(
                "Pass the labels of all files, the new files last: ",
                write_code('combine_options={"labels": [...]}', "--labels ..."),
                ".",
            ),
            dimensions=listed,
        )


def _only_caller(options: str, name: str, value: Any) -> InvalidInputError:
    fix = of_arguments(
        {options: {name: value}}, "goes on as the last build did, if you trust this value"
    )
    return InvalidInputError(
        f"the last build had {name}, which is not taken from the repository",
        fixes=[fix],
        do="Anyone who can write the repository could choose what is read or run here.",
        recorded=value,
    )


def _only_rebuild(options: str, name: str, value: Any) -> InvalidInputError:
    given = of_arguments({"mode": "w", options: {name: value}}, "")
    return InvalidInputError(
        f"the last build had {name}, which is not taken from the repository",
        do=write_remedy(
            "Build the dataset from the files to keep, if you trust this value: ",
            write_code(
                f"icevirt.build(files, repo, {given.python})",
                f"icevirt build FILES REPO {join(given.flags)}",
            ),
            ". Anyone who can write the repository could choose what is read or run here. A"
            " scanner that you named on another machine counts there.",
        ),
        recorded=value,
    )
