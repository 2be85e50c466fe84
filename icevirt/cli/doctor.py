"""``icevirt doctor``: whether a repository is sound."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli.output import Answer, Output, OutputOption


def doctor(
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    output: OutputOption = Output.text,
) -> Answer:
    """Check every invariant of a repository; the status is 1 when something is wrong."""
    import icevirt

    report = icevirt.check(repo)
    return Answer(value=report, output=output, status=0 if report.ok else 1)
