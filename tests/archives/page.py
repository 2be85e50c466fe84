"""Write docs/archives.md: what each archive of the catalog is, the commands that build it, the verdict."""

import inspect
from collections.abc import Mapping

from archives.archive import CATALOG, Archive, Outcome, proposed

HEAD = """\
# Archives that were tried

Find the archive that is most like yours, and start with its command. Where a line has two commands, the error of the
first one printed the second.

Each line is a small archive. "files of" names what wrote its files; "like" means that the test writes files with the
structure, encodings and names that this tool or center is known for. Files of iris-sample-data are real.

The test `tests/archives/test_archives.py` runs the commands, and compares the dataset with what xarray makes of the
same files. "equal" means: variables, dimensions, data types, decoded values and attributes are equal. The test writes
files of xarray, netCDF4, h5netcdf, h5py and iris with these libraries. Outputs of CDO, NCO, nccopy, GDAL and h5repack
are committed with the commands that made them (`fixtures/archives/`). `just archives` writes this page.

"""
"""Of the page."""


_RUN_HERE = ("xarray", "netCDF4", "h5netcdf", "h5py", "iris", "icevirt")  # by the test itself


def _tool(made: Archive) -> str:
    """Return what wrote the files, or what they are like."""
    is_own = "unpacked(" in inspect.getsource(made.make) or "iris" in made.tool
    return made.tool if is_own or made.tool.startswith(_RUN_HERE) else f"like {made.tool}"


def _reason(error: str) -> str:
    """Return what happened, without values that differ from run to run."""
    (said,) = [each for each in error.splitlines() if each.startswith("icevirt: ")][:1]
    return said.removeprefix("icevirt: ").partition(" (")[0].replace("|", "\\|")


def line(name: str, outcome: Outcome) -> str:
    """Return the line of an archive."""
    made = next(each for each in CATALOG if each.name == name)
    commands = "<br>".join(f"`{each}`" for each in outcome.steps)
    if outcome.dataset is None:
        ways = ", ".join(f"`{each}`" for each in proposed(outcome.why))
        verdict = f"refused: {_reason(outcome.why)}" + (f"; offered: {ways}" if ways else "")
    else:
        verdict = "equal"
    return f"| {made.kind} | {_tool(made)} | {commands} | {verdict} |"


def page(lines: Mapping[str, str]) -> str:
    """Return the page; lines by name of the archive."""
    rooms: dict[str, list[str]] = {}
    for each in CATALOG:
        rooms.setdefault(each.make.__module__.rpartition(".")[2], []).append(lines[each.name])
    text = HEAD
    for room, found in rooms.items():
        text += f"## {room.replace('_', ' ').capitalize()}\n\n"
        text += "| archive | files of | commands | result |\n| --- | --- | --- | --- |\n"
        text += "\n".join(found) + "\n\n"
    return text.rstrip("\n") + "\n"
