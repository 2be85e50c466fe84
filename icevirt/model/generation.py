"""Describe the format generations that came before V1: who wrote them, what they may lack.

icevirt reads such repositories, and writes none: see ``docs/formats.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import NoReturn

from icevirt.errors import ReadOnlyRepositoryError
from icevirt.redaction import without_secrets

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatGeneration:
    """Versions of icechunk that wrote files of one encoding."""

    name: str  # "E4"
    writers: str  # "icechunk 0.1.0a10"
    written: str  # "January 2025"
    lacks: tuple[str, ...] = ()  # what V2 repositories have and these do not


@dataclass(frozen=True, slots=True)
class OldFormat:
    """The format generation of a repository that was opened."""

    generation: FormatGeneration
    url: str  # of the repository

    def __str__(self) -> str:
        """Return "format generation E4 (icechunk 0.1.0a10, January 2025)"."""
        found = self.generation
        return f"format generation {found.name} ({found.writers}, {found.written})"

    @property
    def what(self) -> str:
        """What it is, and what to expect of it."""
        lacks = "; ".join(self.generation.lacks)
        description = f"this repository has the {self}, which icevirt reads and does not write"
        return description + (f". What may be missing: {lacks}" if lacks else "")

    @property
    def do(self) -> str:
        """The command that makes a repository of today out of it."""
        url = without_secrets(self.url)
        return f"To get a V2 repository: icevirt upgrade {quote(url)} {quote(url + '-v2')}"

    @property
    def description(self) -> str:
        """What it is, and what to do."""
        return f"{self.what}. {self.do}"

    def warn(self) -> None:
        """Warn the code that opens it."""
        warnings.warn(self.description, OldFormatWarning, skip_file_prefixes=(_PACKAGE,))

    def refuse(self) -> NoReturn:
        """Refuse a change, or what only V2 can do.

        Raises:
            ReadOnlyError: Always.
        """
        raise ReadOnlyRepositoryError(self.what, do=self.do)


class OldFormatWarning(UserWarning):
    """A repository has a format generation that no client writes any more."""


@contextmanager
def without_old_format_warning() -> Iterator[None]:
    """Leave out the warning in a block whose report or refusal says the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OldFormatWarning)
        yield
