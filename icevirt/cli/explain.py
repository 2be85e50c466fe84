"""Implement ``icevirt explain``: what the code of an error means."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output
from icevirt.display.explanations import explanation, explanations


def explain(
    code: Annotated[
        str,
        typer.Argument(
            help="The code of an error, like combine, or its class, like CombineError. "
            "Default: list all codes.",
        ),
    ] = "",
    output: OutputOption = Output.text,
) -> CommandResult:
    """Explain the code of an error: what it means, usual causes, and what to do."""
    return CommandResult(value=explanation(code) if code else explanations(), output=output)
