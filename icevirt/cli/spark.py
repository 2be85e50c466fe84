"""Implement ``icevirt spark-script``: the path of what ``spark-submit`` runs."""

from __future__ import annotations

import os

import typer

import icevirt


def spark_script() -> None:
    """Print the path of what spark-submit runs: spark-submit $(icevirt spark-script) build ..."""
    typer.echo(os.path.join(os.path.dirname(os.path.abspath(icevirt.__file__)), "__main__.py"))
