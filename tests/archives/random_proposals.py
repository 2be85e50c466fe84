"""Run every command that a refusal proposes, and count the values that each keeps.

A value is kept if it is in what was built, under the labels that its file gives it, in whatever group.
So what is joined, stacked, stored in groups or by position is compared with the same measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    kind: str  # built, relabeled (labels have other names), refused, crash, made up
    kept: Kept = field(default_factory=frozenset, repr=False)
    detail: str = ""


class Builds:
    """Builds of the same files with other arguments; one with the same arguments is made once."""

    def __init__(self, sources: Sequence[str], folder: Path) -> None:
        self._sources, self._folder = list(sources), folder
        self._made: dict[str, icevirt.BuildReport | Exception] = {}

    def repo(self, call: Mapping[str, Any]) -> Path:
        """Return where a build with these arguments lies."""
        return self._folder / f"repo{[*self._made].index(repr(call))}"

    def make(self, call: Mapping[str, Any]) -> icevirt.BuildReport:
        """Build.

        Raises:
            Exception: Whatever a user meets.
        """
        if repr(call) not in self._made:
            repo = self._folder / f"repo{len(self._made)}"
            self._made[repr(call)] = self._result(repo, call)
        found = self._made[repr(call)]
        if isinstance(found, Exception):
            raise found
        return found

    def _result(self, repo: Path, call: Mapping[str, Any]) -> icevirt.BuildReport | Exception:
        try:
            return icevirt.build(
                self._sources,
                icevirt.local_filesystem_storage(repo, wait_for_disk=False),
                executor=InProcessExecutor(),
                **call,
            )
        except Exception as error:  # noqa: BLE001 - whatever a user would meet
            return error


class Proposals:
    """What comes of all that refusals propose, of those behind the first one, too."""

    def __init__(self, builds: Builds, held: Kept) -> None:
        self._builds, self._held = builds, held
        self._known: dict[str, Proposal] = {}  # by the arguments that were refused or built
        self.complaint = ""

    def judge(self, call: Mapping[str, Any]) -> str:
        """Return what is wrong with proposals where arguments are refused; nothing where none is."""
        self._run(call, ())
        return self.complaint

    def _run(self, call: Mapping[str, Any], done: tuple[str, ...]) -> Proposal:
        if repr(call) not in self._known:
            self._known[repr(call)] = self._outcome(call, done)
        return replace(self._known[repr(call)], python=done)

    def _outcome(self, call: Mapping[str, Any], done: tuple[str, ...]) -> Proposal:
        try:
            report = self._builds.make(call)
            found = read_kept(_groups_of(self._builds.repo(call), report), self._held)
        except IcevirtError as error:
            return self._refused(error, call, done)
        except Exception as error:  # noqa: BLE001 - whatever a user would meet
            return Proposal(python=done, kind="crash", detail=repr(error))
        if new := sorted(map(str, found - self._held)):
            told = f"{len(new)} values that no file holds, like {new[0]}"
            return Proposal(python=done, kind="made up", detail=told)
        kind = "relabeled" if "rename" in call.get("combine_options", {}) else "built"
        return Proposal(python=done, kind=kind, kept=found & self._held)

    def _refused(
        self, error: IcevirtError, call: Mapping[str, Any], done: tuple[str, ...]
    ) -> Proposal:
        """Run all proposals of a refusal, and return what comes of the first."""
        fixes = [e for e in error.fixes if e.python and not e.first and not e.command]
        if not fixes or len(done) == _MOST:
            return Proposal(python=done, kind="refused", detail=str(error))
        found = [self._run(change_call(call, each), (*done, each.python)) for each in fixes]
        self.complaint = self.complaint or complaint_of(found, self._held)
        return found[0]


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
    axes = {str(dim): at for at, dim in enumerate(variable.dims)}
    labels = {
        dim: _labels_of(dataset.variables[dim], axes)
        for dim in sorted(str(dim) for dim in dims if dim in dataset.variables)
    }
    values = variable.values
    for place in np.ndindex(values.shape):
        value = _plain(values[place])
        if value is not None:
            said = tuple(
                (dim, held[tuple(place[at] for at in along)])
                for dim, (along, held) in labels.items()
            )
            yield name, said, value


def _labels_of(
    variable: xr.Variable, axes: Mapping[str, int]
) -> tuple[list[int], dict[tuple[int, ...], Any]]:
    """Return axes of a variable, and its labels by the place along these: of each file, perhaps."""
    own = variable if {*map(str, variable.dims)} <= axes.keys() else variable[:0]
    held = {place: _plain(own.values[place]) for place in np.ndindex(own.shape)}
    return [axes[str(dim)] for dim in own.dims], held


def _plain(value: Any) -> Any:
    """Return a value as it is compared; None for one that is missing."""
    if isinstance(value, bytes):
        return value.decode() or None
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
    return str(value) or None


def complaint_of(proposals: Sequence[Proposal], held: Kept) -> str:
    """Return what is wrong with proposals: a crash, made up values, or an order that loses more."""
    for each in proposals:
        if each.kind in ("crash", "made up"):
            return f"{each.kind} by {' then '.join(each.python)}: {each.detail}"
    built = [each for each in proposals if each.kind == "built"]
    first = proposals[0]
    if not built or first.kind == "relabeled":
        return ""
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
