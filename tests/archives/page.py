"""Write docs/archives.md: what each archive of the catalog is, the commands that build it, the verdict."""

from collections.abc import Mapping

from archives.archive import CATALOG, Outcome, proposed

HEAD = """\
# Archives that were tried

Each line is an archive as another tool writes it. The test `tests/archives/test_archives.py` builds it with the
commands below and compares the result with xarray: variables, dimensions, data types, decoded values, attributes.
Where two commands stand, the error of the first one printed the second. `just archives` writes this page.

"""
"""Of the page."""


def line(name: str, outcome: Outcome) -> str:
    """Return the line of an archive."""
    made = next(each for each in CATALOG if each.name == name)
    commands = "<br>".join(f"`{each}`" for each in outcome.steps)
    if outcome.dataset is None:
        ways = ", ".join(f"`{each}`" for each in proposed(outcome.why))
        verdict = f"refused: {made.refused}" + (f"; offered: {ways}" if ways else "")
    else:
        verdict = "equal"
    return f"| {made.kind} | {made.tool} | {commands} | {verdict} |"


def page(lines: Mapping[str, str]) -> str:
    """Return the page; lines by name of the archive."""
    rooms: dict[str, list[str]] = {}
    for each in CATALOG:
        rooms.setdefault(each.make.__module__.rpartition(".")[2], []).append(lines[each.name])
    text = HEAD
    for room, found in rooms.items():
        text += f"## {room.replace('_', ' ').capitalize()}\n\n"
        text += "| archive | written by | commands | result |\n| --- | --- | --- | --- |\n"
        text += "\n".join(found) + "\n\n"
    return text.rstrip("\n") + "\n"
