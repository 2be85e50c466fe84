"""Implement ``icevirt demo``: a build from three months of a real ocean model.

It calls the functions that a user's own program would call, and checks one promise before the
user's eyes: the repository returns what h5py reads from the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icevirt.cli.options import ExecutorOption, ExecutorWord, OutputOption, running_on
from icevirt.cli.output import CommandResult, Output, progress
from icevirt.errors import refuse_missing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icevirt.archive.reports.build import BuildReport, RepositorySummary

_VARIABLE = "tos"  # sea surface temperature


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the demo built and then read."""

    files: tuple[str, ...]
    report: BuildReport
    summary: RepositorySummary
    dataset: str  # as xarray prints it
    means: dict[str, float]  # month -> degrees
    equal: bool  # the raw values, through the repository and in the files

    def __rich__(self) -> RenderableType:
        """Draw the demo as the four steps it took."""
        from rich.console import Group
        from rich.text import Text

        from icevirt.display.render import render
        from icevirt.escaping import escape_line

        parts: list[RenderableType] = []
        for title, what in (
            ("1. The files", "\n".join(map(escape_line, self.files))),
            (
                "2. icevirt.build(files, repo, concat_dim='time_counter', combine='nested')",
                self.report,
            ),
            ("3. icevirt.info(repo)", self.summary),
            ("4. xr.open_dataset(repo, engine='icevirt', ...)", self.dataset),
            ("5. Mean sea surface temperature, unweighted over ocean points", self._table()),
        ):
            shown = Text(what) if isinstance(what, str) else render(what)
            parts += [Text(title, "bold cyan"), shown, Text()]
        return Group(*parts[:-1])

    def _table(self) -> str:
        rows = [f"  {month}  {mean:6.3f} °C" for month, mean in self.means.items()]
        verdict = "equal" if self.equal else "DIFFERENT FROM"
        return "\n".join([*rows, f"  every value {verdict} to h5py's reading of the files"])


def demo(
    repo: Annotated[
        str, typer.Argument(help="Where the repository goes; an earlier demo is replaced.")
    ] = "icevirt-demo",
    executor: ExecutorOption = ExecutorWord.auto,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Build a virtual dataset over real ocean-model files, open it, and compute with it."""
    import icevirt

    files = sample_files()
    with running_on(executor), progress(quiet=output is Output.json) as listener:
        report = icevirt.build(
            files,
            repo,
            concat_dim="time_counter",
            mode="w",
            combine_options={"combine": "nested"},  # each file says that it is step 0
            commit_options={"message": "demo"},
            progress=listener,
        )
    dataset, means, equal = read(report, files)
    value = Demo(
        files=tuple(files),
        report=report,
        summary=icevirt.info(repo),
        dataset=dataset,
        means=means,
        equal=equal,
    )
    return CommandResult(value=value, output=output)


def sample_files() -> list[str]:
    """Return the months of the NEMO ocean model in the package iris-sample-data.

    Raises:
        MissingPackageError: The package is not installed.
    """
    with refuse_missing("icevirt demo", extra="demo"):
        import iris_sample_data
    return sorted(map(str, (Path(iris_sample_data.path) / "NEMO").glob("*.nc")))


def read(report: BuildReport, files: list[str]) -> tuple[str, dict[str, float], bool]:
    """Open the dataset; return its text, monthly means, and whether its values are the files'."""
    import numpy as np
    import xarray as xr

    with xr.open_dataset(
        report.repo, engine="icevirt", authorize_virtual_chunk_access=report.containers
    ) as dataset:
        shown = str(dataset)  # before anything of it is read
        values = dataset[_VARIABLE]
        means = values.mean(("y", "x"))
        months = [moment.strftime("%Y-%m") for moment in dataset["time_centered"].values]
        by_month = dict(zip(months, map(float, means.values), strict=True))
        expected, found = np.concatenate([_raw(path) for path in files]), values.values
        is_equal = expected.dtype == found.dtype and np.array_equal(expected, found, equal_nan=True)
        return shown, by_month, bool(is_equal)


def _raw(path: str) -> Any:
    """Return the values that h5py reads, with NaN instead of the fill value."""
    import h5py
    import numpy as np

    with h5py.File(path) as file:
        found, fill = file[_VARIABLE][:], file[_VARIABLE].attrs["_FillValue"]
    return np.where(found == fill, np.float32("nan"), found)
