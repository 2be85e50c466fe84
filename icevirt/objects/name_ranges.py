"""Divide the names of a long folder into ranges, which a bucket lists side by side.

A listing is a chain of pages, each asked for with the last name of the page before. A million
chunks of one folder are a thousand pages. Names of chunks are numbers, so it is known which names
may follow: ranges of them are listed each from its first name on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_NUMBER = re.compile("[0-9]+")


@dataclass(frozen=True, slots=True)
class Names:
    """A folder of a bucket, or a range of the paths below it."""

    folder: str
    after: str = ""  # the range begins behind this path; "": at the first
    until: str = ""  # the range ends with this path; "": at the last

    def divide(self, last: str) -> list[Names]:
        """Divide the paths behind one into ranges, each from a larger number on.

        The ranges together hold every path of this one behind ``last``, whatever its form.

        Args:
            last: The last path that is known. Its numbers only say where cutting is worth while.
        """
        ends = sorted(each for each in _paths_behind(last, len(self.folder), self.until))
        paths = [last, *ends, self.until]
        return [Names(self.folder, after, until) for after, until in pairwise(paths)]


def _paths_behind(last: str, begin: int, until: str) -> Iterator[str]:
    """Yield beginnings of paths that sort behind one: its first number that can grow is larger."""
    for number in _NUMBER.finditer(last, begin):
        longer = last[: number.end()] + "0"
        found = [longer]
        for at in range(number.start(), number.end()):
            found += [last[:at] + str(digit) for digit in range(int(last[at]) + 1, 10)]
        inside = [each for each in found if each > last and (not until or each < until)]
        if inside != [longer] and inside:
            yield from inside
            return
