"""Run every command that a refusal proposes, and count the values that each keeps.

A value is kept if it is in what was built, under the labels that its file gives it, in whatever group.
So what is joined, stacked, stored in groups or by position is compared with the same measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

import icevirt
from archives.archive import DECODED
from icevirt.errors import Fix, IcevirtError
from icevirt.execution.local_executors import InProcessExecutor
from icevirt.remedy_notation import name_of

_MOST = 3  # fixes in a row
_DIGITS = 5  # of values that were packed again, or whose labels differ by rounding
_EPOCH = np.datetime64("1970-01-01T00:00", "ms")

type Kept = frozenset[tuple[Any, ...]]
"""Values: group and name, labels of the dimensions of their file that have any, value."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What came of a proposal, and of the first one of each refusal behind it."""

    python: tuple[str, ...]
    kind: str  # built, refused, crash, made up
    kept: Kept = field(default_factory=frozenset, repr=False)
    detail: str = ""


def run_all(
    error: IcevirtError, call: Mapping[str, Any], sources: Sequence[str], folder: Path, held: Kept
) -> list[Proposal]:
    """Return what comes of each proposal of a refusal.

    Args:
        error: The refusal.
        call: The arguments that were refused.
        sources: Of the build.
        folder: For repositories.
        held: What the files hold.
    """
    fixes = [each for each in error.fixes if each.python and not each.first and not each.command]
    return [
        _run(each, call, sources, folder / f"proposal{at}", held) for at, each in enumerate(fixes)
    ]


def _run(
    fix: Fix, call: Mapping[str, Any], sources: Sequence[str], repo: Path, held: Kept
) -> Proposal:
    done: list[str] = []
    for _ in range(_MOST):
        call = change_call(call, fix)
        done.append(fix.python)
        try:
            report = icevirt.build(list(sources), repo, executor=InProcessExecutor(), **call)
            found = read_kept(_groups_of(repo, report), held)
        except IcevirtError as error:
            fixes = [each for each in error.fixes if each.python and not each.first]
            if not fixes:
                return Proposal(python=tuple(done), kind="refused", detail=str(error))
            fix = fixes[0]
            continue
        except Exception as error:  # noqa: BLE001 - whatever a user would meet
            return Proposal(python=tuple(done), kind="crash", detail=repr(error))
        if new := sorted(map(str, found - held)):
            told = f"{len(new)} values that no file holds, like {new[0]}"
            return Proposal(python=tuple(done), kind="made up", detail=told)
        return Proposal(python=tuple(done), kind="built", kept=found & held)
    return Proposal(python=tuple(done), kind="refused", detail="further and further")


def change_call(call: Mapping[str, Any], fix: Fix) -> dict[str, Any]:
    """Return the arguments with what a fix adds, and without what it takes away."""
    made = _copy(call)
    for flag, _, name in (each.partition("=") for each in fix.without):
        option = name_of(flag)
        for options in [made, *(each for each in made.values() if isinstance(each, dict))]:
            held = options.get(option)
            if held is None:
                continue
            if not name or isinstance(held, str):
                options.pop(option)
            elif isinstance(held, dict):
                held.pop(name, None)
            else:
                options[option] = [each for each in held if each != name]
    if "concat_dim" in fix.arguments:  # it names all of them
        made.pop("concat_dim", None)
    return dict(_add(made, fix.arguments))


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copy(each) for name, each in value.items()}
    return list(value) if isinstance(value, list | tuple) else value


def _add(old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{key: _add(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list | tuple):
        return [*old, *(each for each in new if each not in old)]
    return _copy(new)


def _groups_of(
    repo: Path, report: icevirt.BuildReport
) -> Iterator[tuple[tuple[str, ...], xr.Dataset]]:
    """Yield what was built, with the names of its groups, from above."""
    groups = dict.fromkeys(each.path.rpartition("/")[0] for each in report.arrays)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        for group in groups:
            yield tuple(group.split("/")), xr.open_dataset(
                repo, engine="icevirt", group=group or "/", decode_times=DECODED,
                authorize_virtual_chunk_access=report.containers,
            ).load()  # fmt: skip


def read_held(files: Iterable[xr.Dataset], *, group: str = "", index: str = "") -> Kept:
    """Return the values that files hold, except numbers of steps, which a build may count anew."""
    found: set[tuple[Any, ...]] = set()
    for each in files:
        for name, variable in each.variables.items():
            if name != index:
                found |= {*_values(f"{group}/{name}", variable, each, variable.dims)}
    return frozenset(found)


def read_kept(groups: Iterable[tuple[tuple[str, ...], xr.Dataset]], held: Kept) -> Kept:
    """Return the values that a repository holds, as `read_held` returns those of the files.

    A group of the files is found by its name, wherever a build put it.
    """
    shapes: dict[str, set[tuple[str, ...]]] = {}
    for name, labels, _ in held:
        shapes.setdefault(name, set()).add(tuple(dim for dim, _ in labels))
    scopes = {name.partition("/")[0] for name in shapes}
    found: set[tuple[Any, ...]] = set()
    for path, each in groups:
        group = next((part for part in path if part and part in scopes), "")
        for name, variable in each.variables.items():
            for dims in shapes.get(f"{group}/{name}", ()):
                if {*dims} <= {*variable.dims} & {*each.variables}:
                    found |= {*_values(f"{group}/{name}", variable, each, dims)}
    return frozenset(found)


def _values(
    name: str, variable: xr.Variable, dataset: xr.Dataset, dims: Iterable[Any]
) -> Iterator[tuple[Any, ...]]:
    labelled = sorted(str(dim) for dim in dims if dim in dataset.variables)
    axes = {str(dim): at for at, dim in enumerate(variable.dims)}
    labels = {dim: [_plain(each) for each in _flat(dataset.variables[dim])] for dim in labelled}
    values = variable.values
    for place in np.ndindex(values.shape):
        value = _plain(values[place])
        if value is not None:
            said = tuple((dim, labels[dim][place[axes[dim]]]) for dim in labelled)
            yield name, said, value


def _flat(variable: xr.Variable) -> Iterable[Any]:
    return np.atleast_1d(variable.values)


def _plain(value: Any) -> Any:
    """Return a value as it is compared; None for one that is missing."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return None
        whole = value - _EPOCH if isinstance(value, np.datetime64) else value
        return int(whole / np.timedelta64(1, "ms"))
    if hasattr(value, "calendar"):
        return value.isoformat(timespec="seconds")
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(f"{float(value):.{_DIGITS}g}")
    if isinstance(value, int | np.integer):
        return float(f"{int(value):.{_DIGITS}g}")
    return str(value)


def complaint_of(proposals: Sequence[Proposal], held: Kept) -> str:
    """Return what is wrong with proposals: a crash, made up values, or an order that loses more."""
    for each in proposals:
        if each.kind in ("crash", "made up"):
            return f"{each.kind} by {' then '.join(each.python)}: {each.detail}"
    built = [each for each in proposals if each.kind == "built"]
    if not built:
        return ""
    first = proposals[0]
    for other in built:
        if first.kind != "built":
            return f"first {first.python} is {first.kind}, and {other.python} builds"
        lost, less = held - first.kept, held - other.kept
        if less < lost:
            example = re.sub(r"\s+", " ", str(min(map(str, lost - less))))
            return (
                f"first {first.python} loses {len(lost)} values, and {other.python} {len(less)},"
                f" like {example}"
            )
    return ""
