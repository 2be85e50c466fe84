"""Build a random archive, apply what refusals propose, and compare with xarray and with the truth."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

import icevirt
from archives.archive import DECODED, differences
from archives.random_archive import RandomArchive, RandomFile
from archives.random_files import NEW, dimensions_of, files_of, first_of, second_of, twin_of
from archives.random_proposals import Builds, Kept, Proposals, change_call, read_held
from archives.random_truth import read, truth, wrong, wrong_eras
from icevirt.errors import CombineError, IcevirtError

PINNED: dict[str, Any] = {
    "data_vars": "minimal", "coords": "minimal", "join": "exact", "compat": "no_conflicts",
    "combine_attrs": "override",
}  # fmt: skip
MOST = 3  # fixes in a row
_WORDS = 12  # of an error, that make a reason


@dataclass(kw_only=True)
class Verdict:
    """What came of an archive."""

    kind: str
    reasons: list[str] = field(default_factory=list)  # of refusals, in their order
    detail: str = ""
    xarray: str = ""  # equal, refuses, or why its answer does not count
    fixes: list[str] = field(default_factory=list)  # that were applied

    @property
    def is_defect(self) -> bool:
        """Whether values are wrong, a program failed, or a proposal loses what another keeps."""
        return self.kind.startswith(("DIFFERENT", "CRASH", "PROPOSALS"))


def judged(archive: RandomArchive, folder: Path) -> Verdict:
    """Write, build and compare an archive, and run all that refusals propose."""
    files = files_of(archive)
    for each in files:
        each.write(folder)
    builds = Builds([str(folder / name) for name in as_given(archive, files)], folder)
    if archive.grouped:
        verdict, held = _judged_groups(archive, files, folder, builds)
    else:
        opened = read(archive, files, folder)
        held = read_held(opened, index="neighbor")
        verdict = _judged(archive, files, opened, builds)
    if verdict.is_defect or not verdict.reasons:
        return verdict
    told = Proposals(builds, held).judge(arguments_of(archive))
    return replace(verdict, kind=f"PROPOSALS: {told.split()[0]}", detail=told) if told else verdict


def _judged_groups(
    archive: RandomArchive, files: list[RandomFile], folder: Path, builds: Builds
) -> tuple[Verdict, Kept]:
    """Judge two groups of the files, each against what it holds."""
    parts = {"a": replace(archive, grouped=""), "b": twin_of(archive)}
    inner = {name: [each.groups[name] for each in files] for name in parts}
    opened = {name: read(part, inner[name], folder, group=name) for name, part in parts.items()}
    held = frozenset().union(
        *(read_held(each, group=name, index="neighbor") for name, each in opened.items())
    )
    call = arguments_of(archive)
    reasons: list[str] = []
    fixes: list[str] = []
    while True:
        try:
            report = builds.make(call)
        except IcevirtError as error:
            reasons.append(_reason(error))
            proposal = next((each for each in error.fixes if each.python and not each.first), None)
            if proposal is None or len(fixes) == MOST:
                return _refused(reasons, fixes, "groups", str(error), None), held
            fixes.append(proposal.python)
            call = change_call(call, proposal)
            continue
        except Exception as error:  # noqa: BLE001 - whatever a user would meet
            return Verdict(kind="CRASH", detail=repr(error), reasons=reasons, fixes=fixes), held
        break
    if fixes:
        return Verdict(kind="two groups after a fix", reasons=reasons, fixes=fixes), held
    for name, part in parts.items():
        expected = truth(part, inner[name], opened[name], given=_given(part, call))
        ours = _opened(builds.repo(call), report, {}, group=name)
        first = first_of(part)
        if (
            part.trouble == "unsorted" and first in ours.variables
        ):  # of another group it orders none
            ours = ours.sortby(first, ascending=not part.falling)
        for new in {*NEW} - {*ours.variables}:  # labels that no file has stand above all groups
            expected.pop(new, None)
        if output := wrong(ours, expected, {}):
            detail = f"group {name}: {'; '.join(output)}"
            return Verdict(kind="DIFFERENT", detail=detail), held
    return Verdict(kind="equal, two groups"), held


def _judged(
    archive: RandomArchive, files: list[RandomFile], opened: list[xr.Dataset], builds: Builds
) -> Verdict:
    """Build and compare an archive, with what a refusal proposes first."""
    given = as_given(archive, files)
    call = arguments_of(archive)
    theirs, why = _xarray(archive, files, opened)
    expected = truth(archive, files, opened, given=_given(archive, call))
    if theirs is not None and (output := wrong(theirs, expected, {})):
        theirs, why = None, f"differs from the truth: {output[0][:150]}"
    reasons: list[str] = []
    fixes: list[str] = []
    for _ in range(MOST + 1):
        try:
            report = builds.make(call)
        except IcevirtError as error:
            reasons.append(_reason(error))
            change = first_fix(error)
            if change is None or len(fixes) == MOST:
                return _refused(reasons, fixes, why, str(error), change)
            fixes.append(change)
            proposal = next((each for each in error.fixes if each.python == change), None)
            call = change_call(call, proposal) if proposal else merged(call, change)
            continue
        except Exception as error:  # noqa: BLE001 - whatever a user would meet
            return Verdict(
                kind="CRASH", detail=repr(error), reasons=reasons, xarray=why, fixes=fixes
            )
        break
    repo, options = builds.repo(call), call.get("combine_options", {})
    without = [
        each.rpartition("/")[2] for each in call.get("scan_options", {}).get("drop_variables", [])
    ]
    is_nested = options.get("combine") == "nested"
    unknown = _dimensions(call) - set(dimensions_of(archive))
    if unknown:  # the generator has no such labels
        theirs = "xarray refuses" if theirs is None else "xarray combines"
        kind = f"stacked along a new dimension, {theirs}"
        return Verdict(kind=kind, reasons=reasons, detail=str(unknown), xarray=why, fixes=fixes)
    is_relabeled = archive.is_unlabelled and first_of(archive) in _labelled(call)
    is_eras = (
        options.get("on_mismatch") == "eras"
    )  # in the order given, these are found by no label
    if is_relabeled or (is_nested and (archive.split or second_of(archive) or is_eras)):
        return Verdict(kind="fix not judged", reasons=reasons, xarray=why, fixes=fixes)
    if is_nested:
        files = _in_order(files, given, first_of(archive))
    expected = truth(archive, files, opened, given=_given(archive, call), without=without)
    if archive.along == "restart" and not _is_used(first_of(archive), expected):
        return Verdict(kind="fix not judged", reasons=reasons, xarray=why, fixes=fixes)
    try:
        ours = _opened(repo, report, options)
    except CombineError as error:
        if options.get("on_mismatch") != "eras":
            return Verdict(kind="CRASH", detail=str(error), reasons=reasons, fixes=fixes)
        output = wrong_eras(_eras(repo, report), expected, first_of(archive))
        kind = "DIFFERENT after a fix" if output else "eras that are not one dataset"
        return Verdict(
            kind=kind, detail="; ".join(output), reasons=reasons, xarray=why, fixes=fixes
        )
    except Exception as error:  # noqa: BLE001 - whatever a reader would meet
        return Verdict(kind="CRASH", detail=repr(error), reasons=reasons, xarray=why, fixes=fixes)
    output = wrong(ours, expected, options)
    if output:
        kind = "DIFFERENT after a fix" if fixes else "DIFFERENT"
        return Verdict(
            kind=kind, reasons=reasons, detail="; ".join(output), xarray=why, fixes=fixes
        )
    if fixes:
        kind = "xarray combines" if theirs is not None else "xarray refuses"
        what = "variables were left out" if without else "a fix"
        return Verdict(kind=f"equal after {what}, {kind}", reasons=reasons, xarray=why, fixes=fixes)
    if theirs is None:
        return Verdict(kind="equal, xarray refuses", xarray=why)
    unlike = differences(ours, theirs)
    if odd := set(ours.coords) ^ set(theirs.coords):
        unlike.append(f"coordinates of one alone: {sorted(map(str, odd))}")
    if unlike:
        return Verdict(kind="equal, other attributes", detail="; ".join(unlike), xarray=why)
    return Verdict(kind="equal", xarray=why)


def _is_used(dimension: str, expected: Mapping[str, Any]) -> bool:
    """Say whether a variable lies along a dimension, beside its coordinate."""
    return any(dimension in each.dims for name, each in expected.items() if name != dimension)


def _refused(
    reasons: list[str], fixes: list[str], why: str, output: str, change: str | None
) -> Verdict:
    theirs = "xarray combines" if why == "equal" else "xarray refuses"
    if fixes:
        kind = f"a fix was refused, {theirs}"
    else:
        kind = f"refused, {theirs}" + (", without a fix" if change is None else "")
    return Verdict(kind=kind, reasons=reasons, xarray=why, detail=output, fixes=fixes)


def _reason(error: IcevirtError) -> str:
    words = re.sub(r"/\w+|'[^']*'|\"[^\"]*\"|[0-9][0-9.,]*", "*", error.what).split()
    return f"{error.code}: {' '.join(words[:_WORDS])}"


def as_given(archive: RandomArchive, files: list[RandomFile]) -> list[str]:
    """Return names as a shell sorts them; without coordinates the caller knows the order."""
    names = [each.name for each in files]
    return names if archive.is_unlabelled else sorted(names)


def arguments_of(archive: RandomArchive) -> dict[str, Any]:
    """Return the arguments that the user passes."""
    second = second_of(archive)
    if not (archive.named or archive.along == "none" or second in NEW):
        return {}
    found: dict[str, Any] = {"concat_dim": dimensions_of(archive)}
    if second in NEW:
        output = {"member": "regex:_m([0-9]+)", "run": "variable:run"}[second]
        found["combine_options"] = {"labels": {second: output}}
    return found


def _dimensions(call: Mapping[str, Any]) -> set[str]:
    """Return the dimensions that a call names, those in patterns of labels too."""
    return set(_names(call.get("concat_dim"))) | _labelled(call)


def _labelled(call: Mapping[str, Any]) -> set[str]:
    """Return the dimensions that a call gives labels."""
    labels = call.get("combine_options", {}).get("labels", {})
    held = {"": labels} if isinstance(labels, str) else labels
    patterns = [each for each in held.values() if isinstance(each, str)]
    output = {name for each in patterns for name in re.findall(r"\{([a-z]\w*)", each)}
    return output | {name for name in held if name}


def _names(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _given(archive: RandomArchive, call: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the dimensions that variables get by option, by variable."""
    rules = call.get("combine_options", {}).get("data_vars")
    dims = _names(call.get("concat_dim")) or dimensions_of(archive)
    by_dim = rules if isinstance(rules, Mapping) else dict.fromkeys(dims, rules)
    found: dict[str, list[str]] = {}
    if archive.scalar_time and first_of(archive) in _labelled(call):  # files are stacked
        found["new"] = [first_of(archive)]
    for dim, names in by_dim.items():
        for name in _names(names):
            key = "*" if name == "all" else name.rpartition("/")[2]
            if name != "minimal":
                found.setdefault(key, []).append(dim)
    return found


