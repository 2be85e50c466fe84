"""Implement ``icevirt spark-script``, what ``spark-submit`` runs, and ``icevirt spark-classes``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

import icevirt
from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icevirt.execution.class_archive_maker import ClassArchive


def spark_script() -> None:
    """Print the path of what spark-submit runs: spark-submit $(icevirt spark-script) build ..."""
    typer.echo(os.path.join(os.path.dirname(os.path.abspath(icevirt.__file__)), "__main__.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchiveChange:
    """What was made or removed."""

    archive: ClassArchive | None  # with which sessions start now
    freed: int = 0  # bytes

    def __rich__(self) -> RenderableType:
        """Say what sessions do now."""
        from icevirt.display.text import size, words

        if (found := self.archive) is None:
            return words(f"removed {size(self.freed)}: Spark starts without an archive of classes")
        state = "made" if found.is_new else "there is already"
        return words(
            f"{state} {found.path} ({size(found.size)}): Spark sessions that icevirt starts here"
            f" with Java {found.java_version} use it"
        )


def spark_classes(
    *,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove what the command made earlier.")
    ] = False,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Store the classes that Spark loads, so that sessions that icevirt starts here begin sooner.

    Takes a minute or two and 170 MiB in your cache directory, once for each Java and Spark. What
    was not used for 90 days is removed. The file is Java's: class data sharing (CDS).
    """
    if remove:
        from icevirt.execution.class_archive import remove_archives

        return CommandResult(
            value=ClassArchiveChange(archive=None, freed=remove_archives()), output=output
        )

    from icevirt.execution.class_archive_maker import make_class_archive

    def note() -> None:
        if output is Output.text:
            sys.stderr.write("icevirt: starting Spark, then storing its classes\n")

    made = make_class_archive(before=note)
    return CommandResult(value=ClassArchiveChange(archive=made), output=output)
