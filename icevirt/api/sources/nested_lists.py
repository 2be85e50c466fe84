"""Read nested lists of sources, which give the position of each file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from icevirt.api.sources.inputs import Sources
from icevirt.archive.scanned import SourceFile
from icevirt.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedSources:
    """Sources, each one file, and the place of each along every dimension."""

    sources: tuple[Any, ...]
    places: tuple[tuple[int, ...], ...]

    def by_url(self, files: Sequence[SourceFile]) -> dict[str, tuple[int, ...]]:
        """Return the places of the listed files.

        Raises:
            InvalidInputError: A source is not exactly one file, or a file occurs twice.
        """
        if len(files) != len(self.places):
            raise InvalidInputError(
                f"{len(self.places)} nested sources are {len(files)} files",
                do="Name each file once, without patterns and directories.",
            )
        return {file.url: place for file, place in zip(files, self.places, strict=True)}


def nest_of(
    sources: Sources | None, dimensions: Sequence[str], combine: str
) -> NestedSources | None:
    """Read nested lists, as deep as there are dimensions; None where files lie in the order given.

    A missing file is None.

    Raises:
        InvalidInputError: The lists are less deep or deeper.
    """
    if combine != "nested" or len(dimensions) < 2:
        return None
    found = list(_leaves(sources, len(dimensions), ()))
    return NestedSources(
        sources=tuple(source for source, _ in found), places=tuple(place for _, place in found)
    )


def _leaves(
    sources: Any, depth: int, place: tuple[int, ...]
) -> Iterator[tuple[Any, tuple[int, ...]]]:
    is_list = isinstance(sources, Iterable) and not isinstance(sources, str | bytes | os.PathLike)
    if is_list != bool(depth):
        raise InvalidInputError(
            "nested sources need one level of lists per dimension in concat_dim",
            do='For ["init", "member"] pass [[member 1, member 2], [member 1, member 2]].',
            found=sources if isinstance(sources, str) else type(sources).__name__,
        )
    if not depth:
        yield sources, place
        return
    for at, each in enumerate(cast("Iterable[Any]", sources)):
        if each is not None:
            yield from _leaves(each, depth - 1, (*place, at))
