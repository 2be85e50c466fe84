"""What an archive of the catalog is, how it is built as a newcomer does, and what counts as equal.

Each archive is built by the command ``icevirt build FILES REPO``, without options unless no reader of
the files could know them. Where the command is refused, the archive names one of the commands that
the error prints; that very command runs next. What was built is compared with xarray's answer.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

from builds.xarray_answer import combined

DECODED = xr.coders.CFDatetimeCoder(time_unit="us")


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An archive as a tool writes it."""

    name: str  # of the test and of the line on the page
    kind: str  # what it is, for a reader of the page
    tool: str  # what wrote it
    make: Callable[[Path], None]  # writes the files into a folder
    oracle: Callable[[list[str]], xr.Dataset]  # xarray's answer
    files: str = "*"  # the sources, as a pattern below the folder; "" is the folder itself
    options: tuple[str, ...] = ()  # words that only a person can know
    choose: str | None = None  # a part of the command that the error prints, and that is run next
    refused: str | None = None  # why it stays refused: a pattern of the error
    opened: dict[str, Any] = field(default_factory=dict)  # arguments of xr.open_dataset
    attrs: bool = True  # whether attributes must be equal, too
    often: bool = True  # whether CI builds it; every night all are built


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a build."""

    steps: tuple[str, ...]  # the commands that ran
    why: str = ""  # the first refusal
    dataset: xr.Dataset | None = None


CATALOG: list[Archive] = []


def archive(
    kind: str, *, tool: str, oracle: Callable[[list[str]], xr.Dataset], **more: Any
) -> Callable[[Callable[[Path], None]], Archive]:
    """Add the archive that a function writes to the catalog; its name is the function's."""

    def add(make: Callable[[Path], None]) -> Archive:
        name = make.__name__.removeprefix("make_").replace("_", "-")
        made = Archive(name=name, kind=kind, tool=tool, make=make, oracle=oracle, **more)
        assert name not in {each.name for each in CATALOG}, f"two archives are called {name}"
        CATALOG.append(made)
        return made

    return add


# -- xarray's answer -----------------------------------------------------------------------------


def by_coords(**how: Any) -> Callable[[list[str]], xr.Dataset]:
    """Combine by coordinates, as xarray does where every label survives."""
    how = {"data_vars": "minimal", "coords": "minimal", "join": "exact",
           "compat": "no_conflicts", "combine_attrs": "override"} | how  # fmt: skip

    def answer(files: list[str]) -> xr.Dataset:
        return combined(files, decode_times=DECODED, **how)

    return answer


def nested(concat_dim: Any, **how: Any) -> Callable[[list[str]], xr.Dataset]:
    """Combine in the order of the files."""
    return by_coords(combine="nested", concat_dim=concat_dim, **how)


# -- ours ----------------------------------------------------------------------------------------


def built(run: Callable[..., tuple[object, str, str]], made: Archive, folder: Path) -> Outcome:
    """Build an archive with one command, or with one that the error of the first proposes."""
    inputs, repo = folder / "in", folder / "repo"
    command = ["icevirt", "build", str(inputs / made.files), str(repo), *made.options]
    status, _, error = run(*command[1:])
    steps = [_shown(command, folder)]
    if status and made.choose:
        again = chosen(error, made.choose)
        assert again, f"no command with {made.choose!r} is proposed:\n{error}"
        steps.append(_shown(again, folder))
        status, _, later = run(*again[1:])
        assert status == 0, f"the proposed command {steps[-1]} was refused:\n{later}"
    if status:
        return Outcome(steps=tuple(steps), why=error)
    return Outcome(
        steps=tuple(steps), why=error if len(steps) > 1 else "", dataset=opened(made, folder)
    )


def opened(made: Archive, folder: Path) -> xr.Dataset:
    """Open what was built, with the setting that chunks of other lengths need; load every value."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return xr.open_dataset(
            folder / "repo",
            engine="icevirt",
            decode_times=DECODED,
            authorize_virtual_chunk_access={f"{(folder / 'in').as_uri()}/": None},
            **made.opened,
        ).load()


def chosen(error: str, part: str) -> list[str] | None:
    """Return the first command of an error that holds a text, as words."""
    for line in error.splitlines():
        if line.startswith("  ") and "icevirt build" in line and part in line:
            return shlex.split(line[line.index("icevirt build") :], comments=True)
    return None


def proposed(error: str) -> list[str]:
    """Return the options that an error proposes: what follows the repository."""
    found = [
        re.sub(r"\s+# .*", "", line).partition("icevirt build")[2]
        for line in error.splitlines()
        if line.startswith("  ") and "icevirt build" in line
    ]
    return [" ".join(shlex.split(each)[2:]) for each in found]


def _shown(words: Sequence[str], folder: Path) -> str:
    return shlex.join(words).replace(f"{folder}/", "")


# -- equal ---------------------------------------------------------------------------------------


def differences(ours: xr.Dataset, theirs: xr.Dataset, *, attrs: bool = True) -> list[str]:
    """Return how two datasets differ: in variables, dimensions, data types, values, attributes."""
    found = []
    if odd := set(ours.variables) ^ set(theirs.variables):
        found.append(f"variables of one alone: {sorted(map(str, odd))}")
    for name in [each for each in theirs.variables if each in ours.variables]:
        mine, their = ours[name].variable, theirs[name].variable
        if set(mine.dims) != set(their.dims):
            found.append(f"{name}: dimensions {mine.dims}, xarray {their.dims}")
            continue
        mine = mine.transpose(*their.dims)
        if mine.shape != their.shape:
            found.append(f"{name}: shape {mine.shape}, xarray {their.shape}")
            continue
        if mine.dtype != their.dtype:
            found.append(f"{name}: data type {mine.dtype}, xarray {their.dtype}")
        if not _equal(mine.values, their.values):
            found.append(f"{name}: values {mine.values!r}, xarray {their.values!r}")
        if attrs and not xr.core.utils.dict_equiv(mine.attrs, their.attrs):
            found.append(f"{name}: attributes {mine.attrs}, xarray {their.attrs}")
    if attrs and not xr.core.utils.dict_equiv(ours.attrs, theirs.attrs):
        found.append(f"attributes {ours.attrs}, xarray {theirs.attrs}")
    return found


def _equal(mine: np.ndarray, their: np.ndarray) -> bool:
    if mine.dtype.kind in "OSUT" or their.dtype.kind in "OSUT":
        pairs = zip(mine.astype(object).flat, their.astype(object).flat, strict=True)
        return all(one == other or (one != one and other != other) for one, other in pairs)
    return bool(np.array_equal(mine, their, equal_nan=mine.dtype.kind in "fcmM"))
