"""Draw the history of a repository, one lane per branch, as text or SVG.

A branch owns its snapshots down to the first that an earlier lane owns; `main` is the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from icevirt.escaping import escape_html, escape_line
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo
from icevirt.versioning import lookup, repo_updates

_COLOURS = ((183, 228, 0), (166, 83, 255), (94, 196, 247), (255, 158, 13), (248, 129, 209))
_LONGEST = 60  # letters of a message
_STEP, _ROW, _LEFT = 20, 28, 15  # of the SVG, in pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A row of the picture."""

    id: str
    lane: int
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    message: str
    joins: tuple[int, ...]  # lanes whose oldest snapshot has this one as its parent
    passing: tuple[int, ...]  # lanes that come from above and do not belong to it
    goes_on: bool  # whether its own lane leads further down

    @property
    def below(self) -> list[int]:
        """The lanes that lead on to the next row."""
        going = [lane for lane in self.passing if lane not in self.joins]
        return sorted([*going, self.lane] if self.goes_on else going)

    @property
    def text(self) -> str:
        """The text beside the lanes."""
        names = ", ".join((*self.branches, *self.tags))
        refs = f" ({names})" if names else ""
        return escape_line(f"{self.id[:8]}{refs} {self.message}".rstrip())


@dataclass(frozen=True, slots=True, kw_only=True)
class AncestryGraph:
    """The history as a graph; ``print`` shows text, in color unless ``plain``, notebooks SVG."""

    commits: tuple[Commit, ...]  # newest first
    lanes: int
    plain: bool

    def __str__(self) -> str:
        rows = []
        for commit in self.commits:
            cells = "".join(self._cell(commit, lane) for lane in range(self.lanes))
            going = commit.below
            between = "".join(
                f"{self._color('│', lane)} " if lane in going else "  "
                for lane in range(self.lanes)
            )
            rows.append(f"{cells}{commit.text}\n{between.rstrip()}\n")
        return "".join(rows)

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        left = _LEFT + self.lanes * _STEP
        shapes = [self._draw(row, commit, left) for row, commit in enumerate(self.commits)]
        width = left + 8 * max((len(commit.text) for commit in self.commits), default=0)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"'
            f' height="{_ROW * len(self.commits)}" style="font-family: monospace">'
            f"{''.join(shapes)}</svg>"
        )

    def _cell(self, commit: Commit, lane: int) -> str:
        """Return the two letters of one lane in the row of a snapshot."""
        last = max(commit.joins, default=commit.lane)
        rule = "─" if commit.lane <= lane < last else " "
        if lane == commit.lane:
            return self._color("●", lane) + rule
        if lane in commit.joins:
            return self._color("╯", lane) + rule
        if lane in commit.passing:
            return self._color("┼" if rule == "─" else "│", lane) + rule
        return rule * 2

    def _color(self, letter: str, lane: int) -> str:
        if self.plain:
            return letter
        red, green, blue = _COLOURS[lane % len(_COLOURS)]
        return f"\x1b[38;2;{red};{green};{blue}m{letter}\x1b[0m"

    def _draw(self, row: int, commit: Commit, left: int) -> str:
        """Return the shapes of one row: lanes that lead down, its circle, and its text."""
        y, x = _ROW * row + _LEFT, _LEFT + commit.lane * _STEP
        colour = "#888" if self.plain else f"rgb{_COLOURS[commit.lane % len(_COLOURS)]}"
        down = [_LEFT + lane * _STEP for lane in commit.below]
        lines = [(at, y, at, y + _ROW) for at in down]
        lines += [(_LEFT + lane * _STEP, y - _ROW, x, y) for lane in commit.joins]
        return (
            "".join(
                f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="#888"/>' for a, b, c, d in lines
            )
            + f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>'
            + f'<text x="{left}" y="{y + 4}" font-size="13">{escape_html(commit.text)}</text>'
        )


def graph(info: RepoInfo, tips: Mapping[str, ObjectId12], *, plain: bool) -> AncestryGraph:
    """Draw the histories of some tips, by the names of their lanes in order.

    Raises:
        FormatError: The parents form a cycle.
    """
    owner: dict[ObjectId12, int] = {}
    for lane, tip in enumerate(tips.values()):
        for snapshot in lookup.ancestry(info, tip):
            if snapshot.id in owner:
                break
            owner[snapshot.id] = lane
    newest_first = sorted(owner, key=lambda key: info.snapshots[key].flushed_at, reverse=True)
    first = {owner[key]: row for row, key in reversed([*enumerate(newest_first)])}
    rows = {key: row for row, key in enumerate(newest_first)}
    ends = dict.fromkeys(first, -1)  # the row in which each lane joins another, or its last one
    joins: dict[ObjectId12, list[int]] = {key: [] for key in owner}
    for key, lane in owner.items():
        parent = info.snapshots[key].parent_id
        ends[lane] = max(ends[lane], rows[key if parent is None else parent])
        if parent is not None and owner[parent] != lane:
            joins[parent].append(lane)
    branches, tags = lanes(info.branches), dict(sorted(info.tags.items()))
    commits = []
    for key, row in rows.items():
        line = info.snapshots[key].message.split("\n", 1)[0]
        commits.append(
            Commit(
                id=str(key),
                lane=owner[key],
                branches=tuple(name for name, at in branches.items() if at == key),
                tags=tuple(name for name, at in tags.items() if at == key),
                message=line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "...",
                joins=tuple(sorted(joins[key])),
                passing=tuple(n for n in first if first[n] < row <= ends[n] and n != owner[key]),
                goes_on=row < ends[owner[key]],
            )
        )
    return AncestryGraph(commits=tuple(commits), lanes=len(tips), plain=plain)


def lanes(branches: Mapping[str, ObjectId12]) -> dict[str, ObjectId12]:
    """Return branches in the order of their lanes."""
    return dict(sorted(branches.items(), key=lambda item: (item[0] != repo_updates.MAIN, item[0])))