def first_fix(error: IcevirtError) -> str | None:
    """Return the arguments that an error proposes first."""
    for each in error.fixes:
        if each.python and not each.first:
            return each.python
    found = re.search(r"\b(?:combine|scan)_options=(\{)", error.do)
    if not found:
        return None
    depth = 0
    for at in range(found.start(1), len(error.do)):
        depth += {"{": 1, "}": -1}.get(error.do[at], 0)
        if not depth:
            return error.do[found.start() : at + 1]
    return None


def merged(call: Mapping[str, Any], change: str) -> dict[str, Any]:
    """Return the arguments with what a fix adds, as words that are appended to a command."""
    words = {"true": True, "false": False, "null": None}
    return _added(call, eval(f"dict({change})", words))


def _added(old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{key: _added(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *(each for each in new if each not in old)]
    return new


def _opened(
    repo: Path, report: icevirt.BuildReport, options: Mapping[str, Any], *, group: str = "/"
) -> xr.Dataset:
    is_eras = options.get("on_mismatch") == "eras"
    more = {"eras": "concat"} if is_eras else {}
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return xr.open_dataset(
            repo, engine="icevirt", decode_times=DECODED, decode_coords="all", group=group,
            authorize_virtual_chunk_access=report.containers, **more,
        ).load()  # fmt: skip


def _eras(repo: Path, report: icevirt.BuildReport) -> list[xr.Dataset]:
    """Open the groups of eras one by one."""
    names = sorted({each.path.split("/")[1] for each in report.arrays})
    return [
        xr.open_dataset(
            repo, engine="icevirt", group=name, decode_times=DECODED, decode_coords="all",
            authorize_virtual_chunk_access=report.containers,
        ).load()
        for name in names
    ]  # fmt: skip


def _in_order(files: list[RandomFile], given: list[str], first: str) -> list[RandomFile]:
    """Return files whose steps follow one another as the files were given."""
    begin, moved = 0, {}
    for each in sorted(files, key=lambda file: given.index(file.name)):
        count = len(each.at.get(first, ()))
        moved[each.name] = replace(
            each, at={first: np.arange(begin, begin + count)} if count else each.at
        )
        begin += count
    return [moved[each.name] for each in files]


def _xarray(
    archive: RandomArchive, files: list[RandomFile], opened: list[xr.Dataset]
) -> tuple[xr.Dataset | None, str]:
    """Combine by xarray; return its answer, or why there is none."""
    order = sorted(range(len(files)), key=lambda at: files[at].name)
    second = second_of(archive)
    try:
        if archive.is_unlabelled:
            order = range(len(files))  # the caller knows the order
        if second in NEW:
            made = _stacked(archive, files, opened, list(order))
        else:
            made = _combined(archive, [opened[at] for at in order])
    except Exception as error:  # noqa: BLE001 - it refuses in many ways
        return None, f"refuses: {type(error).__name__} {str(error)[:60]}"
    return made, "equal"


def _combined(archive: RandomArchive, opened: list[xr.Dataset]) -> xr.Dataset:
    if not archive.is_unlabelled:
        return xr.combine_by_coords(opened, **PINNED)
    fixed = [each for each in opened if first_of(archive) not in each.dims]
    moving = [each for each in opened if first_of(archive) in each.dims]
    groups: dict[frozenset[Any], list[xr.Dataset]] = {}
    for each in moving:
        groups.setdefault(frozenset(each.data_vars) - {"mask", "height"}, []).append(each)
    parts = [
        xr.combine_nested(each, concat_dim=first_of(archive), **PINNED) for each in groups.values()
    ]
    return xr.merge([*parts, *fixed], join="exact", compat="no_conflicts", combine_attrs="override")


def _stacked(
    archive: RandomArchive, files: list[RandomFile], opened: list[xr.Dataset], order: list[int]
) -> xr.Dataset:
    second = second_of(archive)
    inner: dict[int, list[xr.Dataset]] = {}
    for at in order:
        inner.setdefault(int(files[at].at[second][0]), []).append(
            opened[at].drop_vars("run", errors="ignore")
        )
    labels = np.array([at * (3 if second == "run" else 1) for at in sorted(inner)])
    labels = labels.astype("i4" if second == "run" else "i8")
    made = [_combined(archive, inner[at]) for at in sorted(inner)]
    how = PINNED | {"data_vars": "all"}
    return xr.concat(made, xr.DataArray(labels, dims=second, name=second), **how)
